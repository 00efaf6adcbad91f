"""Inspect a shell script command by command: folders, variables, aliases, wrappers and the scripts that it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from keepfast.shell.arguments import after_options, joined_value, operands_of, option_value, short_option_letters
from keepfast.shell.interpreters import gives_code, interpreter_of, removes_files, script_argument
from keepfast.shell.programs import (
    CODE_SUFFIXES,
    COMMAND_LINE_WRAPPERS,
    DESTROYED_ARGUMENTS,
    FD_EXEC_OPTIONS,
    GIT_ENDINGS,
    GIT_INDEX_CHANGES,
    GIT_OTHER_FOLDER_OPTIONS,
    GIT_OTHER_TREE_OPTIONS,
    GIT_PATH_VERBS,
    GIT_TRACKED_ONLY_VERBS,
    GIT_UNTRACKED_OPTIONS,
    IN_PLACE_OPTIONS,
    INTERPRETERS,
    LOCAL_BINARIES,
    OUTPUT_OPTIONS,
    PACKAGE_MANAGER_VERBS,
    SHELL_SUFFIXES,
    SHELLS,
    WRAPPER_CODE_OPTIONS,
    WRAPPER_FOLDER_OPTIONS,
    WRAPPER_VERBS,
    WRAPPERS,
)
from keepfast.shell.targets import DEVICES, is_known_program, mentioned_words, targets_of, typescript, written_outputs
from keepfast.shell.words import CURRENT_FOLDER, NAME_LETTERS, SPLITTING_LETTERS, Redirection, Word, tokenize

if TYPE_CHECKING:
    from keepfast.shell.destruction import ThreatBuilder

MAX_DEPTH = 8
"""Commands within commands that are inspected; what lies deeper counts as unknown."""
MAX_VARIABLES = 20
SHELL_KEYWORDS = frozenset("if then else elif fi while until do done ! { } time function esac coproc".split())
SHELLS_WITHOUT_SCRIPT = ("eval", "su", "runuser", "script")
"""Members of `SHELLS` that run no script file."""
VARIABLE_SETTERS = (
    "read",
    "eval",
    "source",
    "unset",
    "mapfile",
    "readarray",
    "getopts",
    "printf -v",
    "IFS",
    "declare",
    "local",
    "let",
)
"""Commands that may set a variable to a value that the command line does not show."""
ASSIGNMENT_SIGNS = ("=", "+=", ":=", "[")
"""What follows the name of a variable that is being set."""
EXTGLOB_SIGNS = ("!", "?", "*", "+", "@")
"""What precedes the parenthesis of an extended pattern such as `!(a)`."""


class Script:
    """A shell script that is inspected: adds what its commands may destroy to `threat`."""

    def __init__(self, threat: ThreatBuilder, command: str) -> None:
        self.threat, self.command = threat, command
        self.values: dict[str, list[Word]] = {}
        """Values of variables that the command itself sets, exactly once."""
        self.aliases: dict[str, list[Word]] = {}
        self.has_only_plain_assignments = not any(word in command for word in VARIABLE_SETTERS)

    def inspect(self, text: str, depth: int) -> None:
        """Inspect every simple command in the text, in order, and whatever it runs in turn."""
        if depth > MAX_DEPTH:
            self.threat.add_unknown()
            return
        words: list[Word] = []
        redirections: list[Redirection] = []
        folders: list[str | None] = []
        for token in [*tokenize(text), ";"]:
            if isinstance(token, Word):
                words.append(token)
                self._inspect_in_subshell(token.commands, depth)
            elif isinstance(token, Redirection):
                redirections.append(token)
            else:
                if token == "(" and len(words) > 1 and words[-1].text.endswith(EXTGLOB_SIGNS):
                    words.append(Word.unknown())  # a pattern like `!(a)` is not analysed
                self._inspect_simple_command(words, redirections, depth)
                words, redirections = [], []
                if token == "(":
                    folders.append(self.threat.cwd)
                elif token == ")" and folders:
                    self.threat.cwd = folders.pop()

    def _inspect_in_subshell(self, texts: Sequence[str], depth: int) -> None:
        """Inspect what another shell runs: if it changes its folder, ours stays."""
        folder = self.threat.cwd
        for text in texts:
            self.inspect(text, depth + 1)
            self.threat.cwd = folder

    def _expand(self, words: Sequence[Word]) -> list[Word]:
        """Return the words with known variables replaced by their values."""
        values: Mapping[str, Sequence[Word]] = self.values
        if self.threat.cwd is not None and "PWD=" not in self.command:
            values = {**values, CURRENT_FOLDER: [Word(self.threat.cwd)]}
        return [expansion for word in words for expansion in word.expand(values)]

    def _set_variable(self, name: str, words: list[Word]) -> None:
        """Record the value of a variable, unless something else in the command can set it."""
        if (
            not self.has_only_plain_assignments
            or name == CURRENT_FOLDER
            or len(self.values) >= MAX_VARIABLES
            or _is_set_elsewhere(name, self.command)
        ):
            return
        if words and all(word.is_sure or word.is_glob for word in words):
            self.values[name] = words

    def _note_assignments(self, words: list[Word]) -> None:
        for word in words:
            name, _, value = word.text.partition("=")
            if word.is_sure and not value.startswith("~"):
                self._set_variable(name, [Word(value)])

    def _inspect_simple_command(self, words: list[Word], redirections: list[Redirection], depth: int) -> None:
        words = self._expand(words)
        while words and not words[0].is_quoted and words[0].text in SHELL_KEYWORDS:
            words = words[2 if words[0].text == "function" else 1 :]  # a name follows `function`
        assigned: list[Word] = []
        while words and words[0].is_assignment:
            assigned.append(words[0])
            words = words[1:]
        if not words:
            self._note_assignments(assigned)  # before a program they hold for its environment, not for its words
        if words and words[0].text == "[[":
            return
        if len(words) > 2 and (words[0].text, words[2].text) == ("for", "in"):
            self._set_variable(words[1].text, words[3:])
        for redirection in redirections:
            target = redirection.target
            if redirection.replaces and target is not None and not target.text.startswith(DEVICES):
                self.threat.add_targets(self._expand([target]))
                self._note_written_script(self._expand([target]), words, redirections)
            self._inspect_in_subshell(target.commands if target is not None else (), depth)
            self._inspect_in_subshell(redirection.commands, depth)
        if words:
            bodies = "\n".join([redirection.body for redirection in redirections])
            self._inspect_program(words, bodies, depth)

    def _note_written_script(
        self, targets: list[Word], words: Sequence[Word], redirections: Sequence[Redirection]
    ) -> None:
        """Record the text of a file that the command writes and may run later; None if the text is unknown."""
        path = self.threat.resolve(targets[0]) if len(targets) == 1 and targets[0].is_sure else None
        if self.threat.open_script is None or path is None:
            return
        bodies = [redirection.body for redirection in redirections if redirection.body]
        is_copied = [word.text for word in words] == ["cat"] and len(bodies) == 1
        self.threat.scripts[path] = bodies[0] if is_copied else None

    def _inspect_file(self, word: Word, name: str, depth: int, is_ours: bool = False) -> None:
        """Inspect a script file that is run by the shell or interpreter `name`, or directly if that is empty.

        `is_ours`: it is sourced into this very shell. Files outside of the workspace are not inspected if they are sourced
        or run directly.
        """
        threat = self.threat
        if threat.open_script is None:
            return
        path = threat.resolve(word) if word.is_sure else None
        if path is None:
            if not is_ours and name and (word.is_glob or not word.is_sure):
                threat.add_unknown()
            return
        is_inside = path.startswith(threat.root + "/")
        if path in threat.inspected_scripts or (not is_inside and (is_ours or not name or path.startswith("/dev/"))):
            return
        threat.inspected_scripts[path] = None
        text = threat.text_of(path)
        if text is not None:
            self._inspect_script_text(text, "sh" if is_ours else name or interpreter_of(path, text), depth, is_ours)
        elif "." in path.rpartition("/")[2] or (name in SHELLS and not is_ours):
            threat.add_unknown()  # this very command may create it, so it may do anything

    def _inspect_script_text(self, text: str, interpreter: str, depth: int, is_ours: bool) -> None:
        """Inspect the text of a script; without an interpreter it is no script."""
        threat = self.threat
        if interpreter in SHELLS and depth <= MAX_DEPTH:
            folder = threat.cwd
            Script(threat, text).inspect(text, depth + 1)
            if not is_ours:
                threat.cwd = folder
        elif interpreter in SHELLS or (interpreter and removes_files(interpreter, text)):
            threat.add_unknown()

    def _inspect_program(self, words: Sequence[Word], bodies: str, depth: int) -> None:
        first, arguments = words[0], list(words[1:])
        if not first.is_sure:
            self.threat.add_unknown()
            return
        name = first.text.rpartition("/")[2]
        name = name[:1] + name[1:].partition("@")[0]  # `npx rimraf@5`
        if name in self.aliases and depth <= MAX_DEPTH:
            alias = self.aliases.pop(name)  # an alias is not expanded within itself
            self._inspect_program([*alias, *arguments], bodies, depth + 1)
            self.aliases[name] = alias
            return
        if name in OUTPUT_OPTIONS and "--help" not in [word.text for word in arguments]:
            self.threat.add_targets(written_outputs(name, arguments))
        if name in SHELL_COMMANDS:
            SHELL_COMMANDS[name](self, arguments, depth)
        elif name in WRAPPERS:
            self._inspect_wrapped(name, arguments, bodies, depth)
        elif (wrapped := _wrapped_program(name, arguments)) is not None:
            self._inspect_wrapped(name, wrapped, bodies, depth)
        elif name in SHELLS:
            self._inspect_shell(name, arguments, bodies, depth)
        else:
            self._inspect_leaf_program(name, first, arguments, bodies, depth)

    def _inspect_leaf_program(self, name: str, first: Word, arguments: list[Word], bodies: str, depth: int) -> None:
        """Add what a program destroys that runs no other one, or inspect the script that it runs."""
        targets = targets_of(name, arguments, bodies)
        if name == "git" and targets is not None:
            self._inspect_git(arguments)
        else:
            self.threat.add_targets(targets)
        if targets is not None:
            return
        self.threat.add_mentioned(mentioned_words(name, arguments))
        if name.startswith(INTERPRETERS):
            if not any(gives_code(word.text) or word.text == "-m" for word in arguments):
                for word in script_argument(arguments):
                    self._inspect_file(word, name, depth)
        elif not is_known_program(name) and (
            "/" in first.text or first.text.endswith((*SHELL_SUFFIXES, *CODE_SUFFIXES))
        ):
            self._inspect_file(first, "", depth)

    def _source(self, arguments: list[Word], depth: int) -> None:
        """Inspect a sourced file. It may set any variable, so none is known from here on."""
        self.has_only_plain_assignments = False
        self.values.clear()
        if arguments and arguments[0].commands:
            self.threat.add_unknown()  # it runs what another command prints
        elif arguments:
            self._inspect_file(arguments[0], "", depth, is_ours=True)
        self.threat.add_mentioned(arguments[1:])

    def _inspect_git(self, arguments: list[Word]) -> None:
        """Add the paths that a destructive git command names; an argument that may be a branch counts as a path as well."""
        words = after_options("git", arguments)
        before = arguments[: len(arguments) - len(words)]
        by_git = self._touches_tracked_only(before, words)
        if not words or any(word.text.startswith(GIT_OTHER_FOLDER_OPTIONS) for word in before):
            self.threat.add_unknown(by_git)
            return
        verb, operands = words[0].text, operands_of("git", words[1:])
        if verb == "clean":
            self.threat.add_untracked()
            return
        if (
            verb not in GIT_PATH_VERBS
            or not operands
            or (verb == "checkout" and "--" not in [word.text for word in words])
        ):
            self.threat.add_unknown(by_git)
        if verb in GIT_PATH_VERBS:
            self.threat.add_targets(operands or None, by_git=True)

    def _touches_tracked_only(self, before: list[Word], words: list[Word]) -> bool:
        """Return whether this git command removes nothing but tracked files, and record the folder if so."""
        verb = words[0].text if words else ""
        letters, options = GIT_UNTRACKED_OPTIONS.get(verb, ("", ()))
        if verb not in GIT_TRACKED_ONLY_VERBS or any(word.text.startswith(GIT_OTHER_TREE_OPTIONS) for word in before):
            return False
        if any(word in self.command for word in GIT_INDEX_CHANGES):
            return False
        if any(word.text.startswith(options) for word in words) or not set(letters).isdisjoint(
            short_option_letters(words)
        ):
            return False
        cwd, threat = self.threat.cwd, self.threat
        try:
            for at, value in enumerate(before[1:]):
                if before[at].text == "-C":
                    threat.cwd = threat.resolve(value) if value.is_sure else None
            folder = threat.cwd
        finally:
            threat.cwd = cwd
        if folder is None:
            return False
        threat.git_folders[folder[len(threat.root) + 1 :] if folder.startswith(threat.root + "/") else ""] = None
        return True

    def _change_folder(self, arguments: list[Word], depth: int) -> None:
        words = [word for word in arguments if not word.text.startswith("-") or word.text == "-"]
        if len(words) != 1 or not words[0].is_sure or words[0].text == "-":
            self.threat.cwd = None
        else:
            self.threat.cwd = self.threat.resolve(words[0])

    def _leave_folder(self, arguments: list[Word], depth: int) -> None:
        """Forget the current folder: which one `popd` returns to is unknown."""
        self.threat.cwd = None

    def _trap(self, arguments: list[Word], depth: int) -> None:
        self._inspect_in_subshell([word.text for word in arguments[:1] if word.is_sure], depth)

    def _inspect_wrapped(self, name: str, arguments: list[Word], bodies: str, depth: int) -> None:
        if name == "command" and arguments and arguments[0].text in ("-v", "-V"):
            return
        for option in WRAPPER_CODE_OPTIONS.get(name, ()):
            code = option_value(arguments, option, option)
            if code is not None:
                self._inspect_shell(name, [Word("-c"), code], "", depth)
        folder = option_value(arguments, *WRAPPER_FOLDER_OPTIONS[name]) if name in WRAPPER_FOLDER_OPTIONS else None
        placeholder = (option_value(arguments, "-I", "--replace") or joined_value(arguments, "-I") or Word("{}")).text
        arguments = after_options(name, after_options(name, arguments)[WRAPPERS.get(name, 0) :])
        while arguments and arguments[0].is_assignment:
            arguments = arguments[1:]
        if not arguments:
            return
        if name in COMMAND_LINE_WRAPPERS and arguments[0].is_sure and SPLITTING_LETTERS.intersection(arguments[0].text):
            self._inspect_in_subshell([arguments[0].text], depth)
            return
        if name in ("xargs", "parallel"):
            # The arguments come from standard input.
            arguments = [
                *[Word.unknown() if placeholder and placeholder in word.text else word for word in arguments],
                Word.unknown(),
            ]
        self._inspect_program_in(folder, arguments, bodies, depth)

    def _inspect_program_in(self, folder: Word | None, arguments: list[Word], bodies: str, depth: int) -> None:
        """Inspect a program that another one runs, perhaps in another folder."""
        if depth > MAX_DEPTH:
            self.threat.add_unknown()
            return
        previous_folder = self.threat.cwd
        if folder is not None:
            self.threat.cwd = self.threat.resolve(folder) if folder.is_sure else None
        self._inspect_program(arguments, bodies, depth + 1)
        if folder is not None:
            self.threat.cwd = previous_folder

    def _note_alias(self, arguments: list[Word], depth: int) -> None:
        for word in arguments:
            name, sign, value = word.text.partition("=")
            tokens = tokenize(value) if sign and word.is_sure else []
            words = [token for token in tokens if isinstance(token, Word)]
            if tokens:
                self.aliases[name] = words if len(words) == len(tokens) else [Word.unknown()]

    def _fd(self, arguments: list[Word], depth: int) -> None:
        """Inspect the command of `fd --exec`: the unknown matches replace its braces or follow it."""
        for at, word in enumerate(arguments):
            if word.text in FD_EXEC_OPTIONS and at + 1 < len(arguments) and depth <= MAX_DEPTH:
                command = [Word.unknown() if "{" in part.text else part for part in arguments[at + 1 :]]
                self._inspect_program([*command, Word.unknown()], "", depth + 1)
                return

    def _inspect_shell(self, name: str, arguments: list[Word], bodies: str, depth: int) -> None:
        if any(word.text in ("--version", "--help") for word in arguments[:1]):
            return
        if name == "script":
            self.threat.add_targets(typescript(arguments))
        code = arguments if name == "eval" else self._shell_code(name, arguments)
        if code and all(word.is_sure for word in code):
            text = " ".join([word.text for word in code])
            if name == "eval":
                self.inspect(text, depth + 1)
            else:
                self._inspect_in_subshell([text], depth)
        elif code:
            self.threat.add_unknown()
        elif bodies:
            self._inspect_in_subshell([bodies], depth)
        else:
            operands = [word for word in arguments if not word.text.startswith("-")]
            if not operands or operands[0].commands or operands[0].text == "/dev/stdin":
                self.threat.add_unknown()  # it reads its commands from a pipe
            elif name in SHELLS and name not in SHELLS_WITHOUT_SCRIPT and "n" not in short_option_letters(arguments):
                for word in script_argument(arguments):
                    self._inspect_file(word, name, depth)
            self.threat.add_mentioned(operands[1:])

    def _shell_code(self, name: str, arguments: list[Word]) -> list[Word]:
        """Return the code after `-c`. Words after the code and the script's name are only mentioned."""
        at = [index for index, word in enumerate(arguments) if word.text.startswith("-") and word.text.endswith("c")]
        if not at:
            return []
        if name != "script":
            self.threat.add_mentioned(arguments[at[0] + 3 :])
        return arguments[at[0] + 1 : at[0] + 2]

    def _find(self, arguments: list[Word], depth: int) -> None:
        texts = [word.text for word in arguments]
        # The folders to search come first; `-delete` endangers all of them.
        folders: list[Word] = []
        for word in arguments:
            if word.text.startswith(("-", "(", "!")):
                break
            folders.append(word)
        self._find_itself_destroys(folders, arguments[len(folders) :])
        for at, flag in enumerate(texts):
            if flag not in ("-exec", "-execdir", "-ok", "-okdir"):
                continue
            inner = arguments[at + 1 :]
            end = [index for index, word in enumerate(inner) if word.text in (";", "+")]
            matches = folders if flag in ("-exec", "-ok") and self._are_inside_workspace(folders) else [Word.unknown()]
            command: list[Word] = []
            for word in inner[: end[0] if end else None]:
                command += matches if word.text == "{}" else [Word.unknown()] if "{}" in word.text else [word]
            if command and depth <= MAX_DEPTH:
                self._inspect_program(command, "", depth + 1)

    def _find_itself_destroys(self, folders: list[Word], expression: list[Word]) -> None:
        texts = [word.text for word in expression]
        if any(text.startswith("-fprint") or text == "-fls" for text in texts):
            self.threat.add_targets(folders)
        elif "-delete" in texts and _deletes_one_kind_of_file(expression):
            self.threat.add_ordinary_files_below(folders)
        elif "-delete" in texts:
            self.threat.add_targets(folders)

    def _are_inside_workspace(self, folders: list[Word]) -> bool:
        """Return whether all of these are known folders of the workspace. If so, they stand for whatever `find` matches there."""
        paths = [self.threat.resolve(word) for word in folders if word.is_sure]
        inside = [path for path in paths if path is not None and path.startswith(self.threat.root + "/")]
        return bool(folders) and len(inside) == len(folders)


