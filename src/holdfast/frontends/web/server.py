"""Starting the server: where it listens, who is let in first, and how it ends."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from ipaddress import ip_address
from time import monotonic
from typing import TYPE_CHECKING, Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from holdfast.core.errors import Failed, Usage
from holdfast.frontends.web.app import Site
from holdfast.frontends.web.book import OPERATOR, ROLES, VIEWER, Book
from holdfast.frontends.web.doctor import Doctor
from holdfast.frontends.web.gate import ONCE, Gate, Proxy, plain_address

if TYPE_CHECKING:
    from holdfast.engine import Engine
    from holdfast.frontends.surroundings import Surroundings
    from holdfast.supervisor.ground import Ground

HEAD_SECONDS = 10
MOST_HEAD = 32 << 10
GRACE_SECONDS = 2
BACKLOG = 128
SHORTEST_PASSWORD = 12


class Protocol(H11Protocol):
    """HTTP/1.1 that does not wait for ever for a request to begin."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._deadline = self.loop.call_later(HEAD_SECONDS, self._close_if_silent)

    def _close_if_silent(self) -> None:
        if self.cycle is None and self.transport is not None and not self.transport.is_closing():
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._deadline.cancel()
        super().connection_lost(exc)


def run(options: Mapping[str, Any], around: Surroundings, clock: Callable[[], int]) -> int:
    from holdfast.wiring import build

    host, settings = options["host"], options["settings"]
    secure, proxy = bool(options.get("tls_cert")), proxy_of(options)
    _refuse_open_door(host, secure, proxy, options)
    book = Book(around.data + "/web", clock, options["session_days"])
    try:
        if options.get("link"):
            return _link(book, options)
        listening = _listen(host, options["port"])
        port = listening.getsockname()[1]
        origins = _origins(book, host, port, secure) | further_origins(options["allowed_hosts"], port, secure)
        book.put("origin", next(iter(origins.values())))

        def engine() -> Engine:
            return build(settings(), around.data, around.home, clock)

        def ground() -> Ground:
            from holdfast.supervisor.serving import make_ground

            variables = {os.fsdecode(name): os.fsdecode(value) for name, value in around.variables.items()}
            return make_ground(settings(), around.data, around.home, clock, variables)

        engine().close()
        ground().close()
        password = options.get("password_file") or ""
        doctor = Doctor(around.variables, around.home, monotonic)
        site = Site(
            book,
            engine,
            clock,
            ground,
            lambda: _password(password),
            around.config,
            doctor.find,
            os.fsdecode(around.home),
        )
        address = next(iter(origins.values()))
        _announce(book, address, options)
        certificate = {"ssl_certfile": options.get("tls_cert"), "ssl_keyfile": options.get("tls_key")}
        try:
            Server(configured(site.application(origins, proxy), **certificate), site).run([listening])
        finally:
            site.stream.stop()
            site.stream.wait()
        return 0
    finally:
        book.close()


def configured(app: Gate, **certificate: Any) -> uvicorn.Config:
    """How we listen. Whoever connects is who they are: what a request says about its sender is not believed."""
    return uvicorn.Config(
        app,
        http=Protocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        h11_max_incomplete_event_size=MOST_HEAD,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=GRACE_SECONDS,
        **certificate,
    )


class Server(uvicorn.Server):
    """Ends the streams before it waits for connections to end."""

    def __init__(self, config: uvicorn.Config, site: Site) -> None:
        super().__init__(config)
        self.site = site

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.site.stream.stop()
        await asyncio.sleep(0)
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: Any) -> None:
        self.should_exit = True
        if sig == signal.SIGINT and self.should_exit:
            self.force_exit = False


def _refuse_open_door(host: str, secure: bool, proxy: Proxy | None, options: Mapping[str, Any]) -> None:
    if is_loopback(host):
        return
    if not (secure and (proxy is not None or _password(options.get("password_file") or ""))):
        raise Usage(
            f"{host} can be reached from other machines.",
            "Give --tls-cert, --tls-key and set `web.password_file` (mode 0600); or stay on loopback and use a tunnel"
            " (docs/guides/page.md).",
        )


