"""Recognise prose behind a label: in `auth: HS256` and `secret: rotation policy` nothing is secret."""

from __future__ import annotations

from itertools import pairwise

from keepfast.secrets.declarations import PASSWORD_LABELS, WORD
from keepfast.secrets.lazy_pattern import lazy

_BITS = "(?:1|128|160|192|224|256|384|512)"
_PUBLIC = "|".join((
    r"[HREP]S(?:256|384|512)K?", r"(?:HMAC[-_]?)?SHA-?[123]?[-_/]?" + _BITS + "?", r"S256", r"(?:x|ed)-?(?:25519|448)",
    r"EdDSA", r"ECDSA", r"ECDH(?:-ES)?", r"AES[-_]?" + _BITS + r"?(?:[-_](?:GCM|CBC|CTR|CCM|KW))?",
    r"RSA[-_]?(?:\d{4})?(?:-OAEP(?:-256)?|-PSS)?", r"P-?(?:256|384|521)", r"secp(?:256|384|521)[kr]1", r"prime256v1",
    r"curve25519", r"(?:TLS|SSL)[-_]?v?[123]?(?:\.?[0-3])?", r"mTLS", r"OAuth[-_]?v?[12]?(?:\.[01])?a?", r"OpenID", r"OIDC",
    r"SAML[-_]?v?[12]?(?:\.[01])?", r"JW[TSEK]S?", r"PKCE", r"PKCS#?\d{1,2}", r"X\.?509(?:v3)?",
    r"HTTPS?(?:[-_/]?[123](?:\.[01])?)?", r"Base-?(?:16|32|58|64)(?:url)?", r"UUID(?:v?[1-8])?", r"MD[45]",
    r"argon2(?:id|[id])?", r"bcrypt", r"scrypt", r"PBKDF2", r"HKDF", r"HMAC", r"BLAKE-?[23][bs]?",
    r"X?ChaCha20(?:-Poly1305)?", r"FIDO-?[12]?", r"U2F", r"WebAuthn", r"[TH]OTP", r"[2M]FA", r"NTLM(?:v[12])?", r"Kerberos5?",
    r"LDAPS?(?:v3)?", r"UTF-?(?:8|16)", r"RFC-?\d{3,5}", r"IPv[46]", r"HttpOnly", r"SameSite", r"v?\d{1,3}(?:\.\d{1,4}){1,3}",
))  # fmt: skip
PUBLIC = lazy(rf"(?i)(?:{_PUBLIC})(?:[/+](?:{_PUBLIC})){{0,3}}")
"""Names of algorithms, formats and protocols, and versions."""
NAMES = lazy(r"[A-Za-z][A-Za-z'’]*(?:[-_/][A-Za-z][A-Za-z'’]*)?")
"""A word, or two joined by a sign; more than two look like a passphrase."""
GOES_ON = lazy(r"[,;]?[ \t]{1,4}[(\[]?[A-Za-z][a-z'’-]*[.,;!?)\]…]{0,3}(?=\s|$)")
RELEASE = lazy(r"[ \t]{1,4}v?\d{1,4}(?:\.\d{1,4}){0,3}[.,;!?)\]…]{0,3}(?=\s|$)")
"""The version of a product, behind its name."""
STANDARD = lazy(r"[A-Z]{2,6}-?\d{1,5}")
"""A standard or a product by its number: `ERC20`, `ISO-27001`."""
# Each way begins otherwise, so that a long name which is none of them is not tried in all their combinations.
_PART = r"(?:[A-Z]{2,}|[A-Z]?[a-z]+(?:[A-Z][a-z]+)*)\d{0,3}|\d{1,3}"
_STEM = rf"\.?(?:{_PART})(?:[-_.](?:{_PART}))*"
WORD_PATH = lazy(rf"(?:~|\.{{0,2}})/{_STEM}(?:/{_STEM})*/?[.,:;!?)…]*|(?:{_STEM}/)+{_STEM}\.[a-z]{{1,4}}\d?[.,:;!?)…]*")
"""A path made of words: absolute, below the home folder or relative, or one to a file with an extension."""
ENDS = ".,:;!?)…"
MAX_PARTS, SHORT = 2, 3
"""Most words in a name, as in `loginHandler`; words up to so many letters may be anything, as in `JwtParser`."""
VOWELS = "aeiouy"
MAX_CONSONANTS = 4
_BEHIND = """
    aabcdfghijklmnpqrstuvwxyz babcdefijlmnoprstuvxy cabcefhiklmopqrstuwy dabcdefghijlmnopqrstuvwy eabcdefghijklmnopqrstuvwxyz
    faefilorstuy gacdefghilmnorstuy habdeilmnoprstuy iabcdefgiklmnopqrstuvxz jaeosu kabcdefgilnopqstuwy labcdefghiklmnopstuvy
    mabcdeilmnopstuvy nabcdefghijklmnoprstuvwy oabcdefghijklmnoprstuvwxyz pacdefghiklmoprstuy qu rabcdefghiklmnoprstuvwy
    sabcdefhiklmnopqrstuvwy tabcdefghiklmnoprstuwxy uabcdefgiklmnoprstvx vacegioru waehilnorsw xacdehimpst yabcdegilmnoprstw
    zaeioyz
"""
BEHIND = {letters[0]: letters[1:] for letters in _BEHIND.split()}
"""Which letters follow which in English; of random words of ten letters, one in forty passes."""
MIN_LETTERS, MAX_LETTERS = 10, 64
MEAN_WORD, DISORDER = 6, 0.65
"""Mean word length, and disorder per letter: more than nine in ten passwords of random letters from 12 on are beyond both, of
those of ten 87 in a hundred, and five in a thousand identifiers."""


