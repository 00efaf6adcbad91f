"""What is captured, what is left out, and that nothing is left out in silence."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from keepfast.model.artefacts import ALWAYS, needs_evidence, rebuild_command
from keepfast.model.entry import BY_GIT, BY_IGNORE, BY_MARKER, BY_NAME
from keepfast.model.errors import Refused
from keepfast.model.event import CREATED, UNCHANGED
from keepfast.model.frozen import SUPERVISED_IGNORE
from keepfast.settings import TABLE
from keepfast.workspace import stat_cache as cache
from keepfast.workspace import stat_cache_writer
from keepfast.workspace.capture import CACHE_TAG, Capture
from keepfast.workspace.marker import refuse
from keepfast.workspace.selection import Chooser
from keepfast.workspace.walk import walk
from tests.equipment.folders import written
from tests.equipment.saver import Saver
from tests.equipment.trees import ROOT, disk

MB = 1 << 20


def write(path: Path, content: str | bytes = "x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def fill(folder: Path, files: int) -> None:
    for number in range(files):
        write(folder / str(number))


# Folders that are not looked at


@pytest.mark.parametrize("pattern", [name for name in TABLE["capture.exclude"].default if name.endswith("/")])
def test_dependency_and_cache_folders_are_named_and_not_looked_at(saver: Saver, root: Path, pattern: str) -> None:
    folder = pattern.rstrip("/")
    write(root / folder / "deep" / "file")
    write(root / "mine")
    saver.save()

    assert saver.kinds()["mine"] == "f"
    assert saver.kinds()[folder] == "x"
    assert saver.state()[folder.encode()].flags == BY_NAME
    assert not [path for path in saver.kinds() if path.startswith(folder + "/")]


def test_an_excluded_name_is_excluded_at_any_depth_and_a_file_of_that_name_is_not(saver: Saver, root: Path) -> None:
    write(root / "packages" / "one" / "node_modules" / "index.js")
    write(root / "docs" / "node_modules")
    (root / "link").mkdir()
    (root / "link" / "node_modules").symlink_to("../packages")
    saver.save()

    assert saver.kinds()["packages/one/node_modules"] == "x"
    assert saver.kinds()["docs/node_modules"] == "f"
    assert saver.kinds()["link/node_modules"] == "l"


def test_an_excluded_file_is_named(saver: Saver, root: Path) -> None:
    write(root / ".DS_Store")
    saver.save()
    first = saver.kinds()
    (root / ".DS_Store").unlink()
    saver.save()

    assert first == {".DS_Store": "x"}
    assert saver.kinds() == {}


def test_what_happens_in_an_excluded_folder_makes_no_version(saver: Saver, root: Path) -> None:
    write(root / "node_modules" / "a" / "index.js")
    saver.save()
    time.sleep(0.05)
    saver.save()
    write(root / "node_modules" / "b" / "index.js")

    assert saver.save().status == UNCHANGED


def test_a_name_of_sources_is_left_out_only_where_gitignore_names_it_too(saver: Saver, root: Path) -> None:
    """`build`, `vendor`, `bin` hold sources in many projects."""
    write(root / "one" / "build" / "main.c")
    write(root / "two" / "build" / "main.o")
    write(root / "two" / ".gitignore", "build/\n")
    write(root / "two" / "Makefile")
    saver.save()

    assert saver.kinds()["one/build/main.c"] == "f"
    assert saver.kinds()["two/build"] == "x"
    assert saver.state()[b"two/build"].flags == BY_IGNORE


def test_a_name_of_sources_is_left_out_only_where_a_tool_s_file_lies_beside_it(saver: Saver, root: Path) -> None:
    """An ignored `out` may hold results that nobody can make again."""
    write(root / ".gitignore", "out/\nbin/\ntarget/\ndata/\n")
    write(root / "out" / "results.csv")
    write(root / "net" / "bin" / "a.dll")
    write(root / "net" / "one.csproj")
    write(root / "data" / "crate" / "target" / "a.o")
    write(root / "data" / "crate" / "Cargo.toml")
    saver.save()

    assert saver.kinds()["out/results.csv"] == "f"
    assert saver.kinds()["net/bin"] == "x"
    assert saver.kinds()["data/crate/target"] == "x"
    assert saver.kinds()["data/crate/Cargo.toml"] == "f"


def test_a_tool_s_file_that_comes_and_goes_is_noticed_at_the_next_save(saver: Saver, root: Path) -> None:
    write(root / ".gitignore", "target/\n")
    write(root / "target" / "file")
    saver.save()
    time.sleep(0.05)
    saver.save()
    tool = write(root / "Cargo.toml")
    saver.save()
    with_tool = saver.kinds()["target"]
    tool.unlink()
    saver.save()

    assert with_tool == "x"
    assert saver.kinds()["target/file"] == "f"


def test_a_pattern_of_the_user_s_own_needs_no_tool(make_saver: Callable[..., Saver], root: Path) -> None:
    saver = make_saver(capture__exclude_ignored=["scratch/"])
    write(root / ".gitignore", "scratch/\n")
    write(root / "scratch" / "file")
    write(root / "source")
    saver.save()

    assert saver.kinds()["scratch"] == "x"


def test_every_folder_that_is_left_out_by_default_has_a_way_to_be_made_again() -> None:
    for pattern in TABLE["capture.exclude"].default:
        path = pattern.rstrip("/").encode()
        ways = ALWAYS[pattern]
        assert rebuild_command(path, ()) == (None if ways else "")
        for file, _ in ways:
            assert rebuild_command(path, [file.replace("*", "x").encode()])
    for pattern in TABLE["capture.exclude_ignored"].default:
        name = pattern.rstrip("/*").encode()
        assert rebuild_command(name, ()) is None
        assert needs_evidence(b"deep/" + name)
    assert rebuild_command(b"a/node_modules", [b"yarn.lock"]) == "yarn install"
    assert rebuild_command(b"a/target", [b"pom.xml"]) == "mvn package"
    assert rebuild_command(b"a/sources", [b"pom.xml"]) is None


def test_ignored_files_are_kept_up_to_the_limit_of_all_files(make_saver: Callable[..., Saver], root: Path) -> None:
    saver = make_saver(capture__max_file_size="3MB")
    write(root / ".gitignore", "*.sqlite3\ndata/\n")
    write(root / "source")
    write(root / "db.sqlite3", bytes(2 * MB))
    write(root / "larger.sqlite3", bytes(4 * MB))
    fill(root / "data", 1001)
    saver.save()

    assert saver.kinds()["db.sqlite3"] == "f"
    assert saver.kinds()["larger.sqlite3"] == "o"
    assert len([path for path in saver.kinds() if path.startswith("data/")]) == 1001


def test_a_tree_that_has_too_many_files_with_what_is_ignored_keeps_the_rest(
    make_saver: Callable[..., Saver], root: Path
) -> None:
    saver = make_saver(capture__max_files=20, capture__ignored_folder_files=5)
    write(root / ".gitignore", "data/\nfew/\n")
    fill(root / "data", 30)
    fill(root / "few", 5)
    fill(root / "src", 5)
    outcome = saver.save()
    first = saver.kinds()
    time.sleep(0.05)
    saver.save()
    write(root / "src" / "new")
    again = saver.save()

    assert (first["data"], first["few/1"], first["src/1"]) == ("x", "f", "f")
    assert any("20 files" in notice for notice in outcome.notices)
    assert any("20 files" in notice for notice in again.notices)
    assert saver.kinds() == {**first, "src/new": "f"}


def test_a_tree_that_grows_too_large_by_what_is_ignored_keeps_the_rest(
    make_saver: Callable[..., Saver], root: Path
) -> None:
    saver = make_saver(capture__max_files=20, capture__ignored_folder_files=5)
    write(root / ".gitignore", "data/\n")
    fill(root / "data", 10)
    fill(root / "src", 5)
    saver.save()
    time.sleep(0.05)
    saver.save()
    fill(root / "data" / "more", 10)
    saver.save()

    assert saver.kinds()["data"] == "x"
    assert saver.kinds()["src/1"] == "f"


def test_what_was_kept_for_a_command_stays_through_scans_until_it_changes(
    make_saver: Callable[..., Saver], root: Path
) -> None:
    saver = make_saver(capture__max_file_size=100)
    large = write(root / "folder" / "large", b"x" * 200)
    write(root / "folder" / "larger", b"y" * 300)
    saver.save()
    before = saver.kinds()
    time.sleep(0.05)  # of a file that was written just now, the stat cache does not say that it is as it was
    saver.save("before_command", keep=(b"folder/large",))
    kept = saver.kinds()
    time.sleep(0.05)
    steps = []
    write(root / "folder" / "beside")
    saver.save()  # the folder is listed again
    steps.append(saver.kinds()["folder/large"])
    write(root / "elsewhere")
    os.utime(saver.cache())
    saver.save()  # and not listed
    steps.append(saver.kinds()["folder/large"])
    again = saver.save("before_command", keep=(b"",))
    everything = saver.kinds()["folder/larger"]
    large.write_bytes(b"z" * 201)
    saver.save()
    steps.append(saver.kinds()["folder/large"])
    large.unlink()
    saver.save()

    assert (before["folder/large"], kept["folder/large"], kept["folder/larger"]) == ("o", "f", "o")
    assert steps == ["f", "f", "o"]
    assert (again.status, everything) == (CREATED, "f")
    assert "folder/large" not in saver.kinds()


@pytest.mark.parametrize(("marker", "text"), [("CACHEDIR.TAG", CACHE_TAG + b"\n# made by us\n"), ("pyvenv.cfg", b"")])
def test_a_folder_that_says_it_can_be_made_again_is_left_out(
    saver: Saver, root: Path, marker: str, text: bytes
) -> None:
    write(root / "made" / marker, text)
    write(root / "made" / "deep" / "file")
    saver.save()

    assert saver.kinds() == {"made": "x"}
    assert saver.state()[b"made"].flags == BY_MARKER


def test_a_cache_tag_without_its_signature_says_nothing(saver: Saver, root: Path) -> None:
    write(root / "made" / "CACHEDIR.TAG", "Signature: something else")
    saver.save()

    assert saver.kinds() == {"made": "d", "made/CACHEDIR.TAG": "f"}


def test_the_root_itself_is_captured_whatever_it_carries(saver: Saver, root: Path) -> None:
    write(root / "pyvenv.cfg")
    saver.save()

    assert saver.kinds() == {"pyvenv.cfg": "f"}


def test_a_marker_that_comes_and_goes_is_noticed_at_the_next_save(saver: Saver, root: Path) -> None:
    write(root / "folder" / "file")
    saver.save()
    tag = write(root / "folder" / "CACHEDIR.TAG", CACHE_TAG)
    saver.save()
    marked = saver.kinds()
    tag.unlink()
    saver.save()

    assert marked == {"folder": "x"}
    assert saver.kinds() == {"folder": "d", "folder/file": "f"}


def test_a_marker_that_is_edited_is_noticed_at_the_next_save(saver: Saver, root: Path) -> None:
    tag = write(root / "folder" / "CACHEDIR.TAG", CACHE_TAG)
    saver.save()
    time.sleep(0.05)
    saver.save()
    tag.write_bytes(CACHE_TAG.upper())
    saver.save()
    edited = saver.kinds()
    tag.write_bytes(CACHE_TAG)
    saver.save()

    assert edited == {"folder": "d", "folder/CACHEDIR.TAG": "f"}
    assert saver.kinds() == {"folder": "x"}


def test_an_ordinary_folder_in_the_place_of_a_marked_one_is_captured(saver: Saver, root: Path) -> None:
    write(root / "venv2" / "pyvenv.cfg")
    saver.save()
    (root / "venv2").rename(root / "old")
    write(root / "venv2" / "file")
    saver.save()

    assert saver.kinds() == {"old": "x", "venv2": "d", "venv2/file": "f"}


# What .gitignore leaves out


def test_ignored_files_are_kept_if_they_are_small(make_saver: Callable[..., Saver], root: Path) -> None:
    saver = make_saver(capture__ignored="small")
    write(root / ".gitignore", ".env\n*.big\nlocal/\n")
    write(root / ".env", "KEY=1")
    write(root / "at limit.big", bytes(MB))
    write(root / "over limit.big", bytes(MB + 1))
    write(root / "local" / "settings.json")
    write(root / "local" / "dump", bytes(MB + 1))
    write(root / "source", bytes(MB + 1))
    saver.save()

    assert saver.kinds() == {
        ".gitignore": "f", ".env": "f", "at limit.big": "f", "over limit.big": "i", "local": "d",
        "local/settings.json": "f", "local/dump": "i", "source": "f",
    }  # fmt: skip
    assert saver.read(".env") == b"KEY=1"


def test_an_ignored_file_that_grows_is_left_out_and_kept_again_when_it_shrinks(
    make_saver: Callable[..., Saver], root: Path
) -> None:
    saver = make_saver(capture__ignored="small")
    write(root / ".gitignore", "*.log\n")
    write(root / "source")
    log = write(root / "a.log", bytes(MB))
    saver.save()
    time.sleep(0.05)
    saver.save()
    small = saver.kinds()["a.log"]
    os.truncate(log, MB + 1)
    saver.save()
    large = saver.kinds()["a.log"]
    os.truncate(log, 5)
    saver.save()

    assert (small, large, saver.kinds()["a.log"]) == ("f", "i", "f")
    assert saver.read("a.log") == bytes(5)


def test_an_ignored_folder_is_left_out_once_it_has_more_than_a_thousand_files(
    make_saver: Callable[..., Saver], root: Path
) -> None:
    saver = make_saver(capture__ignored="small")
    write(root / ".gitignore", "data/\n")
    write(root / "source")
    fill(root / "data" / "deep", 1000)
    saver.save()
    before = saver.kinds()
    time.sleep(0.05)
    saver.save()
    write(root / "data" / "deep" / "one more")
    saver.save()

    assert len([path for path in before if path.startswith("data/deep/")]) == 1000
    assert saver.kinds() == {".gitignore": "f", "source": "f", "data": "x"}
    assert saver.state()[b"data"].flags == BY_IGNORE


def test_a_new_folder_in_an_ignored_one_counts_too(make_saver: Callable[..., Saver], root: Path) -> None:
    saver = make_saver(capture__ignored="small")
    write(root / ".gitignore", "data/\n")
    write(root / "source")
    fill(root / "data" / "a", 600)
    saver.save()
    time.sleep(0.05)
    saver.save()
    fill(root / "data" / "b", 401)
    saver.save()

    assert saver.kinds()["data"] == "x"


def test_excluded_folders_do_not_count_towards_an_ignored_one(make_saver: Callable[..., Saver], root: Path) -> None:
    saver = make_saver(capture__ignored="small")
    write(root / ".gitignore", "tools/\n")
    write(root / "source")
    fill(root / "tools" / "node_modules", 1001)
    write(root / "tools" / "mine")
    saver.save()

    assert saver.kinds()["tools/mine"] == "f"
    assert saver.kinds()["tools/node_modules"] == "x"


def test_an_ignored_folder_that_shrank_is_captured_once_its_parent_changes(
    make_saver: Callable[..., Saver], root: Path
) -> None:
    """It is not looked into at every save; the daily scan finds it at the latest."""
    saver = make_saver(capture__ignored="small")
    write(root / ".gitignore", "data/\n")
    write(root / "source")
    fill(root / "data", 1001)
    saver.save()
    (root / "data" / "0").unlink()
    write(root / "another")
    saver.save()

    assert saver.kinds()["data"] == "d"
    assert saver.kinds()["data/1"] == "f"


@pytest.mark.parametrize(
    ("mode", "kinds"),
    [
        ("all", {"large.log": "f", "small.log": "f", "data": "d", "data/file": "f", "link.log": "l", "build": "x"}),
        ("small", {"large.log": "i", "small.log": "f", "data": "d", "data/file": "f", "link.log": "l", "build": "x"}),
        ("none", {"large.log": "i", "small.log": "i", "data": "x", "link.log": "i", "build": "x"}),
    ],
)
def test_the_setting_decides_about_what_is_ignored(
    make_saver: Callable[..., Saver], root: Path, mode: str, kinds: dict[str, str]
) -> None:
    write(root / ".gitignore", "*.log\ndata/\nbuild/\n")
    write(root / "large.log", bytes(2 * MB))
    write(root / "small.log")
    (root / "link.log").symlink_to("small.log")
    write(root / "data" / "file")
    (root / "build").mkdir()
    fill(root / "src", 3)
    write(root / "Makefile")
    saver = make_saver(capture__ignored=mode)
    saver.save()

    found = {path: kind for path, kind in saver.kinds().items() if not path.startswith(("src", ".", "Makefile"))}
    assert found == kinds


def test_rules_that_change_between_saves_are_honoured(make_saver: Callable[..., Saver], root: Path) -> None:
    saver = make_saver(capture__ignored="none")
    fill(root / "src", 3)
    write(root / "deep" / "a.log")
    write(root / "deep" / "b.txt")
    saver.save()
    steps = []
    for rules in ("*.log\n", "*.txt\n", "", "b.txt\n!a.log\n"):
        write(root / "deep" / ".gitignore", rules)
        saver.save()
        steps.append((saver.kinds()["deep/a.log"], saver.kinds()["deep/b.txt"]))
    (root / "deep" / ".gitignore").unlink()
    saver.save()
    steps.append((saver.kinds()["deep/a.log"], saver.kinds()["deep/b.txt"]))

    assert steps == [("i", "f"), ("f", "i"), ("f", "f"), ("f", "i"), ("f", "f")]


def test_the_repository_s_own_exclude_file_is_honoured(make_saver: Callable[..., Saver], root: Path) -> None:
    saver = make_saver(capture__ignored="none")
    fill(root / "src", 3)
    write(root / "notes")
    saver.save()
    write(root / ".git" / "info" / "exclude", "notes\n")
    saver.save()
    hidden = saver.kinds()["notes"]
    write(root / ".git" / "info" / "exclude", "other\n")
    saver.save()

    assert (hidden, saver.kinds()["notes"]) == ("i", "f")


def test_a_repository_that_begins_or_ends_in_a_folder_changes_its_rules(
    make_saver: Callable[..., Saver], root: Path
) -> None:
    """The rules of the outer repository do not reach into an inner one."""
    saver = make_saver(capture__ignored="none")
    fill(root / "src", 3)
    write(root / ".gitignore", "*.log\n")
    write(root / "inner" / "deep" / "a.log")
    saver.save()
    outer = saver.kinds()["inner/deep/a.log"]
    write(root / "inner" / ".git", "gitdir: elsewhere\n")
    saver.save()
    inner = saver.kinds()["inner/deep/a.log"]
    (root / "inner" / ".git").unlink()
    saver.save()

    assert (outer, inner, saver.kinds()["inner/deep/a.log"]) == ("i", "f", "i")


@pytest.mark.parametrize("rule", ["/*\n", "*\n", "/*\n!/.gitignore\n!/README\n"])
@pytest.mark.parametrize("mode", ["small", "none"])
def test_rules_that_hide_everything_are_disregarded_with_a_notice(
    make_saver: Callable[..., Saver], root: Path, rule: str, mode: str
) -> None:
    """Debian's kernel tree says `/*`; shadow git captured 0 of its 78,622 files and exited with 0."""
    saver = make_saver(capture__ignored=mode, capture__ignored_folder_files=5)
    write(root / ".gitignore", rule)
    for number in range(12):
        fill(root / f"folder{number}", 6)
    outcome = saver.save()

    assert saver.contents() == disk(root)
    assert any("not applied" in notice for notice in outcome.notices)


