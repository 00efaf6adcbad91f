"""Redaction of texts that are most often harmless: the patterns are loaded only for one that needs a closer look."""

from __future__ import annotations

TELLING = (
    "pass", "pwd", "secret", "token", "key", "credential", "auth", "bearer", "basic ", "dsn", "sas", "connection", "webhook",
    "cookie", "login", "://", "-u", "-p", "-a ", "=", "private", "\\",
)  # fmt: skip
LONG = 16


def without_secrets(text: str) -> str:
    """Return the text redacted. Most texts need no closer look, and then the patterns are not even loaded."""
    lower = text.lower()
    if not any(sign in lower for sign in TELLING) and not any(len(word) >= LONG for word in lower.split()):
        return text
    from keepfast.secrets.redaction import redact

    return redact(text)
