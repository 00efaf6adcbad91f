"""Builds what is optional: the accelerators and the readied patterns; everything else about the package is in pyproject.toml."""

import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_py import build_py

SOURCES = {
    "workspace._check": tuple(f"workspace/_{name}.c" for name in ("check", "crc", "list", "pieces")),
    "workspace._marks": ("workspace/_marks.c",),
    "workspace._read": ("workspace/_read.c",),
}
LINUX_ONLY = {
    "workspace._place": ("workspace/_place.c",),
    "store._unpack": ("store/_unpack.c",),
}
HEADERS = ("workspace/_cache.h", "workspace/_seen.h", "workspace/_stat.h", "store/_lanes.h")
READY = "holdfast/core/_ready.py"


def accelerator(name: str, sources: tuple[str, ...]) -> Extension:
    return Extension(
        f"holdfast.{name}",
        [f"src/holdfast/{path}" for path in sources],
        depends=[f"src/holdfast/{path}" for path in HEADERS],
        define_macros=[("Py_LIMITED_API", "0x030b0000")],
        extra_compile_args=["-O2", "-pthread"],
        extra_link_args=["-pthread"],
        py_limited_api=True,
        optional=True,  # without a compiler the package works the same, a little slower
    )


class Build(build_py):
    """The modules, and one that is made here: the patterns of secrets as this very Python compiles them."""

    def run(self) -> None:
        super().run()
        here = Path(__file__).parent / "src"
        sys.path.insert(0, str(here))
        try:
            from holdfast.core.readying import readied

            text = readied()
        except Exception as error:
            # Another Python may compile in another way: then they are compiled when they are used.
            self.warn(f"no readied patterns: {error!r}")
            return
        path = (here if self.editable_mode else Path(self.build_lib)) / READY
        path.write_text(text, encoding="utf-8")


built = SOURCES | LINUX_ONLY if sys.platform == "linux" else SOURCES
setup(
    ext_modules=[accelerator(name, sources) for name, sources in built.items()],
    cmdclass={"build_py": Build},
    options={"bdist_wheel": {"py_limited_api": False}},
)
