"""Builds the optional accelerators; everything else about the package is in pyproject.toml."""

import sys

from setuptools import Extension, setup

LINUX_ONLY = ("_place",) if sys.platform == "linux" else ()


def accelerator(name: str, *further: str) -> Extension:
    return Extension(
        f"holdfast.workspace.{name}",
        [f"src/holdfast/workspace/{one}.c" for one in (name, *further)],
        depends=[f"src/holdfast/workspace/{one}.h" for one in ("_cache", "_seen", "_stat")],
        define_macros=[("Py_LIMITED_API", "0x030b0000")],
        extra_compile_args=["-O2", "-pthread"],
        extra_link_args=["-pthread"],
        py_limited_api=True,
        optional=True,  # without a compiler the package works the same, a little slower
    )


setup(
    ext_modules=[
        accelerator("_check", "_list", "_pieces"),
        *[accelerator(name) for name in ("_marks", "_read", *LINUX_ONLY)],
    ],
    options={"bdist_wheel": {"py_limited_api": False}},
)
