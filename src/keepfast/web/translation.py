"""The page's sentences in the visitor's language: English ones are their own keys."""

from __future__ import annotations

import re
from functools import cache

from keepfast.settings.catalogue import catalogue

LANGUAGES = ("en", "ko")

ENGLISH = {
    "retention.keep_last": "Newest checkpoints always kept",
    "retention.hourly_hours": "One checkpoint per hour kept for",
    "retention.max_size": "Maximum size of the store",
    "checkpoint.cleanup_after_days": "Other checkpoints removed after",
    "waiting question": "waiting for an answer",
    "waiting dependency": "waiting for a dependency",
    "waiting review": "waiting for review",
    "waiting rate limit": "waiting for a limit",
    "review": "for review",
    "user pause": "paused",
    "held backoff": "retrying soon",
    "held crashed": "stopped",
    "held host lost": "host lost",
    "held no progress": "no progress",
    "held unsaved": "not saved",
    "unsaved": "not saved",
    "held budget": "budget used up",
    "five hour": "five-hour limit",
    "seven day": "weekly limit",
    "context": "conversation",
    "left_out": "left out",
    "entered": "signed in",
    "wanted": "requested",
    "go on": "resume",
    "run begun": "run started",
    "budget told": "agent told its budget",
    "progress told": "progress",
    "duplicate refused": "duplicate request refused",
    "lingering": "still running after its end",
    "trouble": "supervisor error",
    "found": "run found again",
    "overtaken": "superseded",
    "rebuilt": "rebuilt from its documents",
    "check ground": "file system",
    "check space": "free space",
    "check bytecode": "hooks",
    "check analysis": "analysis",
    "check sqlite": "database",
    "check python": "Python",
    "check claude": "Claude Code",
    "cap": "limit",
    "money": "cost",
}
"""What stands for the names of settings, states and checks."""


class Words:
    """`words(text)` gives the sentence in the visitor's language; what has no translation stays English."""

    def __init__(self, language: str) -> None:
        self.language = language if language in LANGUAGES else "en"
        self._page = ENGLISH if self.language == "en" else catalogue(self.language)["page"]

    def __call__(self, text: str) -> str:
        return self._page.get(text, text)

    def sentence(self, text: str) -> str:
        """A sentence that another part of the program made, names and numbers in it."""
        if self.language == "en" or text in self._page:
            return self(text)
        for english, translated in _patterns(self.language):
            match = english.fullmatch(text)
            if match is not None:
                return translated.format(*[self(part) for part in match.groups()])
        return text


@cache
def _patterns(language: str) -> list[tuple[re.Pattern[str], str]]:
    # The one that says most of a sentence comes first: "There is no {} {}." would take many others for its own.
    sentences = catalogue(language)["sentences"]
    longest = sorted(sentences, key=lambda english: -len(english.replace("{}", "")))
    return [(pattern(english), sentences[english]) for english in longest]


def pattern(english: str) -> re.Pattern[str]:
    """What a sentence with `{}` for its names and numbers looks like when they are filled in."""
    return re.compile("(.+?)".join([re.escape(part) for part in english.split("{}")]), re.DOTALL)


def chosen(choice: str, accepted: str) -> str:
    """The language that was chosen, else the first of the browser's that there is."""
    if choice in LANGUAGES:
        return choice
    for part in accepted.split(","):
        code = part.partition(";")[0].strip().lower()[:2]
        if code in LANGUAGES:
            return code
    return "en"
