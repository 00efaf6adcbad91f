"""The words of a shell command, as a shell would split them: quotes, expansions, operators, here-documents."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

OPERATORS = (";;&", ";;", ";&", "&&", "||", "|&", ";", "&", "|", "(", ")", "\n")
REDIRECTIONS = ("&>>", "&>", "<<<", "<<-", "<<", "<>", "<&", ">>", ">|", ">&", ">", "<")
REPLACING = (">", ">|", "&>", "<>", ">&")
BREAKS = frozenset(" \t\n;&|()<>")
PATTERN = frozenset("*?[{")
ALONE = ("", " ", "\n", "\t", "}", "[")
ENDS = BREAKS | {"", "/"}
SPLITTING = frozenset(" \t\n*?[")
"""With these a value that is not quoted may become several words."""
MOST_FILLED = 100
CURRENT = "PWD"
FOLDER = ("$(pwd)", "`pwd`")
"""Commands that say what the variable of that name does."""
NAME = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")


class Word:
    """One word. `text` is what it stands for if `is_sure`; else `known` is how much of it is known from its beginning."""

    __slots__ = ("commands", "holes", "is_glob", "is_pattern", "is_quoted", "is_sure", "known", "text")

    def __init__(self, text: str, known: int = -1, is_pattern: bool = False, is_quoted: bool = False) -> None:
        self.text, self.known = text, len(text) if known < 0 else known
        self.is_sure = known < 0
        self.is_pattern = is_pattern
        """Is the first unknown part a pattern, which stays in its folder, and not a variable, which may be anything?"""
        self.is_glob = False
        """Is nothing in it unknown but patterns, so that `text` is one that can be matched?"""
        self.is_quoted = is_quoted
        self.commands: list[str] = []
        """Commands that are run to make this word."""
        self.holes: list[tuple[int, str, bool]] = []
        """Where nothing is unknown but plain variables: the place of each in `text`, its name, and whether it is quoted."""

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

    def filled(self, values: Mapping[str, Sequence[Word]]) -> list[Word]:
        """The words that it stands for with these values of variables; itself alone where that cannot be told."""
        if not self.holes or any(name not in values for _, name, _ in self.holes):
            return [self]
        found: list[Word] = [Word("", is_quoted=self.is_quoted)]
        at = 0
        for place, name, is_quoted in [*self.holes, (len(self.text), "", True)]:
            between = Word(self.text[at:place])
            pieces = values[name] if name else (Word(""),)
            if not all(piece.can_stand(is_quoted) for piece in pieces) or len(found) * len(pieces) > MOST_FILLED:
                return [self]
            found = [word.joined(between).joined(piece) for word in found for piece in pieces]
            at = place
        return found

    def can_stand(self, is_quoted: bool) -> bool:
        """Is it one word in the place of a variable, too? A pattern stands for the names that a loop goes through."""
        return self.is_glob or (self.is_sure and (is_quoted or SPLITTING.isdisjoint(self.text)))

    def joined(self, other: Word) -> Word:
        known = self.known if not self.is_sure else -1 if other.is_sure else len(self.text) + other.known
        word = Word(self.text + other.text, known, self.is_pattern or other.is_pattern, self.is_quoted)
        word.is_glob = self.is_glob or other.is_glob
        return word

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
        self.closing = text.rfind("))")
        """Looked for once: a text of nothing but opening ones would be searched to its end for each."""
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
        if self.closing >= self.at and text.startswith("((", self.at):
            # Arithmetic: `>` compares there.
            self.at = text.find("))", self.at) + 2
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
        known, is_pattern, is_quoted, is_glob = -1, False, False, True
        commands: list[str] = []
        holes: list[tuple[int, str, bool]] = []
        doubts = 0

        def doubt(pattern: bool = False) -> None:
            nonlocal known, is_pattern, is_glob, doubts
            is_glob = is_glob and pattern
            doubts += 1
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
                piece, is_quoted = self._escaped(), True
            elif letter == "'":
                piece, is_quoted = self._single(), True
            elif letter == '"':
                is_quoted = True
                piece = self._double(doubt, commands, holes, length)
            elif letter == "$" and text[self.at + 1 : self.at + 2] == "'":
                piece, is_quoted = self._single_with_escapes(), True
                if "\\" in piece:
                    doubt()
            elif letter in "$`":
                start = self.at
                piece = self._expansion(commands)
                if piece != "$":
                    doubt()
                    self._note_hole(holes, start, length, False)
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
        word.is_glob = is_glob and known >= 0
        word.commands = commands
        word.holes = holes if len(holes) == doubts else []
        return word

    def _escaped(self) -> str:
        """The letter behind a backslash; nothing for the end of a line."""
        letter = self.text[self.at + 1 : self.at + 2]
        self.at += 2
        return "" if letter == "\n" else letter

    def _single(self) -> str:
        """What stands between single quotes."""
        start, end = self.at + 1, self.text.find("'", self.at + 1)
        end = len(self.text) if end < 0 else end
        self.at = end + 1
        return self.text[start:end]

    def _single_with_escapes(self) -> str:
        """What stands between the quotes of `$'…'`, with its backslashes."""
        text, start = self.text, self.at + 2
        end = start
        while end < len(text) and text[end] != "'":
            end += 2 if text[end] == "\\" else 1
        self.at = end + 1
        return text[start:end]

    def _note_hole(self, holes: list[tuple[int, str, bool]], start: int, place: int, is_quoted: bool) -> None:
        """Note the expansion that began at `start` if it is nothing but a variable."""
        said = self.text[start : self.at]
        name = said[2:-1] if said.startswith("${") else said[1:]
        if said in FOLDER:
            holes.append((place, CURRENT, is_quoted))
        elif name and not name[0].isdigit() and NAME.issuperset(name):
            holes.append((place, name, is_quoted))

    def _double(
        self, doubt: Callable[[], None], commands: list[str], holes: list[tuple[int, str, bool]], length: int
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
                    doubt()
                    self._note_hole(holes, start, length + len("".join(parts)), True)
            else:
                piece = letter
                self.at += 1
            parts.append(piece)
        self.at += 1
        return "".join(parts)

    def _current_folder(self) -> str:
        """`$PWD` at the beginning of a quoted path is `.`; else nothing is passed over. Without quotes it may be split."""
        text, at = self.text, self.at
        name = next((name for name in ("$PWD", "${PWD}") if text.startswith(name, at)), "")
        behind = text[at + len(name) : at + len(name) + 2]
        is_first = text[at - 1] == '"' and (at == 1 or text[at - 2] in BREAKS or text[at - 2] == "=")
        if not name or not is_first or not (behind[:1] == "/" or (behind[:1] == '"' and behind[1:] in ENDS)):
            return ""
        self.at = at + len(name)
        return "."

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
