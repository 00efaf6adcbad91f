"""A command in an agent's shell has a repository's variables: no folder is taken from them that a repository can fill."""

from __future__ import annotations

import json
import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from keepfast.app.wiring import build
from keepfast.app.workspaces import DAY
from keepfast.cli.client_files import is_hooked
from keepfast.cli.session import Session
from keepfast.model.errors import Refused
from keepfast.present import trust
from keepfast.present.environment import Environment, default_folders
from keepfast.present.server_options import McpOptions
from keepfast.present.trust import refuse_untrusted_folders
from keepfast.settings import Settings, load
from keepfast.state.notices import read
from tests.equipment.box import Box

EVIL = {"analysis": {"llm": "command", "command": ["/bin/false"]}, "capture": {"exclude": ["*"]}}


def configured(folder: Path) -> Path:
    (folder / "keepfast").mkdir(parents=True)
    (folder / "keepfast/config.json").write_text(json.dumps(EVIL))
    return folder


def refused(box: Box, **variables: str) -> bool:
    """Is a command refused, with its own exit code, before it has done anything?"""
    box.variables.update(variables)
    done = box.call("save", "--json")
    if done.code == 0:
        return False
    assert (done.code, done.json()["error"]["kind"]) == (2, "refused")
    return True


@pytest.mark.parametrize("name", ["XDG_CONFIG_HOME", "XDG_DATA_HOME", "HOME"])
@pytest.mark.parametrize(
    "value",
    [
        "{project}/.cfg",
        "/proc/self/cwd/.cfg",
        "//proc/self/cwd/.cfg",
        "/tmp/../proc/self/cwd/.cfg",
        "/proc/self/root{project}/.cfg",
        "{project}/../project/.cfg",
        "{project}/.cfg/",
        "/dev/fd/../../proc/self/cwd/.cfg",
        "/sys",
    ],
)
def test_a_folder_in_the_project_or_below_proc_is_refused(saved_box: Box, name: str, value: str) -> None:
    configured(saved_box.project / ".cfg")
    before = len(list(saved_box.store.glob("packs/*")))

    assert refused(saved_box, **{name: value.format(project=saved_box.project)})
    assert len(list(saved_box.store.glob("packs/*"))) == before


@pytest.mark.parametrize("name", ["XDG_CONFIG_HOME", "XDG_DATA_HOME"])
@pytest.mark.parametrize("value", [".cfg", "./.cfg", "../project/.cfg", ""])
def test_a_folder_that_is_not_absolute_is_ignored(saved_box: Box, name: str, value: str) -> None:
    configured(saved_box.project / ".cfg")
    before = saved_box.call("list", "--json").json()
    saved_box.variables[name] = value

    done = saved_box.call("list", "--json")

    assert (done.code, done.json()) == (0, before)


def test_a_name_of_the_kernels_or_in_the_project_is_refused_wherever_it_leads(saved_box: Box) -> None:
    own = configured(saved_box.base / "own")
    (saved_box.project / "link").symlink_to(own)

    for name in (f"/proc/self/root{own}", f"{saved_box.project}/link"):
        assert refused(saved_box, XDG_CONFIG_HOME=name), name


def test_a_link_into_the_project_is_followed_before_it_is_judged(saved_box: Box) -> None:
    configured(saved_box.project / ".cfg")
    (saved_box.base / "link").symlink_to(saved_box.project / ".cfg")
    (saved_box.base / "outside").mkdir()
    (saved_box.base / "outside/keepfast").symlink_to(saved_box.project / ".cfg/keepfast")
    (saved_box.base / "file/keepfast").mkdir(parents=True)
    (saved_box.base / "file/keepfast/config.json").symlink_to(saved_box.project / ".cfg/keepfast/config.json")

    assert [refused(saved_box, XDG_CONFIG_HOME=str(saved_box.base / name)) for name in ("link", "outside", "file")] == [
        True
    ] * 3


