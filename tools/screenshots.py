"""Pictures of the page for README and docs, taken from the running page: `python tools/screenshots.py`.

`tools/gallery.py` takes every page and state, for visual review.
Needs Chromium and Playwright. Everything happens in a temporary home.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from house import (
    DONE,
    GUIDE,
    NEVER,
    PRICES,
    QUESTION,
    ROOT,
    House,
    chromium,
    end,
    figures,
    house,
    keepfast,
    opened_at,
    project,
    task,
)

DESKTOP, PHONE = (1200, 1060), (360, 740)
LOOKS = ((DESKTOP, "light", ""), (PHONE, "dark", "-phone"))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        shop = project(home, 44)
        keepfast(home, "name", "v33", "before-the-sale", cwd=shop)
        keepfast(home, "pin", "v33", cwd=shop)
        keepfast(home, "restore", "v40", "-y", "--theirs", cwd=shop)
        keepfast(home, "undo", "-y", cwd=shop)
        with house(home) as here:
            guide, running = _tasks(home)
            figures(home, guide)
            try:
                _pictures(here, guide, shop)
            finally:
                end(home, running)


def _tasks(home: Path) -> tuple[str, str]:
    """What waits for somebody and what does not; of those, the one to look at, and the one that never ends."""
    task(home, "database", "Keep orders in a database", [[{"say": QUESTION}], [DONE]], "true")
    guide = task(
        home, "guide", "Write the pricing guide",
        [[{"write": ["guide.md", GUIDE]}, {"write": ["prices.py", PRICES]}, DONE], [DONE]],
        "echo '12 passed in 0.34s'",
    )  # fmt: skip
    running = task(
        home, "search", "Speed up the search", [[{"say": "Reading src/search.py"}, {"wait_for": NEVER}]], "true"
    )
    task(
        home,
        "lint",
        "Upgrade the linter",
        [[{"write": ["ruff.toml", "line-length = 100\n"]}, DONE]],
        "true",
        ("Upgrade",),
    )
    return guide, running


def _pictures(here: House, guide: str, shop: Path) -> None:
    with chromium() as browser:
        for size, theme, ending in LOOKS:
            seen = browser.new_context(viewport={"width": size[0], "height": size[1]}, color_scheme=theme)  # type: ignore[arg-type]
            page = seen.new_page()
            page.goto(here.link())
            for sign in ("#inbox >> button:has-text('Approve')", "#inbox >> button:has-text('SQLite')",
                         "#board >> .badge:has-text('completed')", "#board >> .badge:has-text('in progress')"):  # fmt: skip
                page.wait_for_selector(sign, timeout=90_000)
            # The newest checkpoint brings its workspace to the first place.
            keepfast(here.home, "save", "-m", "discounts are rounded once", cwd=shop)
            address = (page.get_attribute("#workspaces a:has-text('shop')", "href") or "").partition("/w/")
            for name, path in (("page", "/"), ("task", f"/t/{guide}"), ("timeline", "".join(address[1:]))):
                page.goto(opened_at(page) + path)
                page.wait_for_selector("body[data-connected=yes]")
                page.screenshot(path=ROOT / f"docs/{name}{ending}.png")
            seen.close()


if __name__ == "__main__":
    main()
