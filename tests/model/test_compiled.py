"""The compiled modules: they keep to themselves, and one that was built from other sources is not used."""

from __future__ import annotations

import ctypes.util
import runpy
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest

from keepfast.model import compiled as compiled_modules

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src/keepfast"
compiled = pytest.mark.skipif(find_spec("keepfast.workspace._check") is None, reason="built without a compiler")


@compiled
def test_a_library_with_functions_of_the_same_names_does_no_harm() -> None:
    """Some Pythons have zlib linked in, and its functions are found before those of any module."""
    zlib = ctypes.util.find_library("z")
    if zlib is None:
        pytest.skip("no zlib")
    code = (
        f"import ctypes, zlib; ctypes.CDLL({zlib!r}, ctypes.RTLD_GLOBAL)\n"
        "from keepfast.workspace._check import crc32\n"
        "assert crc32(b'abc' * 99) == zlib.crc32(b'abc' * 99)\n"
    )

    done = subprocess.run([sys.executable, "-c", code], env={"LD_PRELOAD": zlib}, capture_output=True, check=False)

    assert (done.returncode, done.stderr) == (0, b"")


@compiled
@pytest.mark.skipif(sys.platform != "linux", reason="reads ELF")
def test_modules_offer_nothing_but_their_beginning() -> None:
    for path in SOURCES.rglob("*.abi3.so"):
        try:
            done = subprocess.run(["nm", "-D", "--defined-only", path], capture_output=True, text=True, check=True)
        except FileNotFoundError:
            pytest.skip("no nm")
        assert [line.split()[-1] for line in done.stdout.splitlines()] == [f"PyInit_{path.name.partition('.')[0]}"]


def test_the_digests_are_those_of_the_sources() -> None:
    """If not: `python tools/compiled_digests.py`, and build again."""
    assert runpy.run_path(str(ROOT / "setup.py"))["digests"]() == compiled_modules.DIGESTS


def test_a_module_of_other_sources_is_refused() -> None:
    fitting = ModuleType("keepfast.workspace._check", compiled_modules.DIGESTS["keepfast.workspace._check"])
    compiled_modules.demand(fitting)

    for other in (ModuleType(fitting.__name__), ModuleType(fitting.__name__, "0" * 16)):
        with pytest.raises(ImportError):
            compiled_modules.demand(fitting, other)
