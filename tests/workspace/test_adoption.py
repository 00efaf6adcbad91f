"""Which folder a session's hooks take for a workspace, and which they never do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from keepfast.model.errors import Refused
from keepfast.workspace.adoption import belongs, is_large, refuse_whole, root_for


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    (home / "work" / "deep").mkdir(parents=True)
    return home


def chosen(cwd: Path | str, home: Path, mode: str = "any", project: Path | str = "") -> str | None:
    found = root_for(os.fsencode(cwd), os.fsencode(project), mode, os.fsencode(home))
    return None if found is None else os.fsdecode(found)


def test_without_git_it_is_the_folder_of_the_session(home: Path) -> None:
    assert chosen(home / "work", home) == str(home / "work")
    assert chosen(home / "work", home, "git") is None


def test_in_a_repository_it_is_the_repository(home: Path) -> None:
    (home / "work" / ".git").mkdir()

    assert chosen(home / "work" / "deep", home) == chosen(home / "work" / "deep", home, "git") == str(home / "work")


def test_after_a_change_of_folder_it_is_still_where_the_session_began(home: Path) -> None:
    assert chosen(home / "work" / "deep", home, project=home / "work") == str(home / "work")
    assert chosen(home / "work", home, project=home / "work" / "deep") == str(home / "work")
    assert chosen(home / "work", home, project="/nowhere") == str(home / "work")


def test_a_home_folder_under_git_does_not_keep_its_projects_from_being_protected(home: Path) -> None:
    (home / ".git").mkdir()

    assert chosen(home / "work", home) == str(home / "work")
    with pytest.raises(Refused):
        chosen(home / "work", home, "git")


@pytest.mark.parametrize("name", ["", "Desktop", "Documents", "Downloads", ".."])
@pytest.mark.parametrize("git", [True, False])
def test_what_holds_a_whole_life_is_refused(home: Path, name: str, git: bool) -> None:
    folder = Path(os.path.realpath(home / name)) if name == ".." else home / name
    folder.mkdir(exist_ok=True)
    if git:
        (folder / ".git").mkdir()

    with pytest.raises(Refused):
        chosen(folder, home)


def test_a_project_on_the_desktop_is_a_project(home: Path) -> None:
    (home / "Desktop" / "site").mkdir(parents=True)

    assert chosen(home / "Desktop" / "site", home) == str(home / "Desktop" / "site")


@pytest.mark.parametrize(
    "folder", ["/", "/etc", "/usr", "/usr/bin", "/usr/share", "/var", "/var/log", "/tmp", "/proc", "/dev"]
)
def test_folders_of_the_system_are_refused(home: Path, folder: str) -> None:
    with pytest.raises(Refused):
        chosen(os.path.realpath(folder), home)


@pytest.mark.parametrize(
    "folder",
    "/usr/lib /usr/lib/python3/x /usr/share /usr/share/doc/x /usr/local/bin/x /bin/x /sbin /lib64/x /boot/grub /dev/disk /proc/1"
    " /sys/x /run/x /var/lib/x /var/cache/x /var/log/x /var/spool/x /opt /usr/local /usr/src /srv /var/www".split(),
)
def test_what_belongs_to_the_system_does_so_as_a_repository_too(folder: str) -> None:
    assert belongs(folder.encode(), False) and belongs(folder.encode(), True)


@pytest.mark.parametrize(
    "folder", "/opt/app /srv/site /usr/src/linux /usr/local/app /usr/local/src/x /var/www/site /mnt/a /tmp/x".split()
)
def test_a_project_beside_the_systems_folders_is_one(folder: str) -> None:
    assert not belongs(folder.encode(), False)


def test_below_etc_only_a_repository_is_a_project() -> None:
    assert belongs(b"/etc/nginx", False) and not belongs(b"/etc/nginx", True)
    assert belongs(b"/etc", True)


@pytest.mark.parametrize("folder", ["/usr/lib", "/usr/share", "/etc/ssl"])
def test_init_refuses_what_lies_in_the_systems_folders(home: Path, folder: str) -> None:
    with pytest.raises(Refused):
        refuse_whole(folder.encode(), os.fsencode(home))


def test_a_home_among_the_systems_folders_has_projects() -> None:
    """Services have their homes below /var/lib."""
    refuse_whole(b"/var/lib/builder/project", b"/var/lib/builder")


def test_a_link_to_a_folder_of_the_system_is_refused_too(home: Path) -> None:
    (home / "link").symlink_to("/etc")

    with pytest.raises(Refused):
        chosen(home / "link", home)


@pytest.mark.parametrize("mode", ["marked", "never"])
def test_a_setting_that_wants_none_is_no_reason_to_complain(home: Path, mode: str) -> None:
    assert chosen(home, home, mode) is chosen("/etc", home, mode) is None


def test_a_folder_that_is_gone_is_none(home: Path) -> None:
    assert chosen(home / "gone", home) is None


def test_a_count_stops_where_the_answer_is_known_and_passes_over_what_is_excluded(tmp_path: Path) -> None:
    for name in ("src", "node_modules"):
        (tmp_path / name).mkdir()
        for number in range(5):
            (tmp_path / name / str(number)).touch()
    root = os.fsencode(tmp_path)

    assert is_large(root, ["node_modules/"], 7, 60) is False
    assert is_large(root, ["node_modules/"], 6, 60) is True
    assert is_large(root, [], 11, 60) is True
    assert is_large(root, [], 100, 0) is False


def test_a_count_does_not_take_for_ever(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    for number in range(1_001):
        (tmp_path / str(number)).touch()

    assert is_large(os.fsencode(tmp_path), [], 2_000, 0) is None
    assert is_large(os.fsencode(tmp_path), [], 2_000, 60) is False
