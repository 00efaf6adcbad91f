"""The words of a shell command, split as a shell splits them: quotes, expansions, operators, here-documents."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

OPERATORS = (";;&", ";;", ";&", "&&", "||", "|&", ";", "&", "|", "(", ")", "\n")
REDIRECTIONS = ("&>>", "&>", "<<<", "<<-", "<<", "<>", "<&", ">>", ">|", ">&", ">", "<")
TRUNCATING = (">", ">|", "&>", "<>", ">&")
WORD_BREAKS = frozenset(" \t\n;&|()<>")
PATTERN_LETTERS = frozenset("*?[{")
LITERAL_FOLLOWERS = ("", " ", "\n", "\t", "}", "[")
PATH_ENDS = WORD_BREAKS | {"", "/"}
SPLITTING_LETTERS = frozenset(" \t\n*?[")
"""Characters that may make several words of an unquoted value."""
MAX_EXPANDED_WORDS = 100
CURRENT_FOLDER = "PWD"
PWD_COMMANDS = ("$(pwd)", "`pwd`")
"""Commands that print what the variable `PWD` holds."""
NAME_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")


class Word:
    """A word of a command. If `is_sure`, `text` is its value; otherwise only the first `known_length` characters are known."""

    __slots__ = ("commands", "is_glob", "is_pattern", "is_quoted", "is_sure", "known_length", "text", "variables")

    def __init__(self, text: str, known_length: int = -1, is_pattern: bool = False, is_quoted: bool = False) -> None:
        self.text, self.known_length = text, len(text) if known_length < 0 else known_length
        self.is_sure = known_length < 0
        self.is_pattern = is_pattern
        """Whether the first unknown part is a pattern. A pattern stays in its folder, while a variable may hold anything."""
        self.is_glob = False
        """Whether patterns are its only unknown parts, so that `text` as a whole can be matched against paths."""
        self.is_quoted = is_quoted
        self.commands: list[str] = []
        """Commands whose output becomes part of this word: `$(…)`, back quotes, `<(…)`."""
        self.variables: list[tuple[int, str, bool]] = []
        """Position in `text`, name and whether it is quoted, of each plain variable; empty if anything else is unknown."""

    @classmethod
    def unknown(cls) -> Word:
        return cls("", 0)

    @property
    def is_assignment(self) -> bool:
        name, sign, _ = self.text[: self.known_length].partition("=")
        name = name.removesuffix("+")
        return bool(sign and name) and not name[0].isdigit() and all(letter in NAME_LETTERS for letter in name)

    def known_folder(self) -> str:
        """Return the folder part of the known beginning, up to its last slash."""
        return self.text[: self.known_length].rpartition("/")[0] + "/" if "/" in self.text[: self.known_length] else ""

    def expand(self, values: Mapping[str, Sequence[Word]]) -> list[Word]:
        """Return the words this one becomes with these values of variables; the word itself if that is not known."""
        if not self.variables or any(name not in values for _, name, _ in self.variables):
            return [self]
        expansions: list[Word] = [Word("", is_quoted=self.is_quoted)]
        at = 0
        for place, name, is_quoted in [*self.variables, (len(self.text), "", True)]:
            between = Word(self.text[at:place])
            pieces = values[name] if name else (Word(""),)
            if (
                not all(piece.stays_one_word(is_quoted) for piece in pieces)
                or len(expansions) * len(pieces) > MAX_EXPANDED_WORDS
            ):
                return [self]
            expansions = [word.join(between).join(piece) for word in expansions for piece in pieces]
            at = place
        return expansions

    def stays_one_word(self, is_quoted: bool) -> bool:
        """Return whether this value stays one word when it replaces a variable. A pattern stands for the names in a loop."""
        return self.is_glob or (self.is_sure and (is_quoted or SPLITTING_LETTERS.isdisjoint(self.text)))

    def join(self, other: Word) -> Word:
        known_length = (
            self.known_length if not self.is_sure else -1 if other.is_sure else len(self.text) + other.known_length
        )
        word = Word(self.text + other.text, known_length, self.is_pattern or other.is_pattern, self.is_quoted)
        word.is_glob = self.is_glob or other.is_glob
        return word

    def without_prefix(self, prefix: str) -> Word:
        return Word(
            self.text[len(prefix) :], -1 if self.is_sure else max(0, self.known_length - len(prefix)), self.is_pattern
        )

    def child_named_like(self, other: Word) -> Word:
        """Return the path of a file with the other's base name in the folder that this word names."""
        return Word(self.text.rstrip("/") + "/" + other.text.rstrip("/").rpartition("/")[2])


