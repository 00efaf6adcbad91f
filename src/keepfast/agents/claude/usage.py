"""Tokens used, from the tail of a transcript: at most 1 MB of it is read, whatever its size."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from os import O_CLOEXEC, O_NOCTTY, O_NONBLOCK, O_RDONLY, close, fstat, pread
from os import open as open_fd
from stat import S_ISREG
from typing import Any

from keepfast.model.budget import TokenUsage, usage
from keepfast.model.strict_json import loads
from keepfast.state.figures import stored_figures

STEPS = (64 << 10, 192 << 10, 768 << 10)
"""How much is read, then how much before that: an answer that holds a whole file is one line."""
PARTS = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")
MAX_TOKENS = 1 << 40


def tokens(
    folder: str, session: str, transcript: str, model: str, budget: int, windows: Mapping[str, int]
) -> TokenUsage:
    """Return how full a session is, from its transcript, the status line's figures and the settings."""
    used, answer_model = last_usage(transcript) if transcript else (0, "")
    return usage(used, answer_model or model, budget, windows, stored_figures(folder, session) or {})


def last_usage(path: str, read: Callable[[int, int, int], bytes] = pread) -> tuple[int, str]:
    """Return tokens and model of the last answer in the main conversation; 0 and "" if the tail does not say.

    The client fires events before it writes the transcript: the figure may be one request old.
    """
    try:
        fd = open_fd(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)
    except (OSError, ValueError):
        return 0, ""
    try:
        status = fstat(fd)
        if not S_ISREG(status.st_mode):
            return 0, ""
        start, text = status.st_size, b""
        for length in STEPS:
            end, start = start, max(0, start - length)
            text = read(fd, end - start, start) + text
            figures = _latest(text, start == 0)
            if figures is not None:
                return figures
            if start == 0:
                return 0, ""
        return _cut_off(text[: text.find(b"\n")])
    except OSError:
        return 0, ""
    finally:
        close(fd)


def _latest(text: bytes, is_whole: bool) -> tuple[int, str] | None:
    end = len(text)
    while end > 0:
        start = text.rfind(b"\n", 0, end) + 1
        if start == 0 and not is_whole:
            return None
        figures = _of_line(text[start:end].strip())
        if figures is not None:
            return figures
        end = start - 1
    return None


def _of_line(line: bytes) -> tuple[int, str] | None:
    """Return tokens and model that one line of a transcript records; None if it records none."""
    is_answer = b'"usage"' in line and b'"assistant"' in line
    if not is_answer and b'"compact_boundary"' not in line:
        return None
    # A line that is being written has no end yet.
    if not line.startswith(b"{") or not line.endswith(b"}"):
        return None
    try:
        entry = loads(line)
    except ValueError:
        return None
    if not isinstance(entry, dict) or entry.get("isSidechain") is True:
        return None
    if entry.get("type") == "system" and entry.get("subtype") == "compact_boundary":
        metadata = entry.get("compactMetadata")
        after = metadata.get("postTokens") if isinstance(metadata, dict) else None
        return (after if type(after) is int and 0 <= after < MAX_TOKENS else 0), ""
    message = entry.get("message")
    if entry.get("type") != "assistant" or not isinstance(message, dict):
        return None
    model = message.get("model")
    used = _sum(message.get("usage"))
    if model == "<synthetic>" or not used:
        return None
    return used, model if isinstance(model, str) else ""


def _cut_off(line: bytes) -> tuple[int, str]:
    """Return the tokens of an answer too long to be read whole: its figures are at its end."""
    at = line.rfind(b'"usage":{')
    rest = line[at + 8 :]
    end = rest.find(b'"type":"assistant"')
    if at < 0 or end < 0 or b'"isSidechain":true' in rest:
        return 0, ""
    # Parse up to the brace that closes the figures.
    depth = 0
    for index, letter in enumerate(rest[:end]):
        depth += (letter == 0x7B) - (letter == 0x7D)
        if depth == 0:
            try:
                return _sum(loads(rest[: index + 1])), ""
            except ValueError:
                break
    return 0, ""


def _sum(counts: Any) -> int:
    if not isinstance(counts, dict):
        return 0
    used = sum(
        [number for number in [counts.get(part) for part in PARTS] if type(number) is int and 0 <= number < MAX_TOKENS]
    )
    return used if used < MAX_TOKENS else 0
