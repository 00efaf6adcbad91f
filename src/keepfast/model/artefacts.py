"""Folders that a tool can generate again, and the command that does: the table behind `capture.exclude`."""

from __future__ import annotations

from collections.abc import Callable, Collection

Ways = tuple[tuple[str, str], ...]
"""Pairs of a file next to the folder (`*` at its beginning matches anything) and the command that it implies."""

BY_ITSELF: Ways = ()
"""No command and no evidence: the tool that uses the folder generates it again by itself."""
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
"""`{name}` is the folder's name: a venv is empty until its packages are installed."""

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
"""Pattern → ways. Such folders are always excluded, unless a command destroys one that has no file of its ways next to it."""

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
"""Pattern → ways. Folders of these names may also hold sources or results: they are excluded only if .gitignore names them
and one of the tool's files lies next to them."""


_FOLDER_PATTERNS = [pattern[:-1] for pattern in (*ALWAYS, *IF_IGNORED) if pattern.endswith("/")]
NAMES = frozenset(
    [pattern.encode("ascii") for pattern in _FOLDER_PATTERNS if "/" not in pattern and "*" not in pattern]
)
LONGER_PATTERNS = [pattern + "/" for pattern in _FOLDER_PATTERNS if pattern.encode("ascii") not in NAMES]
"""Folders of both tables: those matched by a single name, and all others."""


def rebuild_command(path: bytes, siblings: Collection[bytes]) -> str | None:
    """Return the command that generates this folder again, empty if its tool does that by itself; None if none is sure to.

    `siblings` are the names next to `evidence_folder(path)`: one of the tool's files must be among them. Does not check
    whether an ignore rule names the folder.
    """
    pattern = _pattern_of(path)
    if not pattern:
        return None
    ways = ALWAYS[pattern] if pattern in ALWAYS else IF_IGNORED[pattern]
    return "" if ways == BY_ITSELF else matching_command(ways, path, siblings)


def matching_command(ways: Ways, path: bytes, siblings: Collection[bytes]) -> str | None:
    """Return the command of the first way whose file is among the folder's siblings; None if there is none."""
    for file, command in ways:
        name = file.encode("ascii")
        if name in siblings or (name[:1] == b"*" and any(sibling.endswith(name[1:]) for sibling in siblings)):
            return command.replace("{name}", path.rpartition(b"/")[2].decode("utf-8", "surrogateescape"))
    return None


def evidence_of(path: bytes) -> tuple[bytes, ...]:
    """Return the files that tell a tool how to generate this folder again, except those with a `*`."""
    pattern = _pattern_of(path)
    ways = ALWAYS.get(pattern) or IF_IGNORED.get(pattern, ())
    return tuple([file.encode("ascii") for file, _ in ways if file[0] != "*"])


def evidence_folder(path: bytes) -> bytes:
    """Return the folder that the tool's files are next to: for `.yarn/cache` that is `.yarn`."""
    for _ in range(_pattern_of(path).rstrip("/").count("/")):
        path = path.rpartition(b"/")[0]
    return path


def is_always_excluded(path: bytes) -> bool:
    """Return whether this matches the first table, which excludes a folder whatever lies next to it."""
    return _pattern_of(path) in ALWAYS


def needs_evidence(path: bytes) -> bool:
    """Return whether this matches the second table, which excludes a folder only with a tool's file next to it."""
    return any(_matches(path, pattern) for pattern in IF_IGNORED)


def generated_folder(path: bytes, exists: Callable[[bytes], bool]) -> bytes:
    """Return the generated folder that this file lies in; empty if there is none.

    A folder of the second table counts only if `exists` finds one of its tool's files next to it. Used to describe work,
    never to decide what is saved.
    """
    for folder in _table_folders_above(path):
        if not needs_evidence(folder):
            return folder
        above, slash, _ = folder.rpartition(b"/")
        if any(exists(above + slash + name) for name in evidence_of(folder)):
            return folder
    return b""


def is_in_always_generated_folder(path: bytes) -> bool:
    """Return whether this file lies in a folder of the first table, in which nothing is saved."""
    return any(not needs_evidence(folder) for folder in _table_folders_above(path))


def _table_folders_above(path: bytes) -> list[bytes]:
    """Return the folders above this file that match either table."""
    folders = []
    end = path.find(b"/")
    while end >= 0:
        folder = path[:end]
        if folder.rpartition(b"/")[2] in NAMES or any(_matches(folder, pattern) for pattern in LONGER_PATTERNS):
            folders.append(folder)
        end = path.find(b"/", end + 1)
    return folders


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
