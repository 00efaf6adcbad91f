"""What one program destroys, by the tables in `programs.py`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from keepfast.shell.arguments import (
    after_options,
    is_cluster,
    joined_value,
    operands_of,
    option_value,
)
from keepfast.shell.interpreters import code_targets, gives_code
from keepfast.shell.programs import (
    ALL_ARGUMENTS,
    ARCHIVE_VERBS,
    AWK,
    BUILD_AND_RUN_TOOLS,
    CLEAN_TASK_WORDS,
    CLUSTER_VALUE_LETTERS,
    COMPRESSED_SUFFIXES,
    COPY_VERBS,
    DELETE_INPUT_OPTION,
    DESTINATION,
    DESTROYED_ARGUMENTS,
    DESTRUCTIVE_SUBCOMMANDS,
    EXTRACT_WORDS,
    FORMAT_VERBS,
    HARMLESS_SUBCOMMANDS,
    IN_PLACE_OPTIONS,
    INTERPRETER_VERBS,
    INTERPRETERS,
    LAST_ARGUMENT,
    NO_OUTPUT_AT_O,
    OUTPUT_OPTIONS,
    PACKAGE_VERBS,
    PATHSPEC_LETTERS,
    READ_ONLY_QUERIES,
    READERS,
    REQUIRED_OPTION,
    REWRITE_OPTIONS,
    REWRITERS,
    TASK_RUNNERS,
    TRANSFER_VERBS,
)
from keepfast.shell.words import Word

Targets = list[Word] | None
"""What a program destroys; an empty list: something unknown; None: nothing."""
Rule = Callable[[str, list[Word], list[Word]], Targets]

MAX_MENTIONED = 200
"""Arguments of unknown programs that are considered."""
MAX_PATH_LENGTH = 4096
MAX_WRITES_PER_LINE = 8
TAR_VALUE_LETTERS = "fCTXIbKNVFgH"
"""Letters of `tar` that take a value."""
TAR_WRITE_LETTERS = frozenset("cruA")
TAR_WRITE_OPTIONS = ("--create", "--append", "--update", "--catenate", "--concatenate", "--delete")
"""With these `tar` writes an archive."""
DEVICES = ("/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty", "/dev/fd/", "/dev/zero", "/dev/full")


def targets_of(name: str, arguments: list[Word], bodies: str) -> Targets:
    """Return what a program that runs no other one is about to destroy; `bodies` is the text of its here-documents."""
    texts = [word.text for word in arguments]
    if "--help" in texts or "--version" in texts:
        return None
    for rule in (
        _subcommand_targets, _in_place_targets, _archive_targets, _copy_targets, _named_program_targets, _query_targets,
        code_targets,
    ):  # fmt: skip
        targets = rule(name, arguments, bodies)
        if targets is not None:
            return targets
    return None


def _subcommand_targets(name: str, arguments: list[Word], bodies: str) -> Targets:
    if name not in DESTRUCTIVE_SUBCOMMANDS and name not in TRANSFER_VERBS:
        return None
    words = after_options(name, arguments)
    if not words:
        return None
    if not words[0].is_sure:
        return []
    verb, operands = words[0].text, [word.text for word in words[1:]]
    if name in TRANSFER_VERBS:
        is_tried = "-n" in operands or "--dry-run" in operands
        return operands_of(name, words[1:]) if verb in TRANSFER_VERBS[name] and not is_tried else None
    if (
        verb not in DESTRUCTIVE_SUBCOMMANDS[name]
        and " ".join([verb, *operands[:1]]) not in DESTRUCTIVE_SUBCOMMANDS[name]
    ):
        return None
    if operands and operands[0] in HARMLESS_SUBCOMMANDS.get(name, {}).get(verb, ()):
        return None
    if verb == "clean" and ("-n" in operands or "--dry-run" in operands):
        return None
    # Which files a branch or a commit changes is unknown.
    return []


def _in_place_targets(name: str, arguments: list[Word], bodies: str) -> Targets:
    letter, long = IN_PLACE_OPTIONS.get(name, ("", ""))
    for word in arguments:
        text = word.text
        if (long and text.startswith(long)) or (
            letter and len(text) > 1 and text[0] == "-" and text[1] != "-" and letter in text[1:]
        ):
            return operands_of(name, arguments)[
                1 if name in ("sed", "gsed") and not _has_sed_script(arguments) else 0 :
            ]
    return None


def _named_program_targets(name: str, arguments: list[Word], bodies: str) -> Targets:
    rule = RULES_BY_ARGUMENTS.get(DESTROYED_ARGUMENTS.get(name, "")) or RULES_BY_PROGRAM.get(name)
    if rule is not None:
        return rule(name, arguments, operands_of(name, arguments))
    if (cleared := _clean_task_targets(name, arguments)) is not None:
        return cleared
    return operands_of(name, arguments) if name in REWRITERS else None


def _clean_task_targets(name: str, arguments: list[Word]) -> Targets:
    """Return an unknown target if a task runner runs a task named like `clean`; None otherwise."""
    texts = [word.text for word in arguments]
    if name in TASK_RUNNERS and any(part in text for text in texts for part in CLEAN_TASK_WORDS):
        return [] if texts[0] not in PACKAGE_VERBS else None
    return None


def _all_operands(name: str, arguments: list[Word], operands: list[Word]) -> Targets:
    return (
        _compressed_files(name, operands, [word.text for word in arguments])
        if name in COMPRESSED_SUFFIXES
        else operands
    )


def _last_operand(name: str, arguments: list[Word], operands: list[Word]) -> Targets:
    is_meant = REQUIRED_OPTION.get(name, "") in ("", *[word.text for word in arguments])
    return operands[-1:] if len(operands) > 1 and is_meant else None


def _copy_destination(name: str, arguments: list[Word], operands: list[Word]) -> Targets:
    """Return the folder or file that is copied to, and the copies in it in case it is a folder."""
    if not operands:
        return []
    if name in ("rsync", "scp"):
        return _remote_copy(name, [word.text for word in arguments], operands)
    into = option_value(arguments, "-t", "--target-directory")
    target = into or operands[-1]
    sources = operands if into else operands[:-1]
    return [target, *[target.child_named_like(source) for source in sources if source.is_sure and target.is_sure]]


def _remote_copy(name: str, texts: list[str], operands: list[Word]) -> Targets:
    """Return what a copy between machines replaces here, and the sources that it removes."""
    if name == "rsync" and ("-n" in texts or "--dry-run" in texts):
        return None
    moved = [word for word in operands[:-1] if not _is_remote(word)] if "--remove-source-files" in texts else []
    return [*moved, *_copied_files(operands[-1], operands[:-1])] or None


def _tee_files(name: str, arguments: list[Word], operands: list[Word]) -> Targets:
    if any(word.text in ("-a", "--append") for word in arguments):
        return None
    return [word for word in operands if word.text not in DEVICES] or None


def _dd_output(name: str, arguments: list[Word], operands: list[Word]) -> Targets:
    return [word.without_prefix("of=") for word in arguments if word.text.startswith("of=")] or None


def _tar_files(name: str, arguments: list[Word], operands: list[Word]) -> Targets:
    return [] if _tar_extracts([word.text for word in arguments]) else _tar_archive(arguments)


def _unzip_files(name: str, arguments: list[Word], operands: list[Word]) -> Targets:
    return [] if any(word.text[:1] == "-" and "o" in word.text for word in arguments) else None


def _make_targets(name: str, arguments: list[Word], operands: list[Word]) -> Targets:
    return [] if _reads_its_file([word.text for word in arguments]) else _clean_task_targets(name, arguments)


def _reads_its_file(texts: list[str]) -> bool:
    """Return whether `make` reads its makefile from a pipe."""
    if any(text in ("-f-", "--file=-", "--makefile=-") for text in texts):
        return True
    return any(text == "-f" and texts[at + 1 : at + 2] == ["-"] for at, text in enumerate(texts))


def _compressed_files(name: str, operands: list[Word], texts: list[str]) -> Targets:
    """Return the files that a compressor deletes, and with `-f` those that it overwrites."""
    letters = "".join([text[1:] for text in texts if text[:1] == "-" and text[:2] != "--"])
    if "--stdout" in texts or "--list" in texts or not {"c", "l", "t"}.isdisjoint(letters):
        return None
    stays = (
        "k" in letters or "--keep" in texts or (name in DELETE_INPUT_OPTION and DELETE_INPUT_OPTION[name] not in texts)
    )
    is_forced = "f" in letters or "--force" in texts
    # The second of two operands of these is the file that they write.
    targets = [] if stays and not (is_forced and name in DELETE_INPUT_OPTION) else list(operands)
    if is_forced:
        ending = COMPRESSED_SUFFIXES[name]
        for word in operands:
            if word.is_sure:
                targets.append(
                    Word(word.text.removesuffix(ending) if word.text.endswith(ending) else word.text + ending)
                )
    return targets or None


def _archive_targets(name: str, arguments: list[Word], bodies: str) -> Targets:
    """Return the archive that is written, or an unknown target if files of unknown names are extracted."""
    starts = EXTRACT_WORDS.get(name)
    if starts and arguments and arguments[0].text.startswith(starts):
        return []
    if name not in ARCHIVE_VERBS:
        return None
    operands = operands_of(name, arguments)
    if name != "zip":
        return operands[1:2] if operands and operands[0].text in ARCHIVE_VERBS[name] and len(operands) > 1 else None
    # `zip` adds its suffix to a name without one.
    return [
        *operands[:1],
        *[Word(word.text + ".zip") for word in operands[:1] if word.is_sure and "." not in word.text],
    ] or None


def _copy_targets(name: str, arguments: list[Word], bodies: str) -> Targets:
    """Return what `docker cp`, `aws s3 mv` and the like replace here, and with `mv` what they move away."""
    words = operands_of(name, arguments) if name in COPY_VERBS else []
    for verb in COPY_VERBS.get(name, ()):
        parts = verb.split(" ")
        if [word.text for word in words[: len(parts)]] == parts and len(words) > len(parts):
            operands = words[len(parts) :]
            moved = [word for word in operands[:-1] if parts[-1] == "mv" and not _is_remote(word)]
            return [*moved, *_copied_files(operands[-1], operands[:-1])] or None
    return None


def _is_remote(word: Word) -> bool:
    """Return whether this is a place on another machine: `host:path`, `s3://bucket`."""
    return ":" in word.text.partition("/")[0]


def _copied_files(target: Word, sources: list[Word]) -> list[Word]:
    """Return the target of a copy, and the copies in it in case it is a folder; nothing if it is on another machine."""
    if _is_remote(target):
        return []
    plain = [
        Word(source.text.rpartition(":")[2]) if _is_remote(source) else source for source in sources if source.is_sure
    ]
    return [target, *[target.child_named_like(source) for source in plain if target.is_sure]]


def _split_pieces(name: str, arguments: list[Word], operands: list[Word]) -> Targets:
    """Return a pattern for the files that `split` writes: all have the same prefix."""
    if any(word.text.startswith("--filter") for word in arguments):
        return []
    if name == "csplit":
        prefix = option_value(arguments, "-f", "--prefix") or joined_value(arguments, "-f") or Word("xx")
    else:
        prefix = operands[1] if len(operands) > 1 else Word("x")
    if not prefix.is_sure:
        return []
    word = Word(prefix.text + "*", len(prefix.text), is_pattern=True)
    word.is_glob = True
    return [word] if PATHSPEC_LETTERS.isdisjoint(prefix.text) else []


def _wget_files(name: str, arguments: list[Word], operands: list[Word]) -> Targets:
    """Return the files that `wget` overwrites: only with these options does it not choose a new name."""
    letters = "".join([word.text[1:] for word in arguments if word.text[:1] == "-" and word.text[:2] != "--"])
    texts = [word.text for word in arguments]
    if (
        "N" not in letters
        and "r" not in letters
        and "m" not in letters
        and not any(text in ("--timestamping", "--recursive", "--mirror") for text in texts)
    ):
        return None
    folder = option_value(arguments, "-P", "--directory-prefix") or Word(".")
    targets = []
    for word in operands:
        parts = word.text.partition("://")[2].partition("?")[0].split("/")
        targets += [folder.child_named_like(Word(part)) for part in (parts[0], parts[-1]) if part]
    return targets or None


def _tar_archive(arguments: list[Word]) -> Targets:
    """Return the archive that `tar` writes."""
    is_bare = bool(arguments) and arguments[0].text[:1] not in ("-", "")
    archives = _archive_behind_letters(arguments) if is_bare else _archive_in_options(arguments)
    return [word for word in archives if word.text != "-"] or None


def _archive_behind_letters(arguments: list[Word]) -> list[Word]:
    """Return the archive of `tar cf FILE`: the values of the letters follow in the same order."""
    letters = arguments[0].text
    values = [letter for letter in letters if letter in TAR_VALUE_LETTERS]
    if "f" not in values or TAR_WRITE_LETTERS.isdisjoint(letters):
        return []
    at = 1 + values.index("f")
    return arguments[at : at + 1]


def _archive_in_options(arguments: list[Word]) -> list[Word]:
    """Return the archive of `tar -cf FILE`, `-cfFILE`, `--file FILE` and `--file=FILE`."""
    clusters = [word.text[1:] for word in arguments if is_cluster(word.text)]
    letters = "".join([cluster.partition("f")[0] for cluster in clusters])
    if TAR_WRITE_LETTERS.isdisjoint(letters) and not any(word.text in TAR_WRITE_OPTIONS for word in arguments):
        return []
    archives: list[Word] = []
    for at, word in enumerate(arguments):
        text = word.text
        cluster, letter, joined = text.partition("f") if is_cluster(text) else ("", "", "")
        if text.startswith("--file="):
            archives.append(word.without_prefix("--file="))
        elif text == "--file" or (letter and not joined):
            archives += arguments[at + 1 : at + 2]
        elif letter and (cluster == "-" or cluster[1:].isalpha()):
            archives.append(word.without_prefix(cluster + letter))
    return archives


RULES_BY_ARGUMENTS: dict[str, Rule] = {
    ALL_ARGUMENTS: _all_operands,
    LAST_ARGUMENT: _last_operand,
    DESTINATION: _copy_destination,
}
RULES_BY_PROGRAM: dict[str, Rule] = {
    "split": _split_pieces, "csplit": _split_pieces, "wget": _wget_files, "tee": _tee_files, "dd": _dd_output, "tar": _tar_files,
    "bsdtar": _tar_files,
    "unzip": _unzip_files, "make": _make_targets, "gmake": _make_targets,
}  # fmt: skip
"""Rules by program; each gets the program's name, its arguments, and those of them that are operands."""


