"""A task that was given one private key still has every other one taken out of its output."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from keepfast.runner.process.filter import OutputWriter
from keepfast.runner.process.spellings import forms
from tests.secrets.planted_secrets import pem


@pytest.mark.parametrize("kind", ["RSA PRIVATE KEY", "PRIVATE KEY", "OPENSSH PRIVATE KEY"])
def test_another_key_than_the_one_given_is_taken_out_as_well(tmp_path: Path, kind: str) -> None:
    given, other = (pem(Random(seed)).replace("RSA PRIVATE KEY", kind) for seed in (1, 2))
    stream = OutputWriter(str(tmp_path / "out"), [given], 1 << 20)

    for line in f"first\n{given}\nbetween\n{other}\nlast\n".splitlines(keepends=True):
        stream.write(line.encode())
    stream.close()

    written = (tmp_path / "out").read_text()
    assert "first" in written and "last" in written
    left = [line for key in (given, other) for line in key.split("\n")[1:-1] if line in written]
    assert left == []


def test_lines_that_every_key_has_are_not_struck_out() -> None:
    struck = forms([pem(Random(1)) + "\nshort\n"])

    assert b"-----BEGIN RSA PRIVATE KEY-----" not in struck
    assert b"short" not in struck
