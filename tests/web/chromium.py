"""A real browser: Debian's Chromium, driven by Playwright, and the accessibility rules of axe-core from npm."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.clients.claude.client import _npm, cache
from tests.equipment import programs

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
AXE = "4.10.3"
DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 360, "height": 740}
LOOKS = {
    f"{width}-{theme}": {"viewport": size, "color_scheme": theme}
    for width, size in (("desktop", DESKTOP), ("phone", PHONE))
    for theme in ("light", "dark")
}


class Unavailable(Exception):
    """There is no browser and none can be installed."""


def program() -> str:
    """Where Chromium is; installed from Debian's packages if we may."""
    found = programs.find("chromium", "chromium", "chromium-browser", "google-chrome")
    if found is None:
        raise Unavailable("There is no Chromium, and Debian's package `chromium` cannot be installed here.")
    return found


@contextmanager
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=program(), args=ARGUMENTS)
        try:
            yield made
        finally:
            made.close()


def axe() -> str:
    """The text of axe-core, fetched once by its package name."""
    path = cache() / f"axe-core-{AXE}.js"
    with open(cache() / "axe.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            folder = cache() / f".axe.{os.getpid()}"
            folder.mkdir(exist_ok=True)
            _npm("pack", "--silent", f"axe-core@{AXE}", "--pack-destination", str(folder))
            (archive,) = folder.glob("*.tgz")
            with tarfile.open(archive) as packed:
                member = packed.extractfile("package/axe.min.js")
                assert member is not None
                Path(folder / "axe.js").write_bytes(member.read())
            (folder / "axe.js").rename(path)
            shutil.rmtree(folder)
    return path.read_text()


def home(page: Page) -> str:
    """Where the pages of the session live that a page belongs to."""
    found = re.match(r"https?://[^/]+/~[0-9a-f]{32}", page.url)
    assert found is not None, page.url
    return found[0]


def barriers(page: Page, addresses: Iterable[str], rules: str) -> list[tuple[str, str, str]]:
    """What axe finds serious on these pages. They must have been opened without their policy of contents."""
    found = []
    for address in addresses:
        page.goto(home(page) + address)
        page.evaluate(rules)
        found += [
            (address, one["id"], one["nodes"][0]["html"][:120])
            for one in page.evaluate("axe.run()")["violations"]
            if one["impact"] in ("serious", "critical")
        ]
    return found


def cramped(page: Page) -> list[str]:
    """What a finger would miss on this page: controls less than 40 pixels high, or a page that goes on to the right.

    The sign at a line of code is as high as its line, for there is one at each.
    """
    return [
        *page.evaluate(
            """() => [...document.querySelectorAll(
                "button, .button, summary, textarea, label.choice, input:not([type=hidden], [type=radio], [type=checkbox])")]
                .filter((one) => one.checkVisibility() && !one.closest(".note, .hidden") && one.offsetHeight < 40)
                .map((one) => `${one.offsetHeight} ${one.outerHTML.slice(0, 100)}`)"""
        ),
        *page.evaluate(
            "() => document.documentElement.scrollWidth > innerWidth ? [`${document.documentElement.scrollWidth} wide`] : []"
        ),
    ]


def press(page: Page, label: str) -> None:
    """Go to the button of that name by the tab key alone, press it, and wait for where it leads."""
    for _ in range(120):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent.trim()") == label:
            with page.expect_navigation(timeout=90_000):
                page.keyboard.press("Enter")
            return
    raise AssertionError(f"No tab stop is named {label!r}.")
