"""Passwords of letters only: a settings file with one is sealed, as redaction strikes it out; names made of words are none."""

from __future__ import annotations

from random import Random
from string import ascii_letters

import pytest

from keepfast.secrets.redaction import redact
from keepfast.workspace.secret_check import is_secret

RANDOM = (
    "dffxkVZQtqMnMcLRkB",
    "OzZUGxICGrcbxDuyBH",
    "HpFrFGGYwQDDwKUJUD",
    "NmzQyOauDHTDPlgbzn",
    "yslLnQRZINGmM",
    "kJlpobluliGGxGRJlC7",
)
FORMS = (
    ("conf/db.yaml", "db:\n  password: {}\n"),
    ("app.json", '{{"db_password": "{}"}}\n'),
    ("app.ini", "[db]\npassword = {}\n"),
    ("deploy.txt", "API_TOKEN={}\n"),
    ("values.yaml", "- name: DB_PASSWORD\n  value: {}\n"),
)
NAMES = (
    "UserPasswordProvider", "getAccessToken", "XMLHttpRequest", "OAuthClientSecretStore", "HTTPSConnectionPool",
    "kubernetesServiceAccount", "DatabaseUrlFactory", "AWSSecretsManager", "iPhoneKeychainItem", "PostgreSQLPassword",
    "Donaudampfschifffahrt",
    "Rechtsschutzversicherung", "Przedsiebiorstwo", "Contrasenya", "MotDePasseOublie", "WachtwoordVergeten", "SenhaSeguraNova",
    "YourPasswordHere", "ChangeMeBeforeUse", "InsertTokenHere", "CorrectHorseBatteryStaple",
)  # fmt: skip


@pytest.mark.parametrize(("path", "form"), FORMS)
@pytest.mark.parametrize("value", RANDOM)
def test_random_letters_beside_a_telling_word_are_sealed_and_redacted(path: str, form: str, value: str) -> None:
    text = form.format(value)

    assert is_secret(path.encode(), text.encode())
    assert value not in redact(text)


@pytest.mark.parametrize(("length", "least"), [(10, 0.86), (12, 0.9), (18, 0.94), (32, 0.98)])
def test_nearly_all_passwords_of_random_letters_are_sealed(length: int, least: float) -> None:
    random = Random(length)
    values = ["".join(random.choices(ascii_letters, k=length)) for _ in range(1_000)]

    sealed = [value for value in values if is_secret(b"db.yaml", f"password: {value}\n".encode())]

    assert len(sealed) >= least * len(values)


@pytest.mark.parametrize(("path", "form"), FORMS)
@pytest.mark.parametrize("value", NAMES)
def test_names_made_of_words_are_not_sealed(path: str, form: str, value: str) -> None:
    assert not is_secret(path.encode(), form.format(value).encode())


def test_random_letters_in_a_program_are_not_sealed() -> None:
    assert not is_secret(b"src/app.py", b'password = "dffxkVZQtqMnMcLRkB"\n')
