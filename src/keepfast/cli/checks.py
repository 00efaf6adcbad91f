"""The checks of `keepfast doctor`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from importlib.util import cache_from_source, find_spec
from json import loads
from signal import Signals
from typing import NamedTuple

from keepfast.agents.claude.installer import look
from keepfast.agents.launcher import UNSAFE_PYTHON_VARIABLES, folders, named, place_of
from keepfast.app.scan import count
from keepfast.cli.client_files import (
    SCOPES,
    last_failure,
    launcher_path,
    launcher_problem,
    missing_files,
    settings_path,
    start_problem,
)
from keepfast.cli.client_files import read as read_client_file
from keepfast.cli.daemon import summary
from keepfast.cli.file_systems import file_system, is_remote, mounts, synced_folder
from keepfast.cli.session import Session
from keepfast.model.compiled import demand
from keepfast.model.errors import KeepfastError, NoWorkspace, TooMany
from keepfast.present import supervision
from keepfast.present.environment import Folders, default_folders
from keepfast.present.resident import CLIENT, OFF, SETTING, state
from keepfast.present.terminal import age_in_words, plural, size
from keepfast.state import sessions
from keepfast.state.notices import read as read_notices
from keepfast.state.notices import unsaved
from keepfast.store.compression import zstd_module
from keepfast.store.key_use import count_key_use
from keepfast.store.maintenance.last_verify import read_last_verify
from keepfast.store.maintenance.space import store_size
from keepfast.workspace.marker import MARKER, obstacle, show

FINE, NOTE, PROBLEM = "fine", "note", "problem"
MISSING, STALE = "missing", "stale"
WEEK = 7 * 86_400_000_000_000
UNSAFE_VARIABLES = frozenset(
    (
        "HOME",
        "PATH",
        "CLAUDE_CONFIG_DIR",
        "TMPDIR",
        "SHELLOPTS",
        "BASH_ENV",
        "ENV",
        "PS4",
        "NODE_OPTIONS",
        *UNSAFE_PYTHON_VARIABLES,
    )
)
UNSAFE_PREFIXES = ("KEEPFAST_", "XDG_", "PYTHON", "LD_", "DYLD_", "GIT_", "BASH_FUNC_")
TEST_COMMAND_SECONDS = 60
REPAIR_ADVICE = "Run `keepfast verify --repair`, forget the versions that are lost, then run `keepfast verify` again."
OLDEST_SQLITE, SQLITE_WITH_TRIGRAM = (3, 31), (3, 34)
LOW_SPACE, CRITICAL_SPACE = 1 << 30, 64 << 20
HOOK_MODULES = (
    "app.checkpoint", "app.wiring", "app.workspace_lock", "app.workspaces", "hook.autosave", "hook.main", "hook.start",
    "model.errors", "model.event", "model.strict_json", "model.schema", "present.environment", "settings", "store.place",
    "store.small_files", "workspace.capture", "workspace.marker", "workspace.stat_cache",
)  # fmt: skip
"""Modules that a hook loads before it knows whether there is anything to save."""
COMPILED_MODULES = ("workspace._check", "workspace._marks")
COMPILED_MODULES_ON_LINUX = ("workspace._place", "store._unpack")
"""Modules that installation builds if there is a C compiler."""


class Check(NamedTuple):
    """The result of a check: its level, what it found, and what to do."""

    name: str
    level: str
    text: str
    advice: str = ""


def run(session: Session) -> list[Check]:
    """Run all checks. One that fails with an error is reported as a problem, and the others continue."""
    results: list[Check] = []
    for name, check in CHECKS.items():
        try:
            results += [Check(name, *finding) for finding in check(session)]
        except KeepfastError as error:
            # One error may stop several checks; report it once.
            if all(result.text != str(error) for result in results):
                results.append(Check(name, PROBLEM, str(error), error.hint))
        except OSError as error:
            results.append(Check(name, PROBLEM, f"{error.strerror}: {error.filename}."))
        except ImportError as error:
            results.append(Check(name, PROBLEM, f"The installation is incomplete: {error}.", "Reinstall keepfast."))
    return results


Findings = Iterator[tuple[str, str] | tuple[str, str, str]]


def _python(session: Session) -> Findings:
    version = ".".join(map(str, sys.version_info[:3]))
    yield FINE, f"{version}, {sys.executable}"


def _libraries(session: Session) -> Findings:
    for name in ("click", "blake3", "pyfastcdc"):
        if find_spec(name) is None:
            yield PROBLEM, f"{name} is missing.", "Reinstall keepfast."
    try:
        zstd_module()
    except ImportError:
        yield PROBLEM, "Zstandard is missing.", "Install backports-zstd."
        return
    yield FINE, "blake3, Zstandard and the chunker are installed"


def _sqlite(session: Session) -> Findings:
    import sqlite3

    version = sqlite3.sqlite_version
    numbers = sqlite3.sqlite_version_info
    if numbers < OLDEST_SQLITE:
        yield PROBLEM, f"SQLite {version} is too old.", "Use a Python with SQLite 3.31 or newer."
    elif numbers < SQLITE_WITH_TRIGRAM:
        yield NOTE, f"SQLite {version} has no trigram index; search reads row by row and is slower."
    else:
        yield FINE, f"SQLite {version}"


def _accelerator(session: Session) -> Findings:
    modules = COMPILED_MODULES + COMPILED_MODULES_ON_LINUX if sys.platform == "linux" else COMPILED_MODULES
    states = {name: _compiled_state(name) for name in modules}
    stale = [name for name, state in states.items() if state == STALE]
    if stale:
        yield (
            PROBLEM,
            f"Compiled modules were built from other sources ({', '.join(stale)}) and are not used: saving "
            "uses up to 6.4 times the CPU.",
            "Reinstall keepfast.",
        )
    missing = [name for name, state in states.items() if state == MISSING]
    if missing:
        yield (
            NOTE,
            f"Compiled modules are missing ({', '.join(missing)}): everything works, but saving many new files uses"
            " up to 6.4 times the CPU.",
            "Install a C compiler, then reinstall keepfast.",
        )
    if not stale and not missing:
        yield FINE, "the compiled modules are installed"


def _compiled_state(name: str) -> str:
    try:
        module = import_module("keepfast." + name)
    except ImportError:
        return MISSING
    try:
        demand(module)
    except ImportError:
        return STALE
    return ""


def _test_save(session: Session) -> Findings:
    """Run `init` and `save` in a temporary folder, each in its own process, so that even a crash is reported."""
    from tempfile import TemporaryDirectory

    with TemporaryDirectory(prefix="keepfast-doctor-") as scratch:
        folder = os.path.join(scratch, "tried")
        os.mkdir(folder)
        with open(os.path.join(folder, "file.txt"), "w", encoding="utf-8") as file:
            file.write("tried\n")
        for words in (["init"], ["save", "-m", "tried"]):
            failure = _failure_of(scratch, folder, words)
            if failure:
                yield PROBLEM, f"A test save in an empty folder failed: {failure}", "Reinstall keepfast."
                return
    yield FINE, "a test save succeeded"


def _failure_of(home: str, folder: str, words: list[str]) -> str:
    """Run a keepfast command with this Python and these modules; return its error, empty if it succeeded."""
    folders = (home, home + "/.config", home + "/.local/share")
    begin = f"import sys; sys.path[:] = {sys.path!r}; from keepfast.entry import main; main({folders!r})"
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-c", begin, *words], cwd=folder, env={"HOME": home}, stdin=subprocess.DEVNULL,
            capture_output=True, timeout=TEST_COMMAND_SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"`keepfast {words[0]}` did not finish."
    if done.returncode < 0:
        return f"`keepfast {words[0]}` crashed ({Signals(-done.returncode).name})."
    lines = done.stderr.decode("utf-8", "replace").split("\n")
    return next((line for line in reversed(lines) if line), "no reason given.") if done.returncode else ""


def _keys(session: Session) -> Findings:
    try:
        sealer = session.repository.contents.sealer()
    except NoWorkspace:
        return
    if find_spec("cryptography") is None:
        yield PROBLEM, "The package cryptography is missing: nothing can be sealed.", "Reinstall keepfast."
    store_sets = [key_set for key_set, _ in sealer.keys.sets()]
    unreadable = [key_set for key_set in count_key_use(session.repository) if not key_set.opens]
    if sealer.keys.problem():
        yield PROBLEM, f"{sealer.keys.problem()}.", "Run `keepfast verify --repair`."
    for key_set in unreadable:
        yield (
            PROBLEM if key_set.id in store_sets else NOTE,  # else it belongs to a bundle imported without passphrase
            f"The key of the key set {key_set.id} is missing: {plural(key_set.contents, 'content')} cannot be decrypted.",
            "Run `keepfast key import` with the backup of the key.",
        )
    if not sealer.keys.is_in_use():
        yield FINE, "nothing is sealed yet"
    elif not sealer.keys.is_backed_up():
        yield (
            NOTE,
            "There is no backup of the encryption key.",
            "Run `keepfast key export FILE` and store FILE on another machine or disk.",
        )
    elif not unreadable:
        yield FINE, f"the key opens all of {plural(len(store_sets), 'key set')}, and there is a backup"


def _bytecode(session: Session) -> Findings:
    missing = []
    for name in HOOK_MODULES:
        source = import_module("keepfast." + name).__file__
        if source is not None and not os.path.exists(cache_from_source(source)):
            missing.append(name)
    if not missing:
        yield FINE, "the hook's modules are compiled"
        return
    folder = os.path.dirname(import_module("keepfast").__file__ or ".")
    yield (
        NOTE,
        f"{len(missing)} of the hook's modules are not compiled; every hook starts slower.",
        f"Run `{sys.executable} -m compileall -q {folder}`.",
    )


def _settings(session: Session) -> Findings:
    warnings = session.settings.warnings
    for warning in warnings:
        yield NOTE, warning
    if not warnings:
        is_written = os.path.exists(session.config_path)
        yield FINE, session.config_path if is_written else f"defaults; {session.config_path} does not exist"


def _store(session: Session) -> Findings:
    path = session.engine.place.path
    try:
        session.engine.place.id()
    except NoWorkspace:
        session.engine.workspaces.require_known_store(session.cwd)
        above = _nearest_existing(path)
        if not os.access(above, os.W_OK | os.X_OK):
            yield PROBLEM, f"No store can be created at {path}: no write permission for {above}.", "Set `store.url`."
        else:
            yield NOTE, f"No store at {path} yet.", "Run `keepfast init` to create it."
        return
    session.engine.place.check_folders()
    seen = os.stat(path)
    if seen.st_uid != os.getuid():
        yield PROBLEM, f"{path} belongs to user {seen.st_uid}, not to you.", "Use a store of your own (`store.url`)."
    elif seen.st_mode & 0o077:
        yield PROBLEM, f"Other users can read {path} (mode {seen.st_mode & 0o777:o}).", f"Run `chmod 700 {path}`."
    elif not os.access(path, os.W_OK | os.X_OK):
        yield PROBLEM, f"{path} cannot be written.", "Check the permissions and the file system."
    else:
        workspaces = len(session.repository.workspaces())
        yield FINE, f"{path}, format 1, {workspaces} workspace{'' if workspaces == 1 else 's'}"


def _nearest_existing(path: str) -> str:
    """Return the path, or the nearest folder above it that exists."""
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return path


def _file_system(session: Session) -> Findings:
    """Check where the store is: locks and fsync are not reliable on network file systems and in synced folders."""
    path = session.engine.place.path
    kind, synced = file_system(os.path.realpath(path), mounts()), synced_folder(path)
    if is_remote(kind):
        yield (
            PROBLEM,
            f"The store is on a network file system ({kind}); locks and syncs are not reliable there.",
            "Set `store.url` to a local folder.",
        )
    elif synced:
        yield (
            PROBLEM,
            f"The store is in a synced folder ({synced}); syncing may damage it.",
            "Set `store.url` to a folder that is not synced.",
        )
    else:
        yield FINE, f"on {kind or 'a file system of unknown kind'}"


def _space(session: Session) -> Findings:
    about = os.statvfs(_nearest_existing(session.engine.place.path))
    free = about.f_bavail * about.f_frsize
    try:
        session.engine.place.id()
    except KeepfastError:  # `_store` reports it
        level = PROBLEM if free < CRITICAL_SPACE else NOTE if free < LOW_SPACE else FINE
        yield level, f"{size(free)} free on the disk where the store would be; there is no store"
        return
    if free < CRITICAL_SPACE:
        yield PROBLEM, f"Only {size(free)} free on the disk of the store.", "Free some space, or run `keepfast forget`."
    else:
        yield NOTE if free < LOW_SPACE else FINE, f"{size(free)} free on the disk of the store"
    used, most = store_size(session.repository), session.settings["retention.max_size"]
    if used > most:
        yield (
            NOTE,
            f"The store takes {size(used)}, over its limit of {size(most)}.",
            "Raise retention.max_size, or forget pinned, named or manual checkpoints: retention removes "
            "only the others.",
        )


def _last_verify(session: Session) -> Findings:
    """Report the damage that the last `keepfast verify` found."""
    verified = read_last_verify(session.engine.place.path)
    if verified is None:
        return
    age = age_in_words(verified.at, session.now())
    if not verified.problems:
        yield FINE, f"no damage found by the last verify, {age}"
        return
    for problem in verified.findings:
        versions = f" ({', '.join(problem.checkpoints)})" if problem.checkpoints else ""
        yield PROBLEM, f"Found {age} by `keepfast verify`: {problem.text}{versions}.", REPAIR_ADVICE
    if verified.problems > len(verified.findings):
        yield PROBLEM, f"… and {verified.problems - len(verified.findings):,} more.", REPAIR_ADVICE


def _workspace(session: Session) -> Findings:
    location = session.engine.workspaces.nearest(session.cwd)
    if location is None:
        session.engine.workspaces.require_known_store(session.cwd)
        yield (
            NOTE,
            f"{show(session.cwd)} is not inside a workspace.",
            "Run `keepfast init` in the folder to protect.",
        )
        return
    root, workspace = location
    other = session.engine.workspaces.other_store(root)
    if other:
        named = "a store that does not exist here" if other == "?" else f"the store {other}"
        yield (
            PROBLEM,
            f"The marker in {show(root)} names {named}; this store keeps a separate history for the folder, "
            "by its path.",
            "Set HOME and XDG_DATA_HOME to their former values and run `keepfast install claude`, or run "
            "`keepfast init --new-store` to stay with this store.",
        )
    row = session.repository.workspace(workspace)
    if row is None:
        yield (
            NOTE,
            f"{show(root)} has a marker, but is not registered in this store yet.",
            "The next `keepfast save` registers it.",
        )
        return
    failed = unsaved(session.engine.place.folder(workspace))
    try:
        count(session.engine, root)
    except TooMany as error:
        yield PROBLEM, f"{show(root)} is not saved: {error}", error.hint
        return
    except OSError as error:
        yield PROBLEM, f"{show(root)} cannot be read: {error.strerror}.", "Check its permissions."
        return
    if failed is not None and failed.kind != TooMany.kind:
        ago = age_in_words(failed.at, session.now())
        yield (
            PROBLEM,
            f"The last save of {show(root)} failed, {ago}: {failed.text}",
            "Run `keepfast save` to try again.",
        )
    else:
        yield FINE, f"{show(root)}, {f'newest version v{row.version}' if row.version else 'no checkpoint yet'}"


def _git(session: Session) -> Findings:
    """Check that git ignores the marker, so that it is never committed."""
    location = session.engine.workspaces.nearest(session.cwd)
    if location is None:
        return
    path_in_the_way = obstacle(location[0])
    if path_in_the_way:
        is_all = path_in_the_way.endswith(b"/" + MARKER)
        why = "is not a folder: restores cannot work" if is_all else "is a folder, but must be a file"
        yield PROBLEM, f"{show(path_in_the_way)} {why}.", "Move it elsewhere, then run `keepfast init`."
        return
    path = location[0] + b"/.keepfast/.gitignore"
    try:
        with open(path, "rb") as file:
            is_ignored = b"*" in file.read(4096).split(b"\n")
    except FileNotFoundError:
        is_ignored = False
    if is_ignored:
        yield FINE, "git ignores .keepfast"
    else:
        yield PROBLEM, f"{show(path)} does not make git ignore the folder.", f"Run `keepfast init {show(location[0])}`."


def _claude(session: Session) -> Findings:
    """Check the hooks in the client's settings files: those that cannot start fail silently."""
    launchers: set[str] = set()
    at_home = session.environment.folders == default_folders()
    for path in dict.fromkeys(settings_path(session, scope) for scope in SCOPES):
        hooks = look(read_client_file(path).text, path)
        commands = [*hooks.commands, *([hooks.statusline] if hooks.statusline else [])]
        places = [place_of(command) for command in commands]
        launchers.update(filter(None, places))
        missing = [word for command in commands for word in missing_files(command)]
        if missing:
            yield PROBLEM, f"{path} names {missing[0]}, which no longer exists.", "Run `keepfast install claude`."
        elif hooks.disabled and commands:
            yield PROBLEM, f"`disableAllHooks` is set in {path}: no hook runs.", "Remove that setting."
        elif not all(places) and not at_home:
            text = (
                f"Hooks in {path} were installed by an earlier version and use the home folder of your passwd "
                "entry instead of yours."
            )
            yield PROBLEM, text, "Run `keepfast install claude`."
        elif not all(places):
            yield NOTE, f"Hooks in {path} fail when keepfast is removed or upgraded.", "Run `keepfast install claude`."
        elif commands:
            yield FINE, f"hooks in {path}"
    if os.path.exists(launcher_path(session)):
        launchers.add(launcher_path(session))  # the plugin's hooks
    for path in sorted(launchers):
        yield from _launcher(path, session.environment.folders)