def test_disregarded_rules_stay_so_and_come_back_with_the_files_they_do_not_hide(
    make_saver: Callable[..., Saver], root: Path
) -> None:
    saver = make_saver(capture__ignored="none")
    write(root / ".gitignore", "*.log\n")
    for number in range(4):
        write(root / f"{number}.log")
    saver.save()
    hidden = saver.kinds()
    time.sleep(0.05)
    saver.save()
    write(root / "4.log")
    outcome = saver.save()
    more = saver.kinds()
    write(root / "source")
    saver.save()

    assert set(hidden.values()) == {"f"}
    assert more["4.log"] == "f"
    assert any("not applied" in notice for notice in outcome.notices)
    assert saver.kinds()["0.log"] == "i"
    assert saver.kinds()["source"] == "f"


def test_rules_begin_to_be_disregarded_when_they_hide_what_is_left(
    make_saver: Callable[..., Saver], root: Path
) -> None:
    saver = make_saver(capture__ignored="none")
    write(root / ".gitignore", "*.log\n")
    write(root / "source")
    write(root / "a.log")
    saver.save()
    before = saver.kinds()
    (root / "source").unlink()
    saver.save()

    assert before["a.log"] == "i"
    assert saver.kinds()["a.log"] == "f"


def test_a_pipe_in_the_place_of_a_rule_file_stops_nobody(saver: Saver, root: Path) -> None:
    os.mkfifo(root / ".gitignore")
    write(root / "folder" / "file")
    os.mkfifo(root / "folder" / "CACHEDIR.TAG")
    (root / ".metadata").mkdir()
    os.mkfifo(root / ".metadata" / ".gitignore")
    done = threading.Thread(target=saver.save, daemon=True)
    done.start()
    done.join(30)

    assert not done.is_alive()
    assert saver.kinds()["folder/file"] == "f"
    assert saver.kinds()[".gitignore"] == "s"