def _deletes_one_kind_of_file(expression: list[Word]) -> bool:
    """Return whether `find … -delete` deletes only files with an ending that no file of git's own has (`-name '*.pyc'`).

    Only a plain sequence of tests is understood; a test behind `-delete` restricts nothing.
    """
    tests = expression[: [word.text for word in expression].index("-delete")]
    if any(word.text in ("-o", "-or", "-a", "-and", ",", "!", "-not") or word.text[:1] in "()" for word in tests):
        return False
    patterns = [
        word.text for at, word in enumerate(tests) if at and tests[at - 1].text in ("-name", "-iname") and word.is_sure
    ]
    return any(_is_ending_of_ordinary_files(text.rpartition(".")[2].lower()) for text in patterns if "." in text)


def _is_ending_of_ordinary_files(ending: str) -> bool:
    """Return whether this is an ending such as `pyc` or `py[co]`, and none of git's own."""
    letters, bracket, others = ending.partition("[")
    if not letters.replace("_", "").isalnum() or letters.isdigit() or (bracket and others.find("]") != len(others) - 1):
        return False
    return not any(own.startswith(letters) if bracket else own == letters for own in GIT_ENDINGS)


SHELL_COMMANDS: dict[str, Callable[[Script, list[Word], int], None]] = {
    ".": Script._source, "source": Script._source, "cd": Script._change_folder, "pushd": Script._change_folder,
    "popd": Script._leave_folder, "alias": Script._note_alias, "trap": Script._trap, "fd": Script._fd,
    "fdfind": Script._fd, "find": Script._find,
}  # fmt: skip
"""Commands that change how later words are read, or that run other programs in ways of their own."""


