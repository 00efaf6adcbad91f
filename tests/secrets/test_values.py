"""Values of secret files are known wherever they turn up; words, paths and numbers among them are not."""

from __future__ import annotations

import pytest

from keepfast.secrets.values import SealedFile, redact_values, values_of


@pytest.mark.parametrize(
    ("path", "text", "values"),
    [
        (".env", "BOAT=tang3rine-dr3am\nPORT=5432\n", {"tang3rine-dr3am"}),
        (".env", "export BOAT='tang3rine dr3am'  # a comment\n", {"tang3rine dr3am"}),
        (".env", "DB_PASSWORD=correct-horse-battery\n", {"correct-horse-battery"}),
        (".env", "MODE=production\nSECRET=production\nNAME=some-ordinary-words\n", set()),
        (".env", "HOST=db.internal.example.org:5432\nHOME=/srv/app/v2024\nURL=https://example.org/v2024x\n", set()),
        (".env", "IMAGE=postgres-14.2\nSINCE=2026-11-18T06:50:21Z\nSIZE=123456789\nDEBUG=1\n", set()),
        (".env", "PASSWORD=changeme\nTOKEN=<your token>\nSHORT=a1b2c3d\n", set()),
        (".env", "URL=postgres://me:Zq7Lm2Xw9R@db/app\n", {"Zq7Lm2Xw9R"}),
        (".netrc", "machine a login b password Zq7Lm2Xw9R\n", {"Zq7Lm2Xw9R"}),
        ("credentials.json", '{\n  "boat": "tang3rine-dr3am",\n  "n": 1\n}\n', {"tang3rine-dr3am"}),
        (".vault-token", "Zq7Lm2Xw9R\n", {"Zq7Lm2Xw9R"}),
        (".bash_history", "OPTION=tang3rine-dr3am make\n", set()),
        ("main.py", "boat = 'tang3rine-dr3am'\n", set()),
        (
            "credentials.json",
            '{\n  "boat": "tang3rine\\\\dr3am\\u0021"\n}\n',
            {"tang3rine\\\\dr3am\\u0021", "tang3rine\\dr3am!"},
        ),
        ("secrets.properties", "boat=tang3rine\\:dr3am\n", {"tang3rine\\:dr3am", "tang3rine:dr3am"}),
        (".env", "URL=postgres://me:Zq7Lm%402Xw9R@db/app\n", {"Zq7Lm%402Xw9R", "Zq7Lm@2Xw9R"}),
        ("credentials.csv", "user,key,since\nann,Zq7Lm2Xw9R,2026-11-18\n", {"Zq7Lm2Xw9R"}),
        (".env", "# see the notes: they tell, at length, of 2026-11-18\nPORT=5432\n", set()),
    ],
)
def test_values_are_taken_from_files(path: str, text: str, values: set[str]) -> None:
    assert values_of(path.encode(), text.encode()) == values


@pytest.mark.parametrize(
    ("path", "text", "value"),
    [
        (".env", "BOAT=tang3rine-\\\n  dr3am\nPORT=5432\n", "tang3rine-dr3am"),
        (".pgpass", "db.internal:5432:app:ann:Zq7Lm2\\:Xw9R\n", "Zq7Lm2:Xw9R"),
        (".htpasswd", "ann:Zq7Lm2Xw9R\nbob:x\n", "Zq7Lm2Xw9R"),
    ],
)
def test_values_over_lines_and_in_columns_are_known(path: str, text: str, value: str) -> None:
    assert value in values_of(path.encode(), text.encode())


def test_of_a_file_that_is_secret_by_content_only_its_secrets_count() -> None:
    token = "ghp_" + "a1B2c3D4e5F6" * 3

    assert values_of(b"main.py", f"boat = 'tang3rine-dr3am'\nuse('{token}')\n".encode()) == {token}


def test_the_longest_value_goes_first() -> None:
    assert redact_values("curl -H 'X: abcd1234efgh' abcd1234", {"abcd1234", "abcd1234efgh"}) == (
        "curl -H 'X: [redacted:secret]' [redacted:secret]"
    )


def test_a_message_that_shares_no_letters_with_a_sealed_file_needs_none_of_its_values() -> None:
    file = SealedFile(b".env", b'A="tang3rine\\u002ddr3am"\n')

    assert file.values_for("the first message of today") == set()
    assert "tang3rine-dr3am" in file.values_for("use tang3rine-dr3am")
    escaped = b'A="t\\u0061ng3r\\u0069ne-d\\u00723am"\n'
    assert "tang3rine-dr3am" in SealedFile(b"credentials.json", escaped).values_for("use tang3rine-dr3am")
    assert "tang3rine-dr3am" in SealedFile(b".env", file.content).values_for("a long message " * 100)


def test_a_line_of_a_private_key_is_a_value() -> None:
    line = "MIIEpAIBAAKCAQEA7bq3Xw9RZq7Lm2Kd8Tn5Vc1Pf6Hs0Yj4Ug3Eo2Wi9Aa7Bx6C"
    key = f"-----BEGIN RSA PRIVATE KEY-----\n{line}\nQm5Zt8\n-----END RSA PRIVATE KEY-----\n"

    assert values_of(b"id_rsa", key.encode()) == {line}
