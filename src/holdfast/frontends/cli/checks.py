"""What `doctor` looks at, one small check after another."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import cache_from_source, find_spec
from typing import NamedTuple

from holdfast.core.errors import HoldfastError, NoWorkspace
from holdfast.frontends.cli.ground import file_system, is_remote, mounts, synced_folder
from holdfast.frontends.cli.session import Session

FINE, NOTE, PROBLEM = "fine", "note", "problem"
OLDEST_SQLITE, TRIGRAM = (3, 31), (3, 34)
LITTLE, TOO_LITTLE = 1 << 30, 64 << 20
HOOK = (
    "core.errors", "core.light_json", "core.model", "core.schema", "engine", "frontends.autosave", "frontends.hook",
    "frontends.starting", "frontends.surroundings", "guarding", "settings", "store.place", "wiring", "workspace.cache",
    "workspace.capture", "workspace.find",
)  # fmt: skip
"""What a hook loads before it knows whether there is anything to save."""


class Check(NamedTuple):
    name: str
    level: str
    text: str
    advice: str = ""


def run(session: Session) -> list[Check]:
    """Run all checks. One that cannot even be made says so, and the others go on."""
    results: list[Check] = []
    for name, check in CHECKS.items():
        try:
            results += [Check(name, *found) for found in check(session)]
        except HoldfastError as error:
            # What stops one check stops others: it is one problem, and said once.
            if all(result.text != str(error) for result in results):
                results.append(Check(name, PROBLEM, str(error), error.hint))
        except OSError as error:
            results.append(Check(name, PROBLEM, f"{error.strerror}: {error.filename}."))
    return results


Found = Iterator[tuple[str, str] | tuple[str, str, str]]


def _python(session: Session) -> Found:
    version = ".".join(map(str, sys.version_info[:3]))
    yield FINE, f"{version}, {sys.executable}"


def _libraries(session: Session) -> Found:
    for name in ("click", "blake3", "pyfastcdc"):
        if find_spec(name) is None:
            yield PROBLEM, f"{name} is missing.", "Install holdfast again."
    try:
        from holdfast.store.compressing import native

        native()
    except ImportError:
        yield PROBLEM, "Zstandard is missing.", "Install backports-zstd."
        return
    yield FINE, "blake3, Zstandard and the chunker are there"


def _sqlite(session: Session) -> Found:
    import sqlite3

    version = sqlite3.sqlite_version
    numbers = sqlite3.sqlite_version_info
    if numbers < OLDEST_SQLITE:
        yield PROBLEM, f"SQLite {version} is too old.", "Use a Python with SQLite 3.31 or newer."
    elif numbers < TRIGRAM:
        yield NOTE, f"SQLite {version} has no trigram index; search goes row by row."
    else:
        yield FINE, f"SQLite {version}"


def _accelerator(session: Session) -> Found:
    try:
        import_module("holdfast.workspace._check")
    except ImportError:
        yield (
            NOTE,
            "The compiled check of files is not there; saving works, a little slower.",
            "Install a C compiler, then holdfast again.",
        )
        return
    yield FINE, "the compiled check of files is there"


def _keys(session: Session) -> Found:
    try:
        sealer = session.repository.sealing()
    except NoWorkspace:
        return
    if find_spec("cryptography") is None:
        yield PROBLEM, "cryptography is missing: nothing can be sealed.", "Install holdfast again."
    closed = [one for one, opens in sealer.sets() if not opens]
    if sealer.problem():
        yield PROBLEM, f"{sealer.problem()}.", "Run `holdfast verify --repair`."
    if closed:
        yield PROBLEM, f"The key of {len(closed)} key sets is not here.", "Run `holdfast key import` with its backup."
    if not sealer.is_in_use():
        yield FINE, "nothing is sealed yet"
    elif not sealer.is_backed_up():
        yield (
            NOTE,
            "There is no backup of the key of what is sealed.",
            "Run `holdfast key export FILE`; keep it elsewhere.",
        )
    elif not closed:
        yield FINE, "the key opens everything, and there is a backup"


def _bytecode(session: Session) -> Found:
    missing = []
    for name in HOOK:
        source = import_module("holdfast." + name).__file__
        if source is not None and not os.path.exists(cache_from_source(source)):
            missing.append(name)
    if not missing:
        yield FINE, "the hook's modules are compiled"
        return
    folder = os.path.dirname(import_module("holdfast").__file__ or ".")
    yield (
        NOTE,
        f"{len(missing)} of the hook's modules are not compiled; every hook starts slower.",
        f"Run `{sys.executable} -m compileall -q {folder}`.",
    )


def _settings(session: Session) -> Found:
    warnings = session.settings.warnings
    for warning in warnings:
        yield NOTE, warning
    if not warnings:
        there = os.path.exists(session.config_path)
        yield FINE, session.config_path if there else f"defaults; {session.config_path} is not there"


def _store(session: Session) -> Found:
    path = session.engine.place.path
    try:
        session.engine.place.id()
    except NoWorkspace:
        above = _first_there(path)
        if not os.access(above, os.W_OK | os.X_OK):
            yield PROBLEM, f"No store can be made at {path}: you may not write to {above}.", "Set `store.url`."
        else:
            yield NOTE, f"There is no store at {path} yet.", "`holdfast init` makes it."
        return
    seen = os.stat(path)
    if seen.st_uid != os.getuid():
        yield PROBLEM, f"{path} belongs to user {seen.st_uid}, not to you.", "Use a store of your own (`store.url`)."
    elif seen.st_mode & 0o077:
        yield PROBLEM, f"Others may look into {path} (mode {seen.st_mode & 0o777:o}).", f"Run `chmod 700 {path}`."
    elif not os.access(path, os.W_OK | os.X_OK):
        yield PROBLEM, f"{path} cannot be written.", "Check its permissions and its file system."
    else:
        workspaces = len(session.repository.ledger.workspaces())
        yield FINE, f"{path}, format 1, {workspaces} workspace{'' if workspaces == 1 else 's'}"


def _first_there(path: str) -> str:
    """The path, or the nearest folder above it that there is."""
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return path


def _ground(session: Session) -> Found:
    """Kernel locks and fsync do not keep their promises everywhere."""
    path = session.engine.place.path
    kind, synced = file_system(os.path.realpath(path), mounts()), synced_folder(path)
    if is_remote(kind):
        yield (
            PROBLEM,
            f"The store is on a network file system ({kind}); locks and syncs cannot be relied on.",
            "Set `store.url` to a local folder.",
        )
    elif synced:
        yield (
            PROBLEM,
            f"The store lies in a synced folder ({synced}), which may tear it.",
            "Set `store.url` to a folder that is not synced.",
        )
    else:
        yield FINE, f"on {kind or 'a file system of unknown kind'}"


def _space(session: Session) -> Found:
    from holdfast.frontends.paint import size

    about = os.statvfs(_first_there(session.engine.place.path))
    free = about.f_bavail * about.f_frsize
    if free < TOO_LITTLE:
        yield PROBLEM, f"Only {size(free)} are free where the store is.", "Free some space, or run `holdfast forget`."
    else:
        yield NOTE if free < LITTLE else FINE, f"{size(free)} free where the store is"


def _workspace(session: Session) -> Found:
    from holdfast.workspace.find import find, show

    found = find(session.cwd)
    if found is None:
        yield (
            NOTE,
            f"{show(session.cwd)} is not in a workspace.",
            "Run `holdfast init` in the folder that you want to protect.",
        )
        return
    root, workspace = found
    row = session.repository.workspace(workspace)
    if row is None:
        yield (
            NOTE,
            f"{show(root)} is marked, but this store does not know it yet.",
            "The next `holdfast save` makes it known.",
        )
    else:
        yield FINE, f"{show(root)}, {f'newest version v{row.version}' if row.version else 'no checkpoint yet'}"


def _ignoring(session: Session) -> Found:
    """Our marker must never end up in a commit."""
    from holdfast.workspace.find import find, show

    found = find(session.cwd)
    if found is None:
        return
    path = found[0] + b"/.holdfast/.gitignore"
    try:
        with open(path, "rb") as file:
            kept = b"*" in file.read(4096).split(b"\n")
    except FileNotFoundError:
        kept = False
    if kept:
        yield FINE, ".holdfast keeps itself out of git"
    else:
        yield PROBLEM, f"{show(path)} does not keep the folder out of git.", f"Run `holdfast init {show(found[0])}`."


def _claude(session: Session) -> Found:
    """Hooks that name a Python which is gone fail at every step of an agent, and nobody looks."""
    import shlex

    from holdfast.agents.claude_settings import look
    from holdfast.frontends.cli.client_files import SCOPES, read, settings_path

    for path in dict.fromkeys(settings_path(session, scope) for scope in SCOPES):
        found = look(read(path).text, path)
        commands = [*found.commands, *([found.statusline] if found.statusline else [])]
        words = {word for command in commands for word in shlex.split(command)[:5] if word.startswith("/")}
        gone = sorted(word for word in words if not os.path.exists(word))
        if gone:
            yield PROBLEM, f"{path} names {gone[0]}, which is gone.", "Run `holdfast install claude`."
        elif found.disabled and commands:
            yield PROBLEM, f"`disableAllHooks` is set in {path}: no hook runs.", "Take it out."
        elif commands:
            yield FINE, f"hooks in {path}"


def _analysis(session: Session) -> Found:
    """Notes by a model: is there what it takes, and what came of the last attempt?"""
    settings = session.settings
    how = settings["analysis.llm"]
    if how == "off":
        yield FINE, "notes are taken by rules, without a model"
        return
    if how == "anthropic":
        from holdfast.conversation.asking import key_in

        key_in(settings["analysis.key_file"])
    elif not settings["analysis.command"]:
        yield PROBLEM, "analysis.command is empty.", "Set it, or set analysis.llm to off."
        return
    from holdfast.store import sessions
    from holdfast.workspace.find import find

    found = find(session.cwd)
    folder = session.engine.place.folder(found[1]) if found is not None else ""
    last = sessions.extract(folder, str(sessions.newest(folder).get("session") or "")) if folder else {}
    if last.get("trouble"):
        yield NOTE, f"The last notes by a model ({how}) failed: {last['trouble']}", "Those of our own rules stand."
    else:
        yield FINE, f"notes by a model ({how}){', the last one was of use' if last else ''}"


CHECKS: dict[str, Callable[[Session], Found]] = {
    "python": _python,
    "libraries": _libraries,
    "sqlite": _sqlite,
    "accelerator": _accelerator,
    "bytecode": _bytecode,
    "settings": _settings,
    "store": _store,
    "keys": _keys,
    "ground": _ground,
    "space": _space,
    "workspace": _workspace,
    "git": _ignoring,
    "claude": _claude,
    "analysis": _analysis,
}
