"""The request for a page, the page as a template with values, and the routes' common parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode

from keepfast.web.api import as_path
from keepfast.web.doctor import DoctorCheck
from keepfast.web.queries import Backend
from keepfast.web.sessions import Visitor, WebDatabase
from keepfast.web.translation import Words
from keepfast.web.views import PathView, SearchHit

Fields = Mapping[str, str]


class PageRequest(NamedTuple):
    """A request for a page: parameters, visitor and language."""

    backend: Backend
    database: WebDatabase
    parts: Mapping[str, str]
    fields: Fields
    visitor: Visitor
    words: Words
    doctor: Callable[[], list[DoctorCheck]] = list
    home: str = ""

    @property
    def workspace(self) -> str:
        return self.parts["workspace"]

    def folder(self, name: str) -> str:
        """Return a folder that a visitor typed, with `~` replaced by the home folder."""
        text = self.fields.get(name, "").strip()
        return self.home + text[1:] if self.home and (text == "~" or text.startswith("~/")) else text

    def path(self) -> bytes:
        return as_path(self.fields["path"]) if self.fields.get("path") else b""


class Page(NamedTuple):
    """A template and its values; or, after an action, the address to redirect to."""

    template: str = ""
    values: Mapping[str, Any] = {}
    goto: str = ""


class Route(NamedTuple):
    method: str
    path: str
    role: str
    run: Callable[[PageRequest], Page]


def link(path: str, /, **fields: object) -> str:
    """Return an address with a query string; empty fields are left out."""
    query = {name: str(value) for name, value in fields.items() if value}
    return f"{path}?{urlencode(query, errors='surrogateescape')}" if query else path


def path_of(row: Mapping[str, str] | PathView | SearchHit) -> str:
    """Return the path of a row as a field of an address, in the form that also names which are not UTF-8 have.

    Plain text: what a template's macro returns is escaped already.
    """
    if isinstance(row, Mapping):
        return f"base64:{row['path_base64']}" if "path_base64" in row else row["path"]
    return f"base64:{row.path_base64}" if row.path_base64 else row.path or ""


def fields_of(query: bytes) -> dict[str, str]:
    return dict(parse_qsl(query.decode("ascii", "replace"), keep_blank_values=True, errors="surrogateescape"))


def number(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 16 else 0
