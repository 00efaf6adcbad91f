"""Texts for agents and their users in English; other languages are in data files."""

from __future__ import annotations

from keepfast.app.translations import catalogue
from keepfast.model.age import ago as english_age
from keepfast.model.age import amount, unit

LANGUAGES = ("en", "ko")

TEXTS = {
    "budget": "Checkpoint created (tokens {percent}%)",
    "budget_warning": "⚠️ Tokens at {percent}% - finish up the work",
    "budget_saving": "Checkpoint is being saved (tokens {percent}%)",
    "budget_failed": "Tokens at {percent}%; the checkpoint failed: {why}",
    "budget_agent": ("{message}. {used:,} of {budget:,} tokens used. The current files are saved as {checkpoint}."),
    "budget_agent_plain": "{message}. {used:,} of {budget:,} tokens used.",
    "budget_agent_warning": (
        " Finish the current step and list what remains to be done: the conversation may be compacted soon."
    ),
    "compact": (
        'keepfast: the last checkpoint of this workspace is {id} (v{version}, {trigger}): "{summary}". Keep this '
        "id in the summary; `keepfast restore {id}` restores its files."
    ),
    "resumed": 'Resumed from checkpoint: "{summary}" (saved {age})',
    "offer": 'Checkpoint available: "{summary}" (saved {age}). Run {resume} to continue from it.',
    "changed_since": ("keepfast: unsaved changes on disk since the last checkpoint of this workspace:\n{changes}"),
    "saving": "Checkpoint of the cleared session: saving …",
    "saving_crashed": "Checkpoint of the crashed session: saving …. Run `keepfast resume` to continue from it.",
    "clear_failed": "The checkpoint of the cleared session failed. Run `keepfast status` to see why.",
    "cleared": (
        'Checkpoint saved: "{summary}"\nCheckpoint ID: {id}\nFiles changed: {files}, Lines added: {lines}\n'
        "Captured: {captured}, Analysis: {analysis}, Size: {size}"
    ),
    "not_kept": "No checkpoint was made at this clear. Unsaved changes since {version}: {files} ({names}).",
    "at_least": "at least {count}",
    "more_than": "more than {count}",
    "left_out": "Too large for the description, excluded: {names}. The checkpoint itself has them.",
    "current_task": "Current task",
    "no_analysis": "none",
    "more": "and {count} more",
    "keep_or_drop": "Keep it? {keep} or {drop}. Without an answer it is kept.",
    "not_protected": "keepfast does not protect this session: {why}",
    "not_saved": "This folder is not protected because it cannot be saved: {why}",
    "moved": (
        "keepfast: {why} New checkpoints go to a separate history. If you moved the folder, run `keepfast "
        "init --moved` to continue its history."
    ),
    "other_store": (
        "keepfast: This folder's checkpoints are in the store at {store}, which these hooks do not use. "
        "Run `keepfast install claude` once, with your variables set. Until then new checkpoints go to a "
        "separate history."
    ),
    "strange_store": (
        "keepfast: The marker in this folder names a store that does not exist here. New checkpoints go to "
        "a separate history. To keep it that way, run `keepfast init --new-store`."
    ),
    "obstacle": (
        "keepfast: {path} is in the place of the marker. The folder is still protected, by its path. Move "
        "it elsewhere, then run `keepfast init`."
    ),
    "renewed": (
        "keepfast: the marker in {folder} belonged to another folder. It was rewritten, and the history continues."
    ),
    "ask_command": "keepfast could not save everything that this command may destroy: {why}. Run it anyway?",
    "deny_command": (
        "keepfast could not save everything that this command may destroy: {why}. Denied by the setting "
        "hooks.before_command_unasked."
    ),
    "unkept_command": (
        "keepfast: not saved before this command: {why}. If the command deletes it, it cannot be restored."
    ),
    "remade_command": "keepfast: not saved before this command: {what}.",
    "made_by": "{path} (run `{command}` to recreate it)",
    "made_by_itself": "{path} (recreated when needed)",
    "left_by_settings": "{path} (excluded by capture.exclude)",
    "and_more": "and {count:,} more",
    "late": "saving takes longer than {seconds:g} s",
}


def text(name: str, language: str, **values: object) -> str:
    """Return the text of that name in the language, filled in."""
    return _form("messages", name, TEXTS[name], language).format(**values)


def change(kind: str, language: str) -> str:
    """Return the word for a kind of change: `added`, or `추가`."""
    return _form("changes", kind, kind, language)


def counted(count: int, word: str, language: str) -> str:
    """Return `2 files`, or `파일 2개`."""
    return _form("counted", word, amount(count, word), language).format(count=count)


def ago(nanoseconds: int, language: str) -> str:
    """Return `12 seconds ago`, or `12초 전`."""
    count, word = unit(nanoseconds)
    return _form("ago", word or "now", english_age(nanoseconds), language).format(count=count)


def language(setting: str, *locales: str) -> str:
    """Return the language to use: the setting's, else that of the first locale that is set, else English."""
    if setting in LANGUAGES:
        return setting
    for locale in locales:
        if locale:
            return "ko" if locale.lower().startswith("ko") else "en"
    return "en"


def _form(table: str, name: str, english: str, language: str) -> str:
    if language == "en":
        return english
    return catalogue(language)[table].get(name, english)
