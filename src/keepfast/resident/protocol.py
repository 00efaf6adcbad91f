"""What a hook's client and the resident send each other: requests, answers, and the bytes that carry them."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

MAGIC = b"KFR1"
"""Protocol and its version; also the first line of the lock file. `_native/client.c` has it, too."""
HEADER = struct.Struct("<4sIQ")
"""Magic, length of the head, length of the payload."""
MAX_HEAD_BYTES, MAX_PAYLOAD_BYTES = 1 << 20, 17 << 20
RECEIVED, ANSWERED, DECLINED = b"W", b"A", b"N"
FIXED_FIELDS = 3


OWN_WORDS = 5
"""Arguments before the words of the hook."""


class BadRequest(ValueError):
    """Bytes that are no request of this protocol."""


@dataclass(frozen=True)
class Request:
    """A call of the hook, as its client describes it."""

    event_id: str
    cwd: bytes
    arguments: list[str]
    """Launcher, program, home, configuration and data folder, then the words of the hook."""
    variables: Mapping[bytes, bytes]
    payload: bytes

    @property
    def program(self) -> str:
        """The `launch.py` of the installation that the client belongs to."""
        return self.arguments[1]

    @property
    def folders(self) -> tuple[str, str, str]:
        """Home, configuration and data folder."""
        return self.arguments[2], self.arguments[3], self.arguments[4]

    @property
    def words(self) -> list[str]:
        return self.arguments[OWN_WORDS:]


@dataclass(frozen=True)
class Answer:
    """What the hook writes, and its exit code."""

    code: int
    output: bytes = b""
    errors: bytes = b""


def encode_request(request: Request) -> bytes:
    arguments = b"\0".join([_to_bytes(word) for word in request.arguments])
    fields = [request.event_id.encode("ascii"), request.cwd, arguments]
    fields += [name + b"=" + value for name, value in request.variables.items()]
    head = struct.pack("<I", len(fields)) + b"".join([struct.pack("<I", len(field)) + field for field in fields])
    return HEADER.pack(MAGIC, len(head), len(request.payload)) + head + request.payload


def sizes(header: bytes) -> tuple[int, int]:
    """Return the lengths of head and payload. Raises `BadRequest`."""
    magic, head, payload = HEADER.unpack(header)
    if magic != MAGIC:
        raise BadRequest("not a request of this version")
    if head > MAX_HEAD_BYTES or payload > MAX_PAYLOAD_BYTES:
        raise BadRequest("the request is too large")
    return head, payload


def decode_request(head: bytes, payload: bytes) -> Request:
    """Return the request. Raises `BadRequest`."""
    fields = _fields(head)
    if len(fields) < FIXED_FIELDS:
        raise BadRequest("fields are missing")
    event_id, cwd, arguments = fields[:FIXED_FIELDS]
    words = [word.decode("utf-8", "surrogateescape") for word in arguments.split(b"\0")]
    if (
        len(words) < OWN_WORDS + 2
        or not all(word.startswith("/") for word in words[:OWN_WORDS])
        or not cwd.startswith(b"/")
    ):
        raise BadRequest("folders are missing")
    if not event_id.isalnum():
        raise BadRequest("the event has no id")
    variables = dict[bytes, bytes]()
    for field in fields[FIXED_FIELDS:]:
        name, _, value = field.partition(b"=")
        variables.setdefault(name, value)
    return Request(event_id.decode("ascii"), cwd, words, variables, payload)


def _fields(head: bytes) -> list[bytes]:
    try:
        (count,) = struct.unpack_from("<I", head)
        fields, at = [], 4
        for _ in range(count):
            (size,) = struct.unpack_from("<I", head, at)
            at += 4 + size
            if at > len(head):
                raise BadRequest("a field is cut off")
            fields.append(head[at - size : at])
    except struct.error:
        raise BadRequest("the head is cut off") from None
    if at != len(head):
        raise BadRequest("the head has trailing data")
    return fields


def encode_answer(answer: Answer) -> bytes:
    numbers = struct.pack("<III", answer.code, len(answer.output), len(answer.errors))
    return ANSWERED + numbers + answer.output + answer.errors


def decode_answer(data: bytes) -> Answer:
    """Return the answer in all bytes of a connection. Raises `BadRequest`, with the reason if it was declined."""
    data = data.removeprefix(RECEIVED)
    if data[:1] == DECLINED:
        raise BadRequest(data[5:].decode("utf-8", "replace"))
    if data[:1] != ANSWERED or len(data) < 13:
        raise BadRequest("no answer")
    code, output, errors = struct.unpack_from("<III", data, 1)
    if len(data) != 13 + output + errors:
        raise BadRequest("the answer is cut off")
    return Answer(code, data[13 : 13 + output], data[13 + output :])


def encode_refusal(reason: str) -> bytes:
    text = reason.encode("utf-8", "replace")
    return DECLINED + struct.pack("<I", len(text)) + text


def _to_bytes(word: str) -> bytes:
    return word.encode("utf-8", "surrogateescape")
