"""Who may: every request passes here, and leaves with headers that let a browser do nothing but show it."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from ipaddress import IPv6Address, ip_address
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from holdfast.frontends.web.book import Book, Visitor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

READING, CHANGING = frozenset({"GET", "HEAD"}), frozenset({"POST", "PATCH", "DELETE"})
FORM, JSON = "application/x-www-form-urlencoded", "application/json"
MOST_BODY, BODY_SECONDS = 1 << 20, 15
MOST_AT_ONCE, PER_SECOND, BURST = 200, 50.0, 300.0
WRONG_PER_MINUTE = 10
COOKIE = "holdfast_session"
TOKEN_HEADER, TOKEN_FIELD = "x-holdfast-token", "_token"
ONCE = frozenset({"host", "origin", "authorization", "content-length", "content-type", TOKEN_HEADER})
"""Headers that decide about access: one that comes twice is none at all."""

HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
    " connect-src 'self'; font-src 'self'; manifest-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",  # with `no-referrer` a browser tells no origin with our own forms either
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}


class Refusal(Exception):
    """A request that goes no further."""

    def __init__(self, status: int, text: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(text)
        self.status, self.text, self.headers = status, text, headers or {}


class Proxy(NamedTuple):
    """Reverse proxies that sign people in: where they stand, the header in which they name somebody, and who may what."""

    addresses: frozenset[str]
    header: str
    users: Mapping[str, str]

    def visitor(self, address: str, headers: Mapping[str, str]) -> Visitor | None:
        if not self.is_one(address):
            return None
        name = headers.get(self.header, "")
        role = self.users.get(name)
        key = hashlib.sha256(f"proxy {name}".encode("utf-8", "replace")).hexdigest()
        return Visitor(role, name, key) if role is not None else None

    def is_one(self, address: str) -> bool:
        return plain_address(address) in self.addresses


class Gate:
    """Wraps the application. `origins` are ours, by their `Host`; the first is where the page lives."""

    def __init__(
        self,
        app: ASGIApp,
        book: Book,
        origins: dict[str, str],
        refuse: Callable[[Scope, Refusal], ASGIApp],
        clock: Callable[[], float],
        proxy: Proxy | None = None,
    ) -> None:
        self.app, self.book, self.origins, self.refuse, self.clock, self.proxy = (
            app, book, origins, refuse, clock, proxy,
        )  # fmt: skip
        self.at_once = 0
        self.buckets: dict[str, tuple[float, float]] = {}
        self.wrong: list[float] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            await receive()
            await send({"type": "websocket.close", "code": 1008})
            return
        self.at_once += 1
        try:
            await self._pass(scope, receive, send)
        finally:
            self.at_once -= 1

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        static = scope["path"].startswith("/static/")
        dressed = _dressed(send, static)
        try:
            if self.at_once > MOST_AT_ONCE:
                raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "Too many requests at once.", {"retry-after": "1"})
            headers = _headers(scope, ONCE | {self.proxy.header} if self.proxy is not None else ONCE)
            self._check_place(scope["method"], headers)
            scope["holdfast.secure"] = self.origins[headers["host"]].startswith("https:")
            if scope["method"] in CHANGING:
                receive = await self._body(scope, headers, receive)
            if not static:
                self._check_visitor(scope, headers)
        except Refusal as refusal:
            await self.refuse(scope, refusal)(scope, receive, dressed)
            return
        await self.app(scope, receive, dressed)

    def _check_place(self, method: str, headers: Mapping[str, str]) -> None:
        """Is it for us, and does our own page ask, or nobody's page at all?"""
        if method not in READING | CHANGING:
            raise Refusal(HTTPStatus.METHOD_NOT_ALLOWED, f"{method[:20]} is not done here.", {"allow": "GET, POST"})
        host, origin = headers.get("host", ""), headers.get("origin")
        if host not in self.origins:
            raise Refusal(HTTPStatus.MISDIRECTED_REQUEST, f"This page lives at {next(iter(self.origins.values()))}/")
        site, mode = headers.get("sec-fetch-site", "none"), headers.get("sec-fetch-mode", "")
        if site not in ("same-origin", "none") and not (method == "GET" and mode == "navigate"):
            raise Refusal(HTTPStatus.FORBIDDEN, "Another page asked for this.")
        if origin is not None and origin != self.origins[host]:
            raise Refusal(HTTPStatus.FORBIDDEN, "Another page asked for this.")

    async def _body(self, scope: Scope, headers: dict[str, str], receive: Receive) -> Receive:
        """Read the body within its limits; it is small, and forms carry their token in it."""
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > MOST_BODY:
            raise Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"A request may have {MOST_BODY:,} bytes at most.")
        try:
            async with asyncio.timeout(BODY_SECONDS):
                body = await _whole(receive)
        except TimeoutError:
            raise Refusal(HTTPStatus.REQUEST_TIMEOUT, "The request took too long to arrive.") from None
        if body and kind not in (FORM, JSON):
            raise Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"Send {JSON} or {FORM}.")
        fields: dict[str, str] = {}
        if kind == FORM:
            try:
                fields = dict(parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=10_000))
            except ValueError:
                raise Refusal(HTTPStatus.BAD_REQUEST, "The form cannot be read.") from None
        scope["holdfast.form"], scope["holdfast.body"] = fields, body if kind == JSON else b""

        async def nothing_more() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        return nothing_more

    def _check_visitor(self, scope: Scope, headers: dict[str, str]) -> None:
        address = str((scope.get("client") or ("?",))[0])
        bearer, cookie = _bearer(headers), _cookie(headers, scope["holdfast.secure"])
        visitor = self._visitor(bearer or cookie)
        if visitor is None and not bearer and self.proxy is not None:
            visitor = self.proxy.visitor(address, headers)
        self._limit(visitor.hash if visitor is not None else address)
        scope["holdfast.visitor"] = visitor
        if scope["method"] not in CHANGING:
            return
        if scope["path"] == "/session":
            self._limit_guesses()
            return
        if visitor is None:
            raise Refusal(HTTPStatus.UNAUTHORIZED, "You are not signed in here, or no longer.")
        if bearer:
            return
        if "origin" not in headers:
            raise Refusal(HTTPStatus.FORBIDDEN, "A request of a browser must tell its origin.")
        sent = headers.get(TOKEN_HEADER) or scope["holdfast.form"].get(TOKEN_FIELD, "")
        if not hmac.compare_digest(sent.encode("utf-8", "replace"), self.book.token(visitor).encode()):
            raise Refusal(HTTPStatus.FORBIDDEN, "The form is not from this page, or too old. Load the page again.")

    def _visitor(self, session: str) -> Visitor | None:
        return self.book.visitor(session) if session else None

    def _limit(self, key: str) -> None:
        now = self.clock()
        if len(self.buckets) > 10_000:
            self.buckets.clear()
        left, then = self.buckets.get(key, (BURST, now))
        left = min(BURST, left + (now - then) * PER_SECOND) - 1
        self.buckets[key] = max(left, 0.0), now
        if left < 0:
            raise Refusal(HTTPStatus.TOO_MANY_REQUESTS, "Too many requests; wait a moment.", {"retry-after": "1"})

    def _limit_guesses(self) -> None:
        self.wrong = [then for then in self.wrong if then > self.clock() - 60]
        if len(self.wrong) >= WRONG_PER_MINUTE:
            raise Refusal(HTTPStatus.TOO_MANY_REQUESTS, "Too many wrong tickets; wait a minute.", {"retry-after": "60"})

    def guessed_wrong(self) -> None:
        self.wrong.append(self.clock())