def proxy_of(options: Mapping[str, Any]) -> Proxy | None:
    """Who signs people in for us, if anybody does. Raises `Usage` if the settings leave a door open."""
    stand, header, users = options["trusted_proxy"], options["proxy_header"].lower(), options["proxy_users"]
    if not (stand or header or users):
        return None
    if not (stand and header and users):
        raise Usage(
            "web.trusted_proxy, web.proxy_header and web.proxy_users belong together.", "Set all three, or none."
        )
    if not header.isascii() or not header.replace("-", "").isalnum() or header in ONCE | {"cookie"}:
        raise Usage(f"web.proxy_header cannot be {header[:40]!r}.", "Take a name such as X-Remote-User.")
    for text in stand:
        if not plain_address(text) or is_loopback(plain_address(text)):
            # Whatever runs on this machine comes from loopback, and could say that it was the proxy.
            raise Usage(f"web.trusted_proxy cannot be {text[:40]!r}.", "Give addresses of other machines.")
    roles = dict(text.rpartition(":")[::2] if ":" in text else (text, VIEWER) for text in users)
    for name, role in roles.items():
        if not name or role not in ROLES:
            raise Usage(
                f"web.proxy_users: {name[:40]!r} has no role {role[:40]!r}.",
                f"Write name:role; roles are {', '.join(ROLES)}.",
            )
    return Proxy(frozenset(map(plain_address, stand)), header, roles)


def further_origins(hosts: Sequence[str], port: int, secure: bool) -> dict[str, str]:
    """`Host` → origin of further names: `name` at this port, or the origin that a proxy before us shows to browsers."""
    found = {}
    for text in hosts:
        scheme, _, host = (
            text.partition("://") if "://" in text else ("https" if secure else "http", "", f"{text}:{port}")
        )
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
        if scheme not in ("http", "https") or not name or not host.isascii() or any(sign in host for sign in "/@?# \\"):
            raise Usage(
                f"web.allowed_hosts: {text[:80]!r} is neither a name nor an origin.", "Write https://page.example.org."
            )
        if is_loopback(name.strip("[]")):
            # Cookies do not tell ports apart: every other program that serves a page there would be sent ours.
            raise Usage(
                f"web.allowed_hosts: {name[:80]} is shared by everything on this machine.", "Take a name of its own."
            )
        found[host.lower()] = f"{scheme}://{host.lower()}"
    return found


def _password(path: str) -> str:
    """The first line of the password file; nobody gets in by it if it is missing, short, or open to others."""
    if not path:
        return ""
    try:
        with open(path, encoding="utf-8") as file:
            if os.fstat(file.fileno()).st_mode & 0o077:
                return ""
            found = file.readline().strip()
    except (OSError, UnicodeDecodeError):
        return ""
    return found if len(found) >= SHORTEST_PASSWORD else ""


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
        # Before the address is told: whoever hears of it may come at once, and is served as soon as we are ready.
        found.listen(BACKLOG)
    except OSError as error:
        found.close()
        raise Failed(f"{host}:{port} cannot be used: {error.strerror}.", "Give another --port, or 0 for any.") from None
    return found


def _origins(book: Book, host: str, port: int, secure: bool) -> dict[str, str]:
    """`Host` → origin. The first is where the page lives; loopback addresses serve programs that send their session."""
    scheme = "https" if secure else "http"
    if not is_loopback(host):
        return {f"{host}:{port}": f"{scheme}://{host}:{port}"}
    name = book.keep("name", lambda: f"hf-{secrets.token_hex(5)}.localhost")
    return {f"{name}:{port}": f"{scheme}://{name}:{port}"}


def _announce(book: Book, address: str, options: Mapping[str, Any]) -> None:
    """Write the first ticket where only its owner can read it, and say where the page is."""
    ticket = book.ticket(OPERATOR)
    path = book.folder + "/ticket"
    temporary = f"{path}.{secrets.token_hex(4)}"
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "w") as file:
        file.write(f"{address}/#{ticket}\n")
    os.replace(temporary, path)
    sys.stdout.write(f"The page is at {address}/#{ticket}\n")
    sys.stdout.write("This link lets one browser in, once. `holdfast serve --link` makes another. Ctrl-C ends it.\n")
    sys.stdout.flush()
    if options.get("open"):
        import webbrowser

        webbrowser.open(f"{address}/#{ticket}")


def _link(book: Book, options: Mapping[str, Any]) -> int:
    address = book.keep("origin", lambda: "")
    if not address:
        raise Failed("The page was never started here.", "Run `holdfast serve` first.")
    sys.stdout.write(f"{address}/#{book.ticket(options['role'])}\n")
    return 0