# Single files


def test_a_file_over_the_limit_is_listed_as_left_out(make_saver: Callable[..., Saver], root: Path) -> None:
    saver = make_saver(capture__max_file_size="1MB")
    large = write(root / "large", bytes(MB + 1))
    write(root / "at limit", bytes(MB))
    saver.save()
    row = saver.state()[b"large"]
    os.truncate(large, 3)
    saver.save()

    assert (row.kind, row.size) == ("o", MB + 1)
    assert saver.kinds() == {"large": "f", "at limit": "f"}


def test_sockets_pipes_and_devices_are_named_and_not_read(saver: Saver, root: Path) -> None:
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(root / "socket"))
    if ROOT:
        os.mknod(root / "device", 0o600 | 0o020000, os.makedev(1, 5))  # /dev/zero never ends
    write(root / "file")
    saver.save()

    assert saver.kinds() == {"pipe": "s", "socket": "s", "file": "f"} | ({"device": "s"} if ROOT else {})


def test_links_are_captured_and_never_followed(saver: Saver, root: Path, tmp_path: Path) -> None:
    write(tmp_path / "outside" / "secret")
    (root / "out").symlink_to(tmp_path / "outside")
    (root / "loop").symlink_to("loop")
    (root / "up").symlink_to("..")
    (root / "dangling").symlink_to(b"\xff\xfe".decode("utf-8", "surrogateescape"))
    saver.save()

    assert set(saver.kinds().values()) == {"l"}
    assert saver.contents() == disk(root)