def typescript(arguments: list[Word]) -> Targets:
    """Return the file that `script` records the terminal into."""
    texts = [word.text for word in arguments]
    if any(text == "--append" or (text[:1] == "-" and text[1:2] != "-" and "a" in text) for text in texts):
        return None
    operands = [
        word
        for before, word in zip(["", *texts], arguments, strict=False)
        if not word.text.startswith("-") and not (before[:1] == "-" and before.endswith("c")) and before != "--command"
    ]
    return [word for word in operands[:1] or [Word("typescript")] if not word.text.startswith(DEVICES)] or None


def mentioned_words(name: str, arguments: list[Word]) -> list[Word]:
    """Return what a program may destroy that no rule covers: all its operands if it is unknown, and values of output options."""
    texts = [word.text for word in arguments]
    if "--help" in texts or "--version" in texts:
        return []
    written = _sed_written_files(arguments) if name in ("sed", "gsed") else []
    if name == "git":
        written = _git_written_files(arguments)
    outputs = [*written, *_output_option_values(name, arguments), *_built_program_operands(name, arguments)]
    if name.startswith(INTERPRETERS):
        operands = operands_of(name, arguments)
        is_read = any(gives_code(text) for text in texts) or any(
            word.text in INTERPRETER_VERBS for word in operands[:1]
        )
        return outputs if is_read else [*outputs, *operands[1:]]  # the first one is the script that is run
    if is_known_program(name) and (name == "git" or not _is_told_to_rewrite(texts)):
        return outputs
    for word in arguments:
        if not word.text.startswith("-"):
            outputs.append(word)
        elif "=" in word.text:
            outputs.append(word.without_prefix(word.text.partition("=")[0] + "="))
    return outputs


