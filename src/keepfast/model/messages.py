"""What agents and their users are told, in English and Korean."""

from __future__ import annotations

from keepfast.model.age import amount

LANGUAGES = ("en", "ko")

TEXTS = {
    "budget": ("Checkpoint created (tokens {percent}%)", "체크포인트 생성됨 (토큰 {percent}%)"),
    "budget_warning": ("⚠️ Tokens at {percent}% - finish up the work", "⚠️ 토큰 {percent}% - 작업 마무리 권장"),
    "budget_saving": ("Checkpoint is being saved (tokens {percent}%)", "체크포인트 저장 중 (토큰 {percent}%)"),
    "budget_failed": (
        "Tokens at {percent}%; the checkpoint failed: {why}",
        "토큰 {percent}%, 체크포인트 생성 실패: {why}",
    ),
    "budget_agent": (
        "{message}. {used:,} of {budget:,} tokens are used. The files as they are now are kept as {checkpoint}.",
        "{message}. 토큰 {budget:,}개 중 {used:,}개 사용. 현재 파일 상태는 {checkpoint}(으)로 저장되었습니다.",
    ),
    "budget_agent_plain": (
        "{message}. {used:,} of {budget:,} tokens are used.",
        "{message}. 토큰 {budget:,}개 중 {used:,}개 사용.",
    ),
    "budget_agent_warning": (
        " Bring the current step to an end and say what is left to do: the conversation may be compacted soon.",
        " 곧 대화가 압축될 수 있으니 현재 단계를 마무리하고 남은 일을 정리하세요.",
    ),
    "compact": (
        "keepfast: the last checkpoint of this workspace is {id} (v{version}, {trigger}): \"{summary}\"."
        " Keep this id in the summary; `keepfast restore {id}` brings its files back.",
        "keepfast: 이 작업 공간의 마지막 체크포인트는 {id} (v{version}, {trigger}): \"{summary}\"."
        " 요약에 이 id를 남겨 두세요. `keepfast restore {id}`(으)로 파일을 되돌릴 수 있습니다.",
    ),
    "resumed": (
        "Resumed from checkpoint: \"{summary}\" (saved {age})",
        "체크포인트에서 재개: \"{summary}\" ({age} 저장)",
    ),
    "offer": (
        "There is a checkpoint: \"{summary}\" (saved {age}). {resume} goes on from it.",
        "체크포인트가 있습니다: \"{summary}\" ({age} 저장). {resume} 명령으로 이어갈 수 있습니다.",
    ),
    "changed_since": (
        "keepfast: since the last checkpoint of this workspace these files changed on disk, by whoever it was:\n{changes}",
        "keepfast: 마지막 체크포인트 이후 디스크에서 변경된 파일:\n{changes}",
    ),
    "saving": ("Checkpoint of the cleared session: saving …", "지워진 세션의 체크포인트 저장 중 …"),
    "saving_crashed": (
        "Checkpoint of the crashed session: saving …; `keepfast resume` goes on from it.",
        "비정상 종료된 세션의 체크포인트 저장 중 …. `keepfast resume` 명령으로 이어갈 수 있습니다.",
    ),
    "clear_failed": (
        "The checkpoint of the cleared session failed; `keepfast status` says why.",
        "지워진 세션의 체크포인트 생성에 실패했습니다. `keepfast status`에서 이유를 확인하세요.",
    ),
    "cleared": (
        "Checkpoint saved: \"{summary}\"\nCheckpoint ID: {id}\nFiles changed: {files}, Lines added: {lines}\n"
        "Captured: {captured}, Analysis: {analysis}, Size: {size}",
        "체크포인트 저장됨: \"{summary}\"\n체크포인트 ID: {id}\n변경된 파일: {files}, 추가된 줄: {lines}\n"
        "저장: {captured}, 분석: {analysis}, 크기: {size}",
    ),
    "not_kept": (
        "No checkpoint was taken at this clear. Work changed since {version}: {files} ({names}).",
        "이번 clear에서는 체크포인트를 만들지 않았습니다. {version} 이후 변경: {files} ({names}).",
    ),
    "at_least": ("at least {count}", "최소 {count}"),
    "more_than": ("more than {count}", "{count} 이상"),
    "left_out": (
        "Too large to be told of, left out: {names}. The checkpoint itself has them.",
        "너무 커서 설명에서 제외됨: {names}. 체크포인트 자체에는 저장되어 있습니다.",
    ),
    "current_task": ("Current task", "현재 작업"),
    "no_analysis": ("none", "없음"),
    "more": ("and {count} more", "외 {count}개"),
    "keep_or_drop": (
        "Keep it? {keep} or {drop}; without an answer it is kept.",
        "보관할까요? {keep} 또는 {drop}. 답하지 않으면 보관됩니다.",
    ),
    "not_protected": ("keepfast does not protect this session: {why}", "keepfast가 이 세션을 보호하지 않습니다: {why}"),
    "not_saved": (
        "This folder is not protected, it cannot be saved: {why}",
        "이 폴더는 저장할 수 없어 보호되지 않습니다: {why}",
    ),
    "moved": (
        "keepfast: {why} New checkpoints are kept apart; if you moved it, `keepfast init --moved` goes on with its history.",
        "keepfast: {why} 새 체크포인트는 따로 보관됩니다. 폴더를 옮긴 것이라면 `keepfast init --moved`로 기록을 이어 가세요.",
    ),
    "other_store": (
        "keepfast: This folder's checkpoints are in the store at {store}, which these hooks do not use: run"
        " `keepfast install claude` once, with your variables set. Until then new ones are kept apart.",
        "keepfast: 이 폴더의 체크포인트는 {store} 저장소에 있지만 이 훅은 그 저장소를 쓰지 않습니다. 환경 변수를 설정한 상태에서"
        " `keepfast install claude`를 한 번 실행하세요. 그때까지 새 체크포인트는 따로 보관됩니다.",
    ),
    "strange_store": (
        "keepfast: The marker in this folder names a store that is not here. New checkpoints are kept apart;"
        " `keepfast init --new-store` makes that lasting.",
        "keepfast: 이 폴더의 표식이 가리키는 저장소가 여기에 없습니다. 새 체크포인트는 따로 보관됩니다."
        " 계속 그렇게 하려면 `keepfast init --new-store`를 실행하세요.",
    ),
    "obstacle": (
        "keepfast: {path} lies in the place of our marker. The folder is protected all the same, by its path: move it away,"
        " then run `keepfast init`.",
        "keepfast: {path}이(가) 표식 자리에 있습니다. 폴더는 경로로 계속 보호됩니다."
        " 그것을 옮긴 뒤 `keepfast init`을 실행하세요.",
    ),
    "renewed": (
        "keepfast: the marker in {folder} was that of another folder. It is written again, and the history goes on.",
        "keepfast: {folder}의 표식이 다른 폴더의 것이어서 다시 썼습니다. 기록은 계속 이어집니다.",
    ),
    "ask_command": (
        "keepfast could not save all that this command may destroy: {why}. Run it all the same?",
        "이 명령이 지울 수 있는 것을 keepfast가 모두 저장하지 못했습니다: {why}. 그래도 실행할까요?",
    ),
    "deny_command": (
        "keepfast could not save all that this command may destroy: {why}. The setting hooks.before_command_unasked denies it.",
        "이 명령이 지울 수 있는 것을 keepfast가 모두 저장하지 못했습니다: {why}."
        " hooks.before_command_unasked 설정에 따라 거부합니다.",
    ),
    "unkept_command": (
        "keepfast: not saved before this command: {why}. What it destroys of that cannot be restored.",
        "keepfast: 이 명령 전에 저장되지 않음: {why}. 지워지면 복원할 수 없습니다.",
    ),
    "remade_command": (
        "keepfast: not saved before this command, because it can be made again: {what}.",
        "keepfast: 다시 만들 수 있어 이 명령 전에 저장하지 않음: {what}.",
    ),
    "made_by": ("{path} (`{command}` makes it again)", "{path} (`{command}` 명령으로 다시 생성)"),
    "made_by_itself": ("{path} (made again as it is used)", "{path} (사용하면 다시 생성)"),
    "left_by_settings": ("{path} (left out by capture.exclude)", "{path} (capture.exclude 설정으로 제외)"),
    "and_more": ("and {count:,} more", "외 {count:,}개"),
    "late": ("it takes longer than {seconds:g} s", "{seconds:g}초보다 오래 걸립니다"),
}  # fmt: skip


WORDS = {"file": "파일", "next step": "다음 단계", "decision": "결정", "blocker": "막힌 점"}


CHANGES = {
    "added": "추가", "deleted": "삭제", "modified": "수정", "mode": "권한 변경", "type": "종류 변경", "left out": "제외",
}  # fmt: skip


def change(kind: str, language: str) -> str:
    """What became of a file: `added`, or `추가`."""
    return CHANGES[kind] if language == "ko" else kind


def counted(count: int, word: str, language: str) -> str:
    """`2 files`, or `파일 2개`."""
    return f"{WORDS[word]} {count:,}개" if language == "ko" else amount(count, word)


def text(name: str, language: str, **values: object) -> str:
    """Return the text of that name in `ko`, else in English."""
    return TEXTS[name][language == "ko"].format(**values)


def language(setting: str, *locales: str) -> str:
    """Return the language that is asked for: the setting's, else that of the first locale that names one."""
    if setting in LANGUAGES:
        return setting
    for locale in locales:
        if locale:
            return "ko" if locale.lower().startswith("ko") else "en"
    return "en"
