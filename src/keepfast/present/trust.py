"""Which folders a command takes from its environment: none that a repository can have put there."""

from __future__ import annotations

import os

from keepfast.model.errors import Refused
from keepfast.present.environment import default_folders

TYPE_CHECKING = False
if TYPE_CHECKING:
    from keepfast.present.environment import Surroundings

NAMES = ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME")
KERNEL = ("/proc", "/sys", "/dev")
"""Here a name means another folder for each process: `/proc/self/cwd` is whatever folder the command is run in."""
SIGNS = (".git", ".keepfast/workspace.json")
"""What tells that a folder is somebody's project."""
SHARED = ("/tmp", "/var/tmp", "/private/tmp", "/private/var/tmp")
PROJECT = "CLAUDE_PROJECT_DIR"
FOREIGN = "belongs to user"
HINT = (
    "A repository can set variables for an agent's commands. Unset it, or set it to a folder outside of "
    "all projects (a link from the usual place to a folder in a project is accepted)."
)


def refuse_strange(around: Surroundings, cwd: bytes) -> None:
    """Raise `Refused` where home, configuration or data lie in a project, below `/proc`, or belong to somebody else.

    What the passwd entry says is nobody's but the user's, and never refused. A command in an agent's shell has the variables
    that a repository's own client settings name; a configuration may name commands, and what a save leaves out.
    """
    if around.is_told:
        return
    usual = default_folders()
    ours = (around.folders[0], around.config, around.data)
    for name, folder, place, known in zip(NAMES, around.folders, ours, usual, strict=True):
        if folder == known:
            continue
        why = _strange(place, usual[0], _projects(around, os.fsdecode(cwd), usual[0]))
        if why:
            named = name if around.text(name) else NAMES[0]
            hint = f"Run this as that user, or set HOME={usual[0]}." if why.startswith(FOREIGN) else HINT
            raise Refused(f"{named} is not trusted: {place} {why}.", hint)


def _projects(around: Surroundings, cwd: str, home: str) -> list[str]:
    """Folders that a repository may have filled: where we are, and where the agent's client says that it is."""
    found = [os.path.realpath(path) for path in (cwd, around.text(PROJECT)) if path.startswith("/")]
    # Nobody clones into a folder that holds a whole life, or everybody's. A person may be at home, or above it, wherever that
    # is; an agent's commands are in a project.
    homes = [home] if around.is_agents() else [home, os.path.realpath(around.folders[0])]
    return [path for path in found if path not in SHARED and not any(_holds(path, one) for one in homes)]


def _strange(place: str, home: str, projects: list[str]) -> str:
    """Why a folder is not one of the user's own; empty if nothing speaks against it."""
    real = os.path.realpath(place)
    for path in (os.path.normpath("/" + place.lstrip("/")), real):
        if any(_holds(top, path) for top in KERNEL):
            return "is a path of the kernel, not a folder"
        inside = next((project for project in projects if _holds(project, path)), "")
        inside = inside or _project_around(path, home)
        if inside:
            return f"is inside the project {inside}"
    there = _first_there(real)
    # Whoever has the folder can put another file into it.
    return _foreign(there) or (_foreign(os.path.dirname(there)) if os.path.isfile(there) else "")


def _project_around(path: str, home: str) -> str:
    """The nearest project that a path lies in; empty if there is none, up to what holds the user's own home."""
    while not _holds(path, home):
        if any(os.path.lexists(f"{path}/{sign}") for sign in SIGNS):
            return path
        path = os.path.dirname(path)
    return ""


def _foreign(path: str) -> str:
    try:
        owner = os.stat(path).st_uid
    except OSError:
        return ""
    return "" if owner in (os.geteuid(), 0) else f"{FOREIGN} {owner}"


def _first_there(path: str) -> str:
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    return path


def _holds(folder: str, path: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
