"""Declarations that look like secrets: `token: TokenKind`, `TokenUsage *agent.TokenUsage`, `secret = secret_from(file)`."""

from __future__ import annotations

from holdfast.core.light_re import lazy

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
QUALIFIERS = ("const", "mut", "dyn")
SHORTEST = 3
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
    if (
        not words
        or min(map(len, words)) < 2
        or max(map(len, words)) < SHORTEST
        or sum(map(str.isdigit, bare)) > MOST_DIGITS
    ):
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
