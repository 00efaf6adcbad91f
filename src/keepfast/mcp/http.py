"""The server over HTTP: on loopback only, protected by a token."""

from __future__ import annotations

import os
import socket
from hmac import compare_digest
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Any

from keepfast.model.errors import Failed

if TYPE_CHECKING:
    from mcp.server import MCPServer

HOST, PATH = "127.0.0.1", "/mcp"
MIN_TOKEN_LENGTH = 20


def serve_http(server: MCPServer, token_file: str, port: int) -> int:
    """Serve until interrupted; print the address and the token's file."""
    import uvicorn

    token = token_in(token_file)
    listening = listen(port)
    port = listening.getsockname()[1]
    print(f"http://{HOST}:{port}{PATH}\nThe token is in {token_file}.", flush=True)
    app = TokenGuard(application(server, port), token)
    uvicorn.Server(uvicorn.Config(app, log_level="error", access_log=False)).run(sockets=[listening])
    return 0


def listen(port: int) -> socket.socket:
    """Return a socket that listens on loopback. Raises `Failed` if the port is in use."""
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((HOST, port))
        listening.listen()  # clients may connect as soon as the address is printed
    except OSError as error:
        listening.close()
        raise Failed(f"Port {port} of {HOST} cannot be used: {error.strerror}.", "Give another with --port.") from None
    return listening


def application(server: MCPServer, port: int) -> Any:
    """Return the server as an ASGI application that accepts only our own host names."""
    from mcp.server.transport_security import TransportSecuritySettings

    # A page in the user's browser must not reach us under its own host name (DNS rebinding).
    names = [f"{HOST}:{port}", f"localhost:{port}"]
    guard = TransportSecuritySettings(allowed_hosts=names, allowed_origins=[f"http://{name}" for name in names])
    return server.streamable_http_app(transport_security=guard, host=HOST)


class TokenGuard:
    """ASGI middleware that rejects requests without the token."""

    def __init__(self, app: Any, token: str) -> None:
        self.app, self.expected = app, f"Bearer {token}".encode()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            authorization = dict(scope["headers"]).get(b"authorization", b"")
            if not compare_digest(authorization, self.expected):
                headers = [(b"www-authenticate", b"Bearer"), (b"content-type", b"text/plain")]
                await send({"type": "http.response.start", "status": 401, "headers": headers})
                await send({"type": "http.response.body", "body": b"The token is missing or wrong.\n"})
                return
        await self.app(scope, receive, send)


def token_in(path: str) -> str:
    """Return the token in the file, which is created if missing. Raises `Failed` if other users can read it."""
    try:
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(fd, "r+") as file:
            status = os.fstat(fd)
            if status.st_mode & 0o077 or status.st_uid != os.geteuid():
                raise Failed(f"Other users can read the token in {path}.", f"Run `chmod 600 {path}`, or remove it.")
            token = file.read(1_000).strip()
            if not token:
                token = token_urlsafe(32)
                file.write(token + "\n")
    except OSError as error:
        raise Failed(
            f"The token file {path} cannot be used: {error.strerror}.", "Give another with --token-file."
        ) from None
    if len(token) < MIN_TOKEN_LENGTH or not token.isascii() or not token.isprintable():
        raise Failed(
            (f"The token in {path} is too short or has invalid characters."), "Remove the file; a new one is created."
        )
    return token
