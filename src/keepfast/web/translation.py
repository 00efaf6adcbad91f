"""The page's texts in the visitor's language. The English text is the key."""

from __future__ import annotations

import re
from functools import cache

from keepfast.app.translations import catalogue

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
    "check filesystem": "file system",
    "check space": "free space",
    "check bytecode": "hooks",
    "check analysis": "analysis",
    "check sqlite": "database",
    "check python": "Python",
    "check claude": "Claude Code",
    "money": "cost",
}
"""English texts for names of settings, states, events and checks."""


class Words:
    """Translates texts: `words(text)`. Texts without a translation stay English."""

    def __init__(self, language: str) -> None:
        self.language = language if language in LANGUAGES else "en"
        self._page = ENGLISH if self.language == "en" else catalogue(self.language)["page"]

    def __call__(self, text: str) -> str:
        return self._page.get(text, text)

    def sentence(self, text: str) -> str:
        """Translate a sentence that already has names and numbers filled in."""
        if self.language == "en" or text in self._page:
            return self(text)
        for english, translated in _patterns(self.language):
            match = english.fullmatch(text)
            if match is not None:
                return translated.format(*[self(part) for part in match.groups()])
        return text


@cache
def _patterns(language: str) -> list[tuple[re.Pattern[str], str]]:
    # The longest pattern comes first: "There is no {} {}." would match many others.
    sentences = catalogue(language)["sentences"]
    longest = sorted(sentences, key=lambda english: -len(english.replace("{}", "")))
    return [(pattern(english), sentences[english]) for english in longest]


def pattern(english: str) -> re.Pattern[str]:
    """Return the pattern that matches a sentence with its `{}` filled in."""
    return re.compile("(.+?)".join([re.escape(part) for part in english.split("{}")]), re.DOTALL)


def chosen(choice: str, accepted: str) -> str:
    """Return the chosen language, else the first language of the browser that we have."""
    if choice in LANGUAGES:
        return choice
    for part in accepted.split(","):
        code = part.partition(";")[0].strip().lower()[:2]
        if code in LANGUAGES:
            return code
    return "en"