def test_folders_nested_deeper_than_python_recurses_are_captured(
    make_saver: Callable[..., Saver], root: Path, request: pytest.FixtureRequest
) -> None:
    # Whatever happens: pytest itself cannot remove a tree as deep as this, and ends with an error.
    request.addfinalizer(lambda: subprocess.run(["rm", "-rf", str(root / "d")], check=True))
    saver = make_saver(capture__ignored="small")
    write(root / ".gitignore", "*.log\n")
    fd = os.open(root, os.O_RDONLY)
    for _ in range(2500):
        os.mkdir("d", dir_fd=fd)
        inside = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = inside
    for _ in range(2):
        for name in ("file", "file.log"):
            with open(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, dir_fd=fd), "wb") as file:
                file.write(bytes(2 * MB))
        saver.save()
        time.sleep(0.05)
    with open(os.open("new", os.O_WRONLY | os.O_CREAT, dir_fd=fd), "wb") as file:
        file.write(b"x")
    os.close(fd)
    saver.save()

    deep = "d/" * 2500
    assert {saver.kinds()[deep + "file"], saver.kinds()[deep + "new"]} == {"f"}
    assert saver.kinds()[deep + "file.log"] == "i"


# What is ours, and what is git's


@pytest.mark.parametrize("place", ["", "inner", "a/b/inner"])
@pytest.mark.parametrize("kind", ["folder", "file", "link"])
def test_git_s_own_folder_is_named_and_what_points_to_one_is_captured_at_any_depth(
    saver: Saver, root: Path, place: str, kind: str
) -> None:
    """Without the `.git` file of a submodule git takes the folder for a part of the repository around it."""
    git = root / place / ".git"
    write(root / place / "source")
    if kind == "folder":
        write(git / "HEAD")
    elif kind == "file":
        write(git, "gitdir: ../elsewhere\n")
    else:
        git.symlink_to("../elsewhere")
    saver.save()

    found = {path: entry for path, entry in saver.state().items() if b".git" in path}
    assert saver.kinds()[str(Path(place) / "source")] == "f"
    assert {path: entry.kind for path, entry in found.items()} == {
        os.fsencode(Path(place) / ".git"): {"folder": "x", "file": "f", "link": "l"}[kind]
    }
    assert {entry.flags for entry in found.values()} == ({BY_GIT} if kind == "folder" else {0})


