"""A command that runs a script is judged by what the script does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from keepfast.app.hooks import MAX_SCRIPT_BYTES, _script_text
from keepfast.shell.destruction import threat_of
from tests.hook.ground import Ground

from .test_threat import restore, run, write

REMOVER = b"import shutil\nshutil.rmtree('data')\n"
NODE, PERL = b"const fs = require('fs')\nfs.rmSync('data')\n", b"unlink glob 'data/*';\n"


def judged(root: Path, command: str, cwd: str = "") -> str:
    """`nothing`, `anything`, or the paths that are named."""
    found = threat_of(command, os.fsencode(root / cwd), os.fsencode(root), _script_text)
    if found is None or not found.is_certain:
        return "nothing"
    return "anything" if found.is_vague else b" ".join(found.named).decode()


@pytest.mark.parametrize(
    ("name", "text", "command"),
    [
        ("d.py", REMOVER, "python3 d.py"),
        ("d.py", REMOVER, "python3 -W ignore -u d.py --fast"),
        ("d.py", REMOVER, "uv run d.py"),
        ("d.py", b"from os import remove\nremove('a')\n", "python3 d.py"),
        ("d.py", b"import subprocess\nsubprocess.run(['rm', '-r', 'a'])\n", "cd . && python3 d.py"),
        ("x.js", NODE, "node x.js"),
        ("x.pl", PERL, "perl x.pl"),
        ("tool", b"#!/usr/bin/env python3\n" + REMOVER, "./tool"),
        ("s.sh", b'rm -rf "$1"\n', "bash s.sh data"),
        ("s.sh", b'rm -rf "$1"\n', "sh -e s.sh data"),
        ("s.sh", b"python3 d.py\n", "bash s.sh"),
        ("big.py", b"#" * (MAX_SCRIPT_BYTES + 1), "python3 big.py"),
        ("none", b"", "python3 missing.py"),
        ("none", b"", "bash missing.sh"),
        ("none", b"", "printf 'rm x' > new.sh; bash new.sh"),
        ("none", b"", "cat > new.py <<'EOF'\nimport os\nos.remove('a')\nEOF\npython3 new.py"),
        ("none", b"", "make -f -"),
        ("none", b"", "make -f - all <<'EOF'\nall:\n\techo\nEOF"),
    ],
)
def test_a_script_that_removes_or_cannot_be_read_may_do_anything(
    tmp_path: Path, name: str, text: bytes, command: str
) -> None:
    write(tmp_path / name, text)

    assert judged(tmp_path, command) == "anything"


@pytest.mark.parametrize(
    "command", ["bash s.sh", "source s.sh", ". ./s.sh", "./s.sh", "env sh s.sh", "cd sub && sh ../s.sh; ls"]
)
def test_what_a_shell_script_names_is_named(tmp_path: Path, command: str) -> None:
    write(tmp_path / "s.sh", b"#!/bin/sh\nset -e\nrm -rf %s/data\n" % os.fsencode(tmp_path))

    assert judged(tmp_path, command) == "data"


@pytest.mark.parametrize(
    ("name", "text", "command"),
    [
        ("app.py", b"names = ['a']\nnames.remove('a')\nopen('log', 'w').write('x')\n", "python3 app.py"),
        ("app.py", REMOVER, "python3 -m app"),
        ("app.py", REMOVER, "cat app.py"),
        ("app.py", REMOVER, "pytest app.py"),
        ("x.js", b"console.log(1)\n", "node x.js"),
        ("s.sh", b"set -e\necho done\ngrep -r x . | wc -l\n", "bash s.sh"),
        ("s.sh", b"rm x\n", "bash -n s.sh"),
        ("bin/activate", b'VIRTUAL_ENV=x\nexport VIRTUAL_ENV\nPATH="$VIRTUAL_ENV/bin:$PATH"\n', "source bin/activate"),
        ("prog", b"\x7fELF\0rm -rf", "./prog"),
        ("s.sh", b"bash s.sh\n", "bash s.sh"),
        ("none", b"", "source ~/.profile; . /etc/profile; ls"),
        ("none", b"", "/usr/bin/env ls"),
        ("none", b"", "cat > /tmp/new.py <<'EOF'\nprint(1)\nEOF\npython3 /tmp/new.py"),
    ],
)
def test_what_removes_nothing_is_no_danger(tmp_path: Path, name: str, text: bytes, command: str) -> None:
    write(tmp_path / name, text)

    assert judged(tmp_path, command) == "nothing"


@pytest.mark.parametrize(
    ("name", "text", "command"),
    [
        ("d.py", b"import os\nos.remove('db.sqlite3')\n", "python3 d.py"),
        ("s.sh", b"rm db.sqlite3\n", "bash s.sh"),
        ("s.sh", b"rm *.sqlite3\n", ". ./s.sh"),
    ],
)
def test_an_ignored_file_that_a_script_removes_comes_back(
    started: Ground, name: str, text: bytes, command: str
) -> None:
    write(started.project / ".gitignore", b"*.sqlite3\n")
    content = os.urandom(5_000_000)
    write(started.project / "db.sqlite3", content)
    write(started.project / name, text)

    assert run(started, command) == {}
    assert not (started.project / "db.sqlite3").exists()
    restore(started, started.checkpoints()[-1])

    assert (started.project / "db.sqlite3").read_bytes() == content


def test_a_harmless_program_makes_no_checkpoint(started: Ground) -> None:
    write(started.project / "app.py", b"print('hello')\n")
    before = started.triggers()

    assert run(started, "python3 app.py") == {}
    assert started.triggers() == before
