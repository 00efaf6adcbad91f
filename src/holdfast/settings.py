"""Every setting: its name, type, default, range and meaning; and how files, environment and flags become one value."""

from __future__ import annotations

from holdfast.core.errors import Usage
from holdfast.core.light_json import loads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

FLAG, NUMBER, SIZE, TEXT, LIST, CHOICE = (
    "true or false",
    "a number",
    "a size such as 100MB",
    "text",
    "a list of texts",
    "one of",
)

# name → (type, default, allowed, meaning); allowed is a range, the choices, or None.
TABLE: dict[str, tuple[str, Any, Any, str]] = {
    "adopt": (CHOICE, "git", ("git", "any", "marked", "never"), "Which folders hooks protect by themselves at their first event."),
    "language": (CHOICE, "", ("", "en", "ko"), "Language of messages; empty: as the locale says."),
    "hooks.before_command": (CHOICE, "deadline", ("deadline", "ask", "off"), "When a destructive command is not safe in time."),
    "hooks.before_command_deadline": (NUMBER, 5, (1, 60), "How many seconds a destructive command waits for its checkpoint."),
    "hooks.auto_checkpoint_on_clear": (CHOICE, "prompt", ("true", "false", "prompt"), "Checkpoint when a conversation is cleared."),
    "hooks.checkpoint_threshold_percent": (NUMBER, 70, (70, 95), "Part of the token budget at which a quiet checkpoint is made."),
    "budget.tokens": (NUMBER, 0, (0, None), "Tokens that an agent may use; 0: as its client and model allow."),
    "capture.exclude": (
        LIST,
        [
            "node_modules/", "bower_components/", ".venv/", "__pycache__/", ".tox/", ".nox/", ".mypy_cache/", ".ruff_cache/",
            ".pytest_cache/", ".hypothesis/", ".eggs/", ".gradle/", ".terraform/", ".next/", ".nuxt/", ".svelte-kit/",
            ".parcel-cache/", ".turbo/", ".angular/", ".dart_tool/", ".yarn/cache/", ".pnpm-store/", ".cargo/registry/",
            "DerivedData/", "Pods/", ".DS_Store",
        ],
        None,
        "Dependency, build and cache folders that are never looked at; the syntax of .gitignore.",
    ),
    "capture.exclude_ignored": (
        LIST,
        ["build/", "dist/", "target/", "out/", "bin/", "obj/", "coverage/", "htmlcov/", "venv/", "env/",
         ".cache/", "tmp/", "vendor/"],
        None,
        "Folders that are left out only if .gitignore names them too: elsewhere these names hold sources.",
    ),
    "capture.exclude_marked": (LIST, ["CACHEDIR.TAG", "pyvenv.cfg"], None, "A folder that holds such a file is left out."),
    "capture.ignored": (CHOICE, "small", ("small", "all", "none"), "Files that .gitignore leaves out: small ones, all, or none."),
    "capture.ignored_file_size": (SIZE, 1 << 20, (0, None), "Largest ignored file that is kept."),
    "capture.ignored_folder_files": (NUMBER, 1000, (0, None), "An ignored folder with more files than this is left out."),
    "capture.max_file_size": (SIZE, 100 << 20, (1, None), "Larger files are listed as left out."),
    "capture.max_files": (NUMBER, 200_000, (1, None), "A tree with more files is refused."),
    "capture.accelerator": (FLAG, True, None, "Use the compiled check of known files where it is there."),
    "checkpoint.cleanup_after_days": (NUMBER, 30, (1, 36500), "How long daily automatic checkpoints are kept."),
    "retention.keep_last": (NUMBER, 10, (1, None), "Newest automatic checkpoints of each session or task that are always kept."),
    "retention.hourly_hours": (NUMBER, 24, (0, None), "For this long, one automatic checkpoint an hour is kept."),
    "retention.max_size": (SIZE, 10 << 30, (1 << 20, None), "Size of the store from which the oldest automatic ones are thinned."),
    "store.url": (TEXT, "", None, "Folder of the store; empty: the data folder of the user."),
    "store.durable": (FLAG, True, None, "Sync every write; false is for benches on a scratch disk only."),
}  # fmt: skip

ONLY_FROM_USER = ("store.", "adopt")
"""Keys that the environment may not set: a repository can put variables into the environment of our hooks."""
ALIASES: dict[str, str] = {}