def is_prose(name: str, before: str, sign: str, value: str, after: str) -> bool:
    """Return whether `value` is the next word of a sentence, and not a secret.

    `name` is the label, `before` the line up to it, `sign` what stands between, with its blanks, `after` the rest of the
    line. Code and settings (`secret=…`, `client_secret: …`) are not prose.
    """
    if "=" in sign or not sign[-1:].isspace():
        return False
    bare = value.rstrip(ENDS)
    is_labelled = sign.strip() == ":" and _stands_alone(name, before)
    if is_labelled and WORD_PATH.fullmatch(value) is not None:
        return True
    if any(word in name.lower() for word in PASSWORD_LABELS):
        return is_labelled and bare[:1].isalpha() and is_public(bare) and after[:1] in " \t,;" and bool(after.strip())
    if is_public(bare):
        return True
    if not is_labelled or (not (is_spoken := _is_spoken(bare)) and STANDARD.fullmatch(bare) is None):
        return False
    return GOES_ON.match(after) is not None or (is_spoken and bare[:1].isupper() and RELEASE.match(after) is not None)


def _stands_alone(name: str, before: str) -> bool:
    """Return whether the label is a whole word, and not the end of a name or the key of a JSON object."""
    return name.isalpha() and not (before[-1:].isalnum() or before[-1:] in ("_", "-", '"', "'"))


def is_public(value: str) -> bool:
    """Return whether it is a well-known technical name, such as `HS256` or `OAuth2`."""
    return PUBLIC.fullmatch(value) is not None


def is_random(value: str) -> bool:
    """Return whether it is letters of both cases in random order, as a password generator makes them, and not an identifier.

    Disorder counts pairs of letters that do not occur in English (twice), changes of case, and words of one letter.
    """
    letters = value[:-1] if value[-1:].isdigit() else value
    if not (MIN_LETTERS <= len(letters) <= MAX_LETTERS and letters.isascii() and letters.isalpha()):
        return False
    if letters.islower() or letters.isupper():
        return False
    words = WORD.findall(letters)
    if len(letters) >= MEAN_WORD * len(words):
        return False
    disorder = sum(len(word) == 1 for word in words)
    for one, other in pairwise(letters):
        if one.islower() and other.isupper():
            disorder += 1  # where a word begins, any letter may stand
        else:
            disorder += one.islower() != other.islower()
            disorder += 2 * (other.lower() not in BEHIND[one.lower()])
    return disorder >= DISORDER * len(letters)


def _is_spoken(value: str) -> bool:
    """Return whether it is one or two natural words."""
    if NAMES.fullmatch(value) is None:
        return False
    words = WORD.findall(value)
    return len(words) <= MAX_PARTS and all(len(word) <= SHORT or _is_word(word.lower()) for word in words)


def _is_word(word: str) -> bool:
    """Return whether the letters follow one another as in English words."""
    consonants = 0
    for letter in word:
        consonants = 0 if letter in VOWELS else consonants + 1
        if consonants > MAX_CONSONANTS:
            return False
    return all(word[at] in BEHIND[word[at - 1]] for at in range(1, len(word)))
