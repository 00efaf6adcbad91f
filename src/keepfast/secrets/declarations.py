"""Declarations that look like secrets: `token: TokenKind`, `token: "TokenInfo"`, `secret = secret_from(file)`."""

from __future__ import annotations

from keepfast.secrets.light_re import lazy

# What may stand before a type: pointers, references and variadic signs.
SIGILS = "*&?!."
CHAIN = lazy(r"[A-Za-z_]\w*(?:(?:\.|::)[A-Za-z_]\w*)*")
WORD = lazy(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
OPENS = "([<{"
"""After a name: a call, an index, a type's arguments, a literal."""
KINDS = frozenset(
    "array bytes client config configuration dsn element entity factory identity interface kind metadata module options"
    " params payload props protocol provider record reference repository request response schema selector service spec str"
    " stream struct type types usage".split()
)
"""What the names of types end with, and passphrases hardly ever."""
QUOTED_KINDS = KINDS | frozenset(
    "base bucket budget bundle cache claims class count counter encoder error event exchange filter generator handle handler"
    " header id info issuer key level limit list loader manager map model name pair parser policy pool result scope session set"
    " settings source state status storage store table uri url user validator value vault verifier view".split()
)
"""The same in quotes, where the rest must speak for a type as well."""
AROUND_TYPES = frozenset(
    "Any Callable ClassVar Dict Final Iterable Iterator List Literal Mapping None Optional Self Sequence Set Tuple Type Union"
    " bool bytes dict float frozenset int list set str tuple type".split()
)
TYPE = lazy(r"(?:[A-Za-z_]\w*\.)*_?[A-Z][A-Za-z]*[a-z][A-Za-z]*\d?")
BETWEEN = lazy(r"[\s|,\[\]]+")
SIGNATURE = lazy(r"\s*(?:async\s+)?def\s+\w+\s*[(\[]")
CHOSEN = ("pass", "pwd")
"""Of these even a person's own choice of words is secret: `password: "PasswordStore1"`."""
QUALIFIERS = ("const", "mut", "dyn")
SHORTEST, LONGEST = 3, 120
MEAN, MOST_DIGITS = 4.5, 4
"""Letters in a word of a long name, on average; random letters change their case after two."""


def is_name(run: str) -> bool:
    """Is a long run of letters a name made of words, such as that of a test?"""
    words = WORD.findall(run)
    digits = sum(map(str.isdigit, run))
    return run.isidentifier() and digits <= MOST_DIGITS and sum(map(len, words)) >= MEAN * len(words)


def is_declaration(name: str, sign: str, value: str, after: str) -> bool:
    """Is `value` a type, a variable or a call of a program, and not what somebody keeps secret?

    `name` is the telling word before it, `sign` what stands between, `after` the character that follows. Only names
    made of words count, and of these only such as a program would have there: a passphrase is made of words as well.
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
    if not _are_spelled_out(words) or sum(map(str.isdigit, bare)) > MOST_DIGITS:
        return False
    if after and after in OPENS:
        return after == "(" or bare.isalpha()
    if len(words) < 2:
        return False
    if bare.endswith(("_" + name, name[0].upper() + name[1:])) and name.islower():
        return True  # `token=auth_token`: one variable given on as another
    if sign == "=":
        return False  # a line of a settings file
    stems = [word.lower().removesuffix("s") for word in WORD.findall(name) if len(word) >= SHORTEST]
    return words[-1] in KINDS or any(word.startswith(stem) for word in words for stem in stems)


def _are_spelled_out(words: list[str]) -> bool:
    """Are there words, none of them a single letter, and not all of them abbreviations?"""
    return bool(words) and min(map(len, words)) >= 2 and max(map(len, words)) >= SHORTEST


def is_annotation(name: str, sign: str, value: str, line: str, after: str) -> bool:
    """Is a quoted value a type that Python meets only later, as in `token: "TokenInfo | None" = None`?

    `sign` is all that stands between the telling word and the quote, `line` what stands before that word, `after`
    what follows the closing quote. Settings are written the same way, so that the type must say of itself what it is: by
    the word before it and by how it ends. Only the head of a function leaves no doubt.
    """
    if sign not in (":", ": ") or len(value) > LONGEST or after.isalnum() or name.lower().startswith(CHOSEN):
        return False
    types = [word for word in BETWEEN.split(value) if word not in AROUND_TYPES and word]
    if not types or not all(TYPE.fullmatch(word) for word in types):
        return False
    if SIGNATURE.match(line):
        return all(len(WORD.findall(word.rpartition(".")[2])) >= 2 for word in types)
    return all(_is_of(name, word.rpartition(".")[2]) for word in types)


def _is_of(name: str, type_: str) -> bool:
    """Is the type called after the name, and as types are called?"""
    words = [word.lower() for word in WORD.findall(type_)]
    stems = [word.lower().removesuffix("s") for word in WORD.findall(name) if len(word) >= SHORTEST]
    named = any(word.startswith(stem) for word in words for stem in stems)
    return len(words) >= 2 and min(map(len, words)) >= 2 and named and words[-1] in QUOTED_KINDS