@pytest.mark.parametrize("sign", [".git/HEAD", ".keepfast/workspace.json"])
def test_a_folder_in_any_other_project_is_refused_wherever_the_command_is_run(saved_box: Box, sign: str) -> None:
    """An absolute path may be known: in a container every repository lies in the same place."""
    other = saved_box.base / "other"
    (other / sign).parent.mkdir(parents=True)
    (other / sign).write_text("{}")
    configured(other / "deep/er/.cfg")

    assert refused(saved_box, XDG_CONFIG_HOME=str(other / "deep/er/.cfg"))


def test_a_folder_beside_the_command_is_refused_where_the_client_has_the_project(saved_box: Box) -> None:
    configured(saved_box.base / "tarball/.cfg")

    assert refused(
        saved_box,
        XDG_CONFIG_HOME=str(saved_box.base / "tarball/.cfg"),
        CLAUDE_PROJECT_DIR=str(saved_box.base / "tarball"),
    )


def test_another_folder_by_the_option_is_judged_again(saved_box: Box, tmp_path: Path) -> None:
    configured(tmp_path / "plain/.cfg")
    saved_box.variables["XDG_CONFIG_HOME"] = str(tmp_path / "plain/.cfg")

    done = saved_box.call("-C", str(tmp_path / "plain"), "list", "--json")

    assert done.json()["error"]["kind"] == "refused"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_folder_or_file_of_another_user_is_refused(saved_box: Box) -> None:
    os.chown(configured(saved_box.base / "theirs") / "keepfast", 65534, 65534)
    os.chown(configured(saved_box.base / "half") / "keepfast/config.json", 65534, 65534)

    assert [refused(saved_box, XDG_CONFIG_HOME=str(saved_box.base / name)) for name in ("theirs", "half")] == [
        True,
        True,
    ]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_the_systems_own_folders_are_taken_and_those_of_a_third_are_not() -> None:
    own = {b"HOME": default_folders()[0].encode()}
    with TemporaryDirectory(prefix="keepfast-trust-") as name:  # pytest keeps its own folders for their owner
        os.chmod(name, 0o755)
        os.chown(configured(Path(name)) / "keepfast/config.json", 12345, 12345)
        os.seteuid(65534)
        try:
            refuse_untrusted_folders(Environment({**own, b"XDG_CONFIG_HOME": b"/usr/share"}), b"/")
            with pytest.raises(Refused):
                refuse_untrusted_folders(Environment({**own, b"XDG_CONFIG_HOME": name.encode()}), b"/")
        finally:
            os.seteuid(0)


def test_a_persons_own_folders_are_taken(box: Box) -> None:
    for name in ("cfg/keepfast", "data"):
        (box.base / name).mkdir(parents=True)
    (box.base / "cfg/keepfast/config.json").write_text(json.dumps({"capture": {"max_file_size": "5MB"}}))
    box.variables.update(XDG_CONFIG_HOME=str(box.base / "cfg"), XDG_DATA_HOME=str(box.base / "data"))

    assert box.call("init").code == 0
    assert box.call("config", "get", "capture.max_file_size", "--json").json()["value"] == 5 << 20
    assert (box.base / "data/keepfast/store").is_dir()


def test_a_folder_that_everybody_shares_is_no_project() -> None:
    own = {b"HOME": default_folders()[0].encode()}
    with TemporaryDirectory(prefix="keepfast-trust-", dir="/tmp") as name:
        environment = Environment({**own, b"XDG_CONFIG_HOME": name.encode()})

        refuse_untrusted_folders(environment, b"/tmp")
        with pytest.raises(Refused):
            refuse_untrusted_folders(environment, name.encode())


def test_what_the_passwd_entry_says_is_never_refused() -> None:
    """Also where the home folder is under git, and where the command is run in it."""
    home, config, data = default_folders()
    environment = Environment(
        {b"HOME": home.encode(), b"XDG_CONFIG_HOME": config.encode(), b"XDG_DATA_HOME": data.encode() + b"/"}
    )

    refuse_untrusted_folders(environment, home.encode())


