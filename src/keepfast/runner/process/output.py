"""Readers of agents' output, one per kind of output: line by line into blocks, tools, usage, limits and errors."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import deque
from datetime import tzinfo
from glob import escape, glob
from typing import Any, NamedTuple

from keepfast.runner.domain.limits import (
    EVENT,
    SHORT,
    STATED,
    LimitHit,
    LimitNear,
    Window,
    read_error,
    read_event,
    read_rates,
    read_text,
    read_windows,
)
from keepfast.runner.domain.protocol import TOOL, Block, Malformed, Reader, check
from keepfast.runner.process.redaction import clean_text
from keepfast.secrets.cuts import head

MESSAGES, SHOWN = 200, 4_000
"""Messages of a run that are kept for its documents, and characters of each."""
LAST_MESSAGE = 2_000
REPORTS, WORDS = 1_000, 500
"""Progress reports that are kept of a run, and characters of each of their texts."""
BURST = 5 * 1_000_000_000
"""Lines of a command that are written within this many nanoseconds of each other are one message."""
CLIENT_ERRORS = ("No conversation found", "already in use")


class OpenCall(NamedTuple):
    """A tool call that has no result yet."""

    name: str
    what: str


class Figure(NamedTuple):
    """The use of the context window after a request: tokens, and the window's size if the agent reports it."""

    used: int
    model: str = ""
    window: int = 0


class Message(NamedTuple):
    """A message of a run."""

    role: str
    content: str
    type: str
    """log, protocol or error."""
    at: int
    """When it was written, in nanoseconds; 0 if unknown."""
    step: str
    tool: bool
    """Whether it is a tool call."""


class ProgressReport(NamedTuple):
    """One progress report of the agent."""

    step: str | None
    percent: float | None
    message: str | None


class Output(ABC):
    """The state of reading a run's output; the base class of all readers."""

    def __init__(self, now: float, zone: tzinfo) -> None:
        self.now, self.zone = now, zone
        self.at = 0
        """When the current line was written, in nanoseconds; 0 if unknown."""
        self.blocks: list[Block | Malformed] = []
        self.messages: deque[Message] = deque(maxlen=MESSAGES)
        self.count = 0
        self.tools: dict[str, OpenCall] = {}
        self.limit: LimitHit | None = None
        self.limit_near: LimitNear | None = None
        self.retrying = ""
        self.session = ""
        self.began = False
        self.tokens, self.money = 0, 0.0
        self.figures: list[Figure] = []
        """One for each request of the main conversation, in order."""
        self.windows: dict[str, Window] = {}
        """The use of the account's windows, as far as the client reports it."""
        self.error = self.error_text = ""
        self.failed = self.succeeded = False
        """The last result that the client reported; both are False before the first."""
        self.is_over = True
        """The agent is not in the middle of a turn; always True for agents that do not report turns."""
        self.denials: list[str] = []
        self.step, self.fraction = "", 0.0
        self.reports: list[ProgressReport] = []
        """The agent's progress reports, in order."""
        self.stated: list[Block] = []
        """Errors that count as limits."""
        self.lines = 0
        self._malformed_count = 0

    def feed(self, line: bytes) -> None:
        """Take a line of standard output. Never raises, whatever it holds."""
        self.lines += 1
        try:
            self._feed(line)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            self._malformed_count += 1

    @abstractmethod
    def _feed(self, line: bytes) -> None:
        """Take a line; may raise whatever a line of the wrong shape raises."""

    def feed_error(self, line: bytes) -> None:
        """Take a line of standard error. Most clients write nothing there that counts."""
        return

    def words(self) -> list[Block | Malformed]:
        """Return the agent's blocks as if its output ended here."""
        return self.blocks

    def close(self, exit_code: int | None) -> None:
        """End the output: the process exited with this code, None if unknown."""
        for block in self.blocks:
            # An error block that reports a limit counts as the limit: wrappers of other clients send one.
            if self.limit is None and isinstance(block, Block) and block.name == "ERROR":
                text = "\n".join([block.fields["message"], block.fields.get("details", "")])
                limit = read_text(text, self.now, self.zone, STATED)
                if limit is not None and block.fields["type"] == "recoverable":
                    self.limit = limit._replace(raw=head(block.fields["message"].strip(), 500))
                    self.blocks = [one for one in self.blocks if one is not block]
                    self.stated.append(block)
                    return

    def feed_transcript(self, line: bytes) -> None:
        """Take a line of the client's own transcript. Most clients have none that counts."""
        return

    def feed_call(self, line: bytes) -> None:
        """Take a line of the tools' journal: a call of one of our tools."""
        try:
            call = json.loads(line)
            block = check(call["name"], dict(call["fields"]), dict(call.get("lists", {})))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return
        self._take_block(block)

    def feed_failure(self, line: bytes) -> None:
        """Take the input of the client's StopFailure hook."""
        try:
            facts = json.loads(line)
            kind, details = str(facts.get("error", "")), str(facts.get("error_details", ""))
            message = str(facts.get("last_assistant_message", ""))
            aside = bool(facts.get("agent_id"))
        except (ValueError, TypeError, AttributeError, RecursionError):
            return
        if aside or self.succeeded:
            return  # a subagent's or a compaction's failure, or one that the client recovered from
        if self.limit is None and self.failed:
            self.limit = read_error(kind, details, message, self.now, self.zone)
        if not self.error:
            self.error, self.error_text = kind, self.error_text or message or details

    def _take_block(self, block: Block | Malformed) -> None:
        if isinstance(block, Block) and block.name == "PROGRESS":
            self.step = block.fields.get("step", self.step)
            percent = block.fields.get("percent", "").rstrip("%")
            if percent.replace(".", "", 1).isdigit():
                self.fraction = min(float(percent) / 100, 1.0)
            self._report(block)
            return
        if block not in self.blocks:
            self.blocks.append(block)

    def _report(self, block: Block) -> None:
        step, message = [head(block.fields.get(name, ""), WORDS) or None for name in ("step", "message")]
        percent = round(100 * self.fraction, 1) if block.fields.get("percent") else None
        report = ProgressReport(step, percent, message)
        if len(self.reports) < REPORTS and report not in self.reports[-1:]:
            self.reports.append(report)

    def _add_message(self, role: str, content: str, kind: str = "log", tool: bool = False) -> None:
        self.count += 1
        if len(content) > SHOWN:
            content = clean_text(content)[:SHOWN]  # redacted first: half a key would not be recognised
        self.messages.append(Message(role, content, kind, self.at, self.step, tool))

    def _read(self, text: str) -> str:
        """Take the blocks of a whole message; return the message's type."""
        reader = Reader()
        blocks = reader.feed(text) + reader.close()
        for block in blocks:
            self._take_block(block)
        return "protocol" if blocks else "log"

    def last_message(self) -> str:
        for message in reversed(self.messages):
            if message.role == "assistant" and not message.tool:
                return message.content[-LAST_MESSAGE:]
        return ""


