"""`holdfast service`: let the supervisor start with the machine."""

from __future__ import annotations

import os
import plistlib
import subprocess
import sys
from typing import NamedTuple

import click

from holdfast.core.errors import Failed
from holdfast.frontends.cli.lazy import Listed
from holdfast.frontends.cli.session import Session, common, write_json

NAME = "holdfast-supervisor"
LABEL = "dev.holdfast.supervisor"
COMMANDS = {
    "systemd": {
        "install": [
            ["systemctl", "--user", "daemon-reload"],
            ["systemctl", "--user", "enable", "--now", f"{NAME}.service"],
        ],
        "uninstall": [["systemctl", "--user", "disable", "--now", f"{NAME}.service"]],
    },
    "launchd": {
        "install": [["launchctl", "load", "-w", "{path}"]],
        "uninstall": [["launchctl", "unload", "-w", "{path}"]],
    },
}


class Unit(NamedTuple):
    """What is written, where, and who reads it."""

    kind: str
    path: str
    text: str


@click.group(cls=Listed)
def service() -> None:
    """Tasks go on after a restart of the machine."""


@service.command("install")
@click.option("-n", "--dry-run", is_flag=True, help="Only show what would be written.")
@click.option("--no-start", is_flag=True, help="Write the file, do not start anything.")
@common
def install(session: Session, dry_run: bool, no_start: bool) -> None:
    """Start the supervisor with your session, and again if it ends."""
    unit = unit_of(session)
    if not dry_run:
        try:
            os.makedirs(os.path.dirname(unit.path), exist_ok=True)
            with open(unit.path, "w") as file:
                file.write(unit.text)
        except OSError as error:
            raise Failed(f"{unit.path} cannot be written: {error.strerror}.") from None
    started = not dry_run and not no_start and _run(session, unit, "install")
    if session.json:
        write_json({"kind": unit.kind, "path": unit.path, "text": unit.text, "dry_run": dry_run, "started": started})
    elif dry_run:
        session.print(f"{unit.path}:\n{unit.text}")
    else:
        session.say(f"Wrote {unit.path}" + (" and started it." if started else "."))
        if unit.kind == "systemd":
            session.remark("`loginctl enable-linger` lets it run while you are not logged in.")


@service.command("status")
@common
def status(session: Session) -> None:
    """Is it installed, and does a supervisor run?"""
    from holdfast.supervisor.process import is_locked
    from holdfast.supervisor.serving import FOLDER

    unit = unit_of(session)
    installed = os.path.exists(unit.path)
    running = is_locked(session.around.data + FOLDER + "/lock")
    if session.json:
        write_json({"kind": unit.kind, "path": unit.path, "installed": installed, "running": running})
        return
    session.print(f"{unit.path}: {'installed' if installed else 'not installed'}")
    session.print("A supervisor is running." if running else "No supervisor is running.")


@service.command("uninstall")
@common
def uninstall(session: Session) -> None:
    """Do not start it with the machine any more; running agents live on."""
    unit = unit_of(session)
    was_there = os.path.exists(unit.path)
    if was_there:
        _run(session, unit, "uninstall")
        os.unlink(unit.path)
    if session.json:
        write_json({"kind": unit.kind, "path": unit.path, "removed": was_there})
    else:
        session.say(f"Removed {unit.path}." if was_there else "It was not installed.")


def unit_of(session: Session) -> Unit:
    """The systemd user unit, or the launch agent on macOS."""
    home = os.fsdecode(session.around.home)
    words = [sys.executable, "-m", "holdfast", "-q", "supervise"]
    if sys.platform == "darwin":
        logs = session.around.data + "/supervisor/supervisor.log"
        content = {
            "Label": LABEL, "ProgramArguments": words, "RunAtLoad": True, "KeepAlive": True, "StandardErrorPath": logs,
            "EnvironmentVariables": {"PATH": session.around.text("PATH")},
        }  # fmt: skip
        return Unit("launchd", f"{home}/Library/LaunchAgents/{LABEL}.plist", plistlib.dumps(content).decode())
    folder = os.path.dirname(os.path.dirname(session.around.config)) + "/systemd/user"
    command = " ".join([f'"{word}"' if " " in word else word for word in words])
    # KillMode=process: agents outlive the supervisor, and the next one finds them again.
    text = (
        "[Unit]\nDescription=holdfast supervisor\nAfter=network-online.target\n\n"
        f"[Service]\nExecStart={command}\nRestart=always\nRestartSec=5\nKillMode=process\nUMask=0077\n"
        f"Environment=PATH={session.around.text('PATH')}\n\n[Install]\nWantedBy=default.target\n"
    )
    return Unit("systemd", f"{folder}/{NAME}.service", text)


def _run(session: Session, unit: Unit, what: str) -> bool:
    """Tell the system; False if there is none to tell, as in a container."""
    for words in COMMANDS[unit.kind][what]:
        filled = [word.format(path=unit.path) for word in words]
        variables = {os.fsdecode(name): os.fsdecode(value) for name, value in session.around.variables.items()}
        try:
            done = subprocess.run(filled, capture_output=True, env=variables, timeout=30)
        except (OSError, subprocess.SubprocessError) as error:
            session.remark(f"`{' '.join(filled)}` could not be run: {error}.")
            return False
        if done.returncode:
            session.remark(f"`{' '.join(filled)}`: {done.stderr.decode('utf-8', 'replace').strip()}")
            return False
    return True
