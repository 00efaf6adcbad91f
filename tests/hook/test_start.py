"""A hook finds its modules by a shorter way than Python's, and what it finds is what Python would have found."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import keepfast

PACKAGES = ["keepfast", *(f"keepfast/{name}" for name in ("app", "hook", "fsutil", "model", "present", "state"))]
SHOW = """
import sys
sys.path.append({above!r})
from keepfast.hook import start
if {shortly}:
    sys.meta_path.insert(0, start.Finder({above!r}))
for name in [name for name in sys.modules if name.startswith("keepfast")]:
    del sys.modules[name]
from keepfast.workspace import marker
import keepfast.settings.last_good
for name in sorted(name for name in sys.modules if name.startswith("keepfast")):
    found = sys.modules[name]
    print(name, found.__file__, found.__cached__, found.__package__, list(getattr(found, "__path__", [])))
    print(found.__spec__.origin, found.__spec__.has_location, found.__loader__.get_source(name)[:40])
    print(type(found.__loader__).__name__, file=sys.stderr)
print(marker.identity.__doc__, getattr(marker, "PLANTED", None))
"""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Our package, compiled, in a place where it can be changed."""
    shutil.copytree(Path(keepfast.__file__).parent, tmp_path / "keepfast", ignore=shutil.ignore_patterns("__pycache__"))
    compile_all = [
        sys.executable,
        "-m",
        "compileall",
        "-q",
        "keepfast/workspace",
        "keepfast/settings",
        "keepfast/store",
        "-l",
    ]
    for command in (compile_all, [*compile_all[:4], *PACKAGES, "-l"]):
        env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        subprocess.run(command, cwd=tmp_path, check=True, env=env)
    return tmp_path


def show(copy: Path, shortly: bool) -> tuple[str, set[str]]:
    """What modules say of themselves, and by which loaders they came."""
    command = [sys.executable, "-I", "-S", "-B", "-c", SHOW.format(above=str(copy), shortly=shortly)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout, set(done.stderr.split())


def compiled(copy: Path, name: str) -> Path:
    source = copy / name
    return source.parent / "__pycache__" / f"{source.stem}.{sys.implementation.cache_tag}.pyc"


def test_modules_are_the_same_by_the_shorter_way(copy: Path) -> None:
    plain, loaders = show(copy, shortly=False)
    short, ours = show(copy, shortly=True)

    assert short == plain
    assert (loaders, ours) == ({"SourceFileLoader"}, {"CompiledLoader"})


@pytest.mark.parametrize("size", ["the same", "another"])
def test_a_source_that_was_changed_since_is_compiled_anew(copy: Path, size: str) -> None:
    source = copy / "keepfast" / "workspace" / "marker.py"
    text = source.read_text()
    if size == "another":
        text += "PLANTED = 1\n"
        source.write_text(text)
        seen = source.stat()
        os.utime(source, ns=(seen.st_atime_ns, int(compiled_at(copy) * 1e9)))
    else:
        source.write_text(
            text.replace("MAX_MARKER_SIZE = 65536", "PLANTED     = 1    ").replace("MAX_MARKER_SIZE", "65536      ")
        )
        os.utime(source, (1, 1))

    said, loaders = show(copy, shortly=True)

    assert said.endswith(" 1\n")
    assert loaders == {"CompiledLoader", "SourceFileLoader"}


def compiled_at(copy: Path) -> int:
    """The time of the source that the compiled file remembers."""
    return int.from_bytes(compiled(copy, "keepfast/workspace/marker.py").read_bytes()[8:12], "little")


@pytest.mark.parametrize("damage", ["cut", "empty", "version", "missing", "by hash"])
def test_what_is_odd_about_a_compiled_file_is_left_to_python(copy: Path, damage: str) -> None:
    path = compiled(copy, "keepfast/workspace/marker.py")
    raw = path.read_bytes()
    plain, _ = show(copy, shortly=False)
    path.unlink()
    if damage == "by hash":
        subprocess.run(
            [sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "checked-hash", "keepfast/workspace/marker.py"],
            cwd=copy, check=True, env={name: os.environ[name] for name in os.environ if name != "PYTHONDONTWRITEBYTECODE"},
        )  # fmt: skip
    elif damage != "missing":
        path.write_bytes({"cut": raw[:9], "empty": b"", "version": b"\0\0\0\0" + raw[4:]}[damage])

    said, loaders = show(copy, shortly=True)

    assert said == plain
    assert loaders == {"CompiledLoader", "SourceFileLoader"}
