"""What `diff` says is what differs: between any two versions, and between any version and the disk."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from keepfast.app import inspect
from tests.equipment.box import Box


def tree(box: Box) -> dict[str, tuple[str, int, bytes]]:
    """Path → (kind, mode, content) of what is on disk."""
    contents = {}
    for folder, folders, files in os.walk(box.project):
        if ".keepfast" in folders:
            folders.remove(".keepfast")
        for name in [*folders, *files]:
            path = Path(folder, name)
            mode = path.lstat().st_mode & 0o7777
            text = str(path.relative_to(box.project))
            if path.is_symlink():
                contents[text] = ("link", 0o777, os.readlink(path).encode())
                if name in folders:
                    folders.remove(name)
            elif path.is_dir():
                contents[text] = ("folder", mode, b"")
            else:
                contents[text] = ("file", mode, path.read_bytes())
    return contents


def expected(old: dict[str, Any], new: dict[str, Any]) -> set[str]:
    return {path for path in old.keys() | new.keys() if old.get(path) != new.get(path)}


def named(box: Box, *words: str) -> set[str]:
    result = box.call("diff", "--json", *words)
    assert result.code == 0, result
    return {change["path"] for change in result.json()["changes"]}


def disturb(box: Box, chance: random.Random) -> None:
    """Change the tree a little, in any way."""
    names = [f"{folder}{name}" for folder in ("", "d/", "d/e/") for name in "abc"]
    for name in chance.sample(names, 3):
        path = box.project / name
        kind = chance.choice(["write", "write", "remove", "link", "mode"])
        if path.is_symlink() or kind in ("remove", "link"):
            path.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        if kind == "write":
            path.write_bytes(chance.randbytes(20))
        elif kind == "link":
            path.symlink_to(chance.choice("abc"))
        elif kind == "mode" and path.exists():
            path.chmod(chance.choice([0o644, 0o600, 0o755]))


@pytest.mark.parametrize("by_documents", [True, False])
def test_any_two_states_differ_in_exactly_what_changed(
    box: Box, by_documents: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not by_documents:
        monkeypatch.setattr(inspect, "MAX_DOCUMENTS", 0)
    chance = random.Random(7)
    box.call("init")
    states = []
    for _ in range(8):
        disturb(box, chance)
        box.save()
        states.append(tree(box))
    disturb(box, chance)
    now = tree(box)

    for one, old in enumerate(states, 1):
        assert named(box, f"v{one}") == expected(old, now)
        for other, new in enumerate(states, 1):
            assert named(box, f"v{one}", f"v{other}") == expected(old, new)


def test_forgotten_versions_in_between_do_not_matter(box: Box) -> None:
    chance = random.Random(3)
    box.call("init")
    states = []
    for _ in range(6):
        disturb(box, chance)
        box.save()
        states.append(tree(box))
    box.call("forget", "v2", "v3", "v5", "-y")
    box.call("compact", "--everything")

    for one, other in ((1, 4), (4, 6), (1, 6), (6, 1)):
        assert named(box, f"v{one}", f"v{other}") == expected(states[one - 1], states[other - 1])


@pytest.mark.skipif(shutil.which("git") is None, reason="lets git apply the patch")
def test_the_patch_leads_from_one_state_to_the_other(box: Box, tmp_path: Path) -> None:
    chance = random.Random(11)
    box.call("init")
    box.put("tail", "no newline at the end")
    box.put("space name", "a\nb\n")
    disturb_text(box, chance)
    box.save()
    shutil.copytree(box.project, tmp_path / "old", symlinks=True, ignore=shutil.ignore_patterns(".keepfast"))
    box.put("tail", "no newline\nat the end")
    box.put("space name", "a\nc\n")
    disturb_text(box, chance)
    (box.project / "one").unlink()
    (box.project / "one").symlink_to("two")
    patch = box.call("diff").raw

    subprocess.run(["git", "apply"], input=patch, cwd=tmp_path / "old", check=True, env={"PATH": os.environ["PATH"]})

    box.project, real = tmp_path / "old", box.project
    applied = tree(box)
    box.project = real
    assert applied == tree(box)


def disturb_text(box: Box, chance: random.Random) -> None:
    for name in ("one", "two", "sub/three", "sub/네"):
        box.put(name, "".join(f"{chance.randrange(20)}\n" for _ in range(30)))
    (box.project / "two").chmod(0o755)


def test_binary_and_large_files_are_named_not_shown(saved_box: Box) -> None:
    saved_box.put("image.png", b"\x89PNG\0" + bytes(range(256)))
    saved_box.put("huge.txt", b"line\n" * (4 << 20))

    result = saved_box.call("diff")

    assert "Binary files /dev/null and b/image.png differ" in result.out
    assert "Binary files /dev/null and b/huge.txt differ" in result.out
    assert len(result.out) < 2_000
    assert "Bin 0 -> 261 bytes" in saved_box.call("diff", "--stat").out


def test_paths_limit_what_is_compared(saved_box: Box) -> None:
    saved_box.put("src/a.py", "x")
    saved_box.put("docs/a", "x")
    saved_box.put("srcs", "x")

    assert named(saved_box, "--", "src") == {"src/a.py"}
    assert named(saved_box, "v1", "v3", "--", "src", "README") == {"src/a.py", "src/b.py", "README"}
    assert saved_box.call("diff", "--name-only", "--", "a.py", cwd=saved_box.project / "src").out == "M  src/a.py\n"
    assert saved_box.call("diff", "--", str(saved_box.project / "docs")).out.startswith("diff --git a/docs/a")
    assert saved_box.call("diff", "--", "/etc").code == 2


def test_folders_and_what_is_left_out_have_their_own_lines(saved_box: Box) -> None:
    (saved_box.project / "empty").mkdir()
    saved_box.put("full/x", "x")
    saved_box.put("node_modules/x", "x")
    (saved_box.project / "src").chmod(0o711)

    lines = saved_box.call("diff").out.splitlines()

    assert "# new folder: empty/" in lines
    assert "# changed folder: src/ (mode 0755 to 0711)" in lines
    assert "# not compared: node_modules (excluded: matching capture.exclude)" in lines
    assert not [line for line in lines if line.startswith("# new folder: full")]


def test_a_name_with_a_newline_or_without_utf8_is_one_printable_line(saved_box: Box) -> None:
    saved_box.put(b"new\nline", "x")
    saved_box.put(b"caf\xe9", "x")
    saved_box.save()

    assert "A  caf\\xe9\n" in saved_box.call("diff", "--name-only", "v3", "v4").out
    assert "A  new\\nline\n" in saved_box.call("diff", "--name-only", "v3", "v4").out
    assert "caf\\xe9" in saved_box.call("show").out
    changes = {change["path"]: change for change in saved_box.call("show", "--json").json()["changes"]}
    assert changes["caf\\xe9"]["path_base64"] == "Y2Fm6Q=="
    assert "path_base64" not in changes["new\nline"]


def test_cat_gives_the_very_bytes(saved_box: Box) -> None:
    content = bytes(range(256)) * 40_000
    saved_box.put("big.bin", content)
    saved_box.put(b"caf\xe9", b"\r\n\0\xff")
    (saved_box.project / "link").symlink_to("src/a.py")
    saved_box.save()
    (saved_box.project / "big.bin").unlink()

    assert saved_box.run("cat", "v4", "big.bin").raw == content
    assert saved_box.run("cat", "v4", b"caf\xe9").raw == b"\r\n\0\xff"
    assert saved_box.call("cat", "v1", "src/a.py").out == "one\ntwo\nthree\n"
    assert saved_box.call("cat", "v1", "a.py", cwd=saved_box.project / "src").out == "one\ntwo\nthree\n"
    assert saved_box.call("cat", "v1", "src/a.py", cwd=saved_box.project / "src").out == "one\ntwo\nthree\n"
    assert saved_box.call("cat", "v4", "link").out == "src/a.py"


def test_cat_of_what_is_not_a_file_says_so(saved_box: Box) -> None:
    os.mkfifo(saved_box.project / "pipe")
    saved_box.save()

    assert (saved_box.call("cat", "v3", "README").code, saved_box.call("cat", "v3", "src").code) == (4, 2)
    assert "was excluded from v4: socket, pipe or device" in saved_box.call("cat", "v4", "pipe").err


def test_a_terminal_sees_escapes_as_text(saved_box: Box) -> None:
    """A file must not be able to drive the terminal of the person who looks at it."""
    saved_box.put("evil", "\x1b]0;owned\x07\x1b[2J\n")

    result = saved_box.terminal("--color", "never", "diff")

    assert b"+\\x1b]0;owned\\x07\\x1b[2J" in result
    assert b"\x1b" not in result


def test_latest_is_the_first_of_the_list(box: Box) -> None:
    box.call("init")
    for number, tag in enumerate(("work", "other", "work")):
        (box.project / "a.txt").write_text(f"{number}")
        box.call("save", "-m", f"number {number}", "--tag", tag, "--session", f"s{number}", "--task", "t")
    for words in (
        [],
        ["--tag", "other"],
        ["--session", "s0"],
        ["--task", "t"],
        ["--trigger", "manual"],
        ["--limit", "1"],
    ):
        listed = box.call("list", *words, "--json").json()
        text_result = box.call("latest", *words, "--json")
        assert text_result.code == 0 and all(text_result.json()[name] == value for name, value in listed[0].items()), (
            words
        )

    everywhere = box.call("latest", "--all-workspaces", "--json").json()
    listed = box.call("list", "--all-workspaces", "--json").json()
    assert all(everywhere[name] == value for name, value in listed[0].items())
    result = box.call("latest", "--tag", "other")
    assert result.code == 0
    assert "v2" in result.out and "number 1" in result.out and "v3" not in result.out


def test_a_path_that_is_nowhere_is_told(saved_box: Box) -> None:
    saved_box.put("src/a.py", "changed\n")

    result = saved_box.call("diff", "--", "a.py", cwd=saved_box.project / "src")
    nowhere = saved_box.call("diff", "--", "src", cwd=saved_box.project / "src")
    between = saved_box.call("diff", "v1", "v2", "--", "nothing")
    text_result = saved_box.call("diff", "v3", "v3", "--", "src")

    assert result.out and result.err == text_result.err == ""
    assert (nowhere.code, nowhere.out, between.out) == (0, "", "")
    assert "src/src" in nowhere.err and "nothing" in between.err


def test_latest_where_none_fits(box: Box) -> None:
    box.call("init")
    empty = box.call("latest")
    box.call("save")
    result = [box.call("latest", *words) for words in (["--tag", "none"], ["--tag", "none", "--json"])]

    assert [one.code for one in (empty, *result)] == [4, 4, 4]


def test_the_latest_tells_of_the_work_too(saved_box: Box) -> None:
    """The source's own fields; `list` tells them of none, because it would have to read every document."""
    answer = saved_box.call("latest", "--tag", "work", "--json").json()

    assert answer["summary"] == "둘째 체크포인트"
    assert {"description", "agent", "tokens_used", "token_budget", "active_files", "key_points"} <= answer.keys()


