"""Translations: one TOML file per language in `languages/`, loaded on first use."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from tomllib import loads


@cache
def catalogue(language: str) -> dict[str, dict[str, str]]:
    """Return the tables of a language: messages, words, and the sentences of the page."""
    return loads(files("keepfast").joinpath("languages", f"{language}.toml").read_text("utf-8"))