class ClaudeOutput(Output):
    """Reader of Claude Code's stream-json. Only the client's own messages are searched for limits."""

    def __init__(self, now: float, zone: tzinfo) -> None:
        super().__init__(now, zone)
        self._rejected: LimitHit | None = None
        self._counted: dict[str, int] = {}
        """Tokens of each message of this run."""
        self._written: dict[str, int] = {}
        """The same from the transcript, which has earlier runs as well."""
        self._summed = 0
        self._progressed = False
        """Progress was reported by a tool call, and taken from its place among the messages."""
        self._measured: object = None

    def _feed(self, line: bytes) -> None:
        event = json.loads(line)
        kind = event.get("type")
        if kind in ("system", "assistant", "user", "result"):
            self.is_over = kind == "result"
        if kind == "system":
            self._system(event)
        elif kind == "assistant":
            self._assistant(event)
        elif kind == "user":
            self._user(event)
        elif kind == "rate_limit_event":
            self.windows.update(read_windows(event["rate_limit_info"]))
            limit = read_event(event["rate_limit_info"], self.now)
            if isinstance(limit, LimitHit):
                self._rejected = limit
            elif isinstance(limit, LimitNear):
                self.limit_near = limit
        elif kind == "result":
            self._result(event)

    def feed_error(self, line: bytes) -> None:
        text = line.decode("utf-8", "replace").strip()
        if text and not self.error_text:
            self.error_text = head(text, 500)

    def feed_transcript(self, line: bytes) -> None:
        # The stream reports a message before its end, with a few of its output tokens. The transcript has all of them.
        if b'"output_tokens"' not in line:
            return
        try:
            event = json.loads(line)
            message = event["message"] if event.get("type") == "assistant" else {}
            id, tokens = str(message["id"]), _tokens(message.get("usage") or {})
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return
        self._written[id] = max(tokens, self._written.get(id, 0))
        if id in self._counted:
            self._count(id, tokens)

    def close(self, exit_code: int | None) -> None:
        if exit_code != 0 and self.limit is None and self._rejected is not None and self.lines and not self.error:
            self.limit = self._rejected  # rejected, and then it ended without a result
        super().close(exit_code)

    def _system(self, event: dict[str, Any]) -> None:
        if event.get("subtype") == "init":
            self.began = True
            self.session = str(event.get("session_id") or self.session)
        elif event.get("subtype") == "api_retry":
            self.retrying = f"{event.get('error')} ({event.get('attempt')} of {event.get('max_retries')})"

    def _assistant(self, event: dict[str, Any]) -> None:
        message = event["message"]
        texts = [part["text"] for part in message["content"] if part.get("type") == "text"]
        if event.get("error") or event.get("is_api_error_message") or message.get("model") == "<synthetic>":
            self.error = str(event.get("error") or "")
            self.error_text = head("\n".join(texts), 500)
            self._add_message("system", self.error_text, "error")
            return
        self.retrying = ""
        id = str(message.get("id"))
        self._count(id, max(_tokens(message.get("usage") or {}), self._written.get(id, 0)))
        if not event.get("parent_tool_use_id"):
            self._measure(message)
        for part in message["content"]:
            if part.get("type") == "tool_use":
                self._use(str(part["id"]), str(part["name"]), part.get("input"))
        if event.get("parent_tool_use_id"):
            return  # a subagent's text is for its agent, not for us
        for text in texts:
            self._add_message("assistant", text, self._read(text))

    def _use(self, id: str, name: str, arguments: object) -> None:
        """Take a tool call. Calls of our tools count once they are in the journal, except for progress, which counts at once."""
        self.tools[id] = OpenCall(name, _summary(arguments))
        if name == f"{TOOL}report_progress" and isinstance(arguments, dict):
            fields = {key: str(arguments[key]) for key in ("step", "percent") if arguments.get(key) is not None}
            self._take_block(check("PROGRESS", fields, {}))
            self._progressed = True
        self._add_message(
            "assistant", f"{name} {_summary(arguments)}", "protocol" if name.startswith(TOOL) else "log", tool=True
        )

    def feed_call(self, line: bytes) -> None:
        before, reported = (self.step, self.fraction), len(self.reports)
        super().feed_call(line)
        if self._progressed and b'"PROGRESS"' in line:
            self.step, self.fraction = before  # the journal is read after the messages: later progress stays
            del self.reports[reported:]

    def _user(self, event: dict[str, Any]) -> None:
        content = event["message"]["content"]
        if isinstance(content, str):
            self._add_message("user", content)
            return
        for part in content:
            if part.get("type") == "tool_result":
                self.tools.pop(str(part.get("tool_use_id")), None)

    def _count(self, id: str, tokens: int) -> None:
        """Count the tokens of a message. It comes in several lines, and its figures only rise."""
        more = max(tokens - self._counted.setdefault(id, 0), 0)
        self._counted[id] += more
        self._summed += more
        self.tokens = max(self.tokens, self._summed)

    def _measure(self, message: dict[str, Any]) -> None:
        """Record the context use after a message. It comes in several lines; the last one has the whole length."""
        usage = message.get("usage") or {}
        used = _tokens(usage) + int(usage.get("cache_read_input_tokens") or 0)
        if not used:
            return
        if self._measured == message.get("id") and self.figures:
            self.figures.pop()
        self._measured = message.get("id")
        self.figures.append(Figure(used, str(message.get("model") or "")))

    def _result(self, event: dict[str, Any]) -> None:
        # A process may report several results; the last one counts.
        self.failed = bool(event.get("is_error"))
        self.succeeded = not self.failed
        self.money = float(event.get("total_cost_usd") or self.money)
        if isinstance(event.get("usage"), dict):
            self.tokens = max(self.tokens, _tokens(event["usage"]))
        self.denials = [str(one.get("tool_name")) for one in event.get("permission_denials") or []]
        if not self.failed:
            self.error = self.error_text = ""
            self.limit = self._rejected = None
            return
        text = str(event.get("result") or self.error_text)
        self.error_text = head(text, 500)
        reason = str(event.get("terminal_reason") or "")
        if reason == "prompt_too_long" or text.casefold().startswith("prompt is too long"):
            self.error = "prompt_too_long"
        elif "No conversation found" in text:
            self.error = reason or "no_conversation"
        if self._rejected is not None:
            self.limit = self._rejected
        elif event.get("api_error_status") in (429, 529) or self.error in ("rate_limit", "billing_error"):
            limit = read_text(text, self.now, self.zone)
            self.limit = limit or LimitHit(SHORT, None, EVENT, head(text, 500))
        elif self.error in ("overloaded", "server_error"):
            self.limit = read_text(text, self.now, self.zone)


