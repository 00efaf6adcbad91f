"""Folders that a tool can make again, and the command that does: the table behind `capture.exclude`."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

    Ways = tuple[tuple[str, str], ...]
    """Each a file that lies beside the folder, `*` at its beginning for any, and the command that goes with it."""

BY_ITSELF = ""
"""No command: the tool that uses the folder makes it again as it goes."""
NODE = (("pnpm-lock.yaml", "pnpm install"), ("yarn.lock", "yarn install"), ("bun.lock", "bun install"),
        ("bun.lockb", "bun install"), ("package-lock.json", "npm ci"))  # fmt: skip
NODE_BUILD = (("package.json", "npm run build"),)
GRADLE = (("build.gradle", "gradle build"), ("build.gradle.kts", "gradle build"))
PYTHON_BUILD = (("pyproject.toml", "python -m build"), ("setup.py", "python -m build"))
DOTNET = (("*.csproj", "dotnet build"), ("*.fsproj", "dotnet build"), ("*.vbproj", "dotnet build"))
MAKE = (
    ("Makefile", "make"),
    ("makefile", "make"),
    ("CMakeLists.txt", "cmake --build"),
    ("meson.build", "meson compile"),
)
PYTHON_FOLDER = (("uv.lock", "uv sync"), ("poetry.lock", "poetry install"), ("requirements.txt", "pip install -r requirements.txt"),
                 ("pyproject.toml", "pip install -e ."))  # fmt: skip

ALWAYS: dict[str, tuple[Ways, str]] = {
    "node_modules/": (NODE, "npm install"),
    "bower_components/": ((), "bower install"),
    ".venv/": (PYTHON_FOLDER, "python -m venv .venv"),
    "__pycache__/": ((), BY_ITSELF),
    "__pypackages__/": ((), "pdm install"),
    ".tox/": ((), "tox"),
    ".nox/": ((), "nox"),
    ".mypy_cache/": ((), BY_ITSELF),
    ".ruff_cache/": ((), BY_ITSELF),
    ".pytest_cache/": ((), BY_ITSELF),
    ".hypothesis/": ((), BY_ITSELF),
    ".pytype/": ((), BY_ITSELF),
    ".eggs/": ((), BY_ITSELF),
    ".pixi/": ((), "pixi install"),
    ".direnv/": ((), "direnv reload"),
    ".gradle/": ((), BY_ITSELF),
    ".bloop/": ((), BY_ITSELF),
    ".metals/": ((), BY_ITSELF),
    ".stack-work/": ((), "stack build"),
    "dist-newstyle/": ((), "cabal build"),
    "elm-stuff/": ((), "elm make"),
    ".zig-cache/": ((), "zig build"),
    "zig-cache/": ((), "zig build"),
    ".terraform/": ((), "terraform init"),
    "cdk.out/": ((), "cdk synth"),
    ".next/": ((), "next build"),
    ".nuxt/": ((), "nuxt build"),
    ".svelte-kit/": ((), "svelte-kit sync"),
    ".astro/": ((), "astro sync"),
    ".docusaurus/": ((), "docusaurus build"),
    ".expo/": ((), BY_ITSELF),
    ".parcel-cache/": ((), BY_ITSELF),
    ".sass-cache/": ((), BY_ITSELF),
    ".turbo/": ((), BY_ITSELF),
    ".angular/": ((), BY_ITSELF),
    ".nyc_output/": ((), BY_ITSELF),
    ".dart_tool/": ((), "dart pub get"),
    ".yarn/cache/": ((), "yarn install"),
    ".pnpm-store/": ((), "pnpm install"),
    ".cargo/registry/": ((), "cargo fetch"),
    "DerivedData/": ((), "xcodebuild"),
    "Pods/": ((), "pod install"),
    ".DS_Store": ((), BY_ITSELF),
}
"""Pattern → ways, and the command where none of their files is there. Such folders are never looked at."""

IF_IGNORED: dict[str, Ways] = {
    "build/": (*GRADLE, *MAKE, *NODE_BUILD, *PYTHON_BUILD, ("build.xml", "ant"), ("pubspec.yaml", "flutter build")),
    "dist/": (*NODE_BUILD, *PYTHON_BUILD, *MAKE, ("go.mod", "go build")),
    "target/": (("Cargo.toml", "cargo build"), ("pom.xml", "mvn package"), ("build.sbt", "sbt compile"),
                ("project.clj", "lein compile")),
    "out/": (*NODE_BUILD, *GRADLE, *MAKE, ("foundry.toml", "forge build")),
    "bin/": (*DOTNET, ("go.mod", "go build"), *MAKE, *GRADLE),
    "obj/": (*DOTNET, *MAKE),
    "_build/": (("mix.exs", "mix compile"), ("dune-project", "dune build"), ("rebar.config", "rebar3 compile"),
                ("conf.py", "make html"), *MAKE),
    "cmake-build-*/": (("CMakeLists.txt", "cmake --build"),),
    "coverage/": (("package.json", "npm test -- --coverage"), ("Gemfile", "bundle exec rspec")),
    "htmlcov/": (("pyproject.toml", "coverage html"), ("setup.py", "coverage html"), ("setup.cfg", "coverage html"),
                 ("tox.ini", "coverage html"), (".coveragerc", "coverage html")),
    "venv/": (*PYTHON_FOLDER, ("setup.py", "pip install -e .")),
    "vendor/": (("composer.json", "composer install"), ("go.mod", "go mod vendor"), ("Gemfile", "bundle install"),
                ("Cargo.toml", "cargo vendor")),
}  # fmt: skip
"""Pattern → ways. Other folders of these names hold sources or results: .gitignore must name them, and one of the files
that tell the tool what to make must lie beside them."""


NAMES = frozenset(
    [one[:-1].encode("ascii") for one in (*ALWAYS, *IF_IGNORED) if one.find("/") == len(one) - 1 and "*" not in one]
)
LONGER = [one for one in (*ALWAYS, *IF_IGNORED) if one[-1] == "/" and one[:-1].encode("ascii") not in NAMES]
"""Folders of both tables: by one name, and all others."""


def command_of(path: bytes, beside: Collection[bytes]) -> str | None:
    """Return the command that makes this folder again, empty if its tool does that by itself; None if none does.

    `beside` are the names in the folder that it lies in. Whether an ignore rule names the folder is not asked here.
    """
    for pattern, (ways, otherwise) in ALWAYS.items():
        if _matches(path, pattern):
            found = _way(ways, beside)
            return otherwise if found is None else found
    for pattern, ways in IF_IGNORED.items():
        if _matches(path, pattern):
            return _way(ways, beside)
    return None


def needs_evidence(path: bytes) -> bool:
    """Is this a name of the second table, which says nothing without a tool's file beside it?"""
    return any(_matches(path, pattern) for pattern in IF_IGNORED)