def test_the_markers_of_workspaces_are_never_captured(saver: Saver, root: Path) -> None:
    (root / "inner").mkdir()
    Saver(root / "inner", saver.store)
    saver.save()

    assert (root / "inner" / ".keepfast" / "workspace.json").exists()
    assert saver.kinds() == {"inner": "d", "inner/.keepfast": "x"}


@pytest.mark.parametrize("said", ["{}", '{"id": "%s"}' % ("ab" * 16), '{"id": "%s", "store": "/x", "store_id": "%s"}'])
def test_marker_folders_of_nobody_here_are_captured_like_others(saver: Saver, root: Path, said: str) -> None:
    text = said % ("ab" * 16, "cd" * 16) if "%s" in said else said
    write(root / "inner" / ".keepfast" / "workspace.json", text)
    (root / "linked").mkdir()
    (root / "linked" / ".keepfast").symlink_to("../inner/.keepfast")
    write(root / "plain" / ".keepfast")
    saver.save()

    assert saver.kinds() == {
        "inner": "d", "inner/.keepfast": "d", "inner/.keepfast/workspace.json": "f", "linked": "d", "linked/.keepfast": "l",
        "plain": "d", "plain/.keepfast": "f",
    }  # fmt: skip


def test_a_folder_that_becomes_a_workspace_is_no_longer_looked_at_for_its_marker(saver: Saver, root: Path) -> None:
    write(root / "inner" / ".keepfast" / "workspace.json", "{}")
    saver.save()
    Saver(root / "inner", saver.store)
    saver.save()

    assert saver.kinds() == {"inner": "d", "inner/.keepfast": "x"}


