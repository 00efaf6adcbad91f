"""Folders that a tool can make again, and the command that does: the table behind `capture.exclude`."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    Ways = tuple[tuple[str, str], ...]
    """Each a file that lies beside the folder, `*` at its beginning for any, and the command that goes with it."""

BY_ITSELF: Ways = ()
"""No command and no evidence: the tool that uses the folder makes it again as it goes."""
NODE = (("pnpm-lock.yaml", "pnpm install"), ("yarn.lock", "yarn install"), ("bun.lock", "bun install"),
        ("bun.lockb", "bun install"), ("package-lock.json", "npm ci"), ("package.json", "npm install"))  # fmt: skip
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
VENV = "python -m venv {name} && {name}/bin/pip install "
PYTHON_FOLDER = (("uv.lock", "uv sync"), ("poetry.lock", "poetry install"), ("pdm.lock", "pdm install"),
                 ("Pipfile", "pipenv install"), ("requirements.txt", VENV + "-r requirements.txt"),
                 ("pyproject.toml", VENV + "-e ."), ("setup.py", VENV + "-e ."))  # fmt: skip
"""`{name}` is that of the folder: a venv is empty until its packages are installed."""

ALWAYS: dict[str, Ways] = {
    "node_modules/": NODE,
    "bower_components/": (("bower.json", "bower install"),),
    ".venv/": PYTHON_FOLDER,
    "__pycache__/": BY_ITSELF,
    "__pypackages__/": (("pyproject.toml", "pdm install"),),
    ".tox/": (("tox.ini", "tox"), ("tox.toml", "tox"), ("pyproject.toml", "tox"), ("setup.cfg", "tox")),
    ".nox/": (("noxfile.py", "nox"),),
    ".mypy_cache/": BY_ITSELF,
    ".ruff_cache/": BY_ITSELF,
    ".pytest_cache/": BY_ITSELF,
    ".hypothesis/": BY_ITSELF,
    ".pytype/": BY_ITSELF,
    ".eggs/": BY_ITSELF,
    ".pixi/": (("pixi.toml", "pixi install"), ("pyproject.toml", "pixi install")),
    ".direnv/": ((".envrc", "direnv reload"),),
    ".gradle/": BY_ITSELF,
    ".bloop/": BY_ITSELF,
    ".metals/": BY_ITSELF,
    ".stack-work/": (("stack.yaml", "stack build"), ("package.yaml", "stack build"), ("*.cabal", "stack build")),
    "dist-newstyle/": (("cabal.project", "cabal build"), ("*.cabal", "cabal build")),
    "elm-stuff/": (("elm.json", "elm make"),),
    ".zig-cache/": (("build.zig", "zig build"),),
    "zig-cache/": (("build.zig", "zig build"),),
    ".terraform/": (("*.tf", "terraform init"), ("*.tf.json", "terraform init")),
    "cdk.out/": (("cdk.json", "cdk synth"),),
    ".next/": (("package.json", "next build"),),
    ".nuxt/": (("package.json", "nuxt build"),),
    ".svelte-kit/": (("package.json", "svelte-kit sync"),),
    ".astro/": (("package.json", "astro sync"),),
    ".docusaurus/": (("package.json", "docusaurus build"),),
    ".expo/": BY_ITSELF,
    ".parcel-cache/": BY_ITSELF,
    ".sass-cache/": BY_ITSELF,
    ".turbo/": BY_ITSELF,
    ".angular/": BY_ITSELF,
    ".nyc_output/": BY_ITSELF,
    ".dart_tool/": (("pubspec.yaml", "dart pub get"),),
    ".yarn/cache/": (("yarn.lock", "yarn install"), ("package.json", "yarn install")),
    ".pnpm-store/": (("pnpm-lock.yaml", "pnpm install"), ("package.json", "pnpm install")),
    ".cargo/registry/": (("Cargo.toml", "cargo fetch"),),
    "DerivedData/": (("*.xcodeproj", "xcodebuild"), ("*.xcworkspace", "xcodebuild"), ("Package.swift", "xcodebuild")),
    "Pods/": (("Podfile", "pod install"),),
    ".DS_Store": BY_ITSELF,
}
"""Pattern → ways. Such folders are never looked at, unless a command names one beside which no file of its ways lies."""

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
    "venv/": PYTHON_FOLDER,
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
    """Return the command that makes this folder again, empty if its tool does that by itself; None if none is sure to.

    `beside` are the names in the folder that it lies in (that `lies_as` lies in): without a file there that tells the tool
    what to make, nothing does. Whether an ignore rule names the folder is not asked here.
    """
    pattern = _pattern_of(path)
    if not pattern:
        return None
    ways = ALWAYS[pattern] if pattern in ALWAYS else IF_IGNORED[pattern]
    return "" if ways == BY_ITSELF else way_of(ways, path, beside)


def way_of(ways: Ways, path: bytes, beside: Collection[bytes]) -> str | None:
    """Return the command of the first way whose file lies beside the folder; None if there is none."""
    for file, command in ways:
        name = file.encode("ascii")
        if name in beside or (name[:1] == b"*" and any(one.endswith(name[1:]) for one in beside)):
            return command.replace("{name}", path.rpartition(b"/")[2].decode("utf-8", "surrogateescape"))
    return None


def evidence_of(path: bytes) -> tuple[bytes, ...]:
    """The files that would tell a tool how to make this folder again, as far as they have one name."""
    pattern = _pattern_of(path)
    ways = ALWAYS.get(pattern) or IF_IGNORED.get(pattern, ())
    return tuple([file.encode("ascii") for file, _ in ways if file[0] != "*"])


def lies_as(path: bytes) -> bytes:
    """The folder beside which the tool's files lie: of `.yarn/cache` that is `.yarn`."""
    for _ in range(_pattern_of(path).rstrip("/").count("/")):
        path = path.rpartition(b"/")[0]
    return path


