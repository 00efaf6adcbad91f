"""Telling people: a bell, a command, a webhook, ntfy with buttons; not in quiet hours, and at least once."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.error import URLError
from urllib.request import Request, urlopen

from holdfast.supervisor.waits import is_quiet

if TYPE_CHECKING:
    from holdfast.supervisor.ground import Ground

SECOND = 1_000_000_000
TRIES = 3
TIMEOUT = 10
URGENT = frozenset(("question", "secret", "approval", "failed", "budget", "denied"))
BATCH = 20
PASSED = ("PATH", "HOME", "DISPLAY", "DBUS_SESSION_BUS_ADDRESS")


def send_notices(ground: Ground) -> None:
    """Send what has not been sent; what cannot be sent is tried three times, and stays in the log."""
    rows = ground.tables.all("SELECT * FROM notice WHERE sent_at = 0 AND tries < ? ORDER BY at LIMIT ?", TRIES, BATCH)
    if not rows:
        return
    local = datetime.fromtimestamp(ground.now() / SECOND, ground.zone)
    if is_quiet(local.hour * 60 + local.minute, ground.options.quiet_hours):
        return
    for row in rows:
        notice = dict(row)
        failed = [why for why in (way(ground, notice) for way in WAYS) if why]
        with ground.tables.write() as tables:
            if failed:
                tables.do("UPDATE notice SET tries = tries + 1 WHERE id = ?", notice["id"])
                if notice["tries"] + 1 >= TRIES:
                    tables.log(notice["task"], ground.now(), "notice_failed", {"why": failed[0]})
            else:
                tables.do("UPDATE notice SET sent_at = ? WHERE id = ?", ground.now(), notice["id"])


def _bell(ground: Ground, notice: dict[str, Any]) -> str:
    if ground.options.notify_bell and notice["kind"] in URGENT and sys.stderr is not None and sys.stderr.isatty():
        sys.stderr.write("\a")
        sys.stderr.flush()
    return ""


def _command(ground: Ground, notice: dict[str, Any]) -> str:
    if not ground.options.notify_command:
        return ""
    environment = {
        name: ground.variables[name]
        for name in ("PATH", "HOME", "DISPLAY", "DBUS_SESSION_BUS_ADDRESS")
        if name in ground.variables
    }
    facts = {"HOLDFAST_NOTICE": notice["text"], "HOLDFAST_NOTICE_KIND": notice["kind"], "HOLDFAST_TASK": notice["task"]}
    try:
        done = subprocess.run(
            ground.options.notify_command,
            env={**environment, **facts, "HOLDFAST_NOTICE_ID": notice["id"]},
            input=json.dumps(_body(notice)).encode(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=TIMEOUT,
        )
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return str(error)
    return f"the command ended with {done.returncode}" if done.returncode else ""


def _webhook(ground: Ground, notice: dict[str, Any]) -> str:
    if not ground.options.notify_webhook:
        return ""
    return _post(
        ground.options.notify_webhook, json.dumps(_body(notice)).encode(), {"Content-Type": "application/json"}
    )


def _body(notice: dict[str, Any]) -> dict[str, Any]:
    return {name: notice[name] for name in ("id", "task", "kind", "text", "prompt")}


def _ntfy(ground: Ground, notice: dict[str, Any]) -> str:
    """A topic of ntfy; questions with options get a button for each of the first three."""
    url = ground.options.notify_ntfy
    if not url:
        return ""
    head = {"Title": "holdfast", "Priority": "high" if notice["kind"] in URGENT else "default", "X-Id": notice["id"]}
    prompts = ground.tables.prompts("id = ?", notice["prompt"]) if notice["prompt"] else []
    if prompts and prompts[0].options:
        head["Actions"] = "; ".join([_button(url, notice["prompt"], option) for option in prompts[0].options[:3]])
    return _post(url, notice["text"].encode(), head)


def _button(url: str, prompt: str, option: str) -> str:
    """The answer goes to the topic's own answer topic, with the id of the question."""
    label = option.replace(",", " ").replace(";", " ")[:40]
    body = json.dumps({"prompt": prompt, "answer": option}).replace("'", " ")
    return f"http, {label}, {url.rstrip('/')}-answers, method=POST, body='{body}', clear=true"


def _post(url: str, body: bytes, head: dict[str, str]) -> str:
    if not url.startswith(("https://", "http://")):
        return f"{url} is no address"
    try:
        safe = {name: value.encode("ascii", "replace").decode() for name, value in head.items()}
        with urlopen(Request(url, data=body, headers=safe, method="POST"), timeout=TIMEOUT):
            return ""
    except (URLError, OSError, ValueError) as error:
        return str(error)


WAYS = (_bell, _command, _webhook, _ntfy)
