"""The server of the page: checks the settings, listens, prints the first sign-in link, and shuts down."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from fcntl import LOCK_EX, flock
from html import escape
from ipaddress import ip_address
from pathlib import Path
from time import monotonic
from typing import Any

import uvicorn

from keepfast.app.checkpoint import Engine
from keepfast.app.wiring import build
from keepfast.model.errors import Failed, Usage
from keepfast.present.environment import Environment
from keepfast.runner.actions.runtime import Runtime
from keepfast.runner.process.shims import is_locked
from keepfast.web.access import ONCE, Gate, Proxy, plain_address
from keepfast.web.app import Site
from keepfast.web.connection import Connection
from keepfast.web.doctor import Doctor
from keepfast.web.sessions import OPERATOR, ROLES, VIEWER, WebDatabase

MAX_HEAD = 32 << 10
GRACE_SECONDS = 2
BACKLOG = 1024
"""Connections that wait in the kernel until they are accepted."""
MAX_ACCEPTED_AT_ONCE = 32
"""So many are accepted before the requests on earlier ones are read: a burst of connections must not fill up the room for all."""
TRIES = 20
"""Free ports tried if any port will do."""
MIN_PASSWORD_LENGTH = 12


def run(options: Mapping[str, Any], environment: Environment, clock: Callable[[], int]) -> int:
    host, settings = options["host"], options["settings"]
    secure, proxy = bool(options.get("tls_cert")), proxy_of(options)
    _refuse_unprotected(host, secure, proxy, options)
    database = WebDatabase(environment.data + "/web", clock, options["session_days"])
    try:
        if options.get("link"):
            return _link(database, options)
        listening = listen(host, options["port"])
        port = listening[0].getsockname()[1]
        origins = _origins(database, host, port, secure) | further_origins(options["allowed_hosts"], port, secure)

        def engine() -> Engine:
            return build(settings(), environment.data, environment.home, clock)

        def open_runtime() -> Runtime:
            from keepfast.runner.scheduler.service import make_runtime

            variables = {os.fsdecode(name): os.fsdecode(value) for name, value in environment.variables.items()}
            return make_runtime(
                settings(), environment.data, environment.home, clock, variables, folders=environment.folders
            )

        engine().close()
        open_runtime().close()
        password = options.get("password_file") or ""
        doctor = Doctor(environment.variables, b"/", monotonic)
        site = Site(
            database,
            engine,
            clock,
            open_runtime,
            lambda: _password(password),
            environment.config,
            doctor.find,
            os.fsdecode(environment.home),
        )
        address = next(iter(origins.values()))
        certificate = {"ssl_certfile": options.get("tls_cert"), "ssl_keyfile": options.get("tls_key")}
        with _address_file(database.folder, f"{host}-{port}", address):
            _announce(database, address, options)
            try:
                Server(configured(site.application(origins, proxy), **certificate), site).run(listening)
            finally:
                site.stream.stop()
                site.stream.wait()
        return 0
    finally:
        database.close()


def configured(app: Gate, **certificate: Any) -> uvicorn.Config:
    """Return the configuration of uvicorn. Forwarding headers are ignored: the peer of the connection is the sender."""
    return uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        lifespan="on",
        log_config=None,
        log_level="error",  # clients could fill the log with warnings
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        h11_max_incomplete_event_size=MAX_HEAD,
        backlog=MAX_ACCEPTED_AT_ONCE,  # for the event loop; `Server` gives the kernel its own number
        timeout_keep_alive=30,
        timeout_graceful_shutdown=GRACE_SECONDS,
        **certificate,
    )


class Server(uvicorn.Server):
    """A uvicorn server that ends event streams before it waits for connections to close."""

    def __init__(self, config: uvicorn.Config, site: Site) -> None:
        super().__init__(config)
        self.site = site

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listening in sockets or []:
            listening.listen(BACKLOG)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.site.stream.stop()
        await asyncio.sleep(0)
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: Any) -> None:
        # uvicorn would skip its orderly shutdown at a second Ctrl-C.
        self.should_exit = True


def _refuse_unprotected(host: str, secure: bool, proxy: Proxy | None, options: Mapping[str, Any]) -> None:
    if is_loopback(host):
        return
    if not (secure and (proxy is not None or _password(options.get("password_file") or ""))):
        raise Usage(
            f"Other machines can reach {host}: the page needs TLS and a password there.",
            "Give --tls-cert and --tls-key and set `web.password_file` (mode 0600), or use a loopback address and a tunnel"
            " (docs/guides/page.md).",
        )


def proxy_of(options: Mapping[str, Any]) -> Proxy | None:
    """Return the reverse proxy that signs people in; None if there is none. Raises `Usage` on unsafe settings."""
    stand, header, users = options["trusted_proxy"], options["proxy_header"].lower(), options["proxy_users"]
    if not (stand or header or users):
        return None
    if not (stand and header and users):
        raise Usage(
            "web.trusted_proxy, web.proxy_header and web.proxy_users must be set together.", "Set all three, or none."
        )
    if not header.isascii() or not header.replace("-", "").isalnum() or header in ONCE | {"cookie"}:
        raise Usage(f"Invalid web.proxy_header {header[:40]!r}.", "Use a name such as X-Remote-User.")
    for text in stand:
        if not plain_address(text) or is_loopback(plain_address(text)):
            # Every local program connects from loopback and could pretend to be the proxy.
            raise Usage(f"Invalid web.trusted_proxy {text[:40]!r}.", "Give IP addresses of other machines.")
    roles = dict(text.rpartition(":")[::2] if ":" in text else (text, VIEWER) for text in users)
    for name, role in roles.items():
        if not name or role not in ROLES:
            raise Usage(
                f"web.proxy_users: unknown role {role[:40]!r} for {name[:40]!r}.",
                f"Write name:role; the roles are {', '.join(ROLES)}.",
            )
    return Proxy(frozenset(map(plain_address, stand)), header, roles)


def further_origins(hosts: Sequence[str], port: int, secure: bool) -> dict[str, str]:
    """Return the origins of `web.allowed_hosts` by `Host`: names at this port, or origins that a proxy shows to browsers."""
    origins = {}
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
            # Cookies are shared between ports: browsers would send ours to every other local server of that name.
            raise Usage(
                f"web.allowed_hosts: {name[:80]} is a loopback name.", "Give a host name that only this page uses."
            )
        origins[host.lower()] = f"{scheme}://{host.lower()}"
    return origins


def _password(path: str) -> str:
    """Return the first line of the password file; empty if it is missing, too short, or readable by others."""
    if not path:
        return ""
    try:
        with open(path, encoding="utf-8") as file:
            if os.fstat(file.fileno()).st_mode & 0o077:
                return ""
            password = file.readline().strip()
    except (OSError, UnicodeDecodeError):
        return ""
    return password if len(password) >= MIN_PASSWORD_LENGTH else ""


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def listen(host: str, port: int) -> list[socket.socket]:
    """Listen on the port at every address that the page's name may resolve to. Raises `Failed`.

    Browsers resolve names in `.localhost` to 127.0.0.1 or ::1. A program that listened on the other address would get the
    ticket, so both must be ours.
    """
    if not is_loopback(host):
        return [_listen(host, port)]
    ours = "127.0.0.1" if host == "localhost" else host
    other = "127.0.0.1" if ":" in ours else "::1"
    tries = 1 if port else TRIES
    while True:
        first, tries = _listen(ours, port), tries - 1
        try:
            return [first, _listen(other, first.getsockname()[1])]
        except Failed:
            if not _has_address(other):
                return [first]
            first.close()
            if not tries:
                raise


def _has_address(address: str) -> bool:
    """Return whether this machine has the address; some have no IPv6."""
    try:
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


def _listen(host: str, port: int) -> socket.socket:
    listener: socket.socket | None = None
    try:
        listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
        if ":" in host:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        # Before the address is printed, so that an early client waits for us and is not refused.
        listener.listen(BACKLOG)
    except OSError as error:
        if listener is not None:
            listener.close()
        where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        raise Failed(
            f"Cannot listen on {where}: {error.strerror}.", "Give another --port, or 0 for any free port."
        ) from None
    return listener


def _origins(database: WebDatabase, host: str, port: int, secure: bool) -> dict[str, str]:
    """Return our origins by `Host`. The first is the page's own."""
    scheme = "https" if secure else "http"
    if not is_loopback(host):
        return {f"{host}:{port}": f"{scheme}://{host}:{port}"}
    name = database.get_or_create("name", lambda: f"hf-{secrets.token_hex(5)}.localhost")
    return {f"{name}:{port}": f"{scheme}://{name}:{port}"}


