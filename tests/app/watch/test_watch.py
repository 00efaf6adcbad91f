"""`keepfast watch`: changes are saved once they settle, and only those that matter."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec

import pytest

from keepfast.app.watch import _seconds
from tests.equipment.box import SOURCE, Box

from .conftest import Watcher

Start = Callable[..., Watcher]
SLOW = ("--settle", "30", "--at-most", "30")
WAYS = [(), ("--poll",)]
needs_news = pytest.mark.skipif(find_spec("watchfiles") is None, reason="the package watchfiles is not installed")


def quick(*words: str) -> tuple[str, ...]:
    return ("--settle", "0.3", "--at-most", "1", *words)


def content(box: Box, version: str, path: str) -> str:
    return box.call("cat", version, path).out


@pytest.mark.parametrize("way", WAYS)
def test_an_edit_becomes_a_checkpoint(box: Box, watch: Start, way: tuple[str, ...]) -> None:
    watcher = watch(*quick(*way))
    box.put("src/a.py", "two\n")

    watcher.until(lambda: watcher.versions() == ["v2"])
    assert content(box, "v2", "src/a.py") == "two\n"
    saved = watcher.events("saved")[0]["checkpoint"]
    assert (saved["trigger"], saved["message"], saved["created_by"]) == ("watch", "Changed: src/a.py", "auto")
    assert watcher.end() == 0
    assert watcher.said()[-1] == {"event": "ended"}


@pytest.mark.parametrize("way", WAYS)
def test_what_changed_before_it_came_is_saved_first(box: Box, watch: Start, way: tuple[str, ...]) -> None:
    box.put("early", "1")
    watcher = watch(*quick(*way))

    watcher.until(lambda: watcher.versions() == ["v2"])
    assert content(box, "v2", "early") == "1"


def test_files_in_new_folders_are_seen(box: Box, watch: Start) -> None:
    watcher = watch()
    box.put("deep/er/file", "1")
    watcher.until(lambda: bool(watcher.versions()) and content(box, watcher.versions()[-1], "deep/er/file") == "1")
    box.put("deep/er/file", "2")

    watcher.until(lambda: content(box, watcher.versions()[-1], "deep/er/file") == "2")


def test_a_burst_makes_few_versions(box: Box, watch: Start) -> None:
    watcher = watch("--settle", "0.3", "--at-most", "2")
    started = time.monotonic()
    for number in range(150):
        box.put("src/a.py", f"{number}\n")
        time.sleep(0.01)
    took = time.monotonic() - started
    watcher.until(lambda: bool(watcher.versions()) and content(box, watcher.versions()[-1], "src/a.py") == "149\n")

    assert 1 <= len(watcher.versions()) <= took / 2 + 2


@pytest.mark.parametrize("way", WAYS)
def test_dependencies_and_git_do_not_wake_it(box: Box, watch: Start, way: tuple[str, ...]) -> None:
    box.put("node_modules/lib/index.js", "1")
    box.put(".git/HEAD", "ref: refs/heads/main\n")
    box.save()
    watcher = watch(*quick(*way))
    for number in range(10):
        box.put("node_modules/lib/index.js", str(number))
        box.put(f"node_modules/new{number}/x", "x")
        box.put(".git/index", str(number))
        time.sleep(0.05)
    time.sleep(1)
    assert watcher.versions() == []
    box.put("src/a.py", "mine\n")

    watcher.until(lambda: watcher.versions() == ["v3"])


@pytest.mark.parametrize(("number", "way"), [(signal.SIGTERM, ()), (signal.SIGINT, ("--poll",))])
def test_what_is_pending_is_saved_at_the_end(box: Box, watch: Start, number: int, way: tuple[str, ...]) -> None:
    watcher = watch(*SLOW, *way)
    box.put("src/a.py", "at the last moment\n")

    assert watcher.end(number) == 0
    assert content(box, "latest", "src/a.py") == "at the last moment\n"
    assert watcher.versions() == ["v2"]


def test_one_watcher_is_enough(box: Box, watch: Start) -> None:
    first = watch()

    second = box.call("watch")

    assert second.code == 11
    assert f"already watched by process {first.process.pid}" in second.err


def test_status_names_the_watcher(box: Box, watch: Start) -> None:
    assert "Workers    none\n" in box.call("status").out
    watcher = watch()
    assert f"Workers    watch, pid {watcher.process.pid}, nothing saved yet\n" in box.call("status").out
    box.put("src/a.py", "two\n")
    watcher.until(lambda: watcher.versions() == ["v2"])

    assert f"Workers    watch, pid {watcher.process.pid}, last save v2 " in box.call("status").out
    (worker,) = box.call("status", "--json").json()["workers"]
    assert (worker["kind"], worker["pid"], worker["version"]) == ("watch", watcher.process.pid, "v2")
    watcher.end(signal.SIGKILL)
    assert "Workers    none\n" in box.call("status").out


@pytest.mark.parametrize("way", WAYS)
def test_a_folder_that_is_moved_ends_it(box: Box, watch: Start, way: tuple[str, ...]) -> None:
    watcher = watch(*quick(*way))
    box.project.rename(box.home / "elsewhere")

    assert watcher.process.wait(60) == 3
    assert "was moved or removed" in watcher.log.read_text()


def test_a_failed_save_is_shown_and_tried_again(box: Box, watch: Start) -> None:
    watcher = watch()
    packs, away = box.store / "tmp", box.store / "away"
    packs.rename(away)
    box.put("src/a.py", "two\n")
    watcher.until(lambda: bool(watcher.events("failed")))
    away.rename(packs)
    assert [notice["kind"] for notice in box.call("status", "--json").json()["notices"]] == ["failed"]
    box.put("src/b.py", "three\n")

    watcher.until(lambda: watcher.versions() == ["v2"])
    assert content(box, "v2", "src/a.py") == "two\n"


@needs_news
def test_a_name_that_is_not_utf_8_makes_it_look_by_itself(box: Box, watch: Start) -> None:
    watcher = watch()
    box.put(b"odd \xff", "1")
    watcher.until(lambda: watcher.versions() == ["v2"])
    box.put("src/a.py", "2\n")

    watcher.until(lambda: watcher.versions() == ["v2", "v3"])
    assert watcher.events("watching")[-1]["polling"].startswith("polling every")


def test_without_the_package_it_looks_by_itself_and_says_so(box: Box, watch: Start) -> None:
    hidden = box.base / "hidden"
    hidden.mkdir()
    (hidden / "watchfiles.py").write_text("raise ImportError('hidden')\n")
    watcher = watch(*quick(), path=str(hidden))
    assert "pip install '.[watch]'" in watcher.events("watching")[0]["polling"]
    box.put("src/a.py", "two\n")

    watcher.until(lambda: watcher.versions() == ["v2"])


@needs_news
def test_where_watches_run_out_it_looks_by_itself_and_says_so(box: Box, watch: Start) -> None:
    limit = ["unshare", "-U", "-r", "sh", "-c", 'echo 2 > /proc/sys/user/max_inotify_watches && exec "$@"', "sh"]
    tried = subprocess.run([*limit, "true"], capture_output=True, text=True)
    if tried.returncode:
        pytest.skip(f"the kernel's watches cannot be limited here: {tried.stderr.strip()}")
    for number in range(5):
        box.put(f"folder{number}/x", "x")
    box.save()
    watcher = watch(*quick(), before=limit)
    assert "limit of watches is reached" in watcher.events("watching")[0]["polling"]
    box.put("folder4/x", "y")

    watcher.until(lambda: watcher.versions() == ["v3"])


def test_on_a_terminal_it_shows_how_things_stand(box: Box) -> None:
    shown = _terminal(box)

    assert "Watching " in shown
    assert "No changes yet" in shown
    assert "Stopped watching." in shown


def _terminal(box: Box) -> str:
    """The real program on a terminal, ended by its Ctrl-C once it shows its line."""
    leader, follower = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-m", "keepfast", "watch"],
        cwd=box.project,
        env={**box.variables, "PYTHONPATH": str(SOURCE), "TERM": "xterm"},
        stdin=follower,
        stdout=follower,
        stderr=follower,
    )
    os.close(follower)
    shown, ended = b"", False
    try:
        while part := os.read(leader, 65536):
            shown += part
            if b"No changes yet" in shown and not ended:
                child.send_signal(signal.SIGINT)
                ended = True
    except OSError:
        pass
    child.wait(60)
    os.close(leader)
    return shown.decode()


def test_how_often_is_a_sentence() -> None:
    assert (_seconds(1.0), _seconds(0.5), _seconds(2)) == ("second", "0.5 seconds", "2 seconds")