def _supervision(session: Session) -> Findings:
    """Report whether hooks were suspended for a supervisor, or ignored a false claim that they should be."""
    location = session.engine.workspaces.nearest(session.cwd)
    notices = read_notices(session.engine.workspaces.notice_folders(*location)) if location is not None else []
    recent = [notice for notice in notices if notice.at >= session.now() - WEEK]
    kinds = (supervision.HOOKS_SUSPENDED, supervision.CLAIM_IGNORED)
    latest = [next((notice for notice in reversed(recent) if notice.kind == kind), None) for kind in kinds]
    for notice in filter(None, latest):
        yield NOTE, f"{age_in_words(notice.at, session.now())}: {notice.text}"
    if not any(latest):
        yield FINE, "hooks were not suspended for a supervisor"
    if session.environment.text(supervision.SUPERVISED) and not supervision.run_above(session.environment):
        yield (
            NOTE,
            f"{supervision.SUPERVISED} is set, but no supervisor runs this process: hooks ignore it.",
            "Unset it, or remove it from the client's settings.",
        )


def _resident(session: Session) -> Findings:
    seen = state(session.environment, session.settings)
    text = f"{summary(session, seen)}."
    if session.settings[SETTING] == OFF:
        yield FINE, text
    elif not os.access(CLIENT, os.X_OK):
        yield (
            NOTE,
            "The client for hooks was not built, so each hook starts Python.",
            "Install a C compiler, then reinstall.",
        )
    elif seen.runs and seen.facts is None:
        yield NOTE, text, "Run `keepfast daemon stop`; the next hook starts a new one."
    else:
        yield FINE, text


