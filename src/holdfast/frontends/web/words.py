"""The page's sentences in the visitor's language: English ones are their own keys."""

from __future__ import annotations

from holdfast.frontends.web.korean import KOREAN

LANGUAGES = ("en", "ko")

ENGLISH = {
    "retention.keep_last": "Newest that are always kept",
    "retention.hourly_hours": "One an hour is kept for",
    "retention.max_size": "The store grows to at most",
    "checkpoint.cleanup_after_days": "Others go after",
}
"""What stands for the names of settings."""


class Words:
    """`words(text)` gives the sentence in the visitor's language; what has no translation stays English."""

    def __init__(self, language: str) -> None:
        self.language = language if language in LANGUAGES else "en"

    def __call__(self, text: str) -> str:
        return (KOREAN if self.language == "ko" else ENGLISH).get(text, text)


def chosen(wanted: str, accepted: str) -> str:
    """The language that was chosen, else the first of the browser's that there is."""
    if wanted in LANGUAGES:
        return wanted
    for part in accepted.split(","):
        code = part.partition(";")[0].strip().lower()[:2]
        if code in LANGUAGES:
            return code
    return "en"
