"""Random trees of every kind of entry, random work on them, and what is on disk, read without any of our code."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

from hypothesis import strategies as st

ROOT = os.geteuid() == 0
LONG = b"n" * 255
NAMES = [
    b"a", b"b", b"c", b"d", b"e.txt", b".env", b"two words", b"new\nline", b"it's \"quoted\"", b"tab\t", b"-rf", b"*", b"\\n",
    b"\xff\xfe\x80", "한글".encode(), "é".encode("latin-1"), LONG, b"#hash", b"!not", b".GIT", b".gitignored",
]  # fmt: skip
SIZES = [0, 1, 2, 63, 64, 65, 200, 5000, 70_000]
MODES = [0o644, 0o755, 0o600, 0o777, 0o400, 0o444, 0o2755, 0o1777, 0o4755, 0o7777, 0o000, 0o111, 0o020]
TARGETS = [b"nowhere", b"/nonexistent/\xff", b".", b"..", b"a", b"b/c", b"loop", b"/", b"new\nline", b"x" * 1000]
RULES = [b"*\n", b"/*\n", b"a\n", b"b/\n", b"*.txt\n!e.txt\n", b"c/**/d\n", b"", b"two words\n.env\n", b"/d/\n!/d/a\n"]

Step = tuple[int, int, int, int]
numbers = st.integers(0, 10_000)
steps = st.tuples(numbers, numbers, numbers, numbers)
rounds = st.builds(
    lambda first, further: [first, *further],
    st.lists(steps, min_size=3, max_size=30),
    st.lists(st.lists(steps, max_size=10), min_size=1, max_size=6),
)
"""What happens before each save. A step is a number for the deed and three for its circumstances."""


def disk(root: Path) -> dict[bytes, tuple[str, int, bytes]]:
    """Kind, mode and content (bytes, target) of everything below the root but `.keepfast` and folders named `.git`.

    Kinds are those of a checkpoint: f, l, d, and s for what is neither.
    """
    found: dict[bytes, tuple[str, int, bytes]] = {}

    def look(folder: int, prefix: bytes) -> None:
        for text in os.listdir(folder):
            name = os.fsencode(text)
            seen = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if name == b".keepfast" or (name == b".git" and stat.S_ISDIR(seen.st_mode)):
                continue
            mode = stat.S_IMODE(seen.st_mode)
            if stat.S_ISDIR(seen.st_mode):
                found[prefix + name] = "d", mode, b""
                inside = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
                try:
                    look(inside, prefix + name + b"/")
                finally:
                    os.close(inside)
            elif stat.S_ISLNK(seen.st_mode):
                found[prefix + name] = "l", 0o777, os.fsencode(os.readlink(name, dir_fd=folder))
            elif stat.S_ISREG(seen.st_mode):
                with open(os.open(name, os.O_RDONLY, dir_fd=folder), "rb") as file:
                    found[prefix + name] = "f", mode, file.read()
            else:
                found[prefix + name] = "s", mode, b""

    start = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        look(start, b"")
    finally:
        os.close(start)
    return found


def remove(path: bytes) -> None:
    if subprocess.run([b"rm", b"-rf", b"--", path], stderr=subprocess.DEVNULL, check=False).returncode:
        raise OSError("rm has its limits too")


class Agent:
    """Works in a folder as an agent would, only more wildly. What cannot be done is left undone."""

    def __init__(self, root: Path) -> None:
        self.root = os.fsencode(root)
        self.count = 0

    def work(self, step: Step) -> None:
        deed, *rest = step
        try:
            DEEDS[deed % len(DEEDS)](self, *rest)
        except OSError:
            pass  # a name too long, a folder into itself: no such thing on this disk

    # Choosing

    def paths(self, want: Callable[[str], bool]) -> list[bytes]:
        found = []
        for folder, folders, files in os.walk(self.root):
            folders[:] = sorted(name for name in folders if name not in (b".git", b".keepfast"))
            for name in sorted([*folders, *files]):
                path = os.path.join(folder, name)
                if name != b".git" and want(os.fsdecode(path)):
                    found.append(path)
        return found

    def file(self, number: int) -> bytes:
        return self._one([path for path in self.paths(os.path.isfile) if not os.path.islink(path)], number)

    def folder(self, number: int) -> bytes:
        return self._one([self.root, *self.folders()], number)

    def folders(self) -> list[bytes]:
        return [path for path in self.paths(os.path.isdir) if not os.path.islink(path)]

    def anything(self, number: int) -> bytes:
        return self._one(self.paths(lambda path: True), number)

    def place(self, a: int, b: int) -> bytes:
        return self.folder(a) + b"/" + NAMES[b % len(NAMES)]

    def _one(self, paths: list[bytes], number: int) -> bytes:
        if not paths:
            raise FileNotFoundError
        return paths[number % len(paths)]

    def content(self, number: int) -> bytes:
        self.count += 1
        size = SIZES[number % len(SIZES)]
        if number % 97 == 13:
            size = (4 << 20) + number  # streamed and chunked
        return (b"%d " % self.count * (size // 2 + 1))[:size]

    # Deeds

    def write(self, a: int, b: int, c: int) -> None:
        # Not through a link, which may lead out of the workspace, nor into a pipe, where nobody reads.
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK
        with open(os.open(self.place(a, b), flags, 0o644), "wb") as file:
            file.write(self.content(c))

    def edit_keeping_size(self, a: int, b: int, c: int) -> None:
        with open(self.file(a), "r+b") as file:
            size = os.fstat(file.fileno()).st_size
            if size:
                file.seek(b % size)
                old = file.read(1)
                file.seek(b % size)
                file.write(bytes([old[0] ^ 1 + c % 255]))

    def append(self, a: int, b: int, c: int) -> None:
        with open(self.file(a), "ab") as file:
            file.write(self.content(b % 8))

    def truncate(self, a: int, b: int, c: int) -> None:
        path = self.file(a)
        os.truncate(path, b % (os.path.getsize(path) + 1))

    def stretch(self, a: int, b: int, c: int) -> None:
        os.truncate(self.file(a), 50_000 + b)  # sparse

    def chmod(self, a: int, b: int, c: int) -> None:
        path = self.anything(a)
        if os.path.islink(path):
            return
        mode = MODES[b % len(MODES)]
        os.chmod(path, mode if ROOT else mode | 0o700)

    def rename(self, a: int, b: int, c: int) -> None:
        os.rename(self.anything(a), self.place(b, c))

    def delete(self, a: int, b: int, c: int) -> None:
        remove(self.anything(a))

    def mkdir(self, a: int, b: int, c: int) -> None:
        os.mkdir(self.place(a, b))

    def link(self, a: int, b: int, c: int) -> None:
        os.symlink(TARGETS[c % len(TARGETS)], self.place(a, b))

    def hard_link(self, a: int, b: int, c: int) -> None:
        os.link(self.file(a), self.place(b, c))

    def break_hard_link(self, a: int, b: int, c: int) -> None:
        path = self.file(a)
        data = Path(os.fsdecode(path)).read_bytes()
        temporary = os.path.dirname(path) + b"/.swap"
        Path(os.fsdecode(temporary)).write_bytes(data)
        os.rename(temporary, path)

    def pipe(self, a: int, b: int, c: int) -> None:
        os.mkfifo(self.place(a, b))

    def socket(self, a: int, b: int, c: int) -> None:
        folder = os.open(self.folder(a), os.O_RDONLY)
        try:
            with socket.socket(socket.AF_UNIX) as server:  # the address of a socket has at most 108 bytes
                server.bind(f"/proc/self/fd/{folder}/".encode() + NAMES[b % len(NAMES)][:20])
        finally:
            os.close(folder)

    def device(self, a: int, b: int, c: int) -> None:
        os.mknod(self.place(a, b), 0o600 | stat.S_IFCHR, os.makedev(1, 3))

    def touch(self, a: int, b: int, c: int) -> None:
        os.utime(self.anything(a), ns=(b, [0, c * 10**15, -c * 10**9, 1 << 63][b % 4]), follow_symlinks=False)

    def replace_by_another_kind(self, a: int, b: int, c: int) -> None:
        path = self.anything(a)
        remove(path)
        if b % 3 == 0:
            Path(os.fsdecode(path)).write_bytes(self.content(c))
        elif b % 3 == 1:
            os.symlink(TARGETS[c % len(TARGETS)], path)
        else:
            os.mkdir(path)
            Path(os.fsdecode(path + b"/inside")).write_bytes(self.content(c))

    def move_and_leave_a_link(self, a: int, b: int, c: int) -> None:
        path, new = self._one(self.folders(), a), self.place(b, c)
        os.rename(path, new)
        os.symlink(new, path)

    def swap_folders(self, a: int, b: int, c: int) -> None:
        one, other = self._one(self.folders(), a), self._one(self.folders(), b)
        os.rename(one, self.root + b"/.swap")
        try:
            os.rename(other, one)
            os.rename(self.root + b"/.swap", other)
        except OSError:
            os.rename(self.root + b"/.swap", self.place(0, c))

    def change_rules(self, a: int, b: int, c: int) -> None:
        path = Path(os.fsdecode(self.folder(a) + b"/.gitignore"))
        if b % 4:
            path.write_bytes(RULES[c % len(RULES)])
        else:
            path.unlink()

    def make_a_repository(self, a: int, b: int, c: int) -> None:
        path = self.folder(a) + b"/.git"
        if os.path.lexists(path):
            remove(path)
        elif b % 2:
            os.makedirs(path + b"/info")
            Path(os.fsdecode(path + b"/HEAD")).write_text("ref: refs/heads/main\n")
            Path(os.fsdecode(path + b"/info/exclude")).write_bytes(RULES[c % len(RULES)])
        else:
            Path(os.fsdecode(path)).write_text("gitdir: elsewhere\n")

    def tag(self, a: int, b: int, c: int) -> None:
        path = Path(os.fsdecode(self.folder(a) + b"/CACHEDIR.TAG"))
        if b % 3:
            path.write_bytes(b"Signature: 8a477f597d28d172789f06886806bc55\n"[c % 2 :])
        else:
            path.unlink()

    def dig(self, a: int, b: int, c: int) -> None:
        """Make a path of more than 4,096 bytes, with a file and a link at its end."""
        fd = os.open(self.root, os.O_RDONLY)
        for level in range(15 + b % 10):
            name = b"%d" % level + LONG[:240]
            try:
                os.mkdir(name, dir_fd=fd)
            except FileExistsError:
                pass
            inside = os.open(name, os.O_RDONLY, dir_fd=fd)
            os.close(fd)
            fd = inside
        with open(os.open(b"deep", os.O_WRONLY | os.O_CREAT, dir_fd=fd), "wb") as file:
            file.write(self.content(c))
        try:
            os.symlink(b"deep", b"deep link", dir_fd=fd)
        finally:
            os.close(fd)


DEEDS: list[Callable[[Agent, int, int, int], None]] = [
    Agent.write, Agent.write, Agent.write, Agent.mkdir, Agent.mkdir,
    Agent.edit_keeping_size, Agent.edit_keeping_size, Agent.append, Agent.truncate, Agent.stretch, Agent.chmod,
    Agent.rename, Agent.rename, Agent.delete, Agent.link, Agent.hard_link, Agent.break_hard_link,
    Agent.pipe, Agent.socket, Agent.device, Agent.touch, Agent.replace_by_another_kind, Agent.replace_by_another_kind,
    Agent.move_and_leave_a_link, Agent.swap_folders, Agent.change_rules, Agent.make_a_repository, Agent.tag, Agent.dig,
]  # fmt: skip
