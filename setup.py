"""Builds the optional parts: the C modules and the client of hooks; see also pyproject.toml."""

import hashlib
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError, LinkError

SOURCES = {
    "workspace._check": tuple(f"workspace/_native/{name}.c" for name in ("check", "crc", "list", "pieces")),
    "workspace._marks": ("workspace/_native/marks.c",),
}
LINUX_ONLY = {
    "workspace._place": ("workspace/_native/place.c",),
    "store._unpack": ("store/_native/unpack.c",),
}
HEADERS = tuple(f"workspace/_native/{name}.h" for name in ("cache", "seen", "stat")) + ("store/_native/lanes.h",)
CLIENT = Path("keepfast/resident/keepfast-hook"), "src/keepfast/resident/_native/client.c"
"""The program that hooks run first, and its source."""


def digests() -> dict[str, str]:
    """Return the digest of each compiled module's sources, which the build writes into it (`keepfast.model.compiled` checks it)."""
    return {f"keepfast.{name}": digest(sources) for name, sources in (SOURCES | LINUX_ONLY).items()}


def digest(sources: tuple[str, ...]) -> str:
    folder = Path(__file__).parent / "src/keepfast"
    texts = [(folder / path).read_bytes() for path in sources + HEADERS]
    return hashlib.sha256(b"".join([len(text).to_bytes(8, "big") + text for text in texts])).hexdigest()[:16]


def accelerator(name: str, sources: tuple[str, ...]) -> Extension:
    return Extension(
        f"keepfast.{name}",
        [f"src/keepfast/{path}" for path in sources],
        depends=[f"src/keepfast/{path}" for path in HEADERS],
        define_macros=[("Py_LIMITED_API", "0x030b0000"), ("BUILT_FROM", f'"{digest(sources)}"')],
        # Hidden: otherwise, where Python is linked with zlib, its functions would replace ours of the same name.
        extra_compile_args=["-O2", "-pthread", "-fvisibility=hidden"],
        extra_link_args=["-pthread"],
        py_limited_api=True,
        optional=True,  # without a compiler the package works the same, but saves many new files more slowly
    )


class BuildNative(build_ext):
    """The accelerators, and a program. Without a compiler the package works the same, and hooks take longer."""

    def run(self) -> None:
        super().run()
        path, source = CLIENT
        try:
            self.compiler.compile([source], output_dir=self.build_temp, extra_postargs=["-O2"], depends=[source])
            objects = self.compiler.object_filenames([source], output_dir=self.build_temp)
            folder = Path("src") if self.inplace or getattr(self, "editable_mode", False) else Path(self.build_lib)
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            self._link(objects, path.name, str(folder / path.parent))
        except (CompileError, LinkError, AttributeError) as error:
            self.warn(f"no client for hooks: {error}")

    def _link(self, objects: list[str], name: str, folder: str) -> None:
        try:
            # Without shared libraries it starts in two thirds of the time. Not every system has them to link with.
            self.compiler.link_executable(objects, name, output_dir=folder, extra_postargs=["-static"])
        except LinkError:
            self.compiler.link_executable(objects, name, output_dir=folder)

    def get_outputs(self) -> list[str]:
        return [*super().get_outputs(), str(Path(self.build_lib) / CLIENT[0])]


if __name__ == "__main__":
    built = SOURCES | LINUX_ONLY if sys.platform == "linux" else SOURCES
    setup(
        ext_modules=[accelerator(name, sources) for name, sources in built.items()],
        cmdclass={"build_ext": BuildNative},
        options={
            "bdist_wheel": {"py_limited_api": False},
            # Results of another Python or of older sources are not reused.
            "build": {"build_base": f"build/{sys.implementation.cache_tag}-{sys.hexversion:08x}"},
            "build_ext": {"force": True},
        },
    )
