"""Decide whether a shell command may destroy something in a workspace, and which paths.

The rule, for every program of the command in order:

1. A program that runs others (`sudo`, `xargs`, `find -exec`, `sh -c`, a script) stands for those (`script.py`).
2. A program in one of the tables destroys what its row says (`programs.py` has the tables, `targets.py` applies them).
3. Code for an interpreter destroys something unknown if it contains a call that deletes or writes (`interpreters.py`).
4. A program in `READERS` destroys nothing. Any other program may destroy each path among its arguments.
5. A redirection destroys the file that it truncates.

Anything that cannot be determined counts as dangerous: a variable, a pattern, the output of another command.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from keepfast.shell.programs import PATHSPEC_LETTERS
from keepfast.shell.script import Script
from keepfast.shell.targets import MAX_MENTIONED, MAX_PATH_LENGTH, Targets
from keepfast.shell.words import Word

ScriptReader = Callable[[str], str | None]
"""Path of a script → its text, empty if it is no script; None if it cannot be read."""

MAX_COMMAND_LENGTH = 64 << 10
MAX_SCRIPTS = 8
"""Scripts that are read for one command; further ones count as unreadable."""


def threat_of(command: str, cwd: bytes, root: bytes, open_script: ScriptReader | None = None) -> Threat | None:
    """Return what the command may destroy below `root`; None if it destroys nothing there.

    Reads no files but scripts that the command runs, with `open_script` if it is given. So a named path need not exist,
    and a `mentioned` one may be any word.
    """
    builder = ThreatBuilder(cwd.decode("utf-8", "surrogateescape"), root.decode("utf-8", "surrogateescape"))
    builder.open_script = open_script
    if len(command) > MAX_COMMAND_LENGTH and "<<" not in command:
        builder.add_unknown()
    else:
        Script(builder, command).inspect(command, 0)
    return Threat(builder) if builder.is_threatened or builder.mentioned else None


def _encoded(texts: Iterable[str]) -> tuple[bytes, ...]:
    return tuple([text.encode("utf-8", "surrogateescape") for text in texts])


class Threat:
    """What a command may destroy."""

    __slots__ = (
        "entered", "everything", "git_folders", "is_boundless", "is_certain", "is_vague", "mentioned", "named", "patterns",
        "spared",
    )  # fmt: skip

    def __init__(self, builder: ThreatBuilder) -> None:
        self.named: tuple[bytes, ...] = _encoded(builder.git_only_by_path)
        """Paths below the root that the command names exactly; patterns are in `patterns`."""
        self.mentioned: tuple[bytes, ...] = _encoded(
            path for path in builder.mentioned if path not in builder.git_only_by_path
        )
        """Paths below the root among the arguments of programs that may or may not destroy them."""
        self.is_certain = builder.is_threatened
        """Whether it destroys something even if all `mentioned` paths survive."""
        self.patterns: tuple[bytes, ...] = _encoded(builder.patterns)
        """Absolute glob patterns, with the slash at their end if they have one."""
        self.entered: frozenset[bytes] = frozenset(_encoded(builder.entered))
        """Those of `named` that mean a folder's contents, even if the path is a link to the folder."""
        self.everything = builder.everything
        """Whether it destroys the root, or a folder that contains it."""
        self.is_vague = builder.is_vague
        """Whether it may destroy something that neither `named` nor `patterns` covers."""
        self.is_boundless = builder.is_boundless
        """If it is vague: may that be any file, rather than only those that git tracks?"""
        self.git_folders: tuple[bytes, ...] = _encoded(builder.git_folders)
        """Folders below the root in which git changes tracked files; `b""` is the root itself."""
        self.spared: frozenset[bytes] = frozenset(
            _encoded(path for path, spared in builder.git_only_by_path.items() if spared)
        )
        """Those of `named` below which git's own folders survive; `b""` if that holds for everything."""
        if builder.spares_git:
            self.spared |= {b""}

    def add(self, paths: tuple[bytes, ...]) -> None:
        """Treat these mentioned paths as named ones below which git's own folders survive."""
        self.named += paths
        self.spared |= frozenset(paths)


