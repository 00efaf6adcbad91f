"""Builds the optional accelerator; everything else about the package is in pyproject.toml."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "holdfast.workspace._check",
            ["src/holdfast/workspace/_check.c"],
            define_macros=[("Py_LIMITED_API", "0x030b0000")],
            extra_compile_args=["-O2", "-pthread"],
            extra_link_args=["-pthread"],
            py_limited_api=True,
            optional=True,  # without a compiler the package works the same, a little slower
        )
    ],
    options={"bdist_wheel": {"py_limited_api": False}},
)
