"""Recognises network file systems and synced folders, where locks and fsync are not reliable."""

from __future__ import annotations

NETWORK_FILE_SYSTEMS = frozenset((
    "9p", "afs", "ceph", "cifs", "davfs", "fuse.davfs2", "fuse.glusterfs", "fuse.rclone", "fuse.s3fs", "fuse.sshfs",
    "fuse.vmhgfs-fuse", "glusterfs", "lustre", "nfs", "nfs4", "smb3", "smbfs", "vboxsf", "virtiofs",
))  # fmt: skip
SYNCED_FOLDERS = (
    "Dropbox", "Google Drive", "GoogleDrive", "Mobile Documents", "Nextcloud", "OneDrive", "Syncthing", "iCloud Drive",
    "ownCloud",
)  # fmt: skip


def is_remote(kind: str) -> bool:
    return kind in NETWORK_FILE_SYSTEMS


def synced_folder(path: str) -> str | None:
    """Return the part of the path that names a syncing program, such as Dropbox; None if there is none."""
    return next((part for part in path.split("/") if part in SYNCED_FOLDERS), None)


def file_system(path: str, mounted: list[tuple[str, str]]) -> str:
    """Return the type of the path's file system; empty if unknown."""
    best, kind = "", ""
    for where, its_kind in mounted:
        if (path == where or path.startswith(where.rstrip("/") + "/")) and len(where) >= len(best):
            best, kind = where, its_kind
    return kind


def mounts() -> list[tuple[str, str]]:
    """Return (folder, type) of every mount; empty if the system has no /proc/mounts."""
    try:
        with open("/proc/mounts", encoding="utf-8", errors="surrogateescape") as file:
            lines = [line.split(" ") for line in file]
    except OSError:
        return []
    return [(_unescaped(words[1]), words[2]) for words in lines if len(words) > 2]


def _unescaped(text: str) -> str:
    for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, char)
    return text