def test_the_marker_of_a_workspace_in_another_store_is_not_captured(saver: Saver, root: Path, tmp_path: Path) -> None:
    """The user's list knows that store, which need not be within reach."""
    from keepfast.store.known_stores import add_store

    write(
        root / "inner" / ".keepfast" / "workspace.json",
        json.dumps({"id": "ab" * 16, "store": "/x", "store_id": "cd" * 16}),
    )
    engine = saver.engine()
    add_store(engine.place.list, "/x", "cd" * 16)
    engine.close()
    saver.save()

    assert saver.kinds() == {"inner": "d", "inner/.keepfast": "x"}


def test_names_that_merely_resemble_git_s_are_captured(saver: Saver, root: Path) -> None:
    names = [".GIT", ".Git", ".gitx", "git", ".git~", ".KeepFast", ".HoldFast", ".github"]
    for name in names:
        write(root / name / "file")
    write(root / "beside" / ".git" / "HEAD")
    write(root / "beside" / ".GIT")
    saver.save()

    assert {path for path, kind in saver.kinds().items() if kind == "d"} == {*names, "beside"}
    assert saver.kinds()["beside/.GIT"] == "f"


def test_a_store_inside_the_workspace_is_never_captured(root: Path) -> None:
    saver = Saver(root, root / "data" / "store")
    write(root / "data" / "file")
    saver.save()
    second = saver.save()
    kinds = saver.kinds()
    saver.close()

    assert kinds == {"data": "d", "data/file": "f", "data/store": "x"}
    assert second.status == UNCHANGED


def test_a_store_inside_the_workspace_is_not_captured_when_reached_by_a_link(root: Path, tmp_path: Path) -> None:
    (root / "store").mkdir()
    (tmp_path / "link").symlink_to(root / "store")
    saver = Saver(root, tmp_path / "link")
    saver.save()
    second = saver.save()
    kinds = saver.kinds()
    saver.close()

    assert kinds == {"store": "x"}
    assert second.status == UNCHANGED


@pytest.mark.parametrize("name", [".metadata", ".checkpoints", ".logs"])
def test_the_supervisor_s_folders_are_left_out_only_if_they_say_so(saver: Saver, root: Path, name: str) -> None:
    write(root / name / ".gitignore", SUPERVISED_IGNORE)
    write(root / name / "task.json")
    write(root / "inner" / name / ".gitignore", SUPERVISED_IGNORE)
    saver.save()
    ours = saver.kinds()
    write(root / name / ".gitignore", "*\n")
    write(root / "more")
    saver.save()

    assert ours[name] == "x"
    assert f"{name}/task.json" not in ours
    assert ours[f"inner/{name}"] == "d"
    assert saver.kinds()[f"{name}/task.json"] == "f"


def test_a_folder_that_becomes_the_supervisor_s_is_left_out(saver: Saver, root: Path) -> None:
    write(root / ".logs" / "a")
    saver.save()
    time.sleep(0.05)
    saver.save()
    write(root / ".logs" / ".gitignore", SUPERVISED_IGNORE)
    saver.save()

    assert saver.kinds() == {".logs": "x"}


# Case-folding file systems

FOLDING = '''
import errno, os, sys
import mfusepy

class Folding(mfusepy.Operations):
    """A folder seen through a file system that does not tell cases apart."""

    use_ns = True

    def __init__(self, base):
        self.base = base

    def real(self, path):
        found = self.base
        for part in path.strip("/").split("/"):
            names = os.listdir(found) if os.path.isdir(found) else []
            same = [name for name in names if name.lower() == part.lower()]
            found = os.path.join(found, same[0] if same else part)
        return found

    def getattr(self, path, fh=None):
        try:
            seen = os.lstat(self.real(path))
        except OSError as error:
            raise mfusepy.FuseOSError(error.errno)
        keys = ("st_mode", "st_ino", "st_nlink", "st_uid", "st_gid", "st_size")
        return {key: getattr(seen, key) for key in keys} | {
            "st_mtime": seen.st_mtime_ns, "st_ctime": seen.st_ctime_ns, "st_atime": seen.st_atime_ns
        }

    def readdir(self, path, fh):
        return [".", "..", *os.listdir(self.real(path))]

    def open(self, path, flags):
        return os.open(self.real(path), os.O_RDONLY)

    def read(self, path, size, offset, fh):
        return os.pread(fh, size, offset)

    def release(self, path, fh):
        os.close(fh)

mfusepy.FUSE(Folding(sys.argv[1]), sys.argv[2], foreground=True, nothreads=True)
'''