def made_in(path: bytes) -> bytes:
    """The folder on the way to this file that a tool makes, by its name alone; empty if there is none.

    For what tells of work, never for what is kept: `build/` may hold sources, but hardly ever those that nobody edited by name.
    """
    end = path.find(b"/")
    while end >= 0:
        folder = path[:end]
        name = folder.rpartition(b"/")[2]
        if name in NAMES or any(_matches(folder, pattern) for pattern in LONGER):
            return folder
        end = path.find(b"/", end + 1)
    return b""


def is_made(path: bytes) -> bool:
    """Does this file lie in a folder of the first table, in which nothing is kept whoever wrote it?"""
    folder = made_in(path)
    while folder and needs_evidence(folder):
        rest = made_in(path[len(folder) + 1 :])
        folder = folder + b"/" + rest if rest else b""
    return bool(folder)


def _matches(path: bytes, pattern: str) -> bool:
    name = pattern.rstrip("/").encode("ascii")
    if name.endswith(b"*"):
        return path.rpartition(b"/")[2].startswith(name[:-1])
    return path == name or path.endswith(b"/" + name)


def _way(ways: Ways, beside: Collection[bytes]) -> str | None:
    for file, command in ways:
        name = file.encode("ascii")
        if name in beside or (name[:1] == b"*" and any(one.endswith(name[1:]) for one in beside)):
            return command
    return None
