"""Channels to people: the terminal bell, a command, a webhook, ntfy with a button for each answer; and answers from ntfy."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit
from urllib.request import OpenerDirector, ProxyHandler, Request, build_opener

from keepfast.runner.actions.runtime import Runtime
from keepfast.runner.db import queries
from keepfast.runner.domain.records import Notification
from keepfast.runner.process.redaction import clean_text

TIMEOUT = 10
URGENT = frozenset(("question", "secret", "dependency", "approval", "failed", "budget", "denied", "stuck"))
BUTTONS = 3
"""Number of buttons that ntfy shows."""
LABEL = 40
PASSED = ("PATH", "HOME", "LANG", "DISPLAY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS")
MAX_RESPONSE_BYTES = 1 << 20


def ring(runtime: Runtime, kind: str) -> None:
    """Ring the bell of the supervisor's terminal, if there is one."""
    if runtime.options.notify_bell and kind in URGENT and sys.stderr is not None and sys.stderr.isatty():
        sys.stderr.write("\a")
        sys.stderr.flush()


class Body(NamedTuple):
    """A notice as it is sent; its fields are keys in JSON."""

    id: str
    task: str
    kind: str
    text: str
    prompt: str
    options: list[str]


def body(runtime: Runtime, notice: Notification) -> Body:
    """Return a notice as it is sent, redacted."""
    prompt = queries.find_prompt(runtime.tables, notice.prompt) if notice.prompt else None
    options = [clean_text(option) for option in prompt.options] if prompt is not None else []
    return Body(notice.id, notice.task, notice.kind, clean_text(notice.text), notice.prompt, options)


def command(runtime: Runtime, notice: Body) -> str:
    """Run the command with the notice on its standard input; return why it failed, empty if it did not."""
    environment = {name: runtime.variables[name] for name in PASSED if name in runtime.variables}
    facts = {
        "KEEPFAST_NOTICE": notice.text.replace("\0", ""), "KEEPFAST_NOTICE_KIND": notice.kind,
        "KEEPFAST_NOTICE_ID": notice.id, "KEEPFAST_TASK": notice.task,
    }  # fmt: skip
    try:
        done = subprocess.run(
            runtime.options.notify_command,
            env={**environment, **facts},
            input=json.dumps(notice._asdict()).encode(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=TIMEOUT,
        )
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return str(error)
    return f"the command exited with code {done.returncode}" if done.returncode else ""


def webhook(runtime: Runtime, notice: Body) -> str:
    return _post(runtime, runtime.options.notify_webhook, notice._asdict())


def ntfy(runtime: Runtime, notice: Body) -> str:
    """Publish to the topic; a question with options gets a button for each of the first three."""
    server, topic = _topic(runtime.options.notify_ntfy)
    message: dict[str, Any] = {
        "topic": topic, "title": "keepfast", "message": notice.text, "priority": 4 if notice.kind in URGENT else 3,
        "tags": [notice.kind],
    }  # fmt: skip
    if notice.kind == "question" and notice.options:
        message["actions"] = [
            {
                "action": "http", "label": option[:LABEL], "url": f"{server}/{quote(topic)}-answers", "method": "POST",
                "body": json.dumps(_signed(runtime, notice.prompt, number)), "clear": True,
            }
            for number, option in enumerate(notice.options[:BUTTONS])
        ]  # fmt: skip
    return _post(runtime, server + "/", message)


CHANNELS = {"notify_command": command, "notify_webhook": webhook, "notify_ntfy": ntfy}
"""Channels by the setting that enables them."""


def answers(runtime: Runtime, since: str) -> Iterator[tuple[str, str, int]]:
    """Yield the answers after a message or a moment: the message's id, the question's id, the number of the option.

    Only answers with the code of one of our buttons count; nobody else can make one. Raises `OSError`, `ValueError`.
    """
    server, topic = _topic(runtime.options.notify_ntfy)
    url = f"{server}/{quote(topic)}-answers/json?poll=1&since={quote(since)}"
    with _opener(runtime, url).open(Request(url), timeout=TIMEOUT) as response:
        lines = response.read(MAX_RESPONSE_BYTES).splitlines()
    for line in lines:
        try:
            message = json.loads(line)
            answer = json.loads(message["message"])
            id, number = str(answer["prompt"]), int(answer["option"])
            if runtime.key.is_ours(_plain(id, number), answer["code"]):
                yield str(message["id"]), id, number
        except (ValueError, KeyError, TypeError):
            continue


def _signed(runtime: Runtime, prompt: str, number: int) -> dict[str, Any]:
    return {"prompt": prompt, "option": number, "code": runtime.key.code(_plain(prompt, number))}


def _plain(prompt: str, number: int) -> bytes:
    return f"answer\0{prompt}\0{number}".encode()


def _topic(url: str) -> tuple[str, str]:
    """Split a URL such as `https://ntfy.sh/my-topic` into server and topic."""
    server, _, topic = url.rstrip("/").rpartition("/")
    return server, topic


def _post(runtime: Runtime, url: str, content: dict[str, Any]) -> str:
    if not url.startswith(("https://", "http://")):
        return f"{url} is not a valid address"
    try:
        head = {"Content-Type": "application/json", "User-Agent": "keepfast"}
        request = Request(url, data=json.dumps(content).encode(), headers=head, method="POST")
        with _opener(runtime, url).open(request, timeout=TIMEOUT):
            return ""
    except (OSError, ValueError) as error:
        return str(error)


def _opener(runtime: Runtime, url: str) -> OpenerDirector:
    """Return an opener with the proxies of our environment; without any for this machine itself."""
    host = urlsplit(url).hostname or ""
    if host == "localhost" or host.startswith("127.") or host == "::1":
        return build_opener(ProxyHandler({}))
    proxies = {name: runtime.variables.get(f"{name}_proxy", "") for name in ("http", "https")}
    return build_opener(ProxyHandler({name: address for name, address in proxies.items() if address}))