class Redirection:
    """One redirection, with the text of its here-document."""

    __slots__ = ("body", "commands", "replaces", "target")

    def __init__(self, operator: str, target: Word | None) -> None:
        self.target, self.body = target, ""
        self.commands: list[str] = []
        # `2>&1` and `>&-` are about descriptors.
        to_descriptor = target is None or (operator in (">&", "<&") and target.text.rstrip("-").isdigit())
        self.replaces = operator in TRUNCATING and not to_descriptor and not (target and target.text == "-")


def tokenize(text: str) -> list[Word | Redirection | str]:
    """Return words, redirections and operators in order. A quote that is not closed extends to the end."""
    return _Tokenizer(text).tokenize()


class _Tokenizer:
    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.closing = text.rfind("))")
        """The last `))`. Searched once: a text of nothing but `((` would otherwise be searched to its end for each."""
        self.tokens: list[Word | Redirection | str] = []
        self.here_documents: list[tuple[Redirection, str, bool, bool]] = []

    def tokenize(self) -> list[Word | Redirection | str]:
        text = self.text
        while self.at < len(text):
            letter = text[self.at]
            if letter in " \t\r":
                self.at += 1
            elif letter == "\\" and text[self.at + 1 : self.at + 2] == "\n":
                self.at += 2
            elif letter == "#":
                end = text.find("\n", self.at)
                self.at = len(text) if end < 0 else end
            elif not self._redirection() and not self._operator():
                self.tokens.append(self._word())
        self._read_here_documents()
        return self.tokens

    def _operator(self) -> bool:
        text = self.text
        if self.closing >= self.at and text.startswith("((", self.at):
            # Arithmetic: `>` compares there.
            self.at = text.find("))", self.at) + 2
            return True
        for operator in OPERATORS:
            if text.startswith(operator, self.at):
                self.at += len(operator)
                self.tokens.append(operator)
                if operator == "\n":
                    self._read_here_documents()
                return True
        return False

    def _redirection(self) -> bool:
        text, at = self.text, self.at
        while at < len(text) and text[at].isdigit():
            at += 1
        if text.startswith(("<(", ">("), at) and at == self.at:
            return False  # process substitution is part of a word
        for operator in REDIRECTIONS:
            if text.startswith(operator, at):
                break
        else:
            return False
        if operator.startswith("&") and at != self.at:
            return False
        self.at = at + len(operator)
        while self.at < len(text) and text[self.at] in " \t":
            self.at += 1
        has_target = self.at < len(text) and (
            text[self.at] not in WORD_BREAKS or text.startswith(("<(", ">("), self.at)
        )
        word = self._word() if has_target else None
        if operator in ("<<", "<<-"):
            redirection = Redirection("<", None)
            if word is not None:
                self.here_documents.append((redirection, word.text, operator == "<<-", word.is_quoted))
        else:
            redirection = Redirection(operator, word)
            if operator == "<<<" and word is not None:
                redirection.body = word.text
        self.tokens.append(redirection)
        return True

    def _read_here_documents(self) -> None:
        """Read the here-documents that start after this line."""
        for redirection, end, is_indented, is_quoted in self.here_documents:
            lines = []
            while self.at < len(self.text):
                stop = self.text.find("\n", self.at)
                stop = len(self.text) if stop < 0 else stop
                line = self.text[self.at : stop]
                self.at = stop + 1
                if (line.lstrip("\t") if is_indented else line) == end:
                    break
                lines.append(line)
            redirection.body = "\n".join(lines)
            if not is_quoted:
                redirection.commands = _substitutions(redirection.body)
        self.at = min(self.at, len(self.text))
        self.here_documents = []

    def _word(self) -> Word:
        text, parts, length = self.text, [], 0
        known_length, is_pattern, is_quoted, is_glob = -1, False, False, True
        commands: list[str] = []
        variables: list[tuple[int, str, bool]] = []
        unknown_parts = 0

        def mark_unknown(pattern: bool = False) -> None:
            nonlocal known_length, is_pattern, is_glob, unknown_parts
            is_glob = is_glob and pattern
            unknown_parts += 1
            if known_length < 0:
                known_length, is_pattern = length, pattern

        while self.at < len(text):
            letter = text[self.at]
            piece = ""
            if text.startswith(("<(", ">("), self.at):
                mark_unknown()
                commands.append(self._inside(self.at + 1))
            elif letter in WORD_BREAKS:
                break
            elif letter == "\\":
                piece, is_quoted = self._escaped(), True
            elif letter == "'":
                piece, is_quoted = self._single(), True
            elif letter == '"':
                is_quoted = True
                piece = self._double(mark_unknown, commands, variables, length)
            elif letter == "$" and text[self.at + 1 : self.at + 2] == "'":
                piece, is_quoted = self._single_with_escapes(), True
                if "\\" in piece:
                    mark_unknown()
            elif letter in "$`":
                start = self.at
                piece = self._expansion(commands)
                if piece != "$":
                    mark_unknown()
                    self._note_variable(variables, start, length, False)
            else:
                # `[`, `[[` and `{` alone are shell keywords.
                if letter in PATTERN_LETTERS and (
                    letter in "*?" or text[self.at + 1 : self.at + 2] not in LITERAL_FOLLOWERS
                ):
                    mark_unknown(True)
                elif letter == "~" and not length:
                    mark_unknown()
                piece = letter
                self.at += 1
            parts.append(piece)
            length += len(piece)
        word = Word("".join(parts), known_length, is_pattern, is_quoted)
        word.is_glob = is_glob and known_length >= 0
        word.commands = commands
        word.variables = variables if len(variables) == unknown_parts else []
        return word

    def _escaped(self) -> str:
        """Return the character after a backslash; an escaped end of line is dropped."""
        letter = self.text[self.at + 1 : self.at + 2]
        self.at += 2
        return "" if letter == "\n" else letter

    def _single(self) -> str:
        """Return the text between single quotes."""
        start, end = self.at + 1, self.text.find("'", self.at + 1)
        end = len(self.text) if end < 0 else end
        self.at = end + 1
        return self.text[start:end]

    def _single_with_escapes(self) -> str:
        """Return the text between the quotes of `$'…'`, backslashes included."""
        text, start = self.text, self.at + 2
        end = start
        while end < len(text) and text[end] != "'":
            end += 2 if text[end] == "\\" else 1
        self.at = end + 1
        return text[start:end]

    def _note_variable(self, variables: list[tuple[int, str, bool]], start: int, place: int, is_quoted: bool) -> None:
        """Record the expansion that began at `start` if it is a plain variable."""
        expansion = self.text[start : self.at]
        name = expansion[2:-1] if expansion.startswith("${") else expansion[1:]
        if expansion in PWD_COMMANDS:
            variables.append((place, CURRENT_FOLDER, is_quoted))
        elif name and not name[0].isdigit() and NAME_LETTERS.issuperset(name):
            variables.append((place, name, is_quoted))

    def _double(
        self, mark_unknown: Callable[[], None], commands: list[str], variables: list[tuple[int, str, bool]], length: int
    ) -> str:
        text, parts = self.text, list[str]()
        self.at += 1
        while self.at < len(text) and text[self.at] != '"':
            letter = text[self.at]
            if letter == "\\":
                following = text[self.at + 1 : self.at + 2]
                piece = (
                    following if following in ('"', "\\", "$", "`") else "" if following == "\n" else "\\" + following
                )
                self.at += 2
            elif letter in "$`":
                start = self.at
                piece = self._current_folder() or self._expansion(commands)
                if piece not in ("$", "."):
                    mark_unknown()
                    self._note_variable(variables, start, length + len("".join(parts)), True)
            else:
                piece = letter
                self.at += 1
            parts.append(piece)
        self.at += 1
        return "".join(parts)

    def _current_folder(self) -> str:
        """Skip `$PWD` at the beginning of a quoted path and return `.` for it; otherwise return "". Unquoted, it may be split."""
        text, at = self.text, self.at
        name = next((name for name in ("$PWD", "${PWD}") if text.startswith(name, at)), "")
        behind = text[at + len(name) : at + len(name) + 2]
        is_first = text[at - 1] == '"' and (at == 1 or text[at - 2] in WORD_BREAKS or text[at - 2] == "=")
        if not name or not is_first or not (behind[:1] == "/" or (behind[:1] == '"' and behind[1:] in PATH_ENDS)):
            return ""
        self.at = at + len(name)
        return "."

    def _expansion(self, commands: list[str]) -> str:
        """Skip `$NAME`, `${…}`, `$(…)` or a back-quoted command; return "", or "$" for a plain dollar sign."""
        text, at = self.text, self.at
        if text[at] == "`":
            end = at + 1
            while end < len(text) and text[end] != "`":
                end += 2 if text[end] == "\\" else 1
            commands.append(text[at + 1 : end].replace("\\`", "`"))
            self.at = end + 1
            return ""
        following = text[at + 1 : at + 2]
        if following == "(":
            inside = self._inside(at + 1)
            if not inside.startswith("("):
                commands.append(inside)
            else:
                commands.extend(_substitutions(inside))
            return ""
        if following == "{":
            end = at + 2
            depth = 1
            while end < len(text) and depth:
                depth += (text[end] == "{") - (text[end] == "}")
                end += 1
            commands.extend(_substitutions(text[at + 2 : end - 1]))
            self.at = end
            return ""
        if following and (following in NAME_LETTERS or following in "?!#@*$-"):
            self.at = at + 2
            while following in NAME_LETTERS and self.at < len(text) and text[self.at] in NAME_LETTERS:
                self.at += 1
            return ""
        self.at = at + 1
        return "$"

    def _inside(self, at: int) -> str:
        """Return the text in the parentheses that open at `at`, and move past them."""
        text, end, depth = self.text, at, 0
        while end < len(text):
            letter = text[end]
            if letter == "\\":
                end += 2
                continue
            if letter == "'":
                close = text.find("'", end + 1)
                end = len(text) if close < 0 else close
            elif letter == '"':
                end += 1
                while end < len(text) and text[end] != '"':
                    end += 2 if text[end] == "\\" else 1
            depth += (letter == "(") - (letter == ")")
            if depth == 0:
                break
            end += 1
        self.at = min(end + 1, len(text))
        return text[at + 1 : end]


def _substitutions(text: str) -> list[str]:
    """Return the commands that an unquoted text runs: those in `$(…)` and in back quotes."""
    if "$(" not in text and "`" not in text:
        return []
    commands: list[str] = []
    tokenizer, at = _Tokenizer(text), 0
    while True:
        places = [place for place in (text.find("$(", at), text.find("`", at)) if place >= 0]
        if not places:
            return commands
        tokenizer.at = min(places)
        tokenizer._expansion(commands)
        at = max(tokenizer.at, min(places) + 1)
