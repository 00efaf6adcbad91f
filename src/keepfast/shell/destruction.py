"""Reading a shell command: will it destroy anything here, and which paths does it name?"""

from __future__ import annotations

from keepfast.shell.programs import (
    ALL,
    ARCHIVING,
    ARRANGING,
    ASKING,
    AWK,
    BEFORE_SCRIPT,
    BEYOND_TRACKED,
    BUILDING,
    CARRIERS,
    CARRYING,
    CHANGING,
    CHECKING,
    CLEARING,
    CLUSTERED,
    CMDLETS,
    CODE,
    CODED,
    COPYING,
    DESTINATION,
    DESTROYING,
    ELSEWHERE,
    ENDING,
    EXECUTING,
    FORMATTING,
    HARMLESS,
    IN_PLACE,
    INTERPRETERS,
    KEEPING,
    LAST,
    LOCAL_BINARIES,
    NAMING,
    NO_OUTPUT,
    ONLY_WITH,
    OTHER_TREE,
    OUTPUT,
    OWN_WORDS,
    PACKAGES,
    PACKED,
    PATHSPEC,
    POWERSHELL,
    PROGRAMS,
    READERS,
    READING,
    REMOVING,
    REPOSITORY,
    REWRITES,
    REWRITING,
    RUNNERS,
    SCRIPTS,
    SHELLS,
    TRACKED,
    TRACKING,
    UNPACKING,
    WITH_CODE,
    WITH_VALUE,
    WRITING,
)
from keepfast.shell.words import CURRENT, NAME, SPLITTING, Redirection, Word, read

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    Targets = list[Word] | None
    """What a program is about to destroy; an empty list: something, nobody knows what; None: nothing."""
    Open = Callable[[str], str | None]
    """Path of a script → its text, empty if it is none; None if it cannot be read."""
    Rule = Callable[[str, list[Word], list[Word]], Targets]

LONGEST = 64 << 10
DEEPEST = 8