class ThreatBuilder:
    """Collects what a command may destroy while it is inspected, and the folder that it is in."""

    def __init__(self, cwd: str, root: str) -> None:
        self.cwd: str | None = cwd
        self.root = root.rstrip("/")
        self.is_threatened = self.is_vague = self.is_boundless = False
        self.git_folders: dict[str, None] = {}
        self.git_only_by_path: dict[str, bool] = {}
        """Exact paths below the root, and whether git is the only program that acts on them."""
        self.patterns: dict[str, None] = {}
        self.entered: dict[str, None] = {}
        self.mentioned: dict[str, None] = {}
        self.everything = self.spares_git = False
        self.open_script: ScriptReader | None = None
        self.scripts: dict[str, str | None] = {}
        """Texts of scripts by path: read ones, and those that the command itself writes before it runs them."""
        self.inspected_scripts: dict[str, None] = {}

    def text_of(self, path: str) -> str | None:
        """Return the text of a script; None if it is unknown."""
        if path not in self.scripts:
            is_many = len(self.scripts) >= MAX_SCRIPTS
            self.scripts[path] = None if is_many or self.open_script is None else self.open_script(path)
        return self.scripts[path]

    def add_targets(self, targets: Targets, by_git: bool = False) -> None:
        """Add what a program destroys. `by_git`: git does, and it removes nothing but what it has itself."""
        if targets is None:
            return
        if not targets:
            self.add_unknown(by_git)
        for word in targets:
            path = self.resolve(word)
            if self._reaches(word, path, by_git):
                self._note_target(word, path, by_git)

    def add_ordinary_files_below(self, folders: list[Word]) -> None:
        """Record that files below these folders may be destroyed, but none in git's own folders."""
        named, is_git_in_danger = dict(self.git_only_by_path), self.everything and not self.spares_git
        self.add_targets(folders)
        self.spares_git = self.everything and not is_git_in_danger
        self.git_only_by_path |= {path: True for path in self.git_only_by_path if named.get(path, True)}

    def add_unknown(self, by_git: bool = False) -> None:
        """Record that something unknown may be destroyed; `by_git`: something that git tracks."""
        self.is_threatened = self.is_vague = True
        self.is_boundless |= not by_git

    def _reaches(self, word: Word, path: str | None, by_git: bool) -> bool:
        """Record a threat, and return True, if the path is unknown, below the root, or contains the root."""
        if path is None:
            self.add_unknown(by_git)
        elif path.startswith(self.root + "/"):
            self.is_threatened = True
        elif (self.root + "/").startswith(path.rstrip("/") + "/"):
            self.is_threatened = True
            if word.is_sure and not by_git:  # git removes nothing there but what it has itself
                self.everything, self.spares_git = True, False
        else:
            return False
        return True

    def _note_target(self, word: Word, path: str | None, by_git: bool) -> None:
        """Record what the word stands for: a pattern, a path below the root, or something unknown."""
        pattern = self.resolve(word, whole=True) if word.is_glob else None
        if pattern is not None:
            self.patterns[pattern + "/" if word.text.endswith("/") else pattern] = None
        elif path is not None and path.startswith(self.root + "/"):
            inner = path[len(self.root) + 1 :]
            self.git_only_by_path[inner] = by_git and self.git_only_by_path.get(inner, True)
            if not word.is_sure or word.text.endswith(("/", "/.")):
                self.entered[inner] = None
        elif by_git or not word.is_sure:
            self.add_unknown(by_git)
        if by_git and PATHSPEC_LETTERS.intersection(word.text):
            self.add_unknown(by_git)

    def add_mentioned(self, words: Iterable[Word]) -> None:
        """Record words that are paths below the root, if they exist."""
        for word in words:
            if len(self.mentioned) >= MAX_MENTIONED:
                return
            text = word.text
            if not word.is_sure or not text or len(text) > MAX_PATH_LENGTH or "\0" in text or "://" in text:
                continue
            path = self.resolve(word)
            if path is not None and path.startswith(self.root + "/"):
                self.mentioned[path[len(self.root) + 1 :]] = None

    def add_untracked(self) -> None:
        """Record that all untracked files may be destroyed, but not git's own folder."""
        self.is_threatened = True
        if not self.everything:
            self.everything = self.spares_git = True

    def resolve(self, word: Word, whole: bool = False) -> str | None:
        """Return the absolute path that a word means, without `.` and `..`; None if it is unknown.

        For a word that is not sure: the folder in which it lies, or with `whole` its entire text.
        """
        text = word.text if word.is_sure or whole else word.known_folder()
        if not text.startswith("/"):
            # A word that begins with something unknown may lead anywhere.
            if self.cwd is None or text.startswith("~") or (not word.is_sure and not text and not word.is_pattern):
                return None
            text = f"{self.cwd}/{text}"
        parts: list[str] = []
        for part in text.split("/"):
            if part == "..":
                del parts[-1:]
            elif part not in ("", "."):
                parts.append(part)
        return "/" + "/".join(parts)
