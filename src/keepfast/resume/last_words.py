"""The agent's last words, from at most 256 KB at the end of a transcript."""

from __future__ import annotations

from os.path import isfile

from keepfast.model.strict_json import loads

TAIL_BYTES = 256 << 10


def last_words(path: str) -> str:
    """Return the agent's last text in the main conversation; empty if the tail has none, or cannot be read."""
    if not isfile(path):
        return ""  # reading a pipe could block for ever
    try:
        with open(path, "rb") as file:
            file.seek(max(0, file.seek(0, 2) - TAIL_BYTES))
            lines = file.read(TAIL_BYTES).split(b"\n")
    except OSError:
        return ""
    return next((text for line in reversed(lines) if (text := _answer_text(line))), "")


def _answer_text(line: bytes) -> str:
    if b'"assistant"' not in line or b'"text"' not in line:
        return ""
    try:
        entry = loads(line)
    except ValueError:
        return ""  # its beginning was not read, or its end is not written yet
    message = entry.get("message") if isinstance(entry, dict) else None
    if not isinstance(message, dict) or entry.get("type") != "assistant" or entry.get("isSidechain") is True:
        return ""
    content = message.get("content")
    texts = [block.get("text") for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    return "\n".join([text for text in texts if isinstance(text, str)]).strip()
