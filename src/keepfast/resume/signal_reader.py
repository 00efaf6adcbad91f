"""Reads the signals for ranking from a conversation."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import chain, islice

from keepfast.agents.transcript import Conversation
from keepfast.agents.turns import RUN, SEARCH, Call, Turn
from keepfast.resume.signals import POINTER, Signals, words

TEXTS = 3
SEARCHED = 60
LOOKED_BACK = 2_000  # turns: a thought of before then is forgotten
THOUGHTS = 2
CHANGES = 12
HALF = 12.0
HIT = re.compile(r"^(?:(?P<path>[^\s:][^:\n]*?)[:\-])?(?P<line>\d+)[:\-]", re.M)
SHELL_HIT = re.compile(r"^(?P<path>[\w./@+-]+\.\w+):(?P<line>\d+)[:\-]", re.M)
SEARCHES = re.compile(r"\b(?:rg|grep|ag|ack)\b")
QUOTED = re.compile(r"[\"']([^\"'\n]{3,120})[\"']")
FAILURE = re.compile(
    r"\bFAIL|\b[1-9]\d* (?:failed|errors?)\b|\berror(?:\[\w+\])?:|\bError\b|\bpanic\b|✗|✖|AssertionError|Traceback|Exception\b"
)
NAME = re.compile(r"(?<![\w@+-])[\w@+-][\w.@+-]{0,254}\.[A-Za-z]{1,6}\b")


def read(conversation: Conversation, tasks: list[tuple[str, str]], calls: list[Call], relevant: list[Call]) -> Signals:
    """Return the signals of its last steps; `tasks` are (status, text), `calls` the last, `relevant` those with commands."""
    now = conversation.calls
    prompt_turns = _newest(conversation, ("asked",), 2)
    recent = [turn.text for turn in _newest(conversation, ("said", "asked"), TEXTS)]
    recent += [turn.text for turn in _newest(conversation, ("thought",), THOUGHTS)]
    last = [turn.text for turn in _newest(conversation, ("said", "asked", "thought"), 1)]
    prompts = " ".join([turn.text for turn in prompt_turns])
    open_tasks = " ".join([text for status, text in tasks if status != "completed"])
    failure, failed = _failure(relevant, now)
    removed, changed = _changes(conversation, now)
    signals = Signals(
        now=now,
        prompt_at=prompt_turns[-1].number if prompt_turns else 0,
        words={
            "recent": _weights(words(" ".join(recent))),
            "last": _weights(words(" ".join(last))),
            "asked": _weights(words(prompts)),
            "open": _weights(words(open_tasks)),
            "current": _weights(words(" ".join([text for status, text in tasks if status == "in_progress"]))),
            "failure": _weights(words(failure)),
            "removed": removed,
            "changed": changed,
        },
        failed=failed,
    )
    signals.named = {
        "recent": _names(recent),
        "open": _names([open_tasks]),
        "asked": _names([prompts]),
        "failure": _names([failure]),
    }
    for text, weight in [*[(text, 1.0) for text in recent], (failure, failed)]:
        for match in POINTER.finditer(text):
            _point(signals.pointed, match[1], match[2], weight)
    signals.words["sought"] = _searches(calls, now, signals)
    return signals


def _newest(conversation: Conversation, kinds: tuple[str, ...], count: int) -> list[Turn]:
    """Return the last turns of these kinds, in their order; a long session is not gone through for them."""
    newest: list[Turn] = []
    turns = reversed(conversation.turns)
    back = chain(turns, reversed(conversation.earlier)) if "asked" in kinds else islice(turns, LOOKED_BACK)
    for turn in back:
        if turn.kind in kinds and not turn.side:
            newest.append(turn)
            if len(newest) == count:
                break
    return newest[::-1]


def _fading(age: int) -> float:
    return float(0.5 ** (max(age, 0) / HALF))


def _weights(counts: dict[str, int]) -> dict[str, float]:
    return {word: float(count) for word, count in counts.items()}


def _names(texts: Iterable[str]) -> list[str]:
    return sorted({name for text in texts for name in NAME.findall(text)})


def _point(places: dict[str, list[tuple[int, float]]], path: str, line: str, weight: float) -> None:
    listed = places.setdefault(path.rsplit("/", 1)[-1], [])
    if len(listed) < 60:
        listed.append((int(line), weight))


def _failure(calls: list[Call], now: int) -> tuple[str, float]:
    """Return the end of the newest failing output among the last runs, and how fresh it is."""
    for call in islice((call for call in reversed(calls) if call.act == RUN and not call.refused), 12):
        if call.failed or FAILURE.search(call.output):
            return call.output[-3000:], _fading(now - call.number)
    return "", 0.0


def _changes(conversation: Conversation, now: int) -> tuple[dict[str, float], dict[str, float]]:
    """Return the identifiers that the last edits removed, and all that were in them."""
    removed: dict[str, float] = {}
    changed: dict[str, float] = {}
    for change in conversation.files.changes[-CHANGES:]:
        fresh, fresher = _fading(now - change.at), 0.5 ** ((now - change.at) / 8)
        old, new = words(change.old), words(change.new)
        for word in old:
            if word not in new:
                removed[word] = max(removed.get(word, 0.0), fresh)
        for word in (*old, *new):
            changed[word] = max(changed.get(word, 0.0), fresher)
    return removed, changed


def _searches(calls: list[Call], now: int, signals: Signals) -> dict[str, float]:
    sought: dict[str, float] = {}

    def seek(text: str, weight: float) -> None:
        for word in words(text):
            sought[word] = max(sought.get(word, 0.0), weight)

    for call in calls[-SEARCHED:]:
        weight = _fading(now - call.number)
        if call.act == SEARCH:
            seek(str(call.input.get("pattern") or ""), weight)
            whole = str(call.input.get("path") or "")
            for match in HIT.finditer(call.hits):
                if match["path"] or whole:
                    _point(signals.hits, match["path"] or whole, match["line"], weight)
        elif call.act == RUN and SEARCHES.search(call.command):
            seek(" ".join(QUOTED.findall(call.command)), weight)
            for match in SHELL_HIT.finditer(call.output):
                _point(signals.hits, match["path"], match["line"], weight)
    return sought