class PlainOutput(Output):
    """Reader of any other agent's output: text with blocks, or the lines of `codex exec --json`."""

    def __init__(self, now: float, zone: tzinfo) -> None:
        super().__init__(now, zone)
        self._reader = Reader()
        self._errors: deque[str] = deque(maxlen=5)
        self._is_codex = False
        """Failure lines of Codex count only after a `thread.started` line: any agent can print such a line."""

    def _feed(self, line: bytes) -> None:
        self.began = True
        if line.startswith(b'{"type":') and line.rstrip().endswith(b"}"):
            try:
                event = json.loads(line)
            except (ValueError, RecursionError):
                event = None
            if isinstance(event, dict) and self._event(event):
                return
        text = line.decode("utf-8", "replace").rstrip("\n")
        blocks = self._reader.feed(text + "\n")
        for block in blocks:
            self._take_block(block)
        self._add_message("assistant", text, "protocol" if self._belongs(text, blocks) else "log")

    def _belongs(self, line: str, blocks: list[Block | Malformed]) -> bool:
        """Return whether a line is part of a block, or of a marker with its notes."""
        if self._reader.is_within or not blocks:
            return self._reader.is_within
        if blocks[-1].name in ("PHASE_COMPLETE", "CUSTOM_TASK_COMPLETE"):
            return (
                line.strip().lower().startswith("ready for review")
            )  # any other line only showed that the notes are over
        if blocks[-1].name == "ERROR":  # a one-line error may end only with the following line
            return "[/ERROR" in line or line.lstrip().startswith("[ERROR")
        return True

    def feed_error(self, line: bytes) -> None:
        text = line.decode("utf-8", "replace").strip()
        if text:
            self._errors.append(head(text, 2000))

    def close(self, exit_code: int | None) -> None:
        for block in self._reader.close():
            self._take_block(block)
        if exit_code not in (0, None):
            # Only the last lines of a program that failed give its reason.
            for text in reversed(self._errors):
                if self.limit is None:
                    self.limit = read_text(text, self.now, self.zone)
            if self._errors and not self.error_text:
                self.error_text = head(self._errors[-1], 500)
        elif exit_code == 0:
            self.limit = None
        super().close(exit_code)

    def words(self) -> list[Block | Malformed]:
        return [*self.blocks, *self._reader.peek()]

    def last_message(self) -> str:
        """Return the last lines that were written together and are not protocol; if there are none, the last protocol lines."""
        messages = [one for one in self.messages if one.role == "assistant" and one.content.strip()]
        for kind in ("log", "protocol"):
            lines: list[str] = []
            earliest = 0
            for message in reversed(messages):
                if message.type != kind or (earliest and message.at and earliest - message.at > BURST):
                    if lines:
                        break
                    continue
                lines.append(message.content)
                earliest = message.at
            if lines:
                return "\n".join(reversed(lines))[-LAST_MESSAGE:]
        return ""

    def _event(self, event: dict[str, Any]) -> bool:
        """Take a line of `codex exec --json`; return False if it is not one."""
        kind = str(event.get("type"))
        if kind.startswith(("thread.", "turn.", "item.")):
            self.is_over = kind in ("turn.completed", "turn.failed")
        if kind in ("error", "turn.failed") and not self._is_codex:
            return False
        take = _CODEX.get(kind)
        if take is not None:
            take(self, event)
        return take is not None

    def _thread(self, event: dict[str, Any]) -> None:
        self._is_codex = True
        self._begun(event)

    def _begun(self, event: dict[str, Any]) -> None:
        self.session = str(event.get("thread_id") or self.session)

    def _item(self, event: dict[str, Any]) -> None:
        item = event.get("item") or {}
        if item.get("type") == "agent_message":
            text = str(item.get("text", ""))
            self._add_message("assistant", text, self._read(text))

    def _turn(self, event: dict[str, Any]) -> None:
        usage = event.get("usage") or {}
        self.tokens += int(usage.get("input_tokens") or 0) - int(usage.get("cached_input_tokens") or 0)
        self.tokens += int(usage.get("output_tokens") or 0)
        self.failed, self.limit = False, None

    def _failure(self, event: dict[str, Any]) -> None:
        self.failed = True
        error = event.get("error")
        text = str(event.get("message") or (error.get("message") if isinstance(error, dict) else error) or "")
        self.error_text = head(text, 500)
        self.limit = read_text(text, self.now, self.zone, EVENT) or self.limit

    def _figures(self, event: dict[str, Any]) -> None:
        rates = event.get("rate_limits")
        if isinstance(rates, dict):
            self.limit_near = read_rates(rates, self.now)
            self.windows.update(read_windows(rates))
        self._measure(event.get("info"))

    def _measure(self, info: object) -> None:
        last = info.get("last_token_usage") if isinstance(info, dict) else None
        if isinstance(info, dict) and isinstance(last, dict) and last.get("total_tokens"):
            self.figures.append(Figure(int(last["total_tokens"]), window=int(info.get("model_context_window") or 0)))


