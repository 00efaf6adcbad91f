"""Eleven commands that do hidden damage, and twenty that do none: what a project needs for them, and what they must be told of."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import NamedTuple


class Task(NamedTuple):
    """A command, the script that it runs under another name, and the paths that it damages."""

    command: str
    damaged: tuple[str, ...]
    word: str = ""
    """A word that the report must have."""
    scripts: tuple[tuple[str, str], ...] = ()


DOCS = ("docs/guide.md", "docs/more.md")
DROP = "import sqlite3; c = sqlite3.connect('app.db'); c.execute('DROP TABLE orders'); c.commit()"
MIGRATE = f'python3 -c "{DROP}"'

DAMAGES = {
    "a build script that deletes sources": Task(
        "./build.sh", ("src/one.py", "src/two.py"), "deleted", (("build.sh", "cat src/*.py >/dev/null; rm src/one.py src/two.py"),)
    ),
    "a formatter that rewrites .env": Task("./format.sh", (".env",), "changed", (("format.sh", "printf 'KEY = 1\\n' > .env"),)),
    "git clean -fdx": Task("git clean -fdxq", ("notes.txt", ".env", "local.cfg"), "deleted"),
    "rsync --delete": Task("rsync -a --delete src/ site/", ("site/index.html", "site/style.css"), "deleted"),
    "mv over an existing file": Task("mv src/one.py src/two.py", ("src/two.py",), "overwrote"),
    "a test that truncates a fixture": Task(
        "./run-tests", ("fixtures/large.json",), "truncated", (("run-tests", ": > fixtures/large.json"),)
    ),
    "an npm script that removes a folder": Task("./npm run clean", DOCS, "deleted", (("npm", "rm -rf docs"),)),
    "sed -i on too many files": Task(
        "grep -rl value . --include=*.py | xargs sed -i s/value/amount/", ("src/one.py", "src/two.py"), "changed"
    ),
    "tar x over the tree": Task("tar xf old.tar", ("src/one.py", "src/two.py"), "overwrote"),
    "chmod -R": Task("chmod -R a-r docs", ("docs/guide.md", "docs/more.md"), "unreadable"),
    "a migration that drops a table": Task(
        "./migrate", ("app.db",), "table orders", (("migrate", MIGRATE),)
    ),
}  # fmt: skip

HARMLESS = {
    "list": "ls -la",
    "search": "grep -rn value src",
    "read": "cat src/one.py docs/guide.md",
    "new file": "echo hello > hello.txt",
    "append": "echo '# end' >> src/one.py",
    "rewrite one": "printf 'value = 9\\n' > src/one.py",
    "sed on one": "sed -i s/value/amount/ src/one.py",
    "remove one": "rm notes.txt",
    "remove a folder": "rm -rf docs",
    "rename": "mv notes.txt renamed.txt",
    "copy": "cp src/one.py src/copy.py",
    "new folder": "mkdir -p a/b && touch a/b/c.txt",
    "heredoc": "cat > src/two.py <<'END'\nvalue = 3\nEND",
    "tests": "python3 -m compileall -q src",
    "git status": "git status --short",
    "git commit": "git add -A && git -c user.name=a -c user.email=a@b commit -qm work",
    "python writes one new file": "python3 -c \"open('made.txt', 'w').write('x')\"",
    "make executable": "chmod +x build.sh || true",
    "pattern": "rm src/*.py",
    "pack": "tar cf all.tar src docs",
}


def fill(project: Path) -> None:
    """Make the project that the commands work in."""
    for folder in ("src", "site", "docs", "fixtures"):
        (project / folder).mkdir()
    for name, text in {
        "src/one.py": "value = 1\n",
        "src/two.py": "value = 2\n",
        "site/index.html": "<p>old</p>\n",
        "site/style.css": "p {}\n",
        "docs/guide.md": "# Guide\n",
        "docs/more.md": "# More\n",
        "fixtures/large.json": "[1, 2, 3]\n" * 200,
        "notes.txt": "mine\n",
        ".env": "KEY=1\nOTHER=2\n",
        "local.cfg": "a=b\n",
        ".gitignore": ".env\nlocal.cfg\n*.tar\n",
    }.items():
        (project / name).write_text(text)
    connection = sqlite3.connect(project / "app.db")
    connection.execute("CREATE TABLE orders (id INTEGER)")
    connection.execute("CREATE TABLE users (id INTEGER)")
    connection.execute("INSERT INTO orders VALUES (1)")
    connection.commit()
    connection.close()


def make_script(project: Path, name: str, text: str) -> None:
    (project / name).write_text(f"#!/bin/sh\n{text}\n")
    (project / name).chmod(0o755)