def counted(box: Box, version: str) -> tuple[int, int, str | None, list[str]]:
    """What `list` and `show` count, and what `show` compares with and names."""
    [listed] = [row["changed"] for row in box.call("list", "--json").json() if row["version"] == version]
    answer = box.call("show", version, "--json").json()
    return listed, answer["changed"], answer["previous"], [change["path"] for change in answer["changes"]]


def test_a_save_after_a_restore_is_compared_with_what_was_restored(box: Box) -> None:
    """The versions that restores make for themselves are not in `list`, and nobody is told of changes since them alone."""
    box.call("init")
    box.put("f1", "one"), box.put("f2", "one")
    box.save()
    box.put("f1", "two"), box.put("f2", "two")
    box.save()
    assert box.call("restore", "v1", "-y", "--", "f1").code == 0
    assert box.call("restore", "v1", "-y").code == 0
    box.put("f3", "new")
    answer = box.call("save", "-m", "C", "--json").json()["checkpoint"]["version"]

    listed, changed, previous, paths = counted(box, answer)

    assert (previous, paths) == ("v1", ["f3"])
    assert (listed, changed) == (1, 1)
    assert box.call("latest", "--json").json()["changed"] == 1
    assert "the version directly before" not in box.call("show", answer).out
    assert "1 change since v1:" in box.call("show", answer).out


def test_forgetting_changes_no_count_and_says_what_is_compared_instead(box: Box) -> None:
    box.call("init")
    box.put("a", "1")
    for version in range(1, 8):
        if version < 7:
            box.put(f"f{version}", "x")
        box.save()
    assert box.call("show", "v7").out.count("0 changes since v6.") == 1

    assert box.call("forget", "v5", "v6", "-y").code == 0
    in_between = counted(box, "v7")
    assert box.call("forget", "v1", "v2", "v3", "v4", "-y").code == 0
    alone = counted(box, "v7")
    output = box.call("show", "v7").out

    assert in_between == (0, 0, "v4", ["f5", "f6"])
    assert alone == (0, 0, None, ["a", *[f"f{number}" for number in range(1, 7)]])
    assert "0 changes since v6, the version directly before." in output
    assert "7 changes against an empty folder:" in output
