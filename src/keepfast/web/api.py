"""Operations of the HTTP API: how their input is checked, and their OpenAPI document."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from keepfast import __version__
from keepfast.model.errors import Usage
from keepfast.web.queries import Backend

Values = dict[str, Any]

WORKSPACE = {"type": "string", "pattern": "^[0-9a-f]{32}$"}
REFERENCE = {"type": "string", "minLength": 1, "maxLength": 200, "description": "v5, an id, a name, latest, @~2, @{2h}"}
TASK = {"type": "string", "pattern": "^task_[0-9a-f]{10}$"}
PROMPT = {"type": "string", "minLength": 1, "maxLength": 80, "pattern": "^[A-Za-z0-9_:.-]+$"}
NAMED = (("workspace", WORKSPACE), ("reference", REFERENCE), ("task", TASK), ("prompt", PROMPT))
"""The parameters of paths."""


class Operation(NamedTuple):
    """One operation. Parameters in `needed` are required."""

    method: str
    path: str
    id: str
    summary: str
    role: str
    run: Callable[[Backend, Values], Any]
    query: Mapping[str, Any] = {}
    body: Mapping[str, Any] = {}
    needed: tuple[str, ...] = ()
    answers: str = "object"
    """The type of the answer's `data`: object or array."""

    @property
    def changes(self) -> bool:
        return self.method != "GET" and not self.id.startswith("preview")


def read_values(operation: Operation, parts: Mapping[str, str], query: bytes, body: bytes) -> Values:
    """Return all checked parameters of a request. Raises `Usage` that names the invalid one."""
    values: dict[str, Any] = dict(parts)
    parameters = dict(parse_qsl(query.decode("ascii", "replace"), keep_blank_values=True, errors="surrogateescape"))
    for name, text in parameters.items():
        if name not in operation.query:
            raise Usage(f"Unknown parameter {name[:40]}.", f"Allowed: {', '.join(operation.query) or 'none'}.")
        values[name] = READ.get(operation.query[name]["type"], str)(text)
    if operation.body:
        try:
            sent = json.loads(body or b"{}")
        except (ValueError, RecursionError):
            raise Usage("The body is not JSON.") from None
        if not isinstance(sent, dict):
            raise Usage("The body must be a JSON object.")
        for name, value in sent.items():
            if name not in operation.body:
                raise Usage(f"Unknown field {name[:40]}.", f"Allowed: {', '.join(operation.body)}.")
            values[name] = value
    return checked(operation, values)


def checked(operation: Operation, values: Values) -> Values:
    schemas = {**_of_path(operation.path), **operation.query, **operation.body}
    for name, schema in schemas.items():
        if name in values:
            _check(name, values[name], schema)
        elif "default" in schema:
            values[name] = schema["default"]
        elif name in operation.needed:
            raise Usage(f"{name} is missing.")
    return values


def _flag(text: str) -> bool | str:
    return {"true": True, "false": False}.get(text, text)


def _number(text: str) -> int | str:
    return int(text) if text.lstrip("-").isdecimal() and len(text) < 20 and text.isascii() else text


READ: dict[str, Callable[[str], Any]] = {"integer": _number, "boolean": _flag}
"""How values in a query string are read, by type; all others are text."""

TYPES: dict[str, Any] = {
    "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,), "array": (list,), "object": (dict,),
}  # fmt: skip


def _check(name: str, value: Any, schema: Mapping[str, Any]) -> None:
    """Check a value against the part of JSON Schema that operations use."""
    kind = schema["type"]
    if not isinstance(value, TYPES[kind]) or (kind in ("integer", "number") and isinstance(value, bool)):
        raise Usage(f"{name} must be of type {kind}.")
    if "enum" in schema and value not in schema["enum"]:
        raise Usage(f"{name} must be one of {', '.join(schema['enum'])}.")
    if kind in CHECKS:
        CHECKS[kind](name, value, schema)


def _check_number(name: str, value: float, schema: Mapping[str, Any]) -> None:
    if not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        raise Usage(f"{name} must be between {schema['minimum']} and {schema['maximum']}.")


def _check_text(name: str, value: str, schema: Mapping[str, Any]) -> None:
    if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
        raise Usage(f"{name} must have {schema.get('minLength', 0)} to {schema.get('maxLength')} characters.")
    if "pattern" in schema and re.search(schema["pattern"].replace("$", r"\Z"), value) is None:
        raise Usage(f"{name} has an invalid format.")