def _git_written_files(arguments: list[Word]) -> list[Word]:
    """Return the file that `git bundle create` writes."""
    words = after_options("git", arguments)
    if [word.text for word in words[:2]] != ["bundle", "create"]:
        return []
    return [word for word in words[2:] if not word.text.startswith("-")][:1]


def _output_option_values(name: str, arguments: list[Word]) -> list[Word]:
    """Return the values of `of=`, `-o`, `--out…` and `-out…`, whatever the program is."""
    values: list[Word] = []
    for at, word in enumerate(arguments):
        option, sign, _ = word.text.partition("=")
        if (option == "of" and sign) or option.startswith(("--out", "-out")):
            values += [word.without_prefix(option + "=")] if sign else arguments[at + 1 : at + 2]
        elif option.startswith("-o") and name not in NO_OUTPUT_AT_O:
            is_alone = option == "-o"
            values += (
                arguments[at + 1 : at + 2]
                if is_alone and not sign
                else [word.without_prefix("-o=" if is_alone else "-o")]
            )
    return values


def _built_program_operands(name: str, arguments: list[Word]) -> list[Word]:
    """Return the operands of the project's own program in `cargo run -- FILE` and the like."""
    texts = [word.text for word in arguments]
    if texts[:1] != ["run"] or name not in BUILD_AND_RUN_TOOLS:
        return []
    words = arguments[texts.index("--") + 1 :] if "--" in texts else arguments[2:] if name == "go" else []
    return [word for word in words if not word.text.startswith("-")]


