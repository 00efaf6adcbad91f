"""Access control: every request is checked here, and every answer gets headers that restrict what a browser does with it."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections import Counter
from collections.abc import Callable, Mapping
from http import HTTPStatus
from ipaddress import IPv6Address, ip_address, ip_network
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl, quote, urlencode

from keepfast.web.local_users import users
from keepfast.web.sessions import Visitor, WebDatabase, join_session

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

READING, CHANGING = frozenset({"GET", "HEAD"}), frozenset({"POST", "PATCH", "DELETE"})
FORM, JSON = "application/x-www-form-urlencoded", "application/json"
MAX_BODY, BODY_SECONDS = 1 << 20, 15
MAX_BODY_WITHOUT_SESSION = 16 << 10
"""Body limit without a session: enough for a ticket or a password."""
MAX_AT_ONCE, MAX_PER_CLIENT, PER_SECOND, BURST = 200, 100, 50.0, 300.0
WRONG_PER_MINUTE = 10
COOKIE = "keepfast_session"
FOLDER, HEXADECIMAL = 33, frozenset("0123456789abcdef")
TOKEN_HEADER, TOKEN_FIELD = "x-keepfast-token", "_token"
ONCE = frozenset({"host", "origin", "authorization", "content-length", "content-type", TOKEN_HEADER})
"""Headers that decide about access. A request with a duplicate of one is refused."""

HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
    " connect-src 'self'; font-src 'self'; manifest-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",  # with `no-referrer` browsers send no origin with our own forms
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}


WHERE_THE_PAGE_IS = (
    "The page has its own address. `keepfast serve` prints it at start; `keepfast serve --link` prints a new link."
)


class Refusal(Exception):
    """A refused request: status, text and headers of the answer."""

    def __init__(self, status: int, text: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(text)
        self.status, self.text, self.headers = status, text, headers or {}


class Proxy(NamedTuple):
    """Reverse proxies that sign people in: their addresses, the header with the user name, and the roles of users."""

    addresses: frozenset[str]
    header: str
    users: Mapping[str, str]

    def visitor(self, address: str, headers: Mapping[str, str]) -> Visitor | None:
        if not self.is_trusted(address):
            return None
        name = headers.get(self.header, "")
        role = self.users.get(name)
        key = hashlib.sha256(f"proxy {name}".encode("utf-8", "replace")).hexdigest()
        return Visitor(role, name, key) if role is not None else None

    def is_trusted(self, address: str) -> bool:
        return plain_address(address) in self.addresses


class Gate:
    """ASGI middleware that checks every request. `origins`: ours, by `Host`; the first is the page's own."""

    def __init__(
        self,
        app: ASGIApp,
        database: WebDatabase,
        origins: dict[str, str],
        refuse: Callable[[Scope, Refusal], ASGIApp],
        clock: Callable[[], float],
        proxy: Proxy | None = None,
    ) -> None:
        self.app, self.database, self.origins, self.refuse, self.clock, self.proxy = (
            app, database, origins, refuse, clock, proxy,
        )  # fmt: skip
        self.requests_at_once = 0
        self.requests_of_visitor = Counter[str]()
        """How many requests of each visitor are in work."""
        self.buckets: dict[str, tuple[float, float]] = {}
        self.wrong: dict[str, list[float]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            await receive()
            await send({"type": "websocket.close", "code": 1008})
            return
        try:
            await self._pass(scope, receive, send)
        finally:
            self._release(scope)

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["keepfast.folder"], scope["path"] = _without_folder(scope["path"])
        static = scope["path"].startswith("/static/")
        send_with_headers = _with_our_headers(scope, send, static)
        try:
            headers = _headers(scope, ONCE | {self.proxy.header} if self.proxy is not None else ONCE)
            if _names_loopback(headers.get("host", "")) and scope["method"] in READING:
                self._redirect_to_own_host(scope, headers)
            self._check_origin(scope["method"], headers)
            scope["keepfast.secure"] = self.origins[headers["host"]].startswith("https:")
            self._check_lengths(scope["method"], headers)
            if not static or scope["method"] in CHANGING:
                self._authenticate(scope, headers)
            if scope["method"] in CHANGING:
                receive = await self._body(scope, headers, receive)
                self._check_form(scope, headers)
            if self.requests_at_once >= MAX_AT_ONCE:
                raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "Too many requests at once.", {"retry-after": "1"})
        except Refusal as refusal:
            # Further requests on the connection of a refused client are not read.
            refusal.headers["connection"] = "close"
            await self.refuse(scope, refusal)(scope, receive, send_with_headers)
            return
        await self._serve(scope, receive, send_with_headers)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, counted among those in work. Requests still arriving count for their visitor only."""
        self.requests_at_once += 1
        try:
            await self.app(scope, receive, send)
        finally:
            self.requests_at_once -= 1

    def _release(self, scope: Scope) -> None:
        owner = scope.get("keepfast.counted")
        if owner is not None:
            self.requests_of_visitor[owner] -= 1
            self.requests_of_visitor += Counter()  # drops zero counts

    def _redirect_to_own_host(self, scope: Scope, headers: dict[str, str]) -> None:
        """Redirect from a loopback name to the page's own host name, which only a session or a valid ticket may learn.

        The secret name keeps other local servers from getting our cookies. Other local users never learn it, not even with a
        session or a ticket.
        """
        home = next(iter(self.origins.values()))
        fields = dict(parse_qsl(scope["query_string"].decode("latin-1")))
        ticket = fields.pop("ticket", "")
        if ticket and not self.database.has_ticket(ticket):
            self.count_wrong_guess(scope)
            ticket = ""
        is_known = ticket or self._visitor(scope, _session(scope, headers, home.startswith("https:"))) is not None
        # Last, since only this asks the kernel: whoever has neither session nor ticket costs no question.
        if is_known and not users.is_another(scope.get("client")):
            query = urlencode(fields)
            place = quote(scope["keepfast.folder"] + scope["path"], safe="/~") + (f"?{query}" if query else "")
            place += f"#{ticket}" if ticket else ""
            raise Refusal(HTTPStatus.TEMPORARY_REDIRECT, "This page has its own host name.", {"location": home + place})
        raise Refusal(HTTPStatus.UNAUTHORIZED, WHERE_THE_PAGE_IS)

    def _check_origin(self, method: str, headers: Mapping[str, str]) -> None:
        """Check method, `Host` and that no other site sent the request."""
        if method not in READING | CHANGING:
            raise Refusal(
                HTTPStatus.METHOD_NOT_ALLOWED, f"Method {method[:20]} is not allowed.", {"allow": "GET, POST"}
            )
        host, origin = headers.get("host", ""), headers.get("origin")
        if host not in self.origins:
            raise Refusal(HTTPStatus.MISDIRECTED_REQUEST, "This host name is not served here.")
        site, mode = headers.get("sec-fetch-site", "none"), headers.get("sec-fetch-mode", "")
        if site not in ("same-origin", "none") and not (method == "GET" and mode == "navigate"):
            raise Refusal(HTTPStatus.FORBIDDEN, "Cross-site request refused.")
        if origin is not None and origin != self.origins[host]:
            raise Refusal(HTTPStatus.FORBIDDEN, "Cross-site request refused.")

    def _check_lengths(self, method: str, headers: Mapping[str, str]) -> None:
        length = headers.get("content-length", "0")
        if method in READING and (length.strip("0") or "transfer-encoding" in headers):
            # Nothing reads the body, so the next request on the connection would wait behind it.
            raise Refusal(HTTPStatus.BAD_REQUEST, f"A {method} request cannot have a body.")
        if not length.isdecimal() or int(length) > MAX_BODY:
            raise _too_large(MAX_BODY)

    async def _body(self, scope: Scope, headers: dict[str, str], receive: Receive) -> Receive:
        """Read the body within its limits; forms carry their token in it."""
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        try:
            async with asyncio.timeout(BODY_SECONDS):
                body = await _read_body(
                    receive, MAX_BODY_WITHOUT_SESSION if scope["keepfast.visitor"] is None else MAX_BODY
                )
        except TimeoutError:
            raise Refusal(HTTPStatus.REQUEST_TIMEOUT, "The request body took too long to arrive.") from None
        if body and kind not in (FORM, JSON):
            raise Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"Unsupported content type; send {JSON} or {FORM}.")
        fields: dict[str, str] = {}
        if kind == FORM:
            try:
                fields = dict(parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=10_000))
            except ValueError:
                raise Refusal(HTTPStatus.BAD_REQUEST, "The form data is invalid.") from None
        scope["keepfast.form"], scope["keepfast.body"] = fields, body if kind == JSON else b""

        async def nothing_more() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        return nothing_more

    def _authenticate(self, scope: Scope, headers: dict[str, str]) -> None:
        """Find the visitor of the request; refuse a stranger's change before its body is read.

        Rate limits apply to each visitor. Strangers have none: refusing them costs little, and all local users share one
        address, so one of them could keep the others from signing in.
        """
        visitor = self._visitor(scope, _session(scope, headers, scope["keepfast.secure"]))
        scope["keepfast.by_proxy"] = visitor is None
        if visitor is None and not _bearer(headers) and self.proxy is not None:
            visitor = self.proxy.visitor(address_of(scope), headers)
        scope["keepfast.visitor"] = visitor
        if visitor is not None:
            self._limit(visitor.hash)
            if self.requests_of_visitor[visitor.hash] >= MAX_PER_CLIENT:
                raise Refusal(
                    HTTPStatus.SERVICE_UNAVAILABLE, "Too many requests of this session at once.", {"retry-after": "1"}
                )
            self.requests_of_visitor[visitor.hash] += 1
            scope["keepfast.counted"] = visitor.hash
        elif scope["method"] in CHANGING and scope["path"] != "/session":
            raise Refusal(HTTPStatus.UNAUTHORIZED, "Not signed in, or the session has ended.")

    def _check_form(self, scope: Scope, headers: dict[str, str]) -> None:
        """Check that our own page sent the request. A session in a header needs no such proof: browsers do not add it."""
        visitor = scope["keepfast.visitor"]
        if scope["path"] == "/session" or _bearer(headers):
            return
        if "origin" not in headers:
            raise Refusal(HTTPStatus.FORBIDDEN, "The Origin header is missing.")
        sent = headers.get(TOKEN_HEADER) or scope["keepfast.form"].get(TOKEN_FIELD, "")
        if not hmac.compare_digest(sent.encode("utf-8", "replace"), self.database.form_token(visitor).encode()):
            raise Refusal(HTTPStatus.FORBIDDEN, "The form is not from this page, or is outdated. Reload the page.")

    def _visitor(self, scope: Scope, session: str) -> Visitor | None:
        """Return the visitor of a session; None if another local user sends it than the one who signed in."""
        visitor = self.database.visitor(session) if session else None
        if visitor is None or visitor.user is None or visitor.user == users.of(scope.get("client")):
            return visitor
        self.database.audit(None, scope["method"], scope["path"], "refused: another user's session")
        return None

    def _limit(self, key: str) -> None:
        now = self.clock()
        if len(self.buckets) > 10_000:
            self.buckets.clear()
        left, then = self.buckets.get(key, (BURST, now))
        left = min(BURST, left + (now - then) * PER_SECOND) - 1
        self.buckets[key] = max(left, 0.0), now
        if left < 0:
            raise Refusal(HTTPStatus.TOO_MANY_REQUESTS, "Too many requests; wait a moment.", {"retry-after": "1"})

    def may_guess(self, scope: Scope) -> bool:
        """Return whether this peer may try a password. Tickets cannot be guessed and are always checked."""
        since = self.clock() - 60
        self.wrong = {
            peer: recent for peer, times in self.wrong.items() if (recent := [at for at in times if at > since])
        }
        return len(self.wrong.get(peer_of(scope), ())) < WRONG_PER_MINUTE

    def count_wrong_guess(self, scope: Scope) -> None:
        """Count a wrong ticket or password of this peer. Raises `Refusal` after too many."""
        if not self.may_guess(scope):
            raise Refusal(
                HTTPStatus.TOO_MANY_REQUESTS, "Too many wrong sign-in codes; wait a minute.", {"retry-after": "60"}
            )
        self.wrong.setdefault(peer_of(scope), []).append(self.clock())


def address_of(scope: Scope) -> str:
    return str((scope.get("client") or ("?",))[0])


def peer_of(scope: Scope) -> str:
    """Return the peer that limits apply to: an IPv4 address, an IPv6 network, or loopback."""
    return peer_at(address_of(scope))


def peer_at(address: str) -> str:
    try:
        host = ip_address(plain_address(address))
    except ValueError:
        return address
    if host.is_loopback:  # a local user has millions of loopback addresses
        return "loopback"
    return str(ip_network((host, 64), strict=False)) if isinstance(host, IPv6Address) else str(host)


def plain_address(text: str) -> str:
    """Return an address in canonical form, an IPv4-mapped IPv6 address as IPv4; empty if it is none."""
    try:
        address = ip_address(text)
    except ValueError:
        return ""
    return str(address.ipv4_mapped if isinstance(address, IPv6Address) and address.ipv4_mapped is not None else address)


def _names_loopback(host: str) -> bool:
    """Return whether a `Host` is a loopback name, which all local servers share."""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
    return name in ("localhost", "127.0.0.1", "[::1]")


def cookie_name(secure: bool) -> str:
    return f"__Host-{COOKIE}" if secure else COOKIE


def cookie_path(secure: bool, folder: str) -> str:
    """Return the cookie's path: the session's folder. With https its `__Host-` prefix demands `/`."""
    return "/" if secure else folder or "/"


def _headers(scope: Scope, once: frozenset[str]) -> dict[str, str]:
    """Return the headers by name; browsers may send several `Cookie` headers."""
    headers: dict[str, str] = {}
    for name, value in scope["headers"]:
        key, text = name.decode("latin-1"), value.decode("latin-1")
        if key == "host":
            text = text.lower()  # names of hosts are the same in any case
        if key in headers and key in once:
            raise Refusal(HTTPStatus.BAD_REQUEST, f"Duplicate header {key}.")
        headers[key] = headers[key] + "; " + text if key in headers and key == "cookie" else text
    if "transfer-encoding" in headers and "content-length" in headers:
        raise Refusal(HTTPStatus.BAD_REQUEST, "Both Content-Length and Transfer-Encoding are set.")
    return headers


def _too_large(most: int) -> Refusal:
    return Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"The request body is larger than {most:,} bytes.")


async def _read_body(receive: Receive, most: int) -> bytes:
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refusal(HTTPStatus.BAD_REQUEST, "The request body is incomplete.")
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > most:
            raise _too_large(most)
    return body


def _bearer(headers: dict[str, str]) -> str:
    kind, _, value = headers.get("authorization", "").partition(" ")
    return value.strip() if kind.lower() == "bearer" else ""


def _session(scope: Scope, headers: dict[str, str], secure: bool) -> str:
    """Return the session that was sent: whole in a header, or as a cookie and the folder of the address."""
    return _bearer(headers) or join_session(scope["keepfast.folder"], _cookie(headers, secure))


def _cookie(headers: dict[str, str], secure: bool) -> str:
    """Return the first cookie of our name: browsers send the one with the longest path first; other ports may set more."""
    for part in headers.get("cookie", "").split(";"):
        name, _, value = part.strip().partition("=")
        if name == cookie_name(secure):
            return value
    return ""


def _without_folder(path: str) -> tuple[str, str]:
    """Split a path into the session's folder (or nothing) and the rest."""
    first, _, rest = path[1:].partition("/")
    if len(first) != FOLDER or first[0] != "~" or not set(first[1:]) <= HEXADECIMAL:
        return "", path
    return f"/{first}", f"/{rest}"


def _with_our_headers(scope: Scope, send: Send, static: bool) -> Send:
    """Return a `send` that adds our headers, and closes the connection after refusing a stranger."""
    ours = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
    ours.append((b"cache-control", b"max-age=300" if static else b"no-store"))

    async def send_with_headers(message: Any) -> None:
        if message["type"] == "http.response.start":
            our_names = {name for name, _ in ours}
            message["headers"] = [
                pair for pair in message.get("headers", []) if pair[0].lower() not in our_names
            ] + ours
            refused = message["status"] >= HTTPStatus.BAD_REQUEST and scope.get("keepfast.visitor") is None
            if refused and (b"connection", b"close") not in message["headers"]:
                message["headers"].append((b"connection", b"close"))
        await send(message)

    return send_with_headers
