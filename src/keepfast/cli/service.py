"""`keepfast service`: start the supervisor at login."""

from __future__ import annotations

import os
import plistlib
import subprocess
import sys
from typing import NamedTuple

import click

from keepfast.cli.lazy import OrderedGroup
from keepfast.cli.session import Session, common, write_json
from keepfast.model.errors import Failed
from keepfast.model.frozen import FORMER
from keepfast.present.environment import Environment
from keepfast.runner.scheduler.lock import supervisor_problem

NAME = "keepfast-supervisor"
LABEL = "dev.keepfast.runner"
PASSED_VARIABLES = ("PATH", "LANG", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "CLAUDE_CONFIG_DIR")
"""Variables that the supervisor needs from your shell: paths of programs, settings, tasks and the client."""
COMMANDS = {
    "systemd": {
        "install": [
            ["systemctl", "--user", "daemon-reload"],
            ["systemctl", "--user", "enable", "--now", f"{NAME}.service"],
        ],
        "uninstall": [["systemctl", "--user", "disable", "--now", f"{NAME}.service"]],
    },
    "launchd": {
        "install": [["launchctl", "bootstrap", "gui/{user}", "{path}"]],
        "uninstall": [["launchctl", "bootout", "gui/{user}/" + LABEL]],
    },
}


class Unit(NamedTuple):
    """A service file: its kind, path and text."""

    kind: str
    path: str
    text: str


@click.group(cls=OrderedGroup)
def service() -> None:
    """Start the supervisor at login, so that tasks continue after a reboot."""


@service.command("install")
@click.option("-n", "--dry-run", is_flag=True, help="Show what would be written, and write nothing.")
@click.option("--no-start", is_flag=True, help="Write the service file, but do not start the supervisor.")
@common
def install(session: Session, dry_run: bool, no_start: bool) -> None:
    """Install a user service that starts the supervisor at login and restarts it if it ends."""
    unit = unit_of(session.environment)
    if not dry_run:
        try:
            os.makedirs(os.path.dirname(unit.path), exist_ok=True)
            os.makedirs(session.environment.data + "/supervisor", mode=0o700, exist_ok=True)
            # systemd and launchd read UTF-8, whatever the locale; file names may be any bytes.
            with open(unit.path, "w", encoding="utf-8", errors="surrogateescape") as file:
                file.write(unit.text)
        except OSError as error:
            raise Failed(f"{unit.path} cannot be written: {error.strerror}.") from None
        _drop_former(session, unit)
    started = not dry_run and not no_start and run_commands(session, unit, "install")
    if session.json:
        write_json({"kind": unit.kind, "path": unit.path, "text": unit.text, "dry_run": dry_run, "started": started})
    elif dry_run:
        session.print(f"{unit.path}:\n{unit.text}")
    else:
        session.say(f"Wrote {unit.path}" + (" and started it." if started else "."))
        if unit.kind == "systemd":
            session.remark("Run `loginctl enable-linger` to keep it running while you are not logged in.")


@service.command("status")
@common
def status(session: Session) -> None:
    """Show whether the service is installed and a supervisor is running."""
    from keepfast.runner.scheduler.service import FOLDER

    unit = unit_of(session.environment)
    installed = os.path.exists(unit.path)
    problem = supervisor_problem(session.environment.data + FOLDER)
    running = problem is not None
    if session.json:
        facts = {"kind": unit.kind, "path": unit.path, "installed": installed, "running": running}
        write_json({**facts, "trouble": problem or None})
        return
    session.print(f"{unit.path}: {'installed' if installed else 'not installed'}")
    session.print("A supervisor is running." if running else "No supervisor is running.")
    if problem:
        session.warn(f"The supervisor cannot work: {problem}")


@service.command("uninstall")
@common
def uninstall(session: Session) -> None:
    """Remove the service. Running agents continue."""
    unit = unit_of(session.environment)
    was_there = os.path.exists(unit.path)
    if was_there:
        run_commands(session, unit, "uninstall")
        os.unlink(unit.path)
    was_there = _drop_former(session, unit) or was_there
    if session.json:
        write_json({"kind": unit.kind, "path": unit.path, "removed": was_there})
    else:
        session.say(f"Removed {unit.path}." if was_there else "The service was not installed.")


def unit_of(environment: Environment, platform: str = sys.platform) -> Unit:
    """Return the systemd user unit, or the launch agent on macOS."""
    home = os.fsdecode(environment.home)
    words = [sys.executable, "-m", "keepfast", "-q", "supervise"]
    variables = {name: environment.text(name) for name in PASSED_VARIABLES if environment.text(name)}
    if platform == "darwin":
        logs = environment.data + "/supervisor/supervisor.log"
        return Unit("launchd", f"{home}/Library/LaunchAgents/{LABEL}.plist", launch_agent(words, variables, logs))
    folder = os.path.dirname(os.path.dirname(environment.config)) + "/systemd/user"
    return Unit("systemd", f"{folder}/{NAME}.service", systemd_unit(words, variables))


def _drop_former(session: Session, unit: Unit) -> bool:
    """Remove the unit installed under the former name, which starts a program that no longer exists."""
    folder, name = os.path.split(unit.path)
    path = os.path.join(folder, name.replace("keepfast", FORMER))
    if not os.path.exists(path):
        return False
    for words in COMMANDS[unit.kind]["uninstall"]:
        run_command(session, [word.replace("keepfast", FORMER).format(user=os.getuid()) for word in words])
    os.unlink(path)
    return True


def systemd_unit(words: list[str], variables: dict[str, str]) -> str:
    """Return a systemd user unit. KillMode=process: agents outlive the supervisor, and the next one finds them again."""
    settings = "".join([f"Environment={_quoted(f'{name}={value}')}\n" for name, value in variables.items()])
    return (
        "[Unit]\nDescription=keepfast supervisor\n\n"
        f"[Service]\nExecStart={' '.join([_quoted(word).replace('$', '$$') for word in words])}\n"
        "Restart=always\nRestartSec=5\nKillMode=process\nUMask=0077\n"
        f"{settings}\n[Install]\nWantedBy=default.target\n"
    )


def _quoted(word: str) -> str:
    """Quote a word for a systemd unit."""
    inside = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{inside}"'


def launch_agent(words: list[str], variables: dict[str, str], logs: str) -> str:
    """Return a property list for launchd. AbandonProcessGroup: agents outlive the supervisor."""
    content = {
        "Label": LABEL, "ProgramArguments": words, "EnvironmentVariables": variables, "RunAtLoad": True, "KeepAlive": True,
        "AbandonProcessGroup": True, "ThrottleInterval": 5, "ProcessType": "Background", "Umask": 0o077,
        "StandardErrorPath": logs,
    }  # fmt: skip
    return plistlib.dumps(content).decode()


def run_commands(session: Session, unit: Unit, what: str) -> bool:
    """Run the commands that install or uninstall the unit; return False if one fails, as in a container."""
    for words in COMMANDS[unit.kind][what]:
        filled = [word.format(path=unit.path, user=os.getuid()) for word in words]
        if not run_command(session, filled):
            return False
    return True


def run_command(session: Session, words: list[str]) -> bool:
    variables = {os.fsdecode(name): os.fsdecode(value) for name, value in session.environment.variables.items()}
    try:
        done = subprocess.run(words, capture_output=True, env=variables, timeout=30)
    except (OSError, subprocess.SubprocessError) as error:
        session.remark(f"`{' '.join(words)}` could not be run: {error}.")
        return False
    if done.returncode:
        session.remark(f"`{' '.join(words)}`: {done.stderr.decode('utf-8', 'replace').strip()}")
        return False
    return True
