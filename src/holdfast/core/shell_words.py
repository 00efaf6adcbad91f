"""The words of a shell command, as a shell would split them: quotes, expansions, operators, here-documents."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

OPERATORS = (";;&", ";;", ";&", "&&", "||", "|&", ";", "&", "|", "(", ")", "\n")
REDIRECTIONS = ("&>>", "&>", "<<<", "<<-", "<<", "<>", "<&", ">>", ">|", ">&", ">", "<")
REPLACING = (">", ">|", "&>", "<>", ">&")
BREAKS = frozenset(" \t\n;&|()<>")
PATTERN = frozenset("*?[{")
ALONE = ("", " ", "\n", "\t", "}", "[")
NAME = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")


class Word:
    """One word. `text` is what it stands for if `is_sure`; else `known` is how much of it is known from its beginning."""

    __slots__ = ("commands", "is_pattern", "is_quoted", "is_sure", "known", "text")

    def __init__(self, text: str, known: int = -1, is_pattern: bool = False, is_quoted: bool = False) -> None:
        self.text, self.known = text, len(text) if known < 0 else known
        self.is_sure = known < 0
        self.is_pattern = is_pattern
        """Is the first unknown part a pattern, which stays in its folder, and not a variable, which may be anything?"""
        self.is_quoted = is_quoted
        self.commands: list[str] = []
        """Commands that are run to make this word."""

    @classmethod
    def unknown(cls) -> Word:
        return cls("", 0)

    @property
    def is_assignment(self) -> bool:
        name, sign, _ = self.text[: self.known].partition("=")
        name = name.removesuffix("+")
        return bool(sign and name) and not name[0].isdigit() and all(letter in NAME for letter in name)

    def start(self) -> str:
        """The folder in which the known beginning of an unsure word lies."""
        return self.text[: self.known].rpartition("/")[0] + "/" if "/" in self.text[: self.known] else ""

    def after(self, prefix: str) -> Word:
        return Word(self.text[len(prefix) :], -1 if self.is_sure else max(0, self.known - len(prefix)), self.is_pattern)

    def below(self, other: Word) -> Word:
        """The file of the other's name in the folder that this word names."""
        return Word(self.text.rstrip("/") + "/" + other.text.rstrip("/").rpartition("/")[2])


class Redirection:
    """One redirection, with the text of its here-document."""

    __slots__ = ("body", "commands", "replaces", "target")

    def __init__(self, operator: str, target: Word | None) -> None:
        self.target, self.body = target, ""
        self.commands: list[str] = []
        # `2>&1` and `>&-` are about descriptors.
        to_descriptor = target is None or (operator in (">&", "<&") and target.text.rstrip("-").isdigit())
        self.replaces = operator in REPLACING and not to_descriptor and not (target and target.text == "-")


def read(text: str) -> list[Word | Redirection | str]:
    """Return words, redirections and operators in their order. A quote that is not closed goes to the end."""
    return _Reader(text).read()


class _Reader:
    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.tokens: list[Word | Redirection | str] = []
        self.documents: list[tuple[Redirection, str, bool, bool]] = []

    def read(self) -> list[Word | Redirection | str]:
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
        self._read_documents()
        return self.tokens

    def _operator(self) -> bool:
        text = self.text
        if text.startswith("((", self.at):
            # Arithmetic: `>` compares there.
            end = text.find("))", self.at)
            if end >= 0:
                self.at = end + 2
                return True
        for operator in OPERATORS:
            if text.startswith(operator, self.at):
                self.at += len(operator)
                self.tokens.append(operator)
                if operator == "\n":
                    self._read_documents()
                return True
        return False

    def _redirection(self) -> bool:
        text, at = self.text, self.at
        while at < len(text) and text[at].isdigit():
            at += 1
        if text.startswith(("<(", ">("), at) and at == self.at:
            return False  # a process in the place of a file: part of a word
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
        there = self.at < len(text) and (text[self.at] not in BREAKS or text.startswith(("<(", ">("), self.at))
        word = self._word() if there else None
        if operator in ("<<", "<<-"):
            redirection = Redirection("<", None)
            if word is not None:
                self.documents.append((redirection, word.text, operator == "<<-", word.is_quoted))
        else:
            redirection = Redirection(operator, word)
            if operator == "<<<" and word is not None:
                redirection.body = word.text
        self.tokens.append(redirection)
        return True

    def _read_documents(self) -> None:
        """Take the here-documents that begin after this line."""
        for redirection, end, is_indented, is_quoted in self.documents:
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
        self.documents = []

    def _word(self) -> Word:
        text, parts, length = self.text, [], 0
        known, is_pattern, is_quoted = -1, False, False
        commands: list[str] = []

        def doubt(pattern: bool = False) -> None:
            nonlocal known, is_pattern
            if known < 0:
                known, is_pattern = length, pattern

        while self.at < len(text):
            letter = text[self.at]
            piece = ""
            if text.startswith(("<(", ">("), self.at):
                doubt()
                commands.append(self._inside(self.at + 1))
            elif letter in BREAKS:
                break
            elif letter == "\\":
                piece = text[self.at + 1 : self.at + 2]
                piece = "" if piece == "\n" else piece
                is_quoted = True
                self.at += 2
            elif letter == "'":
                end = text.find("'", self.at + 1)
                end = len(text) if end < 0 else end
                piece, self.at, is_quoted = text[self.at + 1 : end], end + 1, True
            elif letter == '"':
                is_quoted = True
                piece = self._double(doubt, commands)
            elif letter == "$" and text[self.at + 1 : self.at + 2] == "'":
                end = self.at + 2
                while end < len(text) and text[end] != "'":
                    end += 2 if text[end] == "\\" else 1
                piece = text[self.at + 2 : end]
                if "\\" in piece:
                    doubt()
                self.at, is_quoted = end + 1, True
            elif letter in "$`":
                piece = self._expansion(commands)
                if piece != "$":
                    doubt()
            else:
                # `[`, `[[` and `{` alone are words of the shell.
                if letter in PATTERN and (letter in "*?" or text[self.at + 1 : self.at + 2] not in ALONE):
                    doubt(True)
                elif letter == "~" and not length:
                    doubt()
                piece = letter
                self.at += 1
            parts.append(piece)
            length += len(piece)
        word = Word("".join(parts), known, is_pattern, is_quoted)
        word.commands = commands
        return word

    def _double(self, doubt: Callable[[], None], commands: list[str]) -> str:
        text, parts = self.text, []
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
                piece = self._expansion(commands)
                if piece != "$":
                    doubt()
            else:
                piece = letter
                self.at += 1
            parts.append(piece)
        self.at += 1
        return "".join(parts)

    def _expansion(self, commands: list[str]) -> str:
        """Pass over `$NAME`, `${…}`, `$(…)` or a back-quoted command; return "" or a plain dollar sign."""
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
        if following and (following in NAME or following in "?!#@*$-"):
            self.at = at + 2
            while following in NAME and self.at < len(text) and text[self.at] in NAME:
                self.at += 1
            return ""
        self.at = at + 1
        return "$"

    def _inside(self, at: int) -> str:
        """Return what is in the parentheses that open at `at`, and go on behind them."""
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
    """Commands that an unquoted text runs: those in `$(…)` and in back quotes."""
    if "$(" not in text and "`" not in text:
        return []
    found: list[str] = []
    reader, at = _Reader(text), 0
    while True:
        places = [place for place in (text.find("$(", at), text.find("`", at)) if place >= 0]
        if not places:
            return found
        reader.at = min(places)
        reader._expansion(found)
        at = max(reader.at, min(places) + 1)
