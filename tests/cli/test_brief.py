"""`keepfast brief` from the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.resume.brief_samples import shop

DATA = Path(__file__).parent.parent / "data" / "transcripts"


def keepfast(*words: str, home: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "keepfast", *words], capture_output=True, text=True, env={"HOME": str(home)}, cwd=home
    )


def test_a_brief_is_printed(tmp_path: Path) -> None:
    path = shop().save(tmp_path / "t.jsonl")

    done = keepfast("brief", "--transcript", str(path), home=tmp_path)

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Resumed from checkpoint: ")
    assert "### shop/part0.py" in done.stdout


def test_a_brief_in_json_has_text_parts_tokens_and_what_was_left_out(tmp_path: Path) -> None:
    path = shop(files=12).save(tmp_path / "t.jsonl")

    done = keepfast("brief", "--transcript", str(path), "--tokens", "2000", "--json", home=tmp_path)

    answer = json.loads(done.stdout)
    assert set(answer) == {"text", "parts", "tokens", "left_out"}
    assert answer["tokens"] <= 2_000
    assert answer["text"] == "\n\n".join(answer["parts"])
    assert answer["left_out"]


def test_contents_come_from_the_disk_if_a_root_is_given(tmp_path: Path) -> None:
    session = shop(files=1, functions=5)
    path = session.save(tmp_path / "t.jsonl")
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop/part0.py").write_text("# rewritten by hand\nvalue = 1\n")

    done = keepfast("brief", "--transcript", str(path), "--root", str(tmp_path), home=tmp_path)

    assert "### shop/part0.py (changed since the checkpoint)" in done.stdout
    assert "# rewritten by hand" in done.stdout


def test_nothing_to_tell_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text("")

    done = keepfast("brief", "--transcript", "t.jsonl", home=tmp_path)

    assert (done.returncode, done.stdout) == (0, "")
    assert "no content for a brief" in done.stderr


@pytest.mark.parametrize(
    "text", ['{"some": "thing else"}\n', "notes of mine\n", '{\n  "info": {"id": "ses_1"},\n  "messages": []\n}', "[1]"]
)
def test_a_file_of_another_form_is_said_to_be_one(tmp_path: Path, text: str) -> None:
    (tmp_path / "t.jsonl").write_text(text)

    done = keepfast("brief", "--transcript", "t.jsonl", home=tmp_path)

    assert (done.returncode, done.stdout) == (1, "")
    assert "t.jsonl" in done.stderr and "Claude Code" in done.stderr and "Codex" in done.stderr


def test_a_missing_transcript_is_a_sentence(tmp_path: Path) -> None:
    done = keepfast("brief", "--transcript", "nowhere.jsonl", home=tmp_path)

    assert done.returncode == 1
    assert "nowhere.jsonl cannot be read" in done.stderr