def _is_told_to_rewrite(texts: list[str]) -> bool:
    """Return whether the options make a reading program rewrite its operands."""
    return any(text.startswith(REWRITE_OPTIONS) for text in texts) or any(text in FORMAT_VERBS for text in texts[:1])


def is_known_program(name: str) -> bool:
    """Return whether the tables say everything that this program does to files."""
    tables = (
        READERS,
        DESTROYED_ARGUMENTS,
        IN_PLACE_OPTIONS,
        OUTPUT_OPTIONS,
        DESTRUCTIVE_SUBCOMMANDS,
        COPY_VERBS,
        TRANSFER_VERBS,
        ARCHIVE_VERBS,
        AWK,
    )
    return any(name in table for table in tables)


def _sed_written_files(arguments: list[Word]) -> list[Word]:
    """Return what may be files written by sed's command `w`: each name extends to the end of its line."""
    files: list[Word] = []
    expressions = [arguments[at + 1] for at, word in enumerate(arguments[:-1]) if word.text in ("-e", "--expression")]
    sources = (
        expressions
        or [word for word in arguments if word.text.startswith(("-e", "--expression="))]
        or operands_of("sed", arguments)[:1]
    )
    scripts = [word.text for word in sources if len(word.text) < MAX_PATH_LENGTH]
    for line in "\n".join(scripts).split("\n"):
        places = [at for at, letter in enumerate(line) if letter == "w"]
        files += [Word(line[at + 1 :].strip().rstrip(" }")) for at in places[-MAX_WRITES_PER_LINE:]]
    return files[:MAX_MENTIONED]