def plain_address(text: str) -> str:
    """An address in its one form: an IPv4 address within IPv6 is the IPv4 address."""
    try:
        found = ip_address(text)
    except ValueError:
        return ""
    return str(found.ipv4_mapped if isinstance(found, IPv6Address) and found.ipv4_mapped is not None else found)


def cookie_name(secure: bool) -> str:
    return f"__Host-{COOKIE}" if secure else COOKIE


def _headers(scope: Scope, once: frozenset[str]) -> dict[str, str]:
    """The headers by name; a browser may send its cookies in several."""
    found: dict[str, str] = {}
    for name, value in scope["headers"]:
        key, text = name.decode("latin-1"), value.decode("latin-1")
        if key in found and key in once:
            raise Refusal(HTTPStatus.BAD_REQUEST, f"The header {key} came twice.")
        found[key] = found[key] + "; " + text if key in found and key == "cookie" else text
    if "transfer-encoding" in found and "content-length" in found:
        raise Refusal(HTTPStatus.BAD_REQUEST, "The request has two lengths.")
    return found


async def _whole(receive: Receive) -> bytes:
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refusal(HTTPStatus.BAD_REQUEST, "The request ended before its end.")
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > MOST_BODY:
            raise Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"A request may have {MOST_BODY:,} bytes at most.")
    return body


def _bearer(headers: dict[str, str]) -> str:
    kind, _, value = headers.get("authorization", "").partition(" ")
    return value.strip() if kind.lower() == "bearer" else ""


def _cookie(headers: dict[str, str], secure: bool) -> str:
    jar: SimpleCookie = SimpleCookie()
    try:
        jar.load(headers.get("cookie", ""))
    except CookieError:
        return ""
    found = jar.get(cookie_name(secure))
    return found.value if found is not None else ""


def _dressed(send: Send, static: bool) -> Send:
    """The same `send`, with our headers on every answer."""
    ours = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
    ours.append((b"cache-control", b"max-age=300" if static else b"no-store"))

    async def dressed(message: Any) -> None:
        if message["type"] == "http.response.start":
            known = {name for name, _ in ours}
            message["headers"] = [pair for pair in message.get("headers", []) if pair[0].lower() not in known] + ours
        await send(message)

    return dressed
