"""Files of real projects that hold no secret: at most one in two hundred is sealed by mistake, and the number is printed."""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from keepfast.secrets.redaction import redact
from keepfast.workspace.secret_check import is_secret

TREES = Path(__file__).parents[2] / ".bench" / "trees"
CODE = {
    "the standard library": Path(sysconfig.get_path("stdlib")),
    "installed packages": Path(sysconfig.get_path("purelib")),
    "headers of the system": Path("/usr/include"),
    "the kernel": TREES / "linux",
    "node_modules": TREES / "node_modules",
}
MOST = 4_000
LIMIT = 0.005
KEY = b" PRIVATE KEY-----\n"
"""What holds one is no mistake: libraries bring keys along for their tests."""


def files(folder: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(set(folders) - {"site-packages", "__pycache__", ".keepfast"})
        for name in sorted(names):
            path = Path(place, name)
            if path.is_file() and not path.is_symlink() and path.stat().st_size < 4 << 20:
                yield path


@pytest.mark.parametrize("name", CODE)
def test_few_files_of_a_real_code_base_are_sealed(name: str, request: pytest.FixtureRequest) -> None:
    folder = CODE[name]
    found = list(files(folder)) if folder.is_dir() else []
    if len(found) < 100:
        pytest.skip(f"{folder} is not here")
    if not request.config.getoption("--campaign"):
        found = found[:: max(len(found) // MOST, 1)]

    sealed = [
        path
        for path in found
        if is_secret(bytes(path.relative_to(folder)), content := path.read_bytes()) and KEY not in content
    ]

    share = len(sealed) / len(found)
    print(f"{name}: {len(sealed)} of {len(found):,} files sealed by mistake ({100 * share:.2f} %)")
    assert share <= LIMIT, sealed[:20]


@pytest.mark.parametrize(
    "text",
    [
        "Secrets Redaction for log writes",
        "TokenUsage Implementation",
        "Fine-grained tokens",
        "Fine-grained tokens Read-only",
        "Fix the token Refresh-Flow.",
        "All pass `mise run fmt`",
        "The tests pass: `go test ./... -run X`",
        '*checkpoint.TokenUsage `json:"token_usage,omitempty"`',
        '\tTokenUsage `json:"token_usage,omitempty" yaml:"token_usage"`',
    ],
)
def test_ordinary_words_and_code_beside_a_telling_word_stay(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "mysqldump --password Summerwind",
        "tool --db-password=x --api-token Wintersturm",
        "password correct-horse-battery",
        "the token abcDEF123456",
        "password `Hunter2xyz`",
        "password `correct horse battery`",
        'Token `default:"s3cr3tValue99"`',
        "password: Summerwind",
    ],
)
def test_what_only_looks_like_these_is_struck_out(text: str) -> None:
    assert "[redacted:secret]" in redact(text)
