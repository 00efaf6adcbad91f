"""A scripted Messages API on loopback: every reply comes from the test, every request is kept for its claims."""

from __future__ import annotations

import itertools
import json
import re
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

USAGE = {
    "input_tokens": 12,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 1000,
    "output_tokens": 34,
}
ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    529: "overloaded_error",
}
KEPT_FROM_LOGS = {"authorization", "x-api-key"}
PIECE = 2000


def use(tool: str, **arguments: object) -> dict[str, Any]:
    """A call of one of the client's tools, as a block of a reply."""
    return {"type": "tool_use", "id": f"toolu_{uuid.uuid4().hex[:24]}", "name": tool, "input": arguments}


@dataclass(frozen=True)
class Reply:
    """What the model answers: text, then tool calls; or an error, or silence."""

    text: str = ""
    tools: tuple[dict[str, Any], ...] = ()
    usage: Mapping[str, int] = field(default_factory=dict)
    stop_reason: str = ""
    status: int = 200
    error: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    """`+60` becomes the time in 60 seconds (RFC 3339), `@+60` the same in seconds of the epoch."""
    delay: float = 0.0
    drop: Literal["", "before", "mid"] = ""
    """Close the connection instead of answering, or in the middle of the answer."""
    stream_error: Mapping[str, str] = field(default_factory=dict)


def say(text: str, **options: Any) -> Reply:
    return Reply(text=text, **options)


def call(*tools: dict[str, Any], **options: Any) -> Reply:
    return Reply(tools=tools, **options)


@dataclass
class Rule:
    """Replies for the requests that match; all given patterns must be found. The last reply does not repeat."""

    replies: list[Reply]
    last: str = ""
    """In the text of the last message."""
    first: str = ""
    """In the text of the first message: tells a subagent from the main conversation."""
    anywhere: str = ""
    endless: bool = False
    """Give the only reply to every request that matches."""

    def take(self, request: Request) -> Reply | None:
        if not self.replies or not self._matches(request):
            return None
        return self.replies[0] if self.endless else self.replies.pop(0)

    def _matches(self, request: Request) -> bool:
        messages = request.messages or [{}]
        places = (
            (self.last, text_of(messages[-1].get("content"))),
            (self.first, text_of(messages[0].get("content"))),
            (self.anywhere, request.raw),
        )
        return all(re.search(pattern, text, re.DOTALL) for pattern, text in places if pattern)


@dataclass(frozen=True)
class Request:
    """One request as it came in."""

    at: float
    method: str
    path: str
    headers: Mapping[str, str]
    raw: str
    body: Mapping[str, Any]

    @property
    def messages(self) -> list[dict[str, Any]]:
        return list(self.body.get("messages") or [])

    @property
    def is_main(self) -> bool:
        """A turn of a conversation with tools; titles, probes and summaries come without."""
        return self.path.startswith("/v1/messages") and bool(self.body.get("tools"))

    def texts(self) -> str:
        """Everything the model is shown in messages, without the system prompt."""
        return "\n".join(text_of(message.get("content")) for message in self.messages)


class Endpoint:
    """The server. `script` says what comes; `requests` is what came."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.usage: dict[str, int] = dict(USAGE)
        self.headers: dict[str, str] = {}
        self._lock = threading.Lock()
        self._rules: list[Rule] = []
        self._steps: Iterator[Reply] = itertools.repeat(say("Done."))
        bound = type("Bound", (_Connection,), {"endpoint": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), bound)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def script(self, *steps: Reply, rules: Iterable[Rule] = ()) -> None:
        """From now on: rules first, then one step per request with tools, then `Done.` for ever."""
        with self._lock:
            self._rules = list(rules)
            self._steps = itertools.chain(steps, itertools.repeat(say("Done.")))

    def main_requests(self) -> list[Request]:
        return [request for request in self.requests if request.is_main]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def record(self, request: Request) -> None:
        with self._lock:
            self.requests.append(request)

    def choose(self, request: Request) -> Reply:
        with self._lock:
            for rule in self._rules:
                reply = rule.take(request)
                if reply is not None:
                    return reply
            return next(self._steps) if request.is_main else say("ok")


def text_of(content: object) -> str:
    """All the text of a message's content, results of tools included."""
    if isinstance(content, str):
        return content
    found = []
    for block in content if isinstance(content, list) else []:
        if block.get("type") == "text":
            found.append(block.get("text", ""))
        elif block.get("type") == "tool_result":
            found.append(text_of(block.get("content")))
    return "\n".join(found)


def message_of(reply: Reply, model: str, usage: Mapping[str, int]) -> dict[str, Any]:
    content = [{"type": "text", "text": reply.text}] if reply.text else []
    return {
        "id": f"msg_{uuid.uuid4().hex[:24]}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [*content, *reply.tools],
        "stop_reason": reply.stop_reason or ("tool_use" if reply.tools else "end_turn"),
        "stop_sequence": None,
        "usage": {**usage, **reply.usage},
    }


