"""Which paths a command names: what happens to these its author has meant."""

from __future__ import annotations

from fnmatch import fnmatchcase
from posixpath import basename, dirname, join, normpath

from keepfast.shell.words import Redirection, Word, tokenize

REMOVERS = frozenset("rm rmdir unlink shred trash trash-put srm git-rm".split())
"""Programs that remove everything below the folders that they name."""
MOVERS = frozenset("mv git-mv".split())
"""Programs that remove what they name first."""
COPIERS = frozenset("mv cp install ln rsync scp".split())
"""Programs that replace files in or at the last path that they name."""
EDITORS, IN_PLACE = frozenset("sed gsed perl ruby".split()), ("-i", "--in-place", "-pi", "-ni")
TARS, UNPACKERS = frozenset("tar bsdtar gtar".split()), frozenset("unzip cpio 7z 7za unrar".split())
DISCARDERS = frozenset("git-reset git-restore git-stash".split())
"""Commands of git that replace changed files by committed ones."""
PREFIXES = frozenset("sudo doas env command exec nice nohup time builtin busybox".split())


class NamedPaths:
    """Absolute paths that a command names, and what its programs do to them."""

    def __init__(self, command: str, cwd: str) -> None:
        self.exact: set[str] = set()
        self.patterns: list[str] = []
        self.removed: list[str] = []
        """Paths, or patterns of paths, that are removed with everything below."""
        self.destinations: set[str] = set()
        """Paths where programs such as `mv` and `cp` put files."""
        self.edits_in_place = False
        """Does it rewrite files where they are, as `sed -i` and `git reset --hard` do? Something else chooses which."""
        self.extracts = False
        """Does it unpack an archive, which chooses the files that are written?"""
        self._cwd = cwd
        words: list[Word] = []
        for token in [*tokenize(command), ";"]:
            if isinstance(token, Word):
                words.append(token)
            elif isinstance(token, Redirection):
                if token.target is not None:
                    self._add(token.target)
            else:
                self._read_simple_command(words)
                words = []

    def means(self, path: str) -> bool:
        """Return whether the command names this very path."""
        return path in self.exact or any(_matches(path, pattern) for pattern in self.patterns)

    def removes(self, path: str) -> bool:
        """Return whether the command says that this path, or a folder above it, is to go."""
        above = path
        while above not in ("/", ""):
            if any(above == target or _matches(above, target) for target in self.removed):
                return True
            above = dirname(above)
        return False

    def places(self, path: str) -> bool:
        """Return whether a file at this path is replaced by one that the command moves or copies there."""
        return path in self.destinations or dirname(path) in self.destinations

    def replaces(self, path: str) -> bool:
        """Return whether the command puts another file in place of this one, by name or out of an archive."""
        return self.places(path) or (self.extracts and not self.means(path))

    def _read_simple_command(self, words: list[Word]) -> None:
        while words and (words[0].is_assignment or words[0].text in PREFIXES):
            words = words[1:]
        if not words:
            return
        program, operands = basename(words[0].text), [word for word in words[1:] if not word.text.startswith("-")]
        if program == "cd":
            if operands and operands[0].is_sure:
                self._cwd = self._resolve(operands[0].text)
            return
        if program == "git" and operands:
            program, operands = f"git-{operands[0].text}", operands[1:]
        for word in words[1:]:
            self._add(word)
        self._note_program(program, [word.text for word in words])
        self._note_paths(program, [self._resolve(word.text) for word in operands if word.is_sure or word.is_glob])

    def _note_program(self, program: str, texts: list[str]) -> None:
        """Record whether the program chooses by itself which files it writes."""
        self.extracts |= program in UNPACKERS or (program in TARS and _is_extraction(texts[1:]))
        self.edits_in_place |= program in DISCARDERS and (program != "git-reset" or "--hard" in texts)
        if EDITORS.intersection([basename(text) for text in texts]):
            self.edits_in_place |= any(text.startswith(IN_PLACE) for text in texts)

    def _note_paths(self, program: str, paths: list[str]) -> None:
        """Record which of its operands a program removes, and where it puts files."""
        if program in REMOVERS:
            self.removed += paths
        elif program in MOVERS:
            self.removed += paths[:-1]
        if program in COPIERS and len(paths) > 1:
            self.destinations.add(paths[-1])

    def _add(self, word: Word) -> None:
        if word.is_sure:
            self.exact.add(self._resolve(word.text))
            value = word.text.partition("=")[2]  # as in `--output=FILE` and `of=FILE`
            if value:
                self.exact.add(self._resolve(value))
        elif word.is_glob:
            self.patterns.append(self._resolve(word.text))

    def _resolve(self, text: str) -> str:
        return normpath(join(self._cwd, text))


def _is_extraction(arguments: list[str]) -> bool:
    letters = arguments[0].lstrip("-") if arguments and not arguments[0].startswith("--") else ""
    return (
        "x" in letters
        or "--extract" in arguments
        or any(text[:1] == "-" != text[1:2] and "x" in text for text in arguments)
    )


def _matches(path: str, pattern: str) -> bool:
    """Return whether a shell's pattern matches the path: part by part, since `*` does not cross a slash."""
    parts, patterns = path.split("/"), pattern.split("/")
    return len(parts) == len(patterns) and all(map(fnmatchcase, parts, patterns))
