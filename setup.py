"""Builds the optional accelerators; everything else about the package is in pyproject.toml."""

import sys

from setuptools import Extension, setup

EVERYWHERE = ("workspace._check", "workspace._marks", "workspace._read")
LINUX_ONLY = ("workspace._place", "store._unpack") if sys.platform == "linux" else ()


def accelerator(name: str) -> Extension:
    path = name.replace(".", "/")
    return Extension(
        f"holdfast.{name}",
        [f"src/holdfast/{path}.c"],
        depends=["src/holdfast/workspace/_stat.h", "src/holdfast/store/_lanes.h"],
        define_macros=[("Py_LIMITED_API", "0x030b0000")],
        extra_compile_args=["-O2", "-pthread"],
        extra_link_args=["-pthread"],
        py_limited_api=True,
        optional=True,  # without a compiler the package works the same, a little slower
    )


setup(
    ext_modules=[accelerator(name) for name in (*EVERYWHERE, *LINUX_ONLY)],
    options={"bdist_wheel": {"py_limited_api": False}},
)