def _variables(session: Session) -> Findings:
    """Report variables that a project's client settings set for hooks; hooks ignore them."""
    for path in dict.fromkeys(settings_path(session, scope) for scope in ("project", "local")):
        try:
            settings = loads(read_client_file(path).text or "{}")
        except (KeepfastError, ValueError, RecursionError):
            continue  # `_claude` reports it
        variables = settings.get("env") if isinstance(settings, dict) else None
        names = sorted(name for name in variables if _is_unsafe(name)) if isinstance(variables, dict) else []
        if names:
            yield (
                NOTE,
                f"{path} sets {', '.join(names)} for every process of the client; hooks ignore it.",
                "Remove them unless you set them. docs/hooks.md lists the variables that hooks cannot protect against.",
            )


def _is_unsafe(name: str) -> bool:
    return name in UNSAFE_VARIABLES or name.startswith(UNSAFE_PREFIXES)


def _launcher(path: str, own_folders: Folders) -> Findings:
    """Check that a launcher is intact and starts the hook: it is silent if it does not find keepfast."""
    if not os.path.exists(path):
        return  # `_claude` reports the settings that name it
    advice = "Run `keepfast install claude`, or `keepfast install claude --plugin` for the plugin."
    wrong = launcher_problem(path)
    if wrong:
        yield PROBLEM, f"{wrong}: hooks do nothing.", advice
        return
    missing = [file for file in named(read_client_file(path).text) if not os.access(file, os.R_OK)]
    problem = (missing and f"{path} cannot find keepfast: {missing[0]} no longer exists.") or start_problem([path])
    failed = last_failure(path)
    if problem:
        yield PROBLEM, problem, advice
    elif folders(read_client_file(path).text) is None:
        text = (
            f"{path} was written by an earlier version: hooks use the home folder of your passwd entry and ignore HOME."
        )
        yield (NOTE if own_folders == default_folders() else PROBLEM), text, advice
    elif (their_folders := folders(read_client_file(path).text)) is not None and not _are_same_paths(
        their_folders, own_folders
    ):
        differing = [
            f"{their_path} (here {our_path})"
            for their_path, our_path in zip(their_folders, own_folders, strict=True)
            if not _are_same_paths([their_path], [our_path])
        ]
        text = f"The hooks started by {path} use different folders than this command: {', '.join(differing)}."
        yield (
            PROBLEM,
            text,
            "Set HOME, XDG_CONFIG_HOME and XDG_DATA_HOME as they were at its installation. If the current "
            f"values are right: {advice}",
        )
    elif failed is not None:
        yield NOTE, f"Hooks start now, but one failed to start: {failed.text}", "This is normal during an upgrade."
    else:
        yield FINE, f"{path} works"


