from posix import stat_result

def take(
    folder: int, name: bytes, size: int, ctime: int, inode: int, uid: int, gid: int, /
) -> tuple[bytes, int, int, int, int] | None: ...
def listing(folder: int, sure: dict[bytes, int]) -> tuple[list[int], list[tuple[bytes, bool, stat_result | None]]]:
    """Of a `stat_result` only what a scan asks for is there."""

def keep_memory() -> None: ...