@pytest.fixture
def folding(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """A folder, and the same folder on a file system where `.GIT` is `.git`."""
    pytest.importorskip("mfusepy")
    if not ROOT or not os.access("/dev/fuse", os.W_OK):
        pytest.skip("needs root and FUSE")
    base, mount = tmp_path / "base", tmp_path / "mount"
    base.mkdir()
    mount.mkdir()
    server = subprocess.Popen([sys.executable, "-c", FOLDING, str(base), str(mount)], stderr=subprocess.DEVNULL)
    try:
        for _ in range(200):
            if mount.is_mount():
                break
            if server.poll() is not None:
                pytest.skip("cannot mount with FUSE here")
            time.sleep(0.05)
        yield base, mount
    finally:
        subprocess.run(["umount", "-l", str(mount)], check=False)
        server.terminate()
        server.wait()


def test_where_case_is_folded_a_git_folder_of_any_spelling_is_git_s(folding: tuple[Path, Path]) -> None:
    base, mount = folding
    write(base / ".GIT" / "HEAD")
    write(base / "inner" / ".Git", "gitdir: elsewhere")
    write(base / ".KEEPFAST" / "workspace.json")
    write(base / "inner" / ".gitx")
    fd = os.open(mount, os.O_RDONLY)
    scan = walk(fd, None, Capture(), 1 << 62, lambda path: False)
    os.close(fd)

    assert (mount / ".git" / "HEAD").exists()
    assert {path for path, _ in scan.candidates} == {b"inner/.gitx"}
    assert {path for path, _ in scan.folders} == {b"inner"}
    assert [(path, flags) for path, _, flags, _ in scan.left] == [(b".GIT", BY_GIT)]


# Trees that are too large, and folders that hold a whole life


def test_a_tree_of_too_many_files_is_refused(make_saver: Callable[..., Saver], root: Path) -> None:
    saver = make_saver(capture__max_files=20)
    fill(root / "a", 10)
    fill(root / "b", 10)
    saver.save()
    write(root / "b" / "one more")
    with pytest.raises(Refused, match="more than 20 files"):
        saver.save()
    (root / "b" / "one more").unlink()
    (root / "a" / "0").write_text("changed")

    assert saver.save().status == CREATED


def test_what_is_not_looked_at_does_not_make_a_tree_too_large(make_saver: Callable[..., Saver], root: Path) -> None:
    saver = make_saver(capture__max_files=20)
    fill(root / "node_modules", 50)
    write(root / "file")

    assert saver.save().status == CREATED


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "users" / "me"
    for name in ("Desktop", "Documents", "Downloads", "project"):
        (home / name).mkdir(parents=True)
    return home


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        (".", "your home folder"),
        ("..", "above your home folder"),
        ("../..", "above your home folder"),
        ("/", "the whole file system"),
        ("Desktop", "your Desktop folder"),
        ("Documents", "your Documents folder"),
        ("Downloads", "your Downloads folder"),
    ],
)
def test_folders_that_hold_a_whole_life_are_refused(home: Path, folder: str, name: str) -> None:
    root = os.path.realpath(home / folder)

    with pytest.raises(Refused, match=name):
        refuse(os.fsencode(root), os.fsencode(home))


@pytest.mark.parametrize("folder", ["project", "Documents/project", "../other/project", "Desktop/Downloads"])
def test_projects_are_not_refused(home: Path, folder: str) -> None:
    root = home / folder
    root.mkdir(parents=True, exist_ok=True)

    refuse(os.fsencode(os.path.realpath(root)), os.fsencode(home))


@pytest.mark.parametrize("folder", [".", "..", "Documents"])
def test_a_home_that_is_reached_by_a_link_is_still_refused(home: Path, tmp_path: Path, folder: str) -> None:
    """The current folder has its links resolved, $HOME has not."""
    (tmp_path / "link").symlink_to(home)

    with pytest.raises(Refused):
        refuse(os.fsencode(os.path.realpath(home / folder)), os.fsencode(tmp_path / "link"))


def test_a_refused_folder_gets_no_marker_and_no_store(home: Path, tmp_path: Path) -> None:
    with pytest.raises(Refused):
        Saver(home, tmp_path / "store", home=os.fsencode(home))

    assert not (home / ".keepfast").exists()
    assert not (tmp_path / "store").exists()


# What the cache knows beside files


def test_a_save_of_some_paths_leaves_the_cache_true(saver: Saver, root: Path) -> None:
    """A folder is swapped for another, a file in it saved alone, and the folder swapped back: all is seen."""
    write(root / "top" / "folder" / "file", "one")
    write(root / "other" / "folder" / "file", "two")
    (root / "other" / "folder").chmod(0o700)
    saver.save()
    time.sleep(0.05)
    saver.save()
    (root / "top").rename(root / "aside")
    (root / "other").rename(root / "top")
    saver.save(trigger="before_restore", only=(b"top/folder", b"top/folder/file"))
    alone = saver.read("top/folder/file"), saver.state()[b"top/folder"].mode
    (root / "top").rename(root / "other")
    (root / "aside").rename(root / "top")
    saver.save()

    assert alone == (b"two", 0o700)
    assert saver.contents() == disk(root)