def _announce(database: WebDatabase, address: str, options: Mapping[str, Any]) -> None:
    """Create the first ticket, write it to a file of its owner, and print the sign-in link."""
    ticket = database.create_ticket(OPERATOR)
    _write_for_owner(database.folder + "/ticket", f"{address}/#{ticket}\n")
    sys.stdout.write(f"The page is at {address}/#{ticket}\n")
    sys.stdout.write(
        "The link signs in one browser, once. `keepfast serve --link` prints another. Press Ctrl-C to stop.\n"
    )
    sys.stdout.flush()
    if options.get("open"):
        _open(database.folder, f"{address}/#{ticket}")


def _open(folder: str, address: str) -> None:
    """Open a browser with a file that redirects to the page: other users can read a program's arguments."""
    import webbrowser

    path = folder + "/open.html"
    leads = f'<meta charset="utf-8"><meta http-equiv="refresh" content="0; url={escape(address)}">'
    _write_for_owner(path, f"<!doctype html>{leads}<title>keepfast</title>\n")
    webbrowser.open(Path(path).absolute().as_uri())


def _write_for_owner(path: str, text: str) -> None:
    temporary = f"{path}.{secrets.token_hex(4)}"
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "w") as file:
        file.write(text)
    os.replace(temporary, path)


@contextmanager
def _address_file(folder: str, place: str, address: str) -> Iterator[None]:
    """Keep a file with the server's address, locked while the server runs."""
    path = f"{folder}/at-{place}"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        flock(fd, LOCK_EX)
        os.write(fd, address.encode())
        yield
        os.unlink(path)
    finally:
        os.close(fd)


def _running_address(folder: str) -> str:
    """Return the address of the running server that started last; empty if none runs."""
    servers = [(0.0, "")]
    for path in Path(folder).glob("at-*"):
        with suppress(FileNotFoundError):  # it has just ended
            if is_locked(str(path)):
                servers.append((path.stat().st_mtime, path.read_text()))
    return max(servers)[1]


def _link(database: WebDatabase, options: Mapping[str, Any]) -> int:
    # Without a running page another user may listen on its port and would get the ticket.
    address = _running_address(database.folder)
    if not address:
        raise Failed("The page is not running.", "Run `keepfast serve` first.")
    sys.stdout.write(f"{address}/#{database.create_ticket(options['role'])}\n")
    return 0