def events_of(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A whole message as the events of a stream."""
    yield {
        "type": "message_start",
        "message": {**message, "content": [], "stop_reason": None, "usage": {**message["usage"], "output_tokens": 1}},
    }
    for index, block in enumerate(message["content"]):
        if block["type"] == "text":
            empty: dict[str, Any] = {"type": "text", "text": ""}
            deltas = [{"type": "text_delta", "text": piece} for piece in _pieces(block["text"])]
        else:
            empty = {**block, "input": {}}
            deltas = [
                {"type": "input_json_delta", "partial_json": piece} for piece in _pieces(json.dumps(block["input"]))
            ]
        yield {"type": "content_block_start", "index": index, "content_block": empty}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    yield {
        "type": "message_delta",
        "delta": {"stop_reason": message["stop_reason"], "stop_sequence": None},
        "usage": message["usage"],
    }
    yield {"type": "message_stop"}


def _pieces(text: str) -> Iterator[str]:
    size = max(PIECE, len(text) // 50)
    for at in range(0, len(text), size):
        yield text[at : at + size]


def _header(value: str) -> str:
    if re.fullmatch(r"@\+\d+", value):
        return str(int(time.time()) + int(value[2:]))
    if re.fullmatch(r"\+\d+", value):
        return (datetime.now(UTC) + timedelta(seconds=int(value[1:]))).strftime("%Y-%m-%dT%H:%M:%SZ")
    return value


class _Connection(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    endpoint: Endpoint

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing on the test's own streams."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        self.endpoint.record(self._request(""))
        if self.path == "/":
            self._send_json(200, {"ok": True})
        elif self.path.startswith("/v1/models"):
            self._send_json(200, {"data": [], "has_more": False, "first_id": None, "last_id": None})
        else:
            self._send_json(404, _error(404, self.path))

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length") or 0)).decode("utf-8", "replace")
        request = self._request(raw)
        self.endpoint.record(request)
        path = self.path.partition("?")[0]
        if path == "/v1/messages/count_tokens":
            self._send_json(200, {"input_tokens": max(1, len(raw) // 4)})
        elif path != "/v1/messages":
            self._send_json(404, _error(404, path))
        else:
            try:
                self._answer(self.endpoint.choose(request), request)
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True

    def _request(self, raw: str) -> Request:
        try:
            body = json.loads(raw) if raw else {}
        except ValueError:
            body = {}
        headers = {
            name.lower(): "…" if name.lower() in KEPT_FROM_LOGS else value for name, value in self.headers.items()
        }
        return Request(time.time(), self.command, self.path, headers, raw, body)

    def _answer(self, reply: Reply, request: Request) -> None:
        time.sleep(reply.delay)
        if reply.drop == "before":
            self.close_connection = True
            return
        if reply.status != 200:
            self._send_json(reply.status, _error(reply.status, "scripted", reply.error), reply.headers)
            return
        message = message_of(reply, str(request.body.get("model", "claude-test")), self.endpoint.usage)
        headers = {**self.endpoint.headers, **reply.headers}
        if not request.body.get("stream"):
            self._send_json(200, message, headers)
            return
        events = list(events_of(message))
        if reply.stream_error or reply.drop == "mid":
            events = events[: max(1, len(events) // 2)]
        if reply.stream_error:
            events.append({"type": "error", "error": dict(reply.stream_error)})
        self._send_stream(events, headers)
        if reply.drop == "mid":
            self.close_connection = True
        else:
            self._chunk(b"")

    def _send_stream(self, events: list[dict[str, Any]], headers: Mapping[str, str]) -> None:
        self._begin(200, {"content-type": "text/event-stream; charset=utf-8", "transfer-encoding": "chunked"}, headers)
        for event in events:
            self._chunk(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())

    def _chunk(self, piece: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        self.wfile.flush()

    def _send_json(self, status: int, value: object, headers: Mapping[str, str] | None = None) -> None:
        piece = json.dumps(value).encode()
        self._begin(status, {"content-type": "application/json", "content-length": str(len(piece))}, headers or {})
        if self.command != "HEAD":
            self.wfile.write(piece)

    def _begin(self, status: int, own: Mapping[str, str], headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in {**own, "request-id": f"req_{uuid.uuid4().hex[:24]}", **headers}.items():
            self.send_header(name, _header(value))
        self.end_headers()


def _error(status: int, message: str, more: Mapping[str, str] | None = None) -> dict[str, Any]:
    kind = ERROR_TYPES.get(status, "api_error")
    return {"type": "error", "error": {"type": kind, "message": message, **(more or {})}}
