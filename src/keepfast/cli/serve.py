"""`keepfast serve`: serve the web page and the HTTP API, and run tasks."""

from __future__ import annotations

from contextlib import nullcontext

import click

from keepfast.cli.numbers import Whole
from keepfast.cli.session import Session, common
from keepfast.cli.supervise import background_supervisor, run_supervisor
from keepfast.model.errors import Failed, extra

ROLES = ("viewer", "approver", "operator")


@click.command()
@click.option("--host", metavar="ADDRESS", help="Address to listen on (default: web.host, loopback).")
@click.option(
    "--port", type=Whole(0, 65535), metavar="N", help=("Port to listen on (default: web.port); 0 uses any free port.")
)
@click.option("--no-open", is_flag=True, help="Do not open a browser.")
@click.option(
    "--tls-cert",
    type=click.Path(exists=True, dir_okay=False),
    help=("TLS certificate; required for addresses other than loopback."),
)
@click.option("--tls-key", type=click.Path(exists=True, dir_okay=False), help="Private key of the TLS certificate.")
@click.option("--link", is_flag=True, help="Print a one-time sign-in link for another browser, and exit.")
@click.option(
    "--role", type=click.Choice(ROLES), default="operator", show_default=True, help="With --link: role of that browser."
)
@click.option("--no-tasks", is_flag=True, help="Do not run tasks.")
@click.option("--no-page", is_flag=True, help="Run tasks without the web page.")
@common
def serve(
    session: Session,
    host: str | None,
    port: int | None,
    no_open: bool,
    tls_cert: str | None,
    tls_key: str | None,
    link: bool,
    role: str,
    no_tasks: bool,
    no_page: bool,
) -> int:
    """Serve the web page, which shows checkpoints and controls tasks, and run tasks."""
    if no_page:
        run_supervisor(session)
        return 0
    if session.start is None:
        raise Failed("The web page cannot be started from here.", "Run `keepfast serve` in a terminal.")
    settings = session.settings
    desktop = bool(session.environment.text("DISPLAY") or session.environment.text("WAYLAND_DISPLAY"))
    options = {
        "host": host or settings["web.host"],
        "port": settings["web.port"] if port is None else port,
        "open": desktop and not no_open and settings["web.open"],
        "tls_cert": tls_cert or settings["web.tls_certificate"] or None,
        "tls_key": tls_key or settings["web.tls_key"] or None,
        "password_file": settings["web.password_file"],
        "allowed_hosts": settings["web.allowed_hosts"],
        "trusted_proxy": settings["web.trusted_proxy"],
        "proxy_header": settings["web.proxy_header"],
        "proxy_users": settings["web.proxy_users"],
        "session_days": settings["web.session_days"],
        "link": link,
        "role": role,
        "settings": session.follow_settings().now,
    }
    try:
        with nullcontext() if link or no_tasks else background_supervisor(session):
            return session.start("serve", options, session.environment, session.now)
    except ModuleNotFoundError as error:
        raise Failed(f"The web page needs the package {error.name}.", extra("serve")) from None