def _query_targets(name: str, arguments: list[Word], bodies: str) -> Targets:
    """Return the database file if it is given anything but read-only queries."""
    if not name.startswith("sqlite3") and name != "duckdb":
        return None
    operands = operands_of("sqlite3", arguments)
    if not operands or "-readonly" in [word.text for word in arguments]:
        return None
    statements = ";".join([*[word.text for word in operands[1:]], bodies])
    parts = [part.strip().lower() + " " for part in statements.replace("\n", ";").split(";") if part.strip()]
    is_plain = bool(parts) and all(word.is_sure for word in operands[1:])
    if is_plain and all(
        part.startswith(READ_ONLY_QUERIES) and not (part.startswith("pragma") and "=" in part) for part in parts
    ):
        return None
    return operands[:1]


def written_outputs(name: str, arguments: list[Word]) -> Targets:
    """Return the files that a program's output options name; None if there are none."""
    outputs, takes_names = list[Word](), False
    for index, word in enumerate(arguments):
        following = arguments[index + 1 : index + 2]
        if name in CLUSTER_VALUE_LETTERS and is_cluster(word.text):
            flags, values = _split_output_cluster(name, word, following)
            takes_names |= name == "curl" and "O" in flags
        else:
            values = _output_values(OUTPUT_OPTIONS[name], word, following)
            takes_names |= name == "curl" and word.text.startswith("--remote-name")
        outputs += values
    if takes_names:
        plain = [word.text.partition("?")[0] for word in operands_of(name, arguments)]
        outputs += [Word(text.rpartition("/")[2]) for text in plain if "/" in text and not text.endswith("/")]
    named = [word for word in outputs if word.text != "-" and not word.text.startswith(DEVICES)]
    return named or None