_CODEX = {
    "thread.started": PlainOutput._thread, "turn.started": PlainOutput._begun, "item.started": PlainOutput._begun,
    "item.updated": PlainOutput._begun, "item.completed": PlainOutput._item, "turn.completed": PlainOutput._turn,
    "error": PlainOutput._failure, "turn.failed": PlainOutput._failure, "token_count": PlainOutput._figures,
}  # fmt: skip
"""The method for each kind of line of Codex."""


def _tokens(usage: dict[str, Any]) -> int:
    """Return the tokens that count against a budget: all but those read from the cache."""
    names = ("input_tokens", "cache_creation_input_tokens", "output_tokens")
    return sum(int(usage.get(name) or 0) for name in names)


def _summary(arguments: object) -> str:
    if not isinstance(arguments, dict):
        return ""
    for key in ("command", "file_path", "path", "pattern", "url", "description", "prompt"):
        if isinstance(arguments.get(key), str):
            return head(str(arguments[key]), 300)
    return head(json.dumps(arguments, ensure_ascii=False), 300)


class Transcripts:
    """Follows the client's transcript of a session and those of its subagents."""

    def __init__(self) -> None:
        self._tails: dict[str, Tail] = {}

    @property
    def is_known(self) -> bool:
        return bool(self._tails)

    def read(self, path: str, output: Output) -> None:
        """Feed new lines to the output; an empty `path` means the previous one."""
        path = path or next(iter(self._tails), "")
        if not path:
            return
        for transcript in (path, *sorted(glob(f"{escape(path.removesuffix('.jsonl'))}/subagents/*.jsonl"))):
            tail = self._tails.setdefault(transcript, Tail(transcript))
            while lines := tail.lines():
                for line in lines:
                    output.feed_transcript(line)