def test_a_save_of_a_new_path_leaves_the_cache_true(saver: Saver, root: Path) -> None:
    write(root / "folder" / "file", "one")
    write(root / "other" / "extra", "two")
    saver.save()
    time.sleep(0.05)
    saver.save()
    (root / "folder").rename(root / "aside")
    (root / "other").rename(root / "folder")
    saver.save(trigger="before_restore", only=(b"folder/extra",))
    alone = saver.read("folder/extra")
    (root / "folder").rename(root / "other")
    (root / "aside").rename(root / "folder")
    saver.save()

    assert alone == b"two"
    assert saver.contents() == disk(root)


def test_a_save_of_some_paths_that_finds_nothing_leaves_the_cache_alone(saver: Saver, root: Path) -> None:
    write(root / "file", "one")
    write(root / "other", "two")
    saver.save()
    saver.save(trigger="before_command", only=(b"file",))
    write(root / "other", "new")
    saver.save()

    assert saver.read("other") == b"new"


def test_an_older_cache_does_not_vouch_for_a_folder_that_was_swapped_and_swapped_back(saver: Saver, root: Path) -> None:
    """The save in between lost its cache, to a full disk or a kill."""
    write(root / "folder" / "file", "one")
    write(root / "other" / "file", "two")
    saver.save()
    time.sleep(0.05)
    saver.save()
    old = saver.cache().read_bytes()
    (root / "folder").rename(root / "aside")
    (root / "other").rename(root / "folder")
    saver.save()
    saver.cache().write_bytes(old)
    (root / "folder").rename(root / "other")
    (root / "aside").rename(root / "folder")
    saver.save()

    assert saver.contents() == disk(root)


def test_a_cache_that_lies_is_rebuilt_by_the_daily_scan(saver: Saver, root: Path) -> None:
    write(root / "folder" / "file")
    saver.save()
    known = cache.load(str(saver.cache()))
    assert known is not None
    day = 86_400 * 10**9
    write(root / "folder" / "new")
    columns = known.columns()
    seen = (root / "folder").stat()
    number = known.paths().index(b"folder")
    columns[3][number], columns[4][number] = seen.st_mtime_ns, seen.st_ctime_ns
    parts = columns, known.names(), known.paths(), known.marks()
    stat_cache_writer.store(str(saver.cache()), known.identity, known.full_scan_at - day, *parts)
    saver.save()

    assert saver.kinds()["folder/new"] == "f"


def test_choosing_by_name_is_the_same_for_any_pattern_git_knows(root: Path) -> None:
    fd = os.open(root, os.O_RDONLY)
    chooser = Chooser(fd, Capture(exclude=["*.tmp", "/only here/", "!keep.tmp"]))
    os.close(fd)

    assert chooser.exclude.match(b"a/b.tmp", False) is True
    assert chooser.exclude.match(b"keep.tmp", False) is False
    assert chooser.folder(b"only here", (), False)[0] == BY_NAME
    assert chooser.folder(b"not/only here", (), False)[0] == 0


def test_a_hook_passes_over_a_home_folder_under_git_in_silence(home: Path, tmp_path: Path) -> None:
    """It is nobody's mistake; `keepfast status` there says why it is not protected."""
    (home / ".git").mkdir()
    variables = {"HOME": str(home), "PATH": "/usr/bin:/bin"}
    launch = Path(__file__).parents[2] / "src/keepfast/hook/launch.py"
    hook = subprocess.run(
        [sys.executable, "-I", "-S", "-B", str(launch), *written(home), "save", "--cwd", str(home)],
        env=variables, capture_output=True, check=False,
    )  # fmt: skip
    status = subprocess.run(
        [sys.executable, "-m", "keepfast", *written(home), "-C", str(home), "status"],
        env=variables,
        capture_output=True,
        check=False,
    )

    assert (hook.returncode, hook.stdout, hook.stderr) == (0, b"", b"")
    assert not (home / ".keepfast").exists()
    assert b"Hooks do not protect it" in status.stderr and b"is your home folder" in status.stderr


# Hard links


def test_a_second_name_of_a_saved_file_joins_both_in_the_version_that_it_makes(saver: Saver, root: Path) -> None:
    (root / "one").write_text("the same file\n")
    saver.save()
    os.link(root / "one", root / "two")
    saver.save()
    groups = {path: row.group for path, row in saver.state(2).items()}

    assert groups[b"one"] == groups[b"two"] != 0
    assert saver.state(1)[b"one"].group == 0


def test_a_file_whose_second_name_is_gone_stands_alone_again(saver: Saver, root: Path) -> None:
    (root / "one").write_text("the same file\n")
    os.link(root / "one", root / "two")
    saver.save()
    (root / "two").unlink()
    saver.save()

    assert saver.state(1)[b"one"].group != 0
    assert saver.state(2)[b"one"].group == 0


def test_a_second_name_elsewhere_makes_no_version(saver: Saver, root: Path, tmp_path: Path) -> None:
    (root / "one").write_text("the same file\n")
    saver.save()
    os.link(root / "one", tmp_path / "elsewhere")

    assert saver.save().status == UNCHANGED