def _split_output_cluster(name: str, word: Word, following: list[Word]) -> tuple[str, list[Word]]:
    """Split `-sSo` into the letters without a value, and the file that its last letter names if that is an output."""
    text, letters = word.text, "".join([option[1] for option in OUTPUT_OPTIONS[name] if len(option) == 2])
    at = next(
        (at for at in range(1, len(text)) if text[at] in letters or text[at] in CLUSTER_VALUE_LETTERS[name]), len(text)
    )
    flags, letter, joined = text[:at], text[at : at + 1], text[at + 1 :]
    if not letter or letter not in letters:
        return flags, []
    return flags, [word.without_prefix(flags + letter)] if joined else following


def _output_values(options: Sequence[str], word: Word, following: list[Word]) -> list[Word]:
    """Return the file that an output option names, in the next word or joined to it."""
    text = word.text
    if text in options:
        return following
    values: list[Word] = []
    for option in options:
        if text.startswith(option + "="):
            values.append(word.without_prefix(option + "="))
        elif text.startswith(option) and len(option) == 2:
            values.append(word.without_prefix(option))
    return values


def _tar_extracts(texts: list[str]) -> bool:
    """Return whether `tar` extracts files. Their names are unknown."""
    if "--extract" in texts or "--get" in texts:
        return True
    clusters = [text[1:] for text in texts if text[:1] == "-" and text[1:2] != "-"]
    if texts and texts[0][:1] != "-":
        return "x" in texts[0]  # without a dash no option has its value in the same word
    for cluster in clusters:
        end = min([at for at in map(cluster.find, TAR_VALUE_LETTERS) if at >= 0], default=len(cluster))
        if "x" in cluster[:end]:
            return True
    return False


def _has_sed_script(arguments: list[Word]) -> bool:
    return any(word.text.startswith(("-e", "-f", "--expression", "--file")) for word in arguments)