def _are_same_paths(one_list: Sequence[str], other_list: Sequence[str]) -> bool:
    return [os.path.realpath(path) for path in one_list] == [os.path.realpath(path) for path in other_list]


def _model_notes(session: Session) -> Findings:
    """Check the settings for notes by a model, and the result of the last attempt."""
    settings = session.settings
    how = settings["analysis.llm"]
    if how == "off":
        yield FINE, "notes are made by rules, without a model"
        return
    if how == "anthropic":
        from keepfast.resume.model_client import key_in

        key_in(settings["analysis.key_file"])
    elif not settings["analysis.command"]:
        yield PROBLEM, "analysis.command is empty.", "Set it, or set analysis.llm to off."
        return
    location = session.engine.workspaces.nearest(session.cwd)
    folder = session.engine.place.folder(location[1]) if location is not None else ""
    last = sessions.extract(folder, str(sessions.newest_facts(folder).get("session") or "")) if folder else {}
    if last.get("trouble"):
        yield (
            NOTE,
            (f"The last notes by a model ({how}) failed: {last['trouble']}"),
            "Notes made by rules are used instead.",
        )
    else:
        yield FINE, f"notes by a model ({how}){', the last one was used' if last else ''}"


CHECKS: dict[str, Callable[[Session], Findings]] = {
    "python": _python,
    "libraries": _libraries,
    "sqlite": _sqlite,
    "accelerator": _accelerator,
    "saving": _test_save,
    "bytecode": _bytecode,
    "settings": _settings,
    "store": _store,
    "keys": _keys,
    "filesystem": _file_system,
    "space": _space,
    "verified": _last_verify,
    "workspace": _workspace,
    "git": _git,
    "claude": _claude,
    "supervision": _supervision,
    "resident": _resident,
    "variables": _variables,
    "analysis": _model_notes,
}