UNITS = {"": 1, "B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}


class Settings:
    """One value per key, where it came from, and what was odd on the way."""

    __slots__ = ("origins", "values", "warnings")

    def __init__(self) -> None:
        self.values: dict[str, Any] = {key: row[1] for key, row in TABLE.items()}
        self.origins: dict[str, str] = {}
        self.warnings: list[str] = []

    def __getitem__(self, key: str) -> Any:
        return self.values[key]

    def put(self, key: str, value: object, origin: str) -> None:
        """Set a checked value. Raises `Usage` naming the key."""
        self.values[key] = checked(key, value, origin)
        self.origins[key] = origin

    def read_file(self, text: bytes, origin: str) -> None:
        """Take over a JSON file with sections. Raises `Usage` with the offending key; unknown keys are warned about."""
        try:
            content = loads(text)
        except ValueError as error:
            raise Usage(f"{origin} is not JSON: {error}.", "Mend it, or move it away to use the defaults.") from None
        for key, value in flatten(content, origin).items():
            if key in TABLE:
                self.put(key, value, origin)
            else:
                self.warnings.append(f"{origin}: unknown setting {key!r}{_similar(key)}.")

    def read_environment(self, variables: Mapping[str, str]) -> None:
        """Take over `HOLDFAST_<SECTION>_<KEY>` variables."""
        for name, value in variables.items():
            key = ALIASES.get(name) or _BY_VARIABLE.get(name)
            if key is None:
                continue
            if key.startswith(ONLY_FROM_USER):
                self.warnings.append(f"{name} is not taken from the environment; set {key} in the settings file.")
                continue
            self.put(key, value, name)


def flatten(content: object, origin: str) -> dict[str, object]:
    """Return `section.key` → value of a settings file's sections."""
    if not isinstance(content, dict):
        raise Usage(f"{origin} must hold a JSON object.", "Start from `holdfast config list --json`.")
    result: dict[str, object] = {}
    for key, value in content.items():
        if isinstance(value, dict):
            result.update({f"{key}.{inner}": item for inner, item in value.items()})
        else:
            result[key] = value
    return result


def checked(key: str, value: object, origin: str) -> Any:
    """Return the value in its type. Raises `Usage` that names key, value and what is allowed."""
    kind, _, allowed, _ = TABLE[key]
    result = _converted(kind, value)
    if kind == CHOICE:
        if result not in allowed:
            names = ", ".join([repr(choice) for choice in allowed])
            raise Usage(f"{key} = {value!r} ({origin}) is not allowed.", f"Choose one of {names}.")
    elif result is None:
        raise Usage(f"{key} = {value!r} ({origin}) is not {kind}.", f"Give {kind}.")
    elif allowed is not None:
        low, high = allowed
        if result < low or (high is not None and result > high):
            raise Usage(
                f"{key} = {value!r} ({origin}) is out of range.",
                f"Give at least {low}{f' and at most {high}' if high else ''}.",
            )
    return result


def _converted(kind: str, value: object) -> Any:
    if kind == FLAG:
        return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}.get(str(value).lower())
    if kind == NUMBER:
        return _number(value)
    if kind == SIZE:
        return size(value)
    if kind == LIST:
        if isinstance(value, str):
            try:
                value = loads(value) if value.startswith("[") else [part for part in value.split(",") if part]
            except ValueError:
                return None
        return value if isinstance(value, list) and all(isinstance(item, str) for item in value) else None
    return value if isinstance(value, str) else None


def _number(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else None


def size(value: object) -> int | None:
    """Bytes in `100MB`, `1.5 GB`, `4096`; None if it is not a size."""
    if isinstance(value, (int, bool)):
        return None if isinstance(value, bool) else value
    if not isinstance(value, str):
        return None
    text = value.strip().upper().replace("IB", "B")
    digits = text.rstrip("KMGTB ")
    factor = UNITS.get(text[len(digits) :].strip(), 0) or UNITS.get(text[len(digits) :].strip() + "B", 0)
    try:
        number = float(digits)
    except ValueError:
        return None
    return int(number * factor) if factor and number == number and 0 <= number < 1e15 else None


def _similar(key: str) -> str:
    tail = key.rpartition(".")[2]
    for known in TABLE:
        if known.rpartition(".")[2] == tail:
            return f"; did you mean {known!r}?"
    return ""


_BY_VARIABLE = {"HOLDFAST_" + key.upper().replace(".", "_"): key for key in TABLE}
