"""Start a hook: import our modules the shortest way, run the front end, end the process without tearing it down."""

import gc
import sys
from _frozen_importlib import ModuleSpec
from _frozen_importlib_external import MAGIC_NUMBER, SourceFileLoader
from marshal import loads
from posix import O_CLOEXEC, O_RDONLY, _exit, close, execv, read, stat, write
from posix import open as open_fd

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import CodeType, ModuleType

COMPILED = f".{sys.implementation.cache_tag}.pyc"
HEAD, BY_TIME = 16, b"\0\0\0\0"
INCOMPLETE = 3
"""Exit code for the launcher (agents/launcher.py), which hides it from the client: files of ours are missing."""
MAX_BYTES = 64 << 10
"""Larger files are left to Python: allocating and freeing a larger buffer for every file costs time."""


class CompiledLoader(SourceFileLoader):
    """Python's own loader, given the compiled code."""

    code: "CodeType"

    def get_code(self, fullname: str) -> "CodeType":
        return self.code


class Finder:
    """Finds our own modules if they are compiled and up to date; everything else, and every doubt, is left to Python.

    Python lists every folder and tries eight endings: for 25 modules that is 1 ms of an unchanged save.
    """

    def __init__(self, above: str) -> None:
        self.above = [above]

    def find_spec(
        self, name: str, path: "Sequence[str] | None" = None, target: "ModuleType | None" = None
    ) -> ModuleSpec | None:
        if not name.startswith("keepfast"):
            return None
        place = f"{(path or self.above)[0]}/{name.rpartition('.')[2]}"
        # Packages lie at the top; deeper, nearly everything is a file.
        inner = ("/__init__", "") if name.count(".") < 2 else ("", "/__init__")
        return _spec(name, place, inner[0]) or _spec(name, place, inner[1])


def _spec(name: str, place: str, inner: str) -> ModuleSpec | None:
    source = f"{place}{inner}.py"
    folder, _, last = source.rpartition("/")
    compiled = f"{folder}/__pycache__/{last[:-3]}{COMPILED}"
    try:
        fd = open_fd(compiled, O_RDONLY | O_CLOEXEC)
        try:
            raw = read(fd, MAX_BYTES)
        finally:
            close(fd)
        seen = stat(source)
    except OSError:
        return None
    # Magic number, mode, time and size, as Python compares them.
    if raw[:HEAD] != MAGIC_NUMBER + BY_TIME + _low(int(seen.st_mtime)) + _low(seen.st_size) or len(raw) == MAX_BYTES:
        return None
    loader = CompiledLoader(name, source)
    try:
        loader.code = loads(memoryview(raw)[HEAD:])
    except (EOFError, ValueError, TypeError):
        return None  # Python reports what is wrong with it
    spec = ModuleSpec(name, loader, origin=source, is_package=bool(inner))
    spec.has_location = True
    spec.cached = compiled
    if inner:
        spec.submodule_search_locations = [place]
    return spec


def _low(number: int) -> bytes:
    return (number & 0xFFFFFFFF).to_bytes(4, "little")


def start(here: str) -> None:
    """Run the verb of the command line and end the process. `here` is the folder of this file."""
    gc.disable()  # a save makes many values and drops few: collecting them costs more than it frees
    above = here + "/../.."
    library = f"/../lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
    # Behind the standard library: most that is loaded next is found there.
    sys.path += [above, sys.executable.rpartition("/")[0] + library]
    sys.meta_path.insert(0, Finder(above))
    folder = _identity(here)
    try:
        code = _run(sys.argv[1:])
        # A disk error (`()`) is no sign of an upgrade: then the failure counts.
        if code and _identity(here) not in (folder, ()):
            code = INCOMPLETE  # an upgrade replaced us meanwhile, which may be why it failed
    except (ImportError, SyntaxError, OSError) as error:
        code = INCOMPLETE
        write(2, f"{type(error).__name__}: {error}\n".encode("utf-8", "backslashreplace"))
        words = sys.argv[5:] if sys.argv[1:2] == ["--folders"] else sys.argv[1:]
        if words[:2] == ["statusline", "--then"] and len(words) == 3:
            execv("/bin/sh", ["/bin/sh", "-c", words[2]])
    sys.stdout.flush()
    sys.stderr.flush()
    # Tearing the interpreter down would take another millisecond.
    _exit(code)


def _run(arguments: "Sequence[str]") -> int:
    from keepfast.present.environment import split_folders

    folders, arguments = split_folders(arguments)
    verb, rest = arguments[:1], arguments[1:]
    if verb == ["hook"]:
        from keepfast.hook.main import main
    elif verb == ["statusline"]:
        from keepfast.hook.statusline import main
    elif verb == ["resident"] and folders is not None:
        from keepfast.hook.resident import main as stay

        gc.enable()
        return stay(folders)
    else:
        from keepfast.hook.autosave import run as main

        rest = arguments
    return main(rest, folders)


def _identity(folder: str) -> tuple[int, ...] | None:
    """Return what tells our folder from another one in its place; None if it is gone, nothing after a disk error."""
    try:
        seen = stat(folder)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        return ()
    return seen.st_ino, seen.st_mtime_ns
