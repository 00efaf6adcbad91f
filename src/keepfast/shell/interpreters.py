"""Code for an interpreter: which argument holds it, and whether it deletes or writes files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keepfast.shell.arguments import operands_of
from keepfast.shell.programs import (
    AWK,
    AWK_PIPES,
    CODE_SUFFIXES,
    DESTRUCTIVE_CODE,
    INTERPRETER_VERBS,
    INTERPRETERS,
    JOINED_CODE_OPTIONS,
    NO_STDIN_OPTIONS,
    OPTIONS_BEFORE_SCRIPT,
    POWERSHELL,
    POWERSHELL_CMDLETS,
    REMOVING_CODE,
    SHELL_SUFFIXES,
    SHELLS,
)
from keepfast.shell.words import NAME_LETTERS, Word

if TYPE_CHECKING:
    from keepfast.shell.targets import Targets


def gives_code(text: str) -> bool:
    """Return whether this is the option or word that an interpreter's code follows: `-e`, `-we`, `-c`, `eval`, `-Command`."""
    if text in ("eval", "--eval", "--print", "-p", "--execute") or text.lower() in ("-command", "-encodedcommand"):
        return True
    return text[:1] == "-" and text[1:2] != "-" and len(text) < 6 and text[-1] in "ceEr"


def code_targets(name: str, arguments: list[Word], bodies: str) -> Targets:
    """Return what the code for an interpreter destroys, given on its command line or in a here-document (`bodies`).

    One word that deletes or writes is enough; which files it means is unknown.
    """
    if name in AWK:
        return _awk_targets(name, arguments)
    if not name.startswith(INTERPRETERS):
        return None
    flags = [index for index, word in enumerate(arguments) if gives_code(word.text)]
    sources = [word for index in flags for word in arguments[index + 1 : index + 2]]
    sources += [
        word
        for word in arguments
        if word.text[:1] == "-" and (word.text.startswith(JOINED_CODE_OPTIONS) or " " in word.text)
    ]
    if not sources and not bodies and _reads_code_from_input(arguments):
        return []
    code = bodies + "".join([word.text for word in sources])
    if any(not word.is_sure for word in sources):
        return []
    words = (*DESTRUCTIVE_CODE, *POWERSHELL_CMDLETS) if name.startswith(POWERSHELL) else DESTRUCTIVE_CODE
    return [] if any(word in code for word in words) else None


def _awk_targets(name: str, arguments: list[Word]) -> Targets:
    operands = operands_of(name, arguments)[:1]
    code = "".join([word.text for word in operands]).replace('> "/dev/', "").replace('>"/dev/', "")
    return [] if any(word in code for word in AWK_PIPES) or _awk_prints_to_file(code) else None


def _awk_prints_to_file(code: str) -> bool:
    """Return whether a `>` follows a `print` of awk, outside of quoted texts."""
    if "print" not in code or ">" not in code:
        return False
    bare = '""'.join(code.replace('\\"', "").split('"')[::2])
    parts = bare.replace("}", ";").replace("\n", ";").split(";")
    return any(">" in part.partition("print")[2] for part in parts)


def _reads_code_from_input(arguments: list[Word]) -> bool:
    """Return whether the interpreter reads its code from a pipe, or from what another command prints."""
    plain = [word for word in arguments if not word.text.startswith("-")]
    if plain and plain[0].commands:
        return True
    comes_in = not plain or any(word.text == "-" for word in arguments[: arguments.index(plain[0])])
    return comes_in and not any(word.text.startswith(NO_STDIN_OPTIONS) for word in arguments)


def script_argument(arguments: list[Word]) -> list[Word]:
    """Return the file that a shell or an interpreter is told to run; an empty list if there is none."""
    before = ""
    for word in arguments:
        text = word.text
        if before in OPTIONS_BEFORE_SCRIPT or (text.startswith(("-", "+")) and word.is_sure) or text == "run":
            before = "" if before in OPTIONS_BEFORE_SCRIPT else text
            continue
        return [] if text in INTERPRETER_VERBS or word.commands else [word]
    return []


def interpreter_of(path: str, text: str) -> str:
    """Return what runs this script, by its first line or else its suffix; "" if it is no script."""
    if text.startswith("#!"):
        words = text.partition("\n")[0].rpartition("/")[2].split(" ")
        return next((word for word in words if word in SHELLS or word.startswith(POWERSHELL)), words[0] or "env")
    if path.endswith(SHELL_SUFFIXES):
        return "sh"
    return "python" if path.endswith(CODE_SUFFIXES) else ""


def removes_files(interpreter: str, text: str) -> bool:
    """Return whether a program's text contains a call that removes or moves files. That a program only writes files is usual."""
    calls = (*REMOVING_CODE, *POWERSHELL_CMDLETS) if interpreter.startswith(POWERSHELL) else REMOVING_CODE
    return any(call in text for call in calls) or _has_plain_call(text, "remove")


def _has_plain_call(text: str, name: str) -> bool:
    """Return whether a function of this name is called that is no method of an object."""
    at = text.find(name + "(")
    while at >= 0:
        if text[at - 1 : at] not in NAME_LETTERS and text[at - 1 : at] != ".":
            return True
        at = text.find(name + "(", at + 1)
    return False
