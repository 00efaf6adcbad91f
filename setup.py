"""Builds the optional accelerators; everything else about the package is in pyproject.toml."""

import sys

from setuptools import Extension, setup

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


built = SOURCES | LINUX_ONLY if sys.platform == "linux" else SOURCES
setup(
    ext_modules=[accelerator(name, sources) for name, sources in built.items()],
    options={"bdist_wheel": {"py_limited_api": False}},
)