WORDS_OF_THE_SHELL = frozenset(
    (
        "if",
        "then",
        "else",
        "elif",
        "fi",
        "while",
        "until",
        "do",
        "done",
        "!",
        "{",
        "}",
        "time",
        "function",
        "esac",
        "coproc",
    )
)
NO_SCRIPT = ("eval", "su", "runuser", "script")
"""What stands among shells, and runs no file."""
BINDING = (
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
"""Words by which variables come to have other values than those that are written here."""
BOUND = ("=", "+=", ":=", "[")
"""What follows the name of a variable that is set."""
MOST_VARIABLES = 20
MOST_MENTIONED = 200
LONGEST_PATH = 4096
MOST_COMMANDS = 8
MOST_SCRIPTS = 8
"""Scripts that are read for one command; beyond them nobody knows."""
TAR_VALUES = "fCTXIbKNVFgH"
"""Letters of `tar` that take a value."""
TAR_WRITES = frozenset("cruA")
TAR_WORDS = ("--create", "--append", "--update", "--catenate", "--concatenate", "--delete")
"""With these `tar` writes an archive."""
EXTENDED = ("!", "?", "*", "+", "@")
"""What stands before the parenthesis of an extended pattern."""
NOWHERE = ("/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty", "/dev/fd/", "/dev/zero", "/dev/full")


class Threat:
    """What a command may destroy, as far as it says so."""

    __slots__ = (
        "entered", "everything", "git_folders", "is_boundless", "is_certain", "is_vague", "mentioned", "named", "patterns",
        "spared",
    )  # fmt: skip

    def __init__(self, where: _Where) -> None:
        self.named: tuple[bytes, ...] = _encoded(where.exact)
        """Paths below the root."""
        self.mentioned: tuple[bytes, ...] = _encoded(path for path in where.mentioned if path not in where.exact)
        """Paths below the root that it gives to a program of which nobody knows what it does to them."""
        self.is_certain = where.is_threatened
        """Is there more to it than what it mentions?"""
        self.patterns: tuple[bytes, ...] = _encoded(where.patterns)
        """Absolute paths with `*`, `?` and the like in them, and with the slash at their end."""
        self.entered: frozenset[bytes] = frozenset(_encoded(where.entered))
        """Those of `named` that mean the folder there, also where it is a link that leads to one."""
        self.everything = where.everything
        """Does it name the root, or a folder around it?"""
        self.is_vague = where.is_vague
        """May it destroy something, anywhere, that neither a path nor a pattern stands for?"""
        self.is_boundless = where.is_boundless
        """If it is vague: may that be anything, and not only what git tracks?"""
        self.git_folders: tuple[bytes, ...] = _encoded(where.git_folders)
        """Where git changes what it tracks: folders below the root, and `b""` for the root itself."""
        self.spared: frozenset[bytes] = frozenset(_encoded(path for path, spared in where.exact.items() if spared))
        """Those of `named` below which git's own folders stay as they are, and `b""` where that holds for everything."""
        if where.spares_git:
            self.spared |= {b""}

    def add(self, paths: tuple[bytes, ...]) -> None:
        """Take these of what it mentions for named. Git's own folders below them are not what is meant."""
        self.named += paths
        self.spared |= frozenset(paths)


def threat_of(command: str, cwd: bytes, root: bytes, open_script: Open | None = None) -> Threat | None:
    """Return what the command may destroy below `root`; None if it destroys nothing there.

    What cannot be told counts as a danger without a name. Nothing is looked at but scripts that the command runs, by
    `open_script` if it is given: a path need not be there, and what is only `mentioned` may be any word.
    """
    where = _looked_at(command, cwd, root, open_script)
    return Threat(where) if where.is_threatened or where.mentioned else None


def threatened(command: str, cwd: bytes, root: bytes) -> tuple[bytes, ...] | None:
    """Return the paths below `root` that the command may destroy, as far as it names them; None if it destroys nothing.

    What cannot be told counts as a danger without a name. Nothing is looked at: a path need not be there.
    """
    where = _looked_at(command, cwd, root)
    return _encoded(where.named) if where.is_threatened else None


def _looked_at(command: str, cwd: bytes, root: bytes, open_script: Open | None = None) -> _Where:
    where = _Where(cwd.decode("utf-8", "surrogateescape"), root.decode("utf-8", "surrogateescape"))
    where.open_script = open_script
    if len(command) > LONGEST and "<<" not in command:
        where.doubt()
    else:
        _Script(where, command).look(command, 0)
    return where


def _encoded(texts: Iterable[str]) -> tuple[bytes, ...]:
    return tuple([text.encode("utf-8", "surrogateescape") for text in texts])


class _Where:
    """Where the command is, and what it threatens so far."""

    def __init__(self, cwd: str, root: str) -> None:
        self.cwd: str | None = cwd
        self.root = root.rstrip("/")
        self.is_threatened = self.is_vague = self.is_boundless = False
        self.git_folders: dict[str, None] = {}
        self.named: dict[str, None] = {}
        """With the folder of a pattern in the place of the pattern."""
        self.exact: dict[str, bool] = {}
        """Path, and whether it is git alone that acts on it."""
        self.patterns: dict[str, None] = {}
        self.entered: dict[str, None] = {}
        self.mentioned: dict[str, None] = {}
        self.everything = self.spares_git = False
        self.open_script: Open | None = None
        self.scripts: dict[str, str | None] = {}
        """Texts of files: those that the command itself writes before it runs them, and those that were read."""
        self.judged: dict[str, None] = {}

    def text_of(self, path: str) -> str | None:
        """The text of a script; None if nobody knows it."""
        if path not in self.scripts:
            is_many = len(self.scripts) >= MOST_SCRIPTS
            self.scripts[path] = None if is_many or self.open_script is None else self.open_script(path)
        return self.scripts[path]

    def threaten(self, targets: Targets, by_git: bool = False) -> None:
        if targets is None:
            return
        if not targets:
            self.doubt(by_git)
        for word in targets:
            path = self.path(word)
            if self._reaches(word, path, by_git):
                self._note_target(word, path, by_git)

    def doubt(self, by_git: bool = False) -> None:
        """Note that something may go of which nobody knows what it is; `by_git`: something that git tracks."""
        self.is_threatened = self.is_vague = True
        self.is_boundless |= not by_git

    def _reaches(self, word: Word, path: str | None, by_git: bool) -> bool:
        """Note the danger if the path is unknown, lies below the root, or is the root or a folder around it."""
        if path is None:
            self.doubt(by_git)
        elif path.startswith(self.root + "/"):
            self.is_threatened = True
            if word.is_sure or path != self.root:
                self.named[path[len(self.root) + 1 :]] = None
        elif (self.root + "/").startswith(path.rstrip("/") + "/"):
            self.is_threatened = True
            if word.is_sure and not by_git:  # git takes away nothing there but what it has itself
                self.everything, self.spares_git = True, False
        else:
            return False
        return True

    def _note_target(self, word: Word, path: str | None, by_git: bool) -> None:
        """Note what the word stands for: a pattern, a path below the root, or nothing that can be told."""
        pattern = self.path(word, whole=True) if word.is_glob else None
        if pattern is not None:
            self.patterns[pattern + "/" if word.text.endswith("/") else pattern] = None
        elif path is not None and path.startswith(self.root + "/"):
            inner = path[len(self.root) + 1 :]
            self.exact[inner] = by_git and self.exact.get(inner, True)
            if not word.is_sure or word.text.endswith(("/", "/.")):
                self.entered[inner] = None
        elif by_git or not word.is_sure:
            self.doubt(by_git)
        if by_git and PATHSPEC.intersection(word.text):
            self.doubt(by_git)

    def mention(self, words: Iterable[Word]) -> None:
        """Note paths that are in danger if they are there: of any word nobody knows whether it is one."""
        for word in words:
            if len(self.mentioned) >= MOST_MENTIONED:
                return
            text = word.text
            if not word.is_sure or not text or len(text) > LONGEST_PATH or "\0" in text or "://" in text:
                continue
            path = self.path(word)
            if path is not None and path.startswith(self.root + "/"):
                self.mentioned[path[len(self.root) + 1 :]] = None

    def clean(self) -> None:
        """All that git does not track may go; what is git's own stays."""
        self.is_threatened = True
        if not self.everything:
            self.everything = self.spares_git = True

    def path(self, word: Word, whole: bool = False) -> str | None:
        """The absolute path that a word means, without `.` and `..`; None if nobody knows.

        Of one that is not sure, the folder in which it lies; the `whole` of it where that is asked for.
        """
        text = word.text if word.is_sure or whole else word.start()
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


class _Script:
    def __init__(self, where: _Where, command: str) -> None:
        self.where, self.command = where, command
        self.values: dict[str, list[Word]] = {}
        """What variables stand for that the command itself sets, and no more than once."""
        self.aliases: dict[str, list[Word]] = {}
        self.can_tell = not any(word in command for word in BINDING)

    def look(self, text: str, depth: int) -> None:
        """Look at every simple command in the text, in order, and into what it runs in its turn."""
        if depth > DEEPEST:
            self.where.threaten([])
            return
        words: list[Word] = []
        redirections: list[Redirection] = []
        folders: list[str | None] = []
        for token in [*read(text), ";"]:
            if isinstance(token, Word):
                words.append(token)
                self._look_apart(token.commands, depth)
            elif isinstance(token, Redirection):
                redirections.append(token)
            else:
                if token == "(" and len(words) > 1 and words[-1].text.endswith(EXTENDED):
                    words.append(Word.unknown())  # a pattern like `!(a)`, which is read no further
                self._simple(words, redirections, depth)
                words, redirections = [], []
                if token == "(":
                    folders.append(self.where.cwd)
                elif token == ")" and folders:
                    self.where.cwd = folders.pop()

    def _look_apart(self, texts: Sequence[str], depth: int) -> None:
        """Look at what another shell runs: the folder that it changes to is not ours."""
        folder = self.where.cwd
        for text in texts:
            self.look(text, depth + 1)
            self.where.cwd = folder

    def _filled(self, words: Sequence[Word]) -> list[Word]:
        """The words with the values of variables that are known."""
        values: Mapping[str, Sequence[Word]] = self.values
        if self.where.cwd is not None and "PWD=" not in self.command:
            values = {**values, CURRENT: [Word(self.where.cwd)]}
        return [one for word in words for one in word.filled(values)]

    def _bind(self, name: str, words: list[Word]) -> None:
        """Note what a variable stands for, if nothing else in the command can set it."""
        if (
            not self.can_tell
            or name == CURRENT
            or len(self.values) >= MOST_VARIABLES
            or _is_rebound(name, self.command)
        ):
            return
        if words and all(word.is_sure or word.is_glob for word in words):
            self.values[name] = words

    def _assign(self, words: list[Word]) -> None:
        for word in words:
            name, _, value = word.text.partition("=")
            if word.is_sure and not value.startswith("~"):
                self._bind(name, [Word(value)])

    def _simple(self, words: list[Word], redirections: list[Redirection], depth: int) -> None:
        words = self._filled(words)
        while words and not words[0].is_quoted and words[0].text in WORDS_OF_THE_SHELL:
            words = words[2 if words[0].text == "function" else 1 :]  # behind that word stands a name
        assigned: list[Word] = []
        while words and words[0].is_assignment:
            assigned.append(words[0])
            words = words[1:]
        if not words:
            self._assign(assigned)  # else they hold for one program, and not for its words
        if words and words[0].text == "[[":
            return
        if len(words) > 2 and (words[0].text, words[2].text) == ("for", "in"):
            self._bind(words[1].text, words[3:])
        for redirection in redirections:
            target = redirection.target
            if redirection.replaces and target is not None and not target.text.startswith(NOWHERE):
                self.where.threaten(self._filled([target]))
                self._note_written(self._filled([target]), words, redirections)
            self._look_apart(target.commands if target is not None else (), depth)
            self._look_apart(redirection.commands, depth)
        if words:
            bodies = "\n".join([redirection.body for redirection in redirections])
            self._program(words, bodies, depth)

    def _note_written(self, targets: list[Word], words: Sequence[Word], redirections: Sequence[Redirection]) -> None:
        """Note what a file will say that the command may run next: a here-document, or what nobody knows."""
        path = self.where.path(targets[0]) if len(targets) == 1 and targets[0].is_sure else None
        if self.where.open_script is None or path is None:
            return
        bodies = [redirection.body for redirection in redirections if redirection.body]
        is_copied = [word.text for word in words] == ["cat"] and len(bodies) == 1
        self.where.scripts[path] = bodies[0] if is_copied else None

    def _run_file(self, word: Word, name: str, depth: int, is_ours: bool = False) -> None:
        """Look into a script that is run: by a shell, by the interpreter `name`, or by itself if that is empty.

        `is_ours`: in this very shell. Of files elsewhere that stand for themselves or set up a shell nothing is looked at.
        """
        where = self.where
        if where.open_script is None:
            return
        path = where.path(word) if word.is_sure else None
        if path is None:
            if not is_ours and name and (word.is_glob or not word.is_sure):
                where.threaten([])
            return
        is_inside = path.startswith(where.root + "/")
        if path in where.judged or (not is_inside and (is_ours or not name or path.startswith("/dev/"))):
            return
        where.judged[path] = None
        text = where.text_of(path)
        if text is not None:
            self._run_text(text, "sh" if is_ours else name or _interpreter(path, text), depth, is_ours)
        elif "." in path.rpartition("/")[2] or (name in SHELLS and not is_ours):
            where.threaten([])  # it may be made by this very command, and do anything

    def _run_text(self, text: str, interpreter: str, depth: int, is_ours: bool) -> None:
        """Look into the text of a script; without an interpreter it is none."""
        where = self.where
        if interpreter in SHELLS and depth <= DEEPEST:
            folder = where.cwd
            _Script(where, text).look(text, depth + 1)
            if not is_ours:
                where.cwd = folder
        elif interpreter in SHELLS:
            where.threaten([])
        elif interpreter:
            words = (*REMOVING, *CMDLETS) if interpreter.startswith(POWERSHELL) else REMOVING
            if any(one in text for one in words) or _calls(text, "remove"):
                where.threaten([])

    def _program(self, words: Sequence[Word], bodies: str, depth: int) -> None:
        first, rest = words[0], list(words[1:])
        if not first.is_sure:
            self.where.threaten([])
            return
        name = first.text.rpartition("/")[2]
        name = name[:1] + name[1:].partition("@")[0]  # `npx rimraf@5`
        if name in self.aliases and depth <= DEEPEST:
            known = self.aliases.pop(name)  # an alias is not looked up in itself
            self._program([*known, *rest], bodies, depth + 1)
            self.aliases[name] = known
            return
        if name in OUTPUT and "--help" not in [word.text for word in rest]:
            self.where.threaten(_written(name, rest))
        if name in SPECIAL:
            SPECIAL[name](self, rest, depth)
        elif name in CARRIERS:
            self._carried(name, rest, bodies, depth)
        elif (carried := _run_by(name, rest)) is not None:
            self._carried(name, carried, bodies, depth)
        elif name in SHELLS:
            self._shell(name, rest, bodies, depth)
        else:
            self._act(name, first, rest, bodies, depth)

    def _act(self, name: str, first: Word, rest: list[Word], bodies: str, depth: int) -> None:
        """Note what a program is about to destroy, or the script that it runs."""
        targets = _targets(name, rest, bodies)
        if name == "git" and targets is not None:
            self._git(rest)
        else:
            self.where.threaten(targets)
        if targets is not None:
            return
        self.where.mention(_mentioned(name, rest))
        if name.startswith(INTERPRETERS):
            if not any(_gives_code(word.text) or word.text == "-m" for word in rest):
                for word in _run_first(rest):
                    self._run_file(word, name, depth)
        elif not _is_known(name) and ("/" in first.text or first.text.endswith((*SCRIPTS, *CODED))):
            self._run_file(first, "", depth)

    def _source(self, rest: list[Word], depth: int) -> None:
        """Another file may set any variable."""
        self.can_tell = False
        self.values.clear()
        if rest and rest[0].commands:
            self.where.threaten([])  # what another command prints is run
        elif rest:
            self._run_file(rest[0], "", depth, is_ours=True)
        self.where.mention(rest[1:])

    def _git(self, rest: list[Word]) -> None:
        """Git says which paths it is about where it is given some; what may be a branch is a path as well."""
        words = _without_options("git", rest)
        before = rest[: len(rest) - len(words)]
        by_git = self._stays_with_tracked(before, words)
        if not words or any(word.text.startswith(ELSEWHERE) for word in before):
            self.where.threaten([], by_git)
            return
        verb, given = words[0].text, _given("git", words[1:])
        if verb == "clean":
            self.where.clean()
            return
        if verb not in NAMING or not given or (verb == "checkout" and "--" not in [word.text for word in words]):
            self.where.threaten([], by_git)
        if verb in NAMING:
            self.where.threaten(given or None, by_git=True)

    def _stays_with_tracked(self, before: list[Word], words: list[Word]) -> bool:
        """Does git take away nothing here but what it tracks? Then note the folder in which it does."""
        verb = words[0].text if words else ""
        letters, options = BEYOND_TRACKED.get(verb, ("", ()))
        if verb not in TRACKED or any(word.text.startswith(OTHER_TREE) for word in before):
            return False
        if any(word in self.command for word in TRACKING):
            return False
        if any(word.text.startswith(options) for word in words) or not set(letters).isdisjoint(_letters(words)):
            return False
        cwd, where = self.where.cwd, self.where
        try:
            for at, value in enumerate(before[1:]):
                if before[at].text == "-C":
                    where.cwd = where.path(value) if value.is_sure else None
            folder = where.cwd
        finally:
            where.cwd = cwd
        if folder is None:
            return False
        where.git_folders[folder[len(where.root) + 1 :] if folder.startswith(where.root + "/") else ""] = None
        return True

    def _change_folder(self, rest: list[Word], depth: int) -> None:
        words = [word for word in rest if not word.text.startswith("-") or word.text == "-"]
        if len(words) != 1 or not words[0].is_sure or words[0].text == "-":
            self.where.cwd = None
        else:
            self.where.cwd = self.where.path(words[0])

    def _leave_folder(self, rest: list[Word], depth: int) -> None:
        """Which folder is on the stack nobody knows."""
        self.where.cwd = None

    def _trap(self, rest: list[Word], depth: int) -> None:
        self._look_apart([word.text for word in rest[:1] if word.is_sure], depth)

    def _carried(self, name: str, rest: list[Word], bodies: str, depth: int) -> None:
        if name == "command" and rest and rest[0].text in ("-v", "-V"):
            return
        for option in CODE.get(name, ()):
            code = _value_of(rest, option, option)
            if code is not None:
                self._shell(name, [Word("-c"), code], "", depth)
        elsewhere = _value_of(rest, *CHANGING[name]) if name in CHANGING else None
        hole = (_value_of(rest, "-I", "--replace") or _joined(rest, "-I") or Word("{}")).text
        rest = _without_options(name, _without_options(name, rest)[CARRIERS.get(name, 0) :])
        while rest and rest[0].is_assignment:
            rest = rest[1:]
        if not rest:
            return
        if name in READING and rest[0].is_sure and SPLITTING.intersection(rest[0].text):
            self._look_apart([rest[0].text], depth)
            return
        if name in ("xargs", "parallel"):
            # What comes in is what is acted upon.
            rest = [*[Word.unknown() if hole and hole in word.text else word for word in rest], Word.unknown()]
        self._program_in(elsewhere, rest, bodies, depth)

    def _program_in(self, elsewhere: Word | None, rest: list[Word], bodies: str, depth: int) -> None:
        """Look at a program that another one runs, perhaps in another folder."""
        if depth > DEEPEST:
            self.where.threaten([])
            return
        folder = self.where.cwd
        if elsewhere is not None:
            self.where.cwd = self.where.path(elsewhere) if elsewhere.is_sure else None
        self._program(rest, bodies, depth + 1)
        if elsewhere is not None:
            self.where.cwd = folder

    def _name_alias(self, rest: list[Word], depth: int) -> None:
        for word in rest:
            name, sign, value = word.text.partition("=")
            tokens = read(value) if sign and word.is_sure else []
            words = [token for token in tokens if isinstance(token, Word)]
            if tokens:
                self.aliases[name] = words if len(words) == len(tokens) else [Word.unknown()]

    def _fd(self, rest: list[Word], depth: int) -> None:
        """What it finds is unknown, and stands behind the command or in the place of its braces."""
        for at, word in enumerate(rest):
            if word.text in EXECUTING and at + 1 < len(rest) and depth <= DEEPEST:
                command = [Word.unknown() if "{" in one.text else one for one in rest[at + 1 :]]
                self._program([*command, Word.unknown()], "", depth + 1)
                return

    def _shell(self, name: str, rest: list[Word], bodies: str, depth: int) -> None:
        if any(word.text in ("--version", "--help") for word in rest[:1]):
            return
        if name == "script":
            self.where.threaten(_typescript(rest))
        code = rest if name == "eval" else self._code_of(name, rest)
        if code and all(word.is_sure for word in code):
            text = " ".join([word.text for word in code])
            if name == "eval":
                self.look(text, depth + 1)
            else:
                self._look_apart([text], depth)
        elif code:
            self.where.threaten([])
        elif bodies:
            self._look_apart([bodies], depth)
        else:
            given = [word for word in rest if not word.text.startswith("-")]
            if not given or given[0].commands or given[0].text == "/dev/stdin":
                self.where.threaten([])  # its commands come through a pipe
            elif name in SHELLS and name not in NO_SCRIPT and "n" not in _letters(rest):
                for word in _run_first(rest):
                    self._run_file(word, name, depth)
            self.where.mention(given[1:])

    def _code_of(self, name: str, rest: list[Word]) -> list[Word]:
        """What a shell is given to run behind `-c`; what follows that and the name it is given is mentioned."""
        at = [index for index, word in enumerate(rest) if word.text.startswith("-") and word.text.endswith("c")]
        if not at:
            return []
        if name != "script":
            self.where.mention(rest[at[0] + 3 :])
        return rest[at[0] + 1 : at[0] + 2]

    def _find(self, rest: list[Word], depth: int) -> None:
        texts = [word.text for word in rest]
        # Where it looks comes first; with -delete all of that is in danger.
        places: list[Word] = []
        for word in rest:
            if word.text.startswith(("-", "(", "!")):
                break
            places.append(word)
        if "-delete" in texts or any(text.startswith("-fprint") or text == "-fls" for text in texts):
            self.where.threaten(places or [])
        for at, flag in enumerate(texts):
            if flag not in ("-exec", "-execdir", "-ok", "-okdir"):
                continue
            inner = rest[at + 1 :]
            end = [index for index, word in enumerate(inner) if word.text in (";", "+")]
            found = places if flag in ("-exec", "-ok") and self._lie_inside(places) else [Word.unknown()]
            command: list[Word] = []
            for word in inner[: end[0] if end else None]:
                command += found if word.text == "{}" else [Word.unknown()] if "{}" in word.text else [word]
            if command and depth <= DEEPEST:
                self._program(command, "", depth + 1)

    def _lie_inside(self, places: list[Word]) -> bool:
        """Are these known, and folders of the workspace? Then what is found there is named by them."""
        paths = [self.where.path(word) for word in places if word.is_sure]
        inside = [path for path in paths if path is not None and path.startswith(self.where.root + "/")]
        return bool(places) and len(inside) == len(places)


SPECIAL: dict[str, Callable[[_Script, list[Word], int], None]] = {
    ".": _Script._source, "source": _Script._source, "cd": _Script._change_folder, "pushd": _Script._change_folder,
    "popd": _Script._leave_folder, "alias": _Script._name_alias, "trap": _Script._trap, "fd": _Script._fd,
    "fdfind": _Script._fd, "find": _Script._find,
}  # fmt: skip
"""Programs that change what the words behind them mean, or that run others in ways of their own."""


def _targets(name: str, rest: list[Word], bodies: str) -> Targets:
    """What a program that runs no other is about to destroy."""
    texts = [word.text for word in rest]
    if "--help" in texts or "--version" in texts:
        return None
    for table in (_by_subcommand, _by_flag, _by_archive, _by_copy, _by_name, _by_query, _by_code):
        targets = table(name, rest, bodies)
        if targets is not None:
            return targets
    return None


def _by_subcommand(name: str, rest: list[Word], bodies: str) -> Targets:
    if name not in REPOSITORY and name not in ARRANGING:
        return None
    words = _without_options(name, rest)
    if not words:
        return None
    if not words[0].is_sure:
        return []
    verb, given = words[0].text, [word.text for word in words[1:]]
    if name in ARRANGING:
        is_tried = "-n" in given or "--dry-run" in given
        return _given(name, words[1:]) if verb in ARRANGING[name] and not is_tried else None
    if verb not in REPOSITORY[name] and " ".join([verb, *given[:1]]) not in REPOSITORY[name]:
        return None
    if given and given[0] in HARMLESS.get(name, {}).get(verb, ()):
        return None
    if verb == "clean" and ("-n" in given or "--dry-run" in given):
        return None
    # Of a branch or a commit nobody knows which files it changes.
    return []


def _by_flag(name: str, rest: list[Word], bodies: str) -> Targets:
    letter, long = IN_PLACE.get(name, ("", ""))
    for word in rest:
        text = word.text
        if (long and text.startswith(long)) or (
            letter and len(text) > 1 and text[0] == "-" and text[1] != "-" and letter in text[1:]
        ):
            return _given(name, rest)[1 if name in ("sed", "gsed") and not _has_script(rest) else 0 :]
    return None


def _by_name(name: str, rest: list[Word], bodies: str) -> Targets:
    rule = BY_KIND.get(PROGRAMS.get(name, "")) or BY_PROGRAM.get(name)
    if rule is not None:
        return rule(name, rest, _given(name, rest))
    if (cleared := _cleared(name, rest)) is not None:
        return cleared
    return _given(name, rest) if name in REWRITING else None


def _cleared(name: str, rest: list[Word]) -> Targets:
    """Does a runner of a project's own commands run one that is called after clearing?"""
    texts = [word.text for word in rest]
    if name in RUNNERS and any(part in text for text in texts for part in CLEARING):
        return [] if texts[0] not in PACKAGES else None
    return None


def _all(name: str, rest: list[Word], given: list[Word]) -> Targets:
    return _packed(name, given, [word.text for word in rest]) if name in PACKED else given


def _last(name: str, rest: list[Word], given: list[Word]) -> Targets:
    is_meant = ONLY_WITH.get(name, "") in ("", *[word.text for word in rest])
    return given[-1:] if len(given) > 1 and is_meant else None


def _destination(name: str, rest: list[Word], given: list[Word]) -> Targets:
    """The folder or file that is copied to, and the files in it if it is a folder."""
    if not given:
        return []
    if name in ("rsync", "scp"):
        return _transferred(name, [word.text for word in rest], given)
    into = _value_of(rest, "-t", "--target-directory")
    target = into or given[-1]
    sources = given if into else given[:-1]
    return [target, *[target.below(source) for source in sources if source.is_sure and target.is_sure]]


def _transferred(name: str, texts: list[str], given: list[Word]) -> Targets:
    """What is copied between machines replaces what is here, and may be taken away here."""
    if name == "rsync" and ("-n" in texts or "--dry-run" in texts):
        return None
    moved = [word for word in given[:-1] if not _is_far(word)] if "--remove-source-files" in texts else []
    return [*moved, *_landing(given[-1], given[:-1])] or None


def _tee(name: str, rest: list[Word], given: list[Word]) -> Targets:
    if any(word.text in ("-a", "--append") for word in rest):
        return None
    return [word for word in given if word.text not in NOWHERE] or None


def _dd(name: str, rest: list[Word], given: list[Word]) -> Targets:
    return [word.after("of=") for word in rest if word.text.startswith("of=")] or None


def _tar(name: str, rest: list[Word], given: list[Word]) -> Targets:
    return [] if _unpacks([word.text for word in rest]) else _archive(rest)


def _unzip(name: str, rest: list[Word], given: list[Word]) -> Targets:
    return [] if any(word.text[:1] == "-" and "o" in word.text for word in rest) else None


def _make(name: str, rest: list[Word], given: list[Word]) -> Targets:
    return [] if _reads_its_file([word.text for word in rest]) else _cleared(name, rest)


def _reads_its_file(texts: list[str]) -> bool:
    """Does what `make` does come through a pipe?"""
    if any(text in ("-f-", "--file=-", "--makefile=-") for text in texts):
        return True
    return any(text == "-f" and texts[at + 1 : at + 2] == ["-"] for at, text in enumerate(texts))


def _letters(rest: list[Word]) -> str:
    return "".join([word.text[1:] for word in rest if word.text[:1] == "-" and word.text[1:2] != "-"])


def _run_first(rest: list[Word]) -> list[Word]:
    """The file that a shell or an interpreter is told to run, if there is one."""
    before = ""
    for word in rest:
        text = word.text
        if before in BEFORE_SCRIPT or (text.startswith(("-", "+")) and word.is_sure) or text == "run":
            before = "" if before in BEFORE_SCRIPT else text
            continue
        return [] if text in CHECKING or word.commands else [word]
    return []


def _interpreter(path: str, text: str) -> str:
    """What runs a script that stands for itself, by its first line or else by its name; nothing if it is no script."""
    if text.startswith("#!"):
        words = text.partition("\n")[0].rpartition("/")[2].split(" ")
        return next((word for word in words if word in SHELLS or word.startswith(POWERSHELL)), words[0] or "env")
    if path.endswith(SCRIPTS):
        return "sh"
    return "python" if path.endswith(CODED) else ""


def _calls(text: str, name: str) -> bool:
    """Is there a call of a function of this name that belongs to no object?"""
    at = text.find(name + "(")
    while at >= 0:
        if text[at - 1 : at] not in NAME and text[at - 1 : at] != ".":
            return True
        at = text.find(name + "(", at + 1)
    return False


def _packed(name: str, given: list[Word], texts: list[str]) -> Targets:
    """The files that go, and with `-f` those that are written in their place."""
    letters = "".join([text[1:] for text in texts if text[:1] == "-" and text[:2] != "--"])
    if "--stdout" in texts or "--list" in texts or not {"c", "l", "t"}.isdisjoint(letters):
        return None
    stays = "k" in letters or "--keep" in texts or (name in KEEPING and KEEPING[name] not in texts)
    is_forced = "f" in letters or "--force" in texts
    found = [] if stays and not (is_forced and name in KEEPING) else list(given)  # the second of two is what they write
    if is_forced:
        ending = PACKED[name]
        for word in given:
            if word.is_sure:
                found.append(Word(word.text.removesuffix(ending) if word.text.endswith(ending) else word.text + ending))
    return found or None


def _by_archive(name: str, rest: list[Word], bodies: str) -> Targets:
    """Files that come out of an archive have names that nobody knows."""
    starts = UNPACKING.get(name)
    if starts and rest and rest[0].text.startswith(starts):
        return []
    if name not in ARCHIVING:
        return None
    given = _given(name, rest)
    if name != "zip":
        return given[1:2] if given and given[0].text in ARCHIVING[name] and len(given) > 1 else None
    # A name without an ending gets that of the program.
    return [
        *given[:1],
        *[Word(word.text + ".zip") for word in given[:1] if word.is_sure and "." not in word.text],
    ] or None


def _by_copy(name: str, rest: list[Word], bodies: str) -> Targets:
    """What is copied from somewhere else to here, and with `mv` what is moved away."""
    words = _given(name, rest) if name in COPYING else []
    for verb in COPYING.get(name, ()):
        parts = verb.split(" ")
        if [word.text for word in words[: len(parts)]] == parts and len(words) > len(parts):
            given = words[len(parts) :]
            moved = [word for word in given[:-1] if parts[-1] == "mv" and not _is_far(word)]
            return [*moved, *_landing(given[-1], given[:-1])] or None
    return None


def _is_far(word: Word) -> bool:
    """Is it a place on another machine: `host:path`, `s3://bucket`?"""
    return ":" in word.text.partition("/")[0]


def _landing(target: Word, sources: list[Word]) -> list[Word]:
    """The target of a copy, and the files in it if it is a folder; nothing where it is on another machine."""
    if _is_far(target):
        return []
    plain = [
        Word(source.text.rpartition(":")[2]) if _is_far(source) else source for source in sources if source.is_sure
    ]
    return [target, *[target.below(source) for source in plain if target.is_sure]]


def _pieces(name: str, rest: list[Word], given: list[Word]) -> Targets:
    """The files that a file is cut into: all have the same beginning."""
    if any(word.text.startswith("--filter") for word in rest):
        return []
    if name == "csplit":
        prefix = _value_of(rest, "-f", "--prefix") or _joined(rest, "-f") or Word("xx")
    else:
        prefix = given[1] if len(given) > 1 else Word("x")
    if not prefix.is_sure:
        return []
    word = Word(prefix.text + "*", len(prefix.text), is_pattern=True)
    word.is_glob = True
    return [word] if PATHSPEC.isdisjoint(prefix.text) else []


def _fetched(name: str, rest: list[Word], given: list[Word]) -> Targets:
    """The files of the addresses, where they are renewed in place; else a new name is found for them."""
    letters = "".join([word.text[1:] for word in rest if word.text[:1] == "-" and word.text[:2] != "--"])
    texts = [word.text for word in rest]
    if (
        "N" not in letters
        and "r" not in letters
        and "m" not in letters
        and not any(text in ("--timestamping", "--recursive", "--mirror") for text in texts)
    ):
        return None
    folder = _value_of(rest, "-P", "--directory-prefix") or Word(".")
    found = []
    for word in given:
        parts = word.text.partition("://")[2].partition("?")[0].split("/")
        found += [folder.below(Word(one)) for one in (parts[0], parts[-1]) if one]
    return found or None


def _archive(rest: list[Word]) -> Targets:
    """The file that `tar` writes."""
    is_bare = bool(rest) and rest[0].text[:1] not in ("-", "")
    found = _archive_behind_letters(rest) if is_bare else _archive_in_options(rest)
    return [word for word in found if word.text != "-"] or None


def _archive_behind_letters(rest: list[Word]) -> list[Word]:
    """The archive of `tar cf FILE`: the values of the letters follow in their order."""
    letters = rest[0].text
    values = [letter for letter in letters if letter in TAR_VALUES]
    if "f" not in values or TAR_WRITES.isdisjoint(letters):
        return []
    at = 1 + values.index("f")
    return rest[at : at + 1]


def _archive_in_options(rest: list[Word]) -> list[Word]:
    """The archive of `tar -cf FILE`, `-cfFILE`, `--file FILE` and `--file=FILE`."""
    clusters = [word.text[1:] for word in rest if _is_cluster(word.text)]
    letters = "".join([cluster.partition("f")[0] for cluster in clusters])
    if TAR_WRITES.isdisjoint(letters) and not any(word.text in TAR_WORDS for word in rest):
        return []
    found: list[Word] = []
    for at, word in enumerate(rest):
        text = word.text
        cluster, letter, joined = text.partition("f") if _is_cluster(text) else ("", "", "")
        if text.startswith("--file="):
            found.append(word.after("--file="))
        elif text == "--file" or (letter and not joined):
            found += rest[at + 1 : at + 2]
        elif letter and (cluster == "-" or cluster[1:].isalpha()):
            found.append(word.after(cluster + letter))
    return found


def _is_cluster(text: str) -> bool:
    """Does it stand for short options, such as `-xzf`? A dash alone counts, too."""
    return text[:1] == "-" and text[1:2] != "-"


BY_KIND: dict[str, Rule] = {ALL: _all, LAST: _last, DESTINATION: _destination}
BY_PROGRAM: dict[str, Rule] = {
    "split": _pieces, "csplit": _pieces, "wget": _fetched, "tee": _tee, "dd": _dd, "tar": _tar, "bsdtar": _tar,
    "unzip": _unzip, "make": _make, "gmake": _make,
}  # fmt: skip
"""What a program destroys, from its name, its words, and those of them that are no options."""


def _typescript(rest: list[Word]) -> Targets:
    """The file into which `script` writes what is shown."""
    texts = [word.text for word in rest]
    if any(text == "--append" or (text[:1] == "-" and text[1:2] != "-" and "a" in text) for text in texts):
        return None
    given = [
        word
        for before, word in zip(["", *texts], rest, strict=False)
        if not word.text.startswith("-") and not (before[:1] == "-" and before.endswith("c")) and before != "--command"
    ]
    return [word for word in given[:1] or [Word("typescript")] if not word.text.startswith(NOWHERE)] or None


def _run_by(name: str, rest: list[Word]) -> list[Word] | None:
    """The program that a runner of a project's programs is about to run, with its words; None if it runs none."""
    if name in CARRYING or name in LOCAL_BINARIES:
        words = _without_options(name, rest)
        verb = words[0].text if words else ""
        if verb in CARRYING.get(name, ()):
            return words[1:]
        if name in LOCAL_BINARIES and verb not in OWN_WORDS and (verb in PROGRAMS or verb in IN_PLACE):
            return words
    if name.startswith("python") and "-m" in [word.text for word in rest[:3]]:
        at = [word.text for word in rest].index("-m")
        if not [word for word in rest[:at] if not word.text.startswith("-")]:
            return rest[at + 1 :]
    return None


def _mentioned(name: str, rest: list[Word]) -> list[Word]:
    """What a program may destroy of which nothing is known: all that it is given, or what its options call an output."""
    texts = [word.text for word in rest]
    if "--help" in texts or "--version" in texts:
        return []
    written = _written_by_sed(rest) if name in ("sed", "gsed") else []
    found = [*written, *_called_output(name, rest), *_given_to_built(name, rest)]
    if name.startswith(INTERPRETERS):
        given = _given(name, rest)
        is_read = any(_gives_code(text) for text in texts) or any(word.text in CHECKING for word in given[:1])
        return found if is_read else [*found, *given[1:]]  # the first one is the program that is run
    if _is_known(name) and (name == "git" or not _rewrites(texts)):
        return found
    for word in rest:
        if not word.text.startswith("-"):
            found.append(word)
        elif "=" in word.text:
            found.append(word.after(word.text.partition("=")[0] + "="))
    return found


def _called_output(name: str, rest: list[Word]) -> list[Word]:
    """The values of `of=`, `-o`, `--out…` and `-out…`, whatever the program is."""
    found: list[Word] = []
    for at, word in enumerate(rest):
        option, sign, _ = word.text.partition("=")
        if (option == "of" and sign) or option.startswith(("--out", "-out")):
            found += [word.after(option + "=")] if sign else rest[at + 1 : at + 2]
        elif option.startswith("-o") and name not in NO_OUTPUT:
            is_alone = option == "-o"
            found += rest[at + 1 : at + 2] if is_alone and not sign else [word.after("-o=" if is_alone else "-o")]
    return found


def _given_to_built(name: str, rest: list[Word]) -> list[Word]:
    """What the project's own program is given by a tool that builds and runs it, as in `cargo run -- FILE`."""
    texts = [word.text for word in rest]
    if texts[:1] != ["run"] or name not in BUILDING:
        return []
    words = rest[texts.index("--") + 1 :] if "--" in texts else rest[2:] if name == "go" else []
    return [word for word in words if not word.text.startswith("-")]


def _rewrites(texts: list[str]) -> bool:
    """Is a program that reads told to write what it is given?"""
    return any(text.startswith(REWRITES) for text in texts) or any(text in FORMATTING for text in texts[:1])


def _is_known(name: str) -> bool:
    """Is it a program of which the tables say all that it does to files?"""
    tables = (READERS, PROGRAMS, IN_PLACE, OUTPUT, REPOSITORY, COPYING, ARRANGING, ARCHIVING, UNPACKING, AWK)
    return any(name in table for table in tables)


def _written_by_sed(rest: list[Word]) -> list[Word]:
    """What may be the files of its command `w`: each goes to the end of its line."""
    found: list[Word] = []
    behind = [rest[at + 1] for at, word in enumerate(rest[:-1]) if word.text in ("-e", "--expression")]
    given = (
        behind or [word for word in rest if word.text.startswith(("-e", "--expression="))] or _given("sed", rest)[:1]
    )
    scripts = [word.text for word in given if len(word.text) < LONGEST_PATH]
    for line in "\n".join(scripts).split("\n"):
        places = [at for at, letter in enumerate(line) if letter == "w"]
        found += [Word(line[at + 1 :].strip().rstrip(" }")) for at in places[-MOST_COMMANDS:]]
    return found[:MOST_MENTIONED]


def _by_query(name: str, rest: list[Word], bodies: str) -> Targets:
    """A database that is given anything but plain questions."""
    if not name.startswith("sqlite3") and name != "duckdb":
        return None
    given = _given("sqlite3", rest)
    if not given or "-readonly" in [word.text for word in rest]:
        return None
    said = ";".join([*[word.text for word in given[1:]], bodies])
    parts = [part.strip().lower() + " " for part in said.replace("\n", ";").split(";") if part.strip()]
    is_plain = bool(parts) and all(word.is_sure for word in given[1:])
    if is_plain and all(part.startswith(ASKING) and not (part.startswith("pragma") and "=" in part) for part in parts):
        return None
    return given[:1]


def _written(name: str, rest: list[Word]) -> Targets:
    """What the options of a program name that it writes; None if none does."""
    found, takes_names = list[Word](), False
    for index, word in enumerate(rest):
        following = rest[index + 1 : index + 2]
        if name in CLUSTERED and _is_cluster(word.text):
            flags, outputs = _split_cluster(name, word, following)
            takes_names |= name == "curl" and "O" in flags
        else:
            outputs = _value_of_output(OUTPUT[name], word, following)
            takes_names |= name == "curl" and word.text.startswith("--remote-name")
        found += outputs
    if takes_names:
        plain = [word.text.partition("?")[0] for word in _given(name, rest)]
        found += [Word(text.rpartition("/")[2]) for text in plain if "/" in text and not text.endswith("/")]
    named = [word for word in found if word.text != "-" and not word.text.startswith(NOWHERE)]
    return named or None


def _split_cluster(name: str, word: Word, following: list[Word]) -> tuple[str, list[Word]]:
    """The letters of `-sSo` that take no value, and the file that the one behind them names, if it names an output."""
    text, letters = word.text, "".join([option[1] for option in OUTPUT[name] if len(option) == 2])
    at = next((at for at in range(1, len(text)) if text[at] in letters or text[at] in CLUSTERED[name]), len(text))
    flags, letter, joined = text[:at], text[at : at + 1], text[at + 1 :]
    if not letter or letter not in letters:
        return flags, []
    return flags, [word.after(flags + letter)] if joined else following


def _value_of_output(options: Sequence[str], word: Word, following: list[Word]) -> list[Word]:
    """The file that an option names, behind it or joined to it."""
    text = word.text
    if text in options:
        return following
    found: list[Word] = []
    for option in options:
        if text.startswith(option + "="):
            found.append(word.after(option + "="))
        elif text.startswith(option) and len(option) == 2:
            found.append(word.after(option))
    return found


def _unpacks(texts: list[str]) -> bool:
    """Does `tar` take files out of an archive? Of those nobody knows the names."""
    if "--extract" in texts or "--get" in texts:
        return True
    clusters = [text[1:] for text in texts if text[:1] == "-" and text[1:2] != "-"]
    if texts and texts[0][:1] != "-":
        return "x" in texts[0]  # without a dash no option has its value in the same word
    for cluster in clusters:
        end = min([at for at in map(cluster.find, TAR_VALUES) if at >= 0], default=len(cluster))
        if "x" in cluster[:end]:
            return True
    return False


def _by_code(name: str, rest: list[Word], bodies: str) -> Targets:
    """Code for an interpreter, on its command line or in a here-document: a word that destroys is enough."""
    if name in AWK:
        return _by_awk(name, rest)
    if not name.startswith(INTERPRETERS):
        return None
    flags = [index for index, word in enumerate(rest) if _gives_code(word.text)]
    given = [word for index in flags for word in rest[index + 1 : index + 2]]
    given += [word for word in rest if word.text[:1] == "-" and (word.text.startswith(WITH_CODE) or " " in word.text)]
    if not given and not bodies and _reads_code(rest):
        return []
    code = bodies + "".join([word.text for word in given])
    if any(not word.is_sure for word in given):
        return []
    words = (*DESTROYING, *CMDLETS) if name.startswith(POWERSHELL) else DESTROYING
    return [] if any(word in code for word in words) else None


def _by_awk(name: str, rest: list[Word]) -> Targets:
    given = _given(name, rest)[:1]
    code = "".join([word.text for word in given]).replace('> "/dev/', "").replace('>"/dev/', "")
    return [] if any(word in code for word in WRITING) or _prints_to_a_file(code) else None


def _reads_code(rest: list[Word]) -> bool:
    """Does the code of an interpreter come through a pipe, or from what another command prints?"""
    plain = [word for word in rest if not word.text.startswith("-")]
    if plain and plain[0].commands:
        return True
    comes_in = not plain or any(word.text == "-" for word in rest[: rest.index(plain[0])])
    return comes_in and not any(word.text.startswith(ENDING) for word in rest)


def _prints_to_a_file(code: str) -> bool:
    """Is there a `>` behind a `print` of awk, apart from texts?"""
    if "print" not in code or ">" not in code:
        return False
    bare = '""'.join(code.replace('\\"', "").split('"')[::2])
    parts = bare.replace("}", ";").replace("\n", ";").split(";")
    return any(">" in part.partition("print")[2] for part in parts)


def _gives_code(text: str) -> bool:
    """Is this the option or word behind which an interpreter's code stands: `-e`, `-we`, `-c`, `eval`, `-Command`?"""
    if text in ("eval", "--eval", "--print", "-p", "--execute") or text.lower() in ("-command", "-encodedcommand"):
        return True
    return text[:1] == "-" and text[1:2] != "-" and len(text) < 6 and text[-1] in "ceEr"


def _is_rebound(name: str, command: str) -> bool:
    """Is this variable set at more than one place of the command?"""
    at, count = command.find(name), 0
    while at >= 0:
        before, after = command[max(0, at - 7) : at], command[at + len(name) : at + len(name) + 2]
        if before[-1:] not in NAME and after[:1] not in NAME:
            count += before.endswith(("for ", "select ")) or after.startswith(BOUND)
        at = command.find(name, at + 1)
    return count != 1


def _given(name: str, rest: list[Word]) -> list[Word]:
    """The arguments that are no options."""
    found, values, is_over, skip = [], WITH_VALUE.get(name, ()), False, False
    for word in rest:
        if skip:
            skip = False
        elif is_over or not word.text.startswith("-") or word.text == "-":
            found.append(word)
        elif word.text == "--":
            is_over = True
        else:
            skip = word.text in values
    return [word for word in found if word.text != "-"]


def _without_options(name: str, rest: list[Word]) -> list[Word]:
    """What follows the options at the front."""
    values = WITH_VALUE.get(name, ())
    at = 0
    while at < len(rest) and rest[at].text.startswith("-"):
        if rest[at].text == "--":
            return rest[at + 1 :]
        at += 2 if rest[at].text in values else 1
    return rest[at:]


def _has_script(rest: list[Word]) -> bool:
    return any(word.text.startswith(("-e", "-f", "--expression", "--file")) for word in rest)


def _joined(rest: list[Word], short: str) -> Word | None:
    return next((word.after(short) for word in rest if word.text.startswith(short) and len(word.text) > 2), None)


def _value_of(rest: list[Word], short: str, long: str) -> Word | None:
    for index, word in enumerate(rest):
        if word.text == short and index + 1 < len(rest):
            return rest[index + 1]
        if word.text.startswith(long + "="):
            return word.after(long + "=")
    return None
