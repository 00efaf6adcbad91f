"""How strong a passphrase is: an estimate by its length and variety (docs/guides/secrets.md)."""

from __future__ import annotations

import re

from keepfast.model.errors import Usage

MIN_BITS = 45
"""Bits. Each guess at a backup costs a tenth of a second: 2^45 of them keep a thousand machines busy for a century."""
MIXED, WORDY, EXPECTED = 4.25, 2.5, 0.5
MAX_BITS_PER_CHARACTER = 5
"""Bits that all occurrences of one character count together at most."""
WORD = re.compile(r"[A-Za-z][a-z]{3,}")
ROWS = ("abcdefghijklmnopqrstuvwxyz", "01234567890", "qwertyuiop", "asdfghjkl", "zxcvbnm")
COLUMNS = ("1qaz", "2wsx", "3edc", "4rfv", "5tgb", "6yhn", "7ujm", "8ik", "9ol", "0p")
SHIFTED = str.maketrans("!@#$%^&*()", "1234567890")
ADDRESS = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
WELL_KNOWN = (
    "password", "passwort", "passphrase", "passwd", "qwerty", "qwertz", "azerty", "letmein", "welcome", "iloveyou", "secret",
    "admin", "login", "dragon", "monkey", "football", "baseball", "sunshine", "princess", "superman", "trustno", "changeme",
    "keepfast", "spring", "summer", "autumn", "winter",
    "monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday", "january",
    "february", "march", "april", "june", "july", "august",
    "september", "october", "november", "december", "correct horse battery staple", "correcthorsebatterystaple",
)  # fmt: skip
"""What an attacker tries first."""
SPELLED = str.maketrans("@4310$57!", "aaeiosstl")


def require_strong(passphrase: str) -> None:
    """Raise `Usage` for a weak passphrase."""
    bits = strength(passphrase)
    if bits < MIN_BITS:
        raise Usage(
            f"This passphrase is too weak: about {bits} bits, but {MIN_BITS} are needed.",
            "Use four or more unrelated words, or 14 or more mixed characters; well-known passwords and sentences hardly count.",
        )


def strength(passphrase: str) -> int:
    """Estimate how many bits an attacker has to guess who knows how people make passphrases."""
    folded = passphrase.casefold() if len(passphrase.casefold()) == len(passphrase) else passphrase
    guessable = _well_known_places(folded)
    if ADDRESS.fullmatch(passphrase):
        guessable = set(range(1, len(passphrase)))  # an e-mail address is no secret
    words = {at for word in WORD.finditer(passphrase) for at in range(*word.span())}
    is_mixed = len({_kind(char) for char in passphrase}) > 1
    bits = 0.0
    for at, char in enumerate(passphrase):
        if at in guessable or _is_expected(folded, at):
            bits += EXPECTED
        elif not char.isascii() or (is_mixed and at not in words and char != " "):
            bits += MIXED
        else:
            bits += WORDY
    return int(min(bits, MAX_BITS_PER_CHARACTER * len(set(folded))))


def _well_known_places(folded: str) -> set[int]:
    """Return the places of well-known passwords, also disguised ones (`p@ssw0rd`), without the first character of each."""
    places: set[int] = set()
    for text in (folded, folded.translate(SPELLED)):
        for word in WELL_KNOWN:
            at = text.find(word)
            while at >= 0:
                places.update(range(at + 1, at + len(word)))
                at = text.find(word, at + 1)
    return places


def _is_expected(folded: str, at: int) -> bool:
    """Return whether this character repeats the previous one or an earlier group, or follows in the alphabet or on a keyboard."""
    if at and folded[at] == folded[at - 1]:
        return True
    plain = folded.translate(SHIFTED)
    if at > 1 and any(plain[at - 2 : at + 1] in row or plain[at - 2 : at + 1] in row[::-1] for row in COLUMNS):
        return True
    if at > 3 and _alternates(plain[at - 4 : at + 1]):
        return True
    three = folded[at - 2 : at + 1] if at > 1 else ""
    return bool(three) and (any(three in row or three in row[::-1] for row in ROWS) or folded.find(three) < at - 2)


def _alternates(five: str) -> bool:
    """Return whether the five characters alternate between two rows, as in `1q2w3`."""
    return all(any(part in row or part in row[::-1] for row in ROWS) for part in (five[::2], five[1::2]))


def _kind(char: str) -> int:
    return 0 if char.islower() or char == " " else 1 if char.isupper() else 2 if char.isdigit() else 3
