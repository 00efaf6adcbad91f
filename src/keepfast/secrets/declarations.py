"""Recognise declarations that only look like secrets: `token: TokenKind`, `token: "TokenInfo"`, `secret = secret_from(file)`."""

from __future__ import annotations

from keepfast.secrets.lazy_pattern import lazy

# What may stand before a type: pointers, references and variadic signs.
SIGILS = "*&?!."
CHAIN = lazy(r"[A-Za-z_]\w*(?:(?:\.|::)[A-Za-z_]\w*)*")
WORD = lazy(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
OPENS = "([<{"
"""What follows a name in code: a call, an index, a type's arguments, a literal."""
KINDS = frozenset(
    "array bytes client config configuration dsn element entity factory identity interface kind metadata module options"
    " params payload props protocol provider record reference repository request response schema selector service spec str"
    " stream struct type types usage".split()
)
"""Last words of type names; passphrases hardly ever end with one."""
QUOTED_KINDS = KINDS | frozenset(
    "base bucket budget bundle cache claims class count counter encoder error event exchange filter generator handle handler"
    " header id info issuer key level limit list loader manager map model name pair parser policy pool result scope session set"
    " settings source state status storage store table uri url user validator value vault verifier view".split()
)
"""The same for a type in quotes, where the rest of the line must look like a type as well."""
AROUND_TYPES = frozenset(
    "Any Callable ClassVar Dict Final Iterable Iterator List Literal Mapping None Optional Self Sequence Set Tuple Type Union"
    " bool bytes dict float frozenset int list set str tuple type".split()
)
TYPE = lazy(r"(?:[A-Za-z_]\w*\.)*_?[A-Z][A-Za-z]*[a-z][A-Za-z]*\d?")
BETWEEN = lazy(r"[\s|,\[\]]+")
SIGNATURE = lazy(r"\s*(?:async\s+)?def\s+\w+\s*[(\[]")
PASSWORD_LABELS = ("pass", "pwd")
"""Beside these labels even plain words are a secret: `password: "PasswordStore1"`."""
QUALIFIERS = ("const", "mut", "dyn")
MIN_WORD_LENGTH, MAX_VALUE_LENGTH = 3, 120
MEAN, MAX_DIGITS = 4.5, 4
"""Least mean length of the words in a long name (random letters change case after two), and its most digits."""


def is_name(run: str) -> bool:
    """Return whether a long run of letters is an identifier made of words, such as the name of a test."""
    words = WORD.findall(run)
    digits = sum(map(str.isdigit, run))
    return run.isidentifier() and digits <= MAX_DIGITS and sum(map(len, words)) >= MEAN * len(words)


def is_declaration(name: str, sign: str, value: str, after: str) -> bool:
    """Return whether `value` is a type, a variable or a call in code, and not a secret.

    `name` is the label before it, `sign` what stands between, `after` the character that follows. Only identifiers
    made of words count, and only such as code would have there: a passphrase is made of words as well.
    """
    bare = value.lstrip(SIGILS)
    pointed = bare != value
    if CHAIN.fullmatch(bare) is None:
        return False
    if pointed and ("." in bare or "::" in bare):
        return True  # `*agent.TokenUsage`
    if bare in QUALIFIERS:
        return True
    words = [word.lower() for word in WORD.findall(bare)]
    if not _are_spelled_out(words) or sum(map(str.isdigit, bare)) > MAX_DIGITS:
        return False
    if after and after in OPENS:
        return after == "(" or bare.isalpha()
    if len(words) < 2:
        return False
    if bare.endswith(("_" + name, name[0].upper() + name[1:])) and name.islower():
        return True  # `token=auth_token`: one variable passed as another
    if sign == "=":
        return False  # a line of a settings file
    stems = [word.lower().removesuffix("s") for word in WORD.findall(name) if len(word) >= MIN_WORD_LENGTH]
    return words[-1] in KINDS or any(word.startswith(stem) for word in words for stem in stems)


def _are_spelled_out(words: list[str]) -> bool:
    """Return whether there is at least one word of three letters, and none of a single letter."""
    return bool(words) and min(map(len, words)) >= 2 and max(map(len, words)) >= MIN_WORD_LENGTH


def is_annotation(name: str, sign: str, value: str, line: str, after: str) -> bool:
    """Is a quoted value a forward reference to a type, as in `token: "TokenInfo | None" = None`?

    `sign` is what stands between the label and the quote, `line` what stands before the label, `after` what follows the
    closing quote. Settings files are written the same way, so the name of the type must repeat the label and end like
    a type. Only in the signature of a function is there no doubt.
    """
    if (
        sign not in (":", ": ")
        or len(value) > MAX_VALUE_LENGTH
        or after.isalnum()
        or name.lower().startswith(PASSWORD_LABELS)
    ):
        return False
    types = [word for word in BETWEEN.split(value) if word not in AROUND_TYPES and word]
    if not types or not all(TYPE.fullmatch(word) for word in types):
        return False
    if SIGNATURE.match(line):
        return all(len(WORD.findall(word.rpartition(".")[2])) >= 2 for word in types)
    return all(_matches_label(name, word.rpartition(".")[2]) for word in types)


def _matches_label(name: str, type_: str) -> bool:
    """Return whether the name of the type repeats the label, and ends as types end."""
    words = [word.lower() for word in WORD.findall(type_)]
    stems = [word.lower().removesuffix("s") for word in WORD.findall(name) if len(word) >= MIN_WORD_LENGTH]
    named = any(word.startswith(stem) for word in words for stem in stems)
    return len(words) >= 2 and min(map(len, words)) >= 2 and named and words[-1] in QUOTED_KINDS