def is_left_out(path: bytes) -> bool:
    """Is this a name of the first table, which is not looked at whatever lies beside it?"""
    return _pattern_of(path) in ALWAYS


def needs_evidence(path: bytes) -> bool:
    """Is this a name of the second table, which says nothing without a tool's file beside it?"""
    return any(_matches(path, pattern) for pattern in IF_IGNORED)


def made_in(path: bytes, is_there: Callable[[bytes], bool]) -> bytes:
    """The folder on the way to this file that a tool makes; empty if there is none.

    A folder of the second table counts only if `is_there` knows one of its tool's files beside it. For what tells of work,
    never for what is kept.
    """
    for folder in _named_on_the_way(path):
        if not needs_evidence(folder):
            return folder
        above, slash, _ = folder.rpartition(b"/")
        if any(is_there(above + slash + name) for name in evidence_of(folder)):
            return folder
    return b""


def is_made(path: bytes) -> bool:
    """Does this file lie in a folder of the first table, in which nothing is kept whoever wrote it?"""
    return any(not needs_evidence(folder) for folder in _named_on_the_way(path))


def _named_on_the_way(path: bytes) -> list[bytes]:
    """The folders on the way to this file that have a name of either table."""
    found = []
    end = path.find(b"/")
    while end >= 0:
        folder = path[:end]
        if folder.rpartition(b"/")[2] in NAMES or any(_matches(folder, pattern) for pattern in LONGER):
            found.append(folder)
        end = path.find(b"/", end + 1)
    return found


def _matches(path: bytes, pattern: str) -> bool:
    name = pattern.rstrip("/").encode("ascii")
    if name.endswith(b"*"):
        return path.rpartition(b"/")[2].startswith(name[:-1])
    return path == name or path.endswith(b"/" + name)


def _pattern_of(path: bytes) -> str:
    for pattern in (*ALWAYS, *IF_IGNORED):
        if _matches(path, pattern):
            return pattern
    return ""
