"""A sentence beside a telling word keeps its words; a secret in a sentence goes."""

from __future__ import annotations

from random import Random
from string import ascii_lowercase

import pytest

from keepfast.secrets.light_redaction import without_secrets
from keepfast.secrets.redaction import redact

SENTENCES = [
    "Implement JWT auth: HS256", "secret: rotation policy", "Implement JWT validation in pkg/auth: HS256, with tests",
    "token: refresh logic", "api key: RS256", "pkg/auth: OAuth2 flow", "Authorization: OAuth2 flow for admins",
    "auth: loginHandler returns 500", "secret: rotation, storage and audit", "token: JwtValidator class is slow",
    "auth: middleware (new)", "credentials: encryption at rest", "secrets: Kubernetes manifests are wrong",
    "auth: SHA-256 digests", "auth: role-based access", "auth: login/logout handlers", "auth: HS256/RS256 support",
    "secret: management-plane work", "auth: re-authenticate users", "auth: two-factor login", "auth: GitHub login",
    "token: ES512 instead of PS384", "the token is AES256-GCM sealed", "auth: EdDSA.",
    "auth: TLS1.3 only", "Auth: Keycloak integration",
    "cookie: HttpOnly flags", "secret: validation. Then run the tests", "auth-service: HS256", "bearer: Base64url decoding fails",
    "password: argon2id hashing", "password: bcrypt, cost 12", "Password: PBKDF2 with 600000 rounds", "passwords: SHA-512 (old)",
    "auth: Keycloak 24", "auth: Keycloak 24.0.5, behind nginx", "secret: Vault 1.15 is new", "auth: Okta v3.",
    "token: ERC20 support", "token: ERC-721 transfers fail", "auth: ISO27001 audit", "token: CAIP2 ids",
    "credentials: ~/.aws/credentials", "credentials: /etc/app/creds.json", "secret: ./deploy/secret.yaml is wrong",
    "password: ~/.pgpass", "token: config/token.json, then the rest",
]  # fmt: skip
SECRETS = [
    ("the password is hunter2!x", "hunter2!x"), ("token: ghp_{}", "ghp_{}"), ("secret: {} is the one", "{}"),
    ("use the token {} for staging", "{}"), ("auth: {}, with tests", "{}"), ("api_key: {} works", "{}"),
    ("client_secret: sunshine for staging", "sunshine"), ("password: rotation policy", "rotation"),
    ("secret=rotation policy", "rotation"), ("secret = rotation policy", "rotation"),
    ('secret: "rotation policy"', "rotation"),
    ("secret: 'HS256secret' it is", "HS256secret"),
    ("token: qwhxzkvbnm is for prod", "qwhxzkvbnm"), ("token: sunshine9 and more", "sunshine9"),
    ("secret: correct-horse-battery is it", "correct-horse-battery"), ("secret: CorrectHorseBattery is it", "CorrectHorse"),
    ("token: aBcDeFgHiJkL for staging", "aBcDeFgHiJkL"),
    ("auth_token: sunflower is it", "sunflower"), ("secret: sunflower", "sunflower"),
    ("secret: sunflower # for staging", "sunflower"), ("secret: sunflower user: bob", "sunflower"),
    ("auth: HS256-{}", "{}"), ("password: argon2id", "argon2id"), ("password: argon2idX hashing", "argon2idX"),
    ("password: Sommerwind 24", "Sommerwind"), ("password: ERC20 it is", "ERC20"), ("password: 1.2.3 it is", "1.2.3"),
    ("secret: sunflower 24", "sunflower"), ("token: ERC20", "ERC20"), ("token: AB12cd34 for prod", "AB12cd34"),
    ("secret: Qwhxzkvbnm 24", "Qwhxzkvbnm"), ("token: ~/{}", "{}"), ("auth_token: Keycloak 24", "Keycloak"),
    ("secret=/etc/app", "/etc/app"),
    ("secret: HS256!{} then", "{}"), ("passphrase: sunflower is it", "sunflower"),
    ("the db password: Sommerwind is it", "Sommerwind"),
    ("Authorization: Bearer {} please", "{}"),
]  # fmt: skip
RANDOM = "Zq7Lm2Xw9RtB4kVsZq7Lm2Xw9RtB4kVs1x"


@pytest.mark.parametrize("text", SENTENCES)
def test_a_sentence_stays(text: str) -> None:
    assert redact(text) == text
    assert without_secrets(text) == text


@pytest.mark.parametrize(("text", "secret"), SECRETS)
def test_a_secret_in_a_sentence_goes(text: str, secret: str) -> None:
    left = without_secrets(text.format(RANDOM))

    assert secret.format(RANDOM) not in left
    assert "[redacted:" in left


def test_few_random_letters_look_like_a_word() -> None:
    random = Random(5)
    made = ["".join(random.choices(ascii_lowercase, k=12)) for _ in range(2000)]

    left = [value for value in made if value in redact(f"secret: {value} is for prod")]

    assert len(left) <= 50, left