def test_settings_of_the_passwd_entrys_home_may_be_under_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = tuple(str(tmp_path / name) for name in ("home", "home/.config", "home/.local/share"))
    monkeypatch.setattr(trust, "default_folders", lambda: folders)
    (tmp_path / "home/.config/.git").mkdir(parents=True)
    named = {b"HOME": folders[0].encode(), b"XDG_CONFIG_HOME": folders[1].encode()}

    refuse_untrusted_folders(Environment(named), b"/")
    with pytest.raises(Refused):
        refuse_untrusted_folders(
            Environment({**named, b"XDG_CONFIG_HOME": named[b"XDG_CONFIG_HOME"] + b"/other"}), b"/"
        )


@pytest.mark.parametrize("agent", [True, False])
def test_a_person_may_be_at_home_and_an_agent_is_not(saved_box: Box, agent: bool) -> None:
    """A home that is not the passwd entry's, as in many containers."""
    saved_box.variables.update({"CLAUDECODE": "1"} if agent else {})

    done = [
        saved_box.call("list", "--all-workspaces", "--json", cwd=folder).code
        for folder in (saved_box.home, saved_box.base)
    ]

    assert done == [2 if agent else 0] * 2


def test_folders_that_are_said_on_the_command_line_are_not_the_environments(tmp_path: Path) -> None:
    variables = {b"HOME": b"/proc/self/cwd"}
    here = str(tmp_path)
    (tmp_path / ".git").mkdir()

    refuse_untrusted_folders(Environment(variables, (here, here, here)), b"/")
    with pytest.raises(Refused):
        refuse_untrusted_folders(Environment(variables), os.fsencode(tmp_path))


def test_variables_of_an_agents_command_may_only_tighten(saved_box: Box) -> None:
    saved_box.variables.update(
        CLAUDECODE="1",
        KEEPFAST_CAPTURE_EXCLUDE='["*"]',
        KEEPFAST_CAPTURE_MAX_FILE_SIZE="1",
        KEEPFAST_RETENTION_MAX_SIZE="1",
        KEEPFAST_RETENTION_KEEP_LAST="1",
    )

    saved = saved_box.call("save", "--json").json()

    assert saved["coverage"]["files"] == 2
    status = saved_box.call("status", "--json").json()
    assert len([text for text in status["warnings"] if "is ignored" in text]) == 4


def test_a_persons_own_variables_count_as_before(saved_box: Box) -> None:
    saved_box.variables["KEEPFAST_CAPTURE_EXCLUDE"] = '["*"]'

    assert saved_box.call("save", "--json").json()["coverage"]["files"] == 0


@pytest.mark.parametrize("agent", [True, False])
def test_settings_of_an_agent_take_short_names_where_they_tighten(tmp_path: Path, agent: bool) -> None:
    variables_of_agent = {"KEEPFAST_CAPTURE_EXCLUDE": '["*"]', "KEEPFAST_AUTO_CHECKPOINT_ON_CLEAR": "true"}

    settings = load(str(tmp_path / "none"), variables_of_agent, agent=agent)

    assert (settings["capture.exclude"] == ["*"]) is not agent
    assert settings["hooks.auto_checkpoint_on_clear"] is True


def test_the_server_for_agents_takes_no_setting_from_its_variables(saved_box: Box) -> None:
    from keepfast.mcp.workspace_access import WorkspaceAccess

    variables = {
        b"HOME": os.fsencode(saved_box.home),
        b"KEEPFAST_CAPTURE_EXCLUDE": b'["*"]',
        b"KEEPFAST_RETENTION_KEEP_LAST": b"1",
    }
    access = WorkspaceAccess(McpOptions(os.fsencode(saved_box.project)), Environment(variables), lambda: saved_box.now)

    settings, plain = access.following.now(), load(str(saved_box.config), {})

    assert settings["capture.exclude"] == plain["capture.exclude"]
    assert settings["retention.keep_last"] == plain["retention.keep_last"]


