"""Builds the optional accelerators; everything else about the package is in pyproject.toml."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            f"holdfast.workspace.{name}",
            [f"src/holdfast/workspace/{name}.c"],
            define_macros=[("Py_LIMITED_API", "0x030b0000")],
            extra_compile_args=["-O2", "-pthread"],
            extra_link_args=["-pthread"],
            py_limited_api=True,
            optional=True,  # without a compiler the package works the same, a little slower
        )
        for name in ("_check", "_needles")
    ],
    options={"bdist_wheel": {"py_limited_api": False}},
)