def _wrapped_program(name: str, arguments: list[Word]) -> list[Word] | None:
    """Return the program, with its arguments, that `npm exec`, `uv run`, `python -m` and the like run; None if none."""
    if name in WRAPPER_VERBS or name in LOCAL_BINARIES:
        words = after_options(name, arguments)
        verb = words[0].text if words else ""
        if verb in WRAPPER_VERBS.get(name, ()):
            return words[1:]
        if (
            name in LOCAL_BINARIES
            and verb not in PACKAGE_MANAGER_VERBS
            and (verb in DESTROYED_ARGUMENTS or verb in IN_PLACE_OPTIONS)
        ):
            return words
    if name.startswith("python") and "-m" in [word.text for word in arguments[:3]]:
        at = [word.text for word in arguments].index("-m")
        if not [word for word in arguments[:at] if not word.text.startswith("-")]:
            return arguments[at + 1 :]
    return None


def _is_set_elsewhere(name: str, command: str) -> bool:
    """Return whether this variable is set anywhere but once in the command."""
    at, count = command.find(name), 0
    while at >= 0:
        before, following = command[max(0, at - 7) : at], command[at + len(name) : at + len(name) + 2]
        if before[-1:] not in NAME_LETTERS and following[:1] not in NAME_LETTERS:
            count += before.endswith(("for ", "select ")) or following.startswith(ASSIGNMENT_SIGNS)
        at = command.find(name, at + 1)
    return count != 1
