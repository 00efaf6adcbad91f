"""Options and operands among the arguments of a program."""

from __future__ import annotations

from keepfast.shell.programs import VALUE_OPTIONS
from keepfast.shell.words import Word


def operands_of(name: str, arguments: list[Word]) -> list[Word]:
    """Return the arguments that are neither options nor values of options."""
    operands, values, is_over, skip = [], VALUE_OPTIONS.get(name, ()), False, False
    for word in arguments:
        if skip:
            skip = False
        elif is_over or not word.text.startswith("-") or word.text == "-":
            operands.append(word)
        elif word.text == "--":
            is_over = True
        else:
            skip = word.text in values
    return [word for word in operands if word.text != "-"]


def after_options(name: str, arguments: list[Word]) -> list[Word]:
    """Return what follows the options at the front and their values."""
    values = VALUE_OPTIONS.get(name, ())
    at = 0
    while at < len(arguments) and arguments[at].text.startswith("-"):
        if arguments[at].text == "--":
            return arguments[at + 1 :]
        at += 2 if arguments[at].text in values else 1
    return arguments[at:]


def option_value(arguments: list[Word], short: str, long: str) -> Word | None:
    """Return the value of `-s VALUE` or `--long=VALUE`; None if neither is given."""
    for index, word in enumerate(arguments):
        if word.text == short and index + 1 < len(arguments):
            return arguments[index + 1]
        if word.text.startswith(long + "="):
            return word.without_prefix(long + "=")
    return None


def joined_value(arguments: list[Word], short: str) -> Word | None:
    """Return the value of `-sVALUE`; None if there is none."""
    return next(
        (word.without_prefix(short) for word in arguments if word.text.startswith(short) and len(word.text) > 2), None
    )


def short_option_letters(arguments: list[Word]) -> str:
    """Return all letters after single dashes, as in `-rf`."""
    return "".join([word.text[1:] for word in arguments if word.text[:1] == "-" and word.text[1:2] != "-"])


def is_cluster(text: str) -> bool:
    """Return whether these are short options, such as `-xzf`. A dash alone counts, too."""
    return text[:1] == "-" and text[1:2] != "-"
