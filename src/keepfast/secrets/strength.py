"""How strong a passphrase is: an estimate by its length and variety (docs/guides/secrets.md)."""

from __future__ import annotations

import re

from keepfast.model.errors import Usage

LEAST = 45
"""Bits. A guess costs whoever has a backup a tenth of a second: at 2^45 of them a thousand machines are busy for a century."""
MIXED, WORDY, EXPECTED = 4.25, 2.5, 0.5
MOST_EACH = 5
"""However often a character comes, it counts no more than this."""
WORD = re.compile(r"[A-Za-z][a-z]{3,}")
ROWS = ("abcdefghijklmnopqrstuvwxyz", "01234567890", "qwertyuiop", "asdfghjkl", "zxcvbnm")
COLUMNS = ("1qaz", "2wsx", "3edc", "4rfv", "5tgb", "6yhn", "7ujm", "8ik", "9ol", "0p")
SHIFTED = str.maketrans("!@#$%^&*()", "1234567890")
ADDRESS = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
KNOWN = (
    "password", "passwort", "passphrase", "passwd", "qwerty", "qwertz", "azerty", "letmein", "welcome", "iloveyou", "secret",
    "admin", "login", "dragon", "monkey", "football", "baseball", "sunshine", "princess", "superman", "trustno", "changeme",
    "keepfast", "spring", "summer", "autumn", "winter",
    "monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday", "january",
    "february", "march", "april", "june", "july", "august",
    "september", "october", "november", "december", "correct horse battery staple", "correcthorsebatterystaple",
)  # fmt: skip
"""What everybody tries first."""
SPELLED = str.maketrans("@4310$57!", "aaeiosstl")


def require_strong(passphrase: str) -> None:
    """Raise `Usage` for a passphrase that protects too little."""
    found = strength(passphrase)
    if found < LEAST:
        raise Usage(
            f"This passphrase is too weak: about {found} bits of {LEAST} that are needed.",
            "Take four or more unrelated words, or 14 or more mixed characters; well-known passwords and sentences hardly count.",
        )


def strength(passphrase: str) -> int:
    """About how many bits somebody has to guess, who knows how people make passphrases."""
    folded = passphrase.casefold() if len(passphrase.casefold()) == len(passphrase) else passphrase
    known = _known(folded)
    if ADDRESS.fullmatch(passphrase):
        known = set(range(1, len(passphrase)))  # whose it is, others know
    words = {at for found in WORD.finditer(passphrase) for at in range(*found.span())}
    is_mixed = len({_kind(char) for char in passphrase}) > 1
    bits = 0.0
    for at, char in enumerate(passphrase):
        if at in known or _is_expected(folded, at):
            bits += EXPECTED
        elif not char.isascii() or (is_mixed and at not in words and char != " "):
            bits += MIXED
        else:
            bits += WORDY
    return int(min(bits, MOST_EACH * len(set(folded))))


def _known(folded: str) -> set[int]:
    """Where the best-known passwords stand, all but the first character of each, also as people disguise them."""
    found: set[int] = set()
    for text in (folded, folded.translate(SPELLED)):
        for word in KNOWN:
            at = text.find(word)
            while at >= 0:
                found.update(range(at + 1, at + len(word)))
                at = text.find(word, at + 1)
    return found


def _is_expected(folded: str, at: int) -> bool:
    """Does this character repeat the one before, go on along the alphabet or a keyboard, or end what was there before?"""
    if at and folded[at] == folded[at - 1]:
        return True
    plain = folded.translate(SHIFTED)
    if at > 1 and any(plain[at - 2 : at + 1] in row or plain[at - 2 : at + 1] in row[::-1] for row in COLUMNS):
        return True
    if at > 3 and _goes_along(plain[at - 4 : at + 1]):
        return True
    three = folded[at - 2 : at + 1] if at > 1 else ""
    return bool(three) and (any(three in row or three in row[::-1] for row in ROWS) or folded.find(three) < at - 2)


def _goes_along(five: str) -> bool:
    """Do two rows take turns, as in `1q2w3`?"""
    return all(any(part in row or part in row[::-1] for row in ROWS) for part in (five[::2], five[1::2]))


def _kind(char: str) -> int:
    return 0 if char.islower() or char == " " else 1 if char.isupper() else 2 if char.isdigit() else 3
