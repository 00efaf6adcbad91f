"""Docs that can rot are compared with the code: commands, flags, exit codes, keys of JSON answers."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator
from typing import Any

import click
import pytest

import reference_tables
from keepfast.cli.root import root
from keepfast.model import errors
from tests.equipment.box import SOURCE, Box

REPOSITORY = SOURCE.parent
COMMANDS = REPOSITORY / "docs/commands.md"
JSON = REPOSITORY / "docs/json.md"
MAGIC = "store"  # `holdfast store` is the first line of a store's format file


# docs/commands.md


def test_the_tables_of_commands_say_what_the_code_does() -> None:
    text = COMMANDS.read_text()

    assert text == reference_tables.with_tables("commands.md", text)


# Every command line in docs and in our own sentences


def spoken_of() -> list[tuple[str, str]]:
    """(where, command line) of every `keepfast …` in back-ticks or as a line of shell."""
    mentions = []
    files = [*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md"), *(SOURCE / "keepfast").rglob("*.py")]
    for path in files:
        text = path.read_text()
        lines = re.findall(r"`keepfast ([^`\n]+)`", text)
        if path.suffix == ".md":
            for block in re.findall(r"^```(?:sh|bash|console)?\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
                lines += re.findall(r"^(?:\$ )?keepfast ([^\n#]+)", block, re.MULTILINE)
        mentions += [(str(path.relative_to(REPOSITORY)), line.strip()) for line in lines if line != MAGIC]
    return mentions


def known_flags(command: click.Command) -> set[str]:
    options = [*reference_tables.visible_options(command), *reference_tables.visible_options(root)]
    names = {name for option in options for name in [*option.opts, *option.secondary_opts]}
    return names | {"--help", "-h"}


def test_every_command_and_flag_that_we_speak_of_exists() -> None:
    commands = dict(reference_tables.every_command())
    lines = spoken_of()
    unknown = []
    for where, line in lines:
        words = line.split()
        while words and words[0].startswith("-"):
            if words[0] not in known_flags(root):
                unknown.append((where, line))
            option = next((one for one in reference_tables.visible_options(root) if words[0] in one.opts), None)
            words = words[2:] if option is not None and not option.is_flag else words[1:]
        if not words or not re.fullmatch(r"[a-z]+", words[0]):
            continue
        command = commands.get(" ".join(words[:2])) or commands.get(words[0])
        if command is None:
            unknown.append((where, line))
            continue
        before_paths = words[: words.index("--")] if "--" in words else words
        invocations = [
            re.split(r"[=|\]]", word.lstrip("["))[0] for word in before_paths[1:] if re.match(r"\[?--?[a-zA-Z]", word)
        ]
        unknown += [(where, line) for flag in invocations if flag not in known_flags(command)]

    assert len(lines) > 40
    assert unknown == []


# Links and paths


def slug(heading: str) -> str:
    """The anchor that a heading has on GitHub."""
    return re.sub(r"[^\w\- ]", "", re.sub(r"[`*]", "", heading).strip().lower()).replace(" ", "-")


def test_every_link_between_pages_leads_somewhere() -> None:
    pages = [*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md"), REPOSITORY / "bench/README.md"]
    broken = []
    for page in pages:
        text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        for target, _, anchor in re.findall(r"\]\(((?!https?:)[^)#\s]*)(#([^)\s]+))?\)", text):
            path = page.parent / target if target else page
            headings = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE) if path.suffix == ".md" else []
            if not path.exists() or (anchor and anchor not in map(slug, headings)):
                broken.append((page.name, f"{target}#{anchor}"))

    assert broken == []


def test_every_file_of_the_sources_that_a_page_names_is_there() -> None:
    pages = [*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md")]
    missing = []
    for page in [page for page in pages if page.name != "CHANGELOG.md"]:
        for path in re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.(?:py|c))`", page.read_text()):
            if not any((place / path).exists() for place in (REPOSITORY, REPOSITORY / "src/keepfast")):
                missing.append((page.name, path))

    assert missing == []


# docs/json.md


def documented(section: str) -> set[str]:
    """Keys in the table of one section; `?` marks those that need not be there."""
    text = re.split(rf"^## {re.escape(section)}$", JSON.read_text(), flags=re.MULTILINE)[1]
    body = re.split(r"^## ", text, flags=re.MULTILINE)[0]
    keys = set()
    for line in body.splitlines():
        if line.startswith("| `"):
            keys |= set(re.findall(r"`([^`]+)`\??", line.split("|")[1]))
    return keys


def keys_of(value: Any, stop: tuple[str, ...] = (), prefix: str = "") -> set[str]:
    """Keys of a JSON value: `a.b` inside objects, `a[].b` inside lists; those in `stop` are not looked into."""
    if isinstance(value, list):
        return {key for item in value for key in keys_of(item, stop, prefix + "[]")}
    keys: set[str] = set()
    for key, item in value.items() if isinstance(value, dict) else ():
        name = f"{prefix}.{key}" if prefix else key
        keys |= {name} | (keys_of(item, stop, name) if key not in stop else set())
    return keys


CHECKPOINT = (
    "checkpoint",
    "base",
    "last",
    "forgotten",
    "thinned",
    "changes",
    "coverage",
    "files",
    "analysis",
    "context",
)


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ("init", ["init", "another"]),
        ("save", ["save"]),
        ("save", ["save", "--auto"]),
        ("search", ["search", "first"]),
        ("search", ["search", "README"]),
        ("status", ["status"]),
        ("pin, unpin, name", ["pin", "v1"]),
        ("pin, unpin, name", ["unpin", "v1"]),
        ("pin, unpin, name", ["name", "v1", "x"]),
        ("forget", ["forget", "v1", "--dry-run"]),
        ("forget", ["forget", "v1", "-y"]),
        ("unprotect, purge", ["unprotect"]),
        ("unprotect, purge", ["purge", "-y"]),
        ("unprotect, purge", ["purge", "--all", "-y"]),
        ("compact", ["compact"]),
        ("verify", ["verify"]),
        ("verify --repair", ["verify", "--repair"]),
        ("rebuild", ["rebuild"]),
        ("doctor", ["doctor"]),
        ("cat", ["cat", "v1", "README"]),
        ("completion", ["completion", "fish"]),
        ("install", ["install"]),
        ("install, uninstall", ["install", "claude", "--statusline"]),
        ("install, uninstall", ["uninstall", "claude"]),
        ("install --plugin", ["install", "claude", "--plugin"]),
        ("clear-check", ["clear-check"]),
    ],
)
def test_an_answer_has_the_keys_that_the_page_names(saved_box: Box, section: str, words: list[str]) -> None:
    answer = saved_box.call(*words, "--json")
    assert answer.code == 0, answer

    keys = keys_of(answer.json(), (*CHECKPOINT, "compaction"))

    named = documented(section)
    named |= {re.split(r"\[\]|\.", key)[0] for key in named} - {""}
    assert keys <= named


def test_checkpoints_changes_and_coverage_have_the_keys_that_the_page_names(saved_box: Box) -> None:
    (saved_box.project / "link").symlink_to("x")
    os.mkfifo(saved_box.project / "pipe")
    saved_box.put("src/a.py", "x")
    saved_box.save()
    answer = saved_box.call("show", "--json").json()
    compared = saved_box.call("diff", "v1", "v4", "--json").json()
    status = saved_box.call("status", "--json").json()

    assert keys_of(saved_box.call("list", "--json").json()[0]) == documented("checkpoint")
    assert keys_of(answer, CHECKPOINT) <= documented("checkpoint") | documented("show")
    assert set().union(*[keys_of(change) for change in answer["changes"]]) <= documented("change")
    assert keys_of(status["coverage"], ("left_out",)) == documented("coverage")
    extra = {key.removeprefix("changes[].") for key in documented("diff")}
    assert set().union(*[keys_of(change) for change in compared["changes"]]) <= documented("change") | extra
    assert set(compared) <= documented("diff")


def test_an_error_has_the_form_that_the_page_shows(saved_box: Box) -> None:
    error = saved_box.call("show", "v9", "--json").json()

    assert keys_of(error) == {"error", "error.kind", "error.message", "error.hint", "error.exit_code"}
    assert '{"error": {"kind": "not_found", "message":' in JSON.read_text()


# Installing


def texts() -> Iterator[tuple[str, str]]:
    """All that people read: documents, messages, the plugin."""
    for top in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs", "plugin", "src/keepfast", "examples", "tools"):
        place = REPOSITORY / top
        for path in [place] if place.is_file() else sorted(place.rglob("*")):
            if path.is_file() and path.suffix not in (".pyc", ".so", ".png"):
                yield str(path.relative_to(REPOSITORY)), path.read_text(errors="replace")


def test_nothing_tells_people_to_install_a_package_of_our_name_from_an_index() -> None:
    """There it is somebody else's."""
    install_command = re.compile(r"(?:pipx?|uv|uvx)(?: tool| pip)? (?:install|run)[^\n`]*[ '\"]keepfast\b(?!/)")

    assert [name for name, text in texts() if install_command.search(text)] == []


def test_every_extra_is_named_in_the_readme_with_the_commands_that_need_it() -> None:
    about = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    extras = set(about["optional-dependencies"]) - {"dev", "faults"}
    readme = (REPOSITORY / "README.md").read_text()

    assert [name for name in extras if f"`{name}`" not in readme and f"[{name}]" not in readme] == []


@pytest.mark.parametrize("name", ["serve", "mcp", "mount"])
def test_a_hint_names_an_extra_that_exists(name: str) -> None:
    about = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]

    assert name in about["optional-dependencies"] and f"'.[{name}]'" in errors.extra(name)
