"""What agents and their users are told; the English is here, other languages are data files."""

from __future__ import annotations

from keepfast.model.age import ago as english_age
from keepfast.model.age import amount, unit

LANGUAGES = ("en", "ko")

TEXTS = {
    "budget": "Checkpoint created (tokens {percent}%)",
    "budget_warning": "⚠️ Tokens at {percent}% - finish up the work",
    "budget_saving": "Checkpoint is being saved (tokens {percent}%)",
    "budget_failed": "Tokens at {percent}%; the checkpoint failed: {why}",
    "budget_agent": (
        "{message}. {used:,} of {budget:,} tokens are used. The files as they are now are kept as {checkpoint}."
    ),
    "budget_agent_plain": "{message}. {used:,} of {budget:,} tokens are used.",
    "budget_agent_warning": (
        " Bring the current step to an end and say what is left to do: the conversation may be compacted soon."
    ),
    "compact": (
        'keepfast: the last checkpoint of this workspace is {id} (v{version}, {trigger}): "{summary}". Keep this '
        "id in the summary; `keepfast restore {id}` brings its files back."
    ),
    "resumed": 'Resumed from checkpoint: "{summary}" (saved {age})',
    "offer": 'There is a checkpoint: "{summary}" (saved {age}). {resume} goes on from it.',
    "changed_since": (
        "keepfast: since the last checkpoint of this workspace these files changed on disk, by whoever it was:\n"
        "{changes}"
    ),
    "saving": "Checkpoint of the cleared session: saving …",
    "saving_crashed": "Checkpoint of the crashed session: saving …; `keepfast resume` goes on from it.",
    "clear_failed": "The checkpoint of the cleared session failed; `keepfast status` says why.",
    "cleared": (
        'Checkpoint saved: "{summary}"\nCheckpoint ID: {id}\nFiles changed: {files}, Lines added: {lines}\n'
        "Captured: {captured}, Analysis: {analysis}, Size: {size}"
    ),
    "not_kept": "No checkpoint was taken at this clear. Work changed since {version}: {files} ({names}).",
    "at_least": "at least {count}",
    "more_than": "more than {count}",
    "left_out": "Too large to be told of, left out: {names}. The checkpoint itself has them.",
    "current_task": "Current task",
    "no_analysis": "none",
    "more": "and {count} more",
    "keep_or_drop": "Keep it? {keep} or {drop}; without an answer it is kept.",
    "not_protected": "keepfast does not protect this session: {why}",
    "not_saved": "This folder is not protected, it cannot be saved: {why}",
    "moved": (
        "keepfast: {why} New checkpoints are kept apart; if you moved it, `keepfast init --moved` goes on with "
        "its history."
    ),
    "other_store": (
        "keepfast: This folder's checkpoints are in the store at {store}, which these hooks do not use: run "
        "`keepfast install claude` once, with your variables set. Until then new ones are kept apart."
    ),
    "strange_store": (
        "keepfast: The marker in this folder names a store that is not here. New checkpoints are kept apart; "
        "`keepfast init --new-store` makes that lasting."
    ),
    "obstacle": (
        "keepfast: {path} lies in the place of our marker. The folder is protected all the same, by its path: "
        "move it away, then run `keepfast init`."
    ),
    "renewed": (
        "keepfast: the marker in {folder} was that of another folder. It is written again, and the history goes on."
    ),
    "ask_command": "keepfast could not save all that this command may destroy: {why}. Run it all the same?",
    "deny_command": (
        "keepfast could not save all that this command may destroy: {why}. The setting "
        "hooks.before_command_unasked denies it."
    ),
    "unkept_command": "keepfast: not saved before this command: {why}. What it destroys of that cannot be restored.",
    "remade_command": "keepfast: not saved before this command, because it can be made again: {what}.",
    "made_by": "{path} (`{command}` makes it again)",
    "made_by_itself": "{path} (made again as it is used)",
    "left_by_settings": "{path} (left out by capture.exclude)",
    "and_more": "and {count:,} more",
    "late": "it takes longer than {seconds:g} s",
}


def text(name: str, language: str, **values: object) -> str:
    """Return the text of that name in the language."""
    return _form("messages", name, TEXTS[name], language).format(**values)


def change(kind: str, language: str) -> str:
    """Return what became of a file: `added`, or `추가`."""
    return _form("changes", kind, kind, language)


def counted(count: int, word: str, language: str) -> str:
    """Return `2 files`, or `파일 2개`."""
    return _form("counted", word, amount(count, word), language).format(count=count)


def ago(nanoseconds: int, language: str) -> str:
    """Return `12 seconds ago`, or `12초 전`."""
    count, word = unit(nanoseconds)
    return _form("ago", word or "now", english_age(nanoseconds), language).format(count=count)


def language(setting: str, *locales: str) -> str:
    """Return the language that is asked for: the setting's, else that of the first locale that names one."""
    if setting in LANGUAGES:
        return setting
    for locale in locales:
        if locale:
            return "ko" if locale.lower().startswith("ko") else "en"
    return "en"


def _form(table: str, name: str, english: str, language: str) -> str:
    if language == "en":
        return english
    from keepfast.settings.catalogue import catalogue

    return catalogue(language)[table].get(name, english)
