"""Send one request to a model, over HTTP or by a command of the user's, with limits of time and size; no retry."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from tempfile import TemporaryFile
from threading import Thread
from time import monotonic
from typing import Any, TypeVar
from urllib.parse import urlsplit

from keepfast.model.errors import Failed
from keepfast.resume.model_answer import SCHEMA
from keepfast.resume.model_prompt import FORM, INSTRUCTIONS

URL, MODEL, API = "https://api.anthropic.com", "claude-haiku-4-5", "2023-06-01"
MAX_ANSWER, MAX_KEY = 256 << 10, 4096
TOKENS = 1_500
TOOL = "notes"
LOOPBACK = ("127.0.0.1", "::1", "localhost")
PATH = "/usr/local/bin:/usr/bin:/bin"

Answer = TypeVar("Answer")


def anthropic(record: str, *, key: str, seconds: float, url: str = "", model: str = "") -> Any:
    """Return the model's answer about the record. Raises `Failed` with a sentence.

    The standard library's client knows nothing of proxies and addresses in the environment, which a repository's own
    client settings can write; a package would.
    """
    return _within(seconds, lambda: _posted(url or URL, key, _request(record, model or MODEL), seconds))


def command(record: str, words: list[str], *, home: str, seconds: float) -> Any:
    """Run the command with instructions and record on stdin; return the JSON that it prints. Raises `Failed`."""
    if not words:
        raise Failed("analysis.command is empty.", "Set it, or set analysis.llm to off.")
    end = monotonic() + seconds
    with TemporaryFile() as stdin_file:
        stdin_file.write(f"{INSTRUCTIONS}\n{FORM}\n\n{record}\n".encode("utf-8", "replace"))
        stdin_file.seek(0)
        try:
            process = subprocess.Popen(
                words,
                stdin=stdin_file,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={"HOME": home, "PATH": PATH, "LC_ALL": "C.UTF-8"},
                start_new_session=True,
            )
        except OSError as error:
            raise Failed(f"analysis.command cannot be started: {error.strerror}.", "Give its whole path.") from None
    assert process.stdout is not None
    try:
        output = _read(process.stdout.fileno(), end, seconds)
        try:
            code = process.wait(max(0.0, end - monotonic()))
        except subprocess.TimeoutExpired:
            raise _late(seconds) from None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.stdout.close()
        process.wait()
    if code:
        raise Failed(f"analysis.command ended with exit code {code}.")
    return _parsed(output)


def key_in(path: str) -> str:
    """Return the key in a file that only the user can read. Raises `Failed`."""
    if not path:
        raise Failed(
            "analysis.key_file is not set.", "Set it to a file that contains the key and that only you can read."
        )
    try:
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            text = file.read(MAX_KEY)
    except OSError as error:
        raise Failed(f"The key file {path} cannot be read: {error.strerror}.") from None
    if status.st_mode & 0o077:
        raise Failed(f"Other users can read the key file {path}.", f"Run `chmod 600 {path}`.")
    key = text.strip().decode("ascii", "replace")
    if not key or not key.isprintable() or " " in key:
        raise Failed(
            f"The key file {path} does not contain a valid key.", "Put nothing but the key in it, on one line."
        )
    return key


def _request(record: str, model: str) -> dict[str, Any]:
    """Return a forced call of one tool whose input is the answer: the model's own grammar ensures its form."""
    return {
        "model": model,
        "max_tokens": TOKENS,
        "system": INSTRUCTIONS,
        "tools": [{"name": TOOL, "description": "Record the notes.", "input_schema": SCHEMA}],
        "tool_choice": {"type": "tool", "name": TOOL},
        "messages": [{"role": "user", "content": record}],
    }


def _posted(url: str, key: str, request: dict[str, Any], seconds: float) -> Any:
    from http.client import HTTPConnection, HTTPException, HTTPSConnection

    place = urlsplit(url)
    if place.scheme == "http" and place.hostname not in LOOPBACK:
        raise Failed("analysis.url is not https.", "Conversations are sent encrypted only.")
    kind = HTTPConnection if place.scheme == "http" else HTTPSConnection
    connection = kind(place.hostname or "", place.port, timeout=seconds)
    headers = {"x-api-key": key, "anthropic-version": API, "content-type": "application/json"}
    try:
        connection.request("POST", place.path.rstrip("/") + "/v1/messages", json.dumps(request).encode(), headers)
        response = connection.getresponse()
        if response.status != 200:
            raise Failed(f"The model's endpoint answered {response.status}.")
        text = response.read(MAX_ANSWER + 1)
    except TimeoutError:
        raise _late(seconds) from None
    except (OSError, HTTPException) as error:
        raise Failed(f"The model's endpoint cannot be reached: {type(error).__name__}.") from None
    finally:
        connection.close()
    if len(text) > MAX_ANSWER:
        raise _large()
    return _called(_parsed(text))


def _called(message: Any) -> Any:
    """Return the input of the tool that the message calls."""
    blocks = message.get("content") if isinstance(message, dict) else None
    if isinstance(blocks, list) and message.get("stop_reason") != "max_tokens":
        for block in blocks:
            if isinstance(block, dict) and block.get("type") == "tool_use" and block.get("name") == TOOL:
                return block.get("input")
    raise Failed("The model's answer contains no notes.")


def _parsed(text: bytes) -> Any:
    """Return the JSON value; some programs put it between words or fences."""
    words = text.decode("utf-8", "replace")
    start, end = words.find("{"), words.rfind("}")
    try:
        return json.loads(words[start : end + 1])
    except (ValueError, RecursionError):
        raise Failed("The answer is not JSON.") from None


def _read(pipe: int, end: float, seconds: float) -> bytes:
    """Return everything up to the end of the stream."""
    parts: list[bytes] = []
    size = 0
    while True:
        ready, _, _ = select.select([pipe], [], [], max(0.0, end - monotonic()))
        if not ready:
            raise _late(seconds)
        part = os.read(pipe, 65536)
        if not part:
            return b"".join(parts)
        size += len(part)
        if size > MAX_ANSWER:
            raise _large()
        parts.append(part)


def _within(seconds: float, work: Callable[[], Answer]) -> Answer:
    """Return the result of the work; raise `Failed` after so many seconds in all: name lookups and slow bytes have no limit."""
    results: list[Answer] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)

    thread = Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not results:
        raise _late(seconds)
    return results[0]


def _late(seconds: float) -> Failed:
    return Failed(f"There was no answer within {seconds:g} s.", "analysis.timeout sets how long it may take.")


def _large() -> Failed:
    return Failed(f"The answer is larger than {MAX_ANSWER >> 10} KB.")