def _check_list(name: str, value: list[Any], schema: Mapping[str, Any]) -> None:
    if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
        raise Usage(f"{name} must have {schema.get('minItems', 0)} to {schema.get('maxItems')} entries.")
    for item in value:
        _check(name, item, schema["items"])


def _check_object(name: str, value: dict[str, Any], schema: Mapping[str, Any]) -> None:
    if schema.get("additionalProperties") is not False:
        return
    for field in schema.get("required", ()):
        if field not in value:
            raise Usage(f"{name}: {field} is missing.")
    for field, part in value.items():
        if field not in schema["properties"]:
            raise Usage(f"{name}: unknown field {field[:40]}.")
        _check(f"{name}: {field}", part, schema["properties"][field])


CHECKS: dict[str, Callable[[str, Any, Mapping[str, Any]], None]] = {
    "integer": _check_number, "number": _check_number, "string": _check_text, "array": _check_list, "object": _check_object,
}  # fmt: skip
"""Further checks by type; booleans need none."""


def as_path(text: str) -> bytes:
    """Return the bytes of a path as the API writes it. Raises `Usage`."""
    if text.startswith("base64:"):
        try:
            path = base64.b64decode(text[7:], validate=True)
        except (binascii.Error, ValueError):
            raise Usage("path is not valid base64.") from None
    else:
        path = text.encode("utf-8", "surrogateescape") if text.isprintable() or text else b""
    parts = path.split(b"/")
    if b"\0" in path or path.startswith(b"/") or b".." in parts or b"." in parts or b"" in parts:
        raise Usage("path must be relative, without empty parts, `.` or `..`.")
    return path


def as_text(path: bytes) -> str:
    """Return a path as the API writes it."""
    try:
        return path.decode("utf-8")
    except UnicodeDecodeError:
        return "base64:" + base64.b64encode(path).decode("ascii")


def _of_path(path: str) -> dict[str, Any]:
    return {name: schema for name, schema in NAMED if f"{{{name}}}" in path}


# The document

ERRORS = {
    "400": "Invalid request; see `error`.",
    "401": "Not signed in.",
    "403": "The role is not sufficient, or the request came from another site.",
    "404": "The workspace, checkpoint, task or path does not exist.",
    "409": "Conflict, such as unsaved work, a pin, another restore, or an outdated preview.",
    "413": "The request is too large.",
    "429": "Too many requests.",
    "500": "Stored data is damaged, or the store cannot be reached.",
    "503": "Busy; try again.",
}


def document(operations: Sequence[Operation]) -> dict[str, Any]:
    """Return the OpenAPI document of the operations."""
    paths: dict[str, Any] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _described(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "keepfast",
            "version": __version__,
            "description": "Checkpoints of coding agents' workspaces.",
        },
        "paths": paths,
        "security": [{"session": []}],
        "components": {
            "securitySchemes": {"session": {"type": "http", "scheme": "bearer"}},
            "schemas": {
                "Error": {
                    "type": "object",
                    "required": ["success", "error"],
                    "properties": {
                        "success": {"const": False},
                        "error": {"type": "string"},
                        "kind": {"type": "string"},
                        "hint": {"type": "string"},
                    },
                }
            },
        },
    }


def _described(operation: Operation) -> dict[str, Any]:
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    shape = {"success": {"const": True}, "data": {"type": operation.answers}}
    answer = {"type": "object", "required": ["success", "data"], "properties": shape}
    described: dict[str, Any] = {
        "operationId": operation.id,
        "summary": operation.summary,
        "description": f"Role: {operation.role}.",
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": schema}
            for name, schema in _of_path(operation.path).items()
        ]
        + [
            {"name": name, "in": "query", "required": name in operation.needed, "schema": schema}
            for name, schema in operation.query.items()
        ],
        "responses": {
            "200": {"description": "Success.", "content": {"application/json": {"schema": answer}}},
            **{code: {"description": text, "content": error} for code, text in ERRORS.items()},
        },
    }
    if operation.body:
        schema = {"type": "object", "properties": dict(operation.body), "additionalProperties": False}
        if operation.needed:
            schema["required"] = list(operation.needed)
        described["requestBody"] = {
            "required": bool(operation.needed),
            "content": {"application/json": {"schema": schema}},
        }
    return described