@pytest.mark.parametrize("name", ["settings.json", "settings.local.json"])
def test_what_looks_like_our_hooks_in_a_repository_is_none(saved_box: Box, name: str) -> None:
    """`keepfast run` brings hooks where there are none: a repository must not keep it from that."""
    session = Session(Environment({b"HOME": os.fsencode(saved_box.home)}), lambda: saved_box.now, 0.0)
    session.__dict__["cwd"] = os.fsencode(saved_box.project)
    text = json.dumps({"hooks": {"Odd": [{"hooks": [{"type": "command", "command": "launch hook claude-code"}]}]}})
    (saved_box.project / ".claude").mkdir()
    (saved_box.project / ".claude" / name).write_text(text)
    before = is_hooked(session)
    scope = {"settings.json": "project", "settings.local.json": "local"}[name]

    assert saved_box.call("install", "claude", "--scope", scope).code == 0

    assert (before, is_hooked(session)) == (False, True)
    session.close()


def test_doctor_names_what_a_projects_settings_would_put_into_hooks(saved_box: Box) -> None:
    (saved_box.project / ".claude").mkdir()
    project_variables = {"XDG_CONFIG_HOME": "/proc/self/cwd", "KEEPFAST_SUPERVISED": "claude-code", "EDITOR": "vi"}
    (saved_box.project / ".claude/settings.json").write_text(json.dumps({"env": project_variables}))

    [checks] = [check for check in saved_box.call("doctor", "--json").json()["checks"] if check["name"] == "variables"]

    assert checks["level"] == "note"
    assert "KEEPFAST_SUPERVISED, XDG_CONFIG_HOME" in checks["text"] and "EDITOR" not in checks["text"]


def test_doctor_finds_a_launcher_that_leaves_hooks_to_another_home(box: Box) -> None:
    """It is of an earlier version, and the folders that we are given are not those of the passwd entry."""
    assert box.call("install", "claude").code == 0
    path = box.home / ".local/share/keepfast/bin/launch"
    lines_without_folders = [
        line for line in path.read_text().splitlines(True) if not line.startswith(("home=", "config=", "data="))
    ]

    def levels() -> list[str]:
        checks = box.call("doctor", "--json").json()["checks"]
        return [check["level"] for check in checks if check["name"] == "claude"]

    before = levels()
    path.write_text("".join(lines_without_folders))

    assert "problem" not in before and "problem" in levels()


def test_a_notice_that_stands_there_already_is_left_again_after_a_day(saved_box: Box) -> None:
    environment = Environment({name.encode(): value.encode() for name, value in saved_box.variables.items()})
    now = saved_box.now
    engine = build(Settings(), environment.data, environment.home, lambda: now)
    root = os.fsencode(saved_box.project)
    workspace = json.loads((saved_box.project / ".keepfast/workspace.json").read_text())["id"]
    counts = []
    try:
        for later, text in ((0, "one"), (1, "one"), (2, "two"), (DAY, "one"), (DAY + 1, "one"), (DAY + 2, "one")):
            now = saved_box.now + later
            assert engine.workspaces.note_once(root, "not_believed", "hook", text)
            counts.append(len(read(engine.workspaces.notice_folders(root, workspace))))
    finally:
        engine.close()

    assert counts == [1, 1, 2, 2, 3, 3]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_whoever_has_kept_another_users_home_is_told_his_own(saved_box: Box) -> None:
    """As under sudo: to unset the variable, or to give it another folder, is not what is missing."""
    os.chown(saved_box.home, 65534, 65534)
    (saved_box.base / "elsewhere").mkdir()

    error = saved_box.call("list", "--json", cwd=saved_box.base / "elsewhere").json()["error"]

    assert error["kind"] == "refused"
    assert f"HOME={default_folders()[0]}" in error["hint"]


def test_doctor_does_not_say_that_everything_works_below_its_remarks(saved_box: Box) -> None:
    levels = [check["level"] for check in saved_box.call("doctor", "--json").json()["checks"]]
    (saved_box.home / ".config/keepfast").mkdir(parents=True, exist_ok=True)
    saved_box.config.write_text('{"unheard": 1}')
    done = saved_box.call("doctor")

    assert done.code == 0
    assert f"{levels.count('note') + 1} note" in done.out.splitlines()[-1]
