"""Refuses home, configuration and data folders that a repository may have set through the environment."""

from __future__ import annotations

import os

from keepfast.model.errors import Refused
from keepfast.present.environment import Environment, default_folders

FOLDER_VARIABLES = ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME")
KERNEL_FOLDERS = ("/proc", "/sys", "/dev")
"""Paths here differ for each process: `/proc/self/cwd` is the folder in which the command runs."""
PROJECT_MARKERS = (".git", ".keepfast/workspace.json")
"""Entries that mark a folder as a project."""
SHARED_FOLDERS = ("/tmp", "/var/tmp", "/private/tmp", "/private/var/tmp")
PROJECT_VARIABLE = "CLAUDE_PROJECT_DIR"
BELONGS_TO = "belongs to user"
HINT = (
    "A repository can set variables for an agent's commands. Unset it, or set it to a folder outside of "
    "all projects (a link from the usual place to a folder in a project is accepted)."
)


def refuse_untrusted_folders(environment: Environment, cwd: bytes) -> None:
    """Raise `Refused` if home, configuration or data folder is in a project, below `/proc`, or another user's.

    Folders of the passwd entry are never refused. Commands in an agent's shell have variables that a repository's client
    settings may set, and settings can name commands to run and files to exclude.
    """
    if environment.has_given_folders:
        return
    defaults = default_folders()
    places = (environment.folders[0], environment.config, environment.data)
    for name, folder, place, default in zip(FOLDER_VARIABLES, environment.folders, places, defaults, strict=True):
        if folder == default:
            continue
        why = _distrust(place, defaults[0], _projects(environment, os.fsdecode(cwd), defaults[0]))
        if why:
            variable = name if environment.text(name) else FOLDER_VARIABLES[0]
            hint = f"Run this as that user, or set HOME={defaults[0]}." if why.startswith(BELONGS_TO) else HINT
            raise Refused(f"{variable} is not trusted: {place} {why}.", hint)


def _projects(environment: Environment, cwd: str, home: str) -> list[str]:
    """Return the folders that a repository may control: the current one, and the project of the agent's client."""
    folders = [os.path.realpath(path) for path in (cwd, environment.text(PROJECT_VARIABLE)) if path.startswith("/")]
    # A home folder and the folders above it are not a repository's. An agent could set HOME to its project, so for it only
    # the home folder of the passwd entry counts.
    homes = [home] if environment.is_agents() else [home, os.path.realpath(environment.folders[0])]
    return [
        path
        for path in folders
        if path not in SHARED_FOLDERS and not any(_contains(path, home_folder) for home_folder in homes)
    ]


def _distrust(place: str, home: str, projects: list[str]) -> str:
    """Return why a folder is not trusted; empty if it is."""
    real = os.path.realpath(place)
    for path in (os.path.normpath("/" + place.lstrip("/")), real):
        if any(_contains(top, path) for top in KERNEL_FOLDERS):
            return "is a path of the kernel, not a folder"
        inside = next((project for project in projects if _contains(project, path)), "")
        inside = inside or _project_around(path, home)
        if inside:
            return f"is inside the project {inside}"
    existing = _nearest_existing(real)
    # The owner of the folder can replace a file in it.
    return _foreign_owner(existing) or (_foreign_owner(os.path.dirname(existing)) if os.path.isfile(existing) else "")


def _project_around(path: str, home: str) -> str:
    """Return the nearest project around a path, below the folders that contain the user's home; empty if none."""
    while not _contains(path, home):
        if any(os.path.lexists(f"{path}/{sign}") for sign in PROJECT_MARKERS):
            return path
        path = os.path.dirname(path)
    return ""


def _foreign_owner(path: str) -> str:
    try:
        owner = os.stat(path).st_uid
    except OSError:
        return ""
    return "" if owner in (os.geteuid(), 0) else f"{BELONGS_TO} {owner}"


def _nearest_existing(path: str) -> str:
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    return path


def _contains(folder: str, path: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