class Tail:
    """Reads whole lines of a growing file, from an offset on."""

    def __init__(self, path: str, offset: int = 0) -> None:
        self.path, self.offset = path, offset
        self._starts: list[int] = []
        self._times: list[int] = []
        self._noted = 0

    def timed_lines(self) -> list[tuple[bytes, int]]:
        """Return new lines, each with the time when it was written, 0 if unknown."""
        offset, lines = self.offset, self.lines()
        if lines:
            self._read_times()
        timed = []
        for line in lines:
            place = bisect_right(self._starts, offset) - 1
            timed.append((line, self._times[place] if place >= 0 else 0))
            offset += len(line) + 1
        return timed

    def _read_times(self) -> None:
        try:
            with open(self.path + ".times", "rb") as file:
                file.seek(self._noted)
                whole, newline, _ = file.read().rpartition(b"\n")
        except OSError:
            return
        self._noted += len(whole) + len(newline)
        for line in whole.splitlines():
            start, _, at = line.partition(b" ")
            if start.isdigit() and at.isdigit():
                self._starts.append(int(start))
                self._times.append(int(at))

    def lines(self, most: int = 4 << 20) -> list[bytes]:
        """Return new whole lines; an unfinished line stays for later."""
        try:
            with open(self.path, "rb") as file:
                file.seek(self.offset)
                part = file.read(most)
        except OSError:
            return []
        end = part.rfind(b"\n") + 1
        if not end:
            if len(part) == most:  # too long to be a line of ours: skip it
                self.offset += most
            return []
        self.offset += end
        return part[:end].split(b"\n")[:-1]
