"""Runs a client interactively in this terminal, with hooks that save checkpoints and notice usage limits."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from typing import Any

from keepfast.agents.claude.installer import hooks_for
from keepfast.agents.launcher import hook
from keepfast.cli.client_files import is_hooked, write_launcher
from keepfast.cli.session import Session
from keepfast.model.errors import KeepfastError, Limited, Usage
from keepfast.model.event import Event
from keepfast.secrets.cuts import head

SETTINGS_OPTION = "--settings"
LIMIT_FILE_BYTES = 1 << 16


def run_client(session: Session, words: list[str]) -> int:
    """Run the client until it ends; return its exit code. Raises `Limited` if it stopped at its usage limit."""
    _save_first(session)
    marker = f"{session.environment.data}/supervisor/limited.{os.getpid()}"
    os.makedirs(os.path.dirname(marker), mode=0o700, exist_ok=True)
    command = _add_hooks(session, words, marker)
    variables = {os.fsdecode(name): os.fsdecode(value) for name, value in session.environment.variables.items()}
    try:
        code = in_foreground(command, variables)
        limited = _read(marker)
    finally:
        for path in (marker, marker + ".new"):
            if os.path.lexists(path):
                os.unlink(path)
    if limited:
        raise Limited(f"The agent reached its usage limit: {limited}", "Start it again when the limit has reset.")
    return code


def in_foreground(command: list[str], variables: dict[str, str]) -> int:
    """Run a child in our process group and terminal; return its exit code.

    Ctrl-C and the like reach the child and do not end this process.
    """
    modes = _terminal_modes()
    try:
        # Handlers, not SIG_IGN, which the child would inherit.
        before = {number: signal.signal(number, _ignore_signal) for number in (signal.SIGINT, signal.SIGQUIT)}
        child = subprocess.Popen(command, env=variables)
    except OSError as error:
        raise Usage(f"{command[0]} cannot be started: {error.strerror}.") from None
    for number in (signal.SIGTERM, signal.SIGHUP):
        before[number] = signal.signal(number, lambda number, frame: _pass_on(child.pid, number))
    try:
        while True:
            _, status = os.waitpid(child.pid, os.WUNTRACED)
            if not os.WIFSTOPPED(status):
                break
            os.kill(os.getpid(), signal.SIGSTOP)  # suspend with the child; `fg` continues both
            _pass_on(child.pid, signal.SIGCONT)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        _restore(modes)
    child.returncode = code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _save_first(session: Session) -> None:
    try:
        session.engine.handle(Event(session.cwd, session.now(), trigger="auto", message="before a session", adopt=True))
    except KeepfastError as error:
        session.warn(f"keepfast: {error}")  # start the client anyway


def _add_hooks(session: Session, words: list[str], marker: str) -> list[str]:
    """Return the command with our hooks merged into the settings that it passes itself."""
    settings, rest = {}, list(words)
    if SETTINGS_OPTION in rest[:-1]:
        at = rest.index(SETTINGS_OPTION)
        settings = _client_settings(rest[at + 1])
        del rest[at : at + 2]
    hooks = dict(settings.get("hooks") or {})
    for event, groups in _hooks(session, marker):
        hooks[event] = [*hooks.get(event, []), *groups]
    return [rest[0], SETTINGS_OPTION, json.dumps({**settings, "hooks": hooks}), *rest[1:]]


def _hooks(session: Session, marker: str) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    if not is_hooked(session):
        launcher = write_launcher(session)
        yield from hooks_for(lambda *words: hook(launcher, *words)).items()
    place = shlex.quote(marker)
    limited = (
        f'cat > {place}.new; if grep -q \'"error": *"rate_limit"\' {place}.new; '
        f"then mv {place}.new {place}; else rm -f {place}.new; fi"
    )
    for event, command in (("StopFailure", limited), ("Stop", f"rm -f {place}")):
        yield event, [{"hooks": [{"type": "command", "command": command, "timeout": 5}]}]


def _client_settings(value: str) -> dict[str, Any]:
    """Return the settings that the command line gives, as a file or as JSON. Raises `Usage`."""
    try:
        if not value.lstrip().startswith("{"):
            with open(value, encoding="utf-8") as file:
                value = file.read()
        settings = json.loads(value)
    except (OSError, ValueError) as error:
        raise Usage(f"The settings in {SETTINGS_OPTION} cannot be read: {error}.") from None
    if not isinstance(settings, dict):
        raise Usage(f"The settings in {SETTINGS_OPTION} are not a JSON object.")
    return settings


def _read(marker: str) -> str:
    """Return the client's message about its limit; empty if it was not limited, or continued since."""
    try:
        with open(marker, encoding="utf-8", errors="replace") as file:
            event = json.loads(file.read(LIMIT_FILE_BYTES))
    except FileNotFoundError:
        return ""
    except (OSError, ValueError):
        event = {}
    text = event.get("last_assistant_message") or event.get("error_details") if isinstance(event, dict) else ""
    return head(" ".join(str(text or "rate limit").split()), 300)


def _terminal_modes() -> list[Any] | None:
    if not sys.stdin.isatty():
        return None
    return termios.tcgetattr(sys.stdin.fileno())


def _restore(modes: list[Any] | None) -> None:
    """Restore the terminal's modes: a client that was killed leaves it in raw mode."""
    if modes is not None:
        termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, modes)


def _pass_on(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def _ignore_signal(number: int, frame: object) -> None:
    pass
