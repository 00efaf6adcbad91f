"""What agents and their users are told, in English and Korean."""

from __future__ import annotations

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
        "holdfast: the last checkpoint of this workspace is {id} (v{version}, {trigger}): \"{summary}\"."
        " Keep this id in the summary; `holdfast restore {id}` brings its files back.",
        "holdfast: 이 작업 공간의 마지막 체크포인트는 {id} (v{version}, {trigger}): \"{summary}\"."
        " 요약에 이 id를 남겨 두세요. `holdfast restore {id}`(으)로 파일을 되돌릴 수 있습니다.",
    ),
    "resumed": (
        "Resumed from checkpoint: \"{summary}\" (saved {age} ago)",
        "체크포인트에서 재개: \"{summary}\" ({age} 전 저장)",
    ),
    "offer": (
        "There is a checkpoint: \"{summary}\" (saved {age} ago). /holdfast:resume goes on from it.",
        "체크포인트가 있습니다: \"{summary}\" ({age} 전 저장). /holdfast:resume 명령으로 이어갈 수 있습니다.",
    ),
    "changed_since": (
        "holdfast: since the last checkpoint of this workspace these files changed on disk, by whoever it was:\n{changes}",
        "holdfast: 마지막 체크포인트 이후 디스크에서 변경된 파일:\n{changes}",
    ),
    "saving": ("Checkpoint of the cleared session: saving …", "지워진 세션의 체크포인트 저장 중 …"),
    "clear_failed": (
        "The checkpoint of the cleared session failed; `holdfast status` says why.",
        "지워진 세션의 체크포인트 생성에 실패했습니다. `holdfast status`에서 이유를 확인하세요.",
    ),
    "cleared": (
        "Checkpoint saved: \"{summary}\"\nCheckpoint ID: {id}\nFiles changed: {files}, Lines added: {lines}\n"
        "Captured: {captured} files, Analysis: {analysis}, Size: {size}",
        "체크포인트 저장됨: \"{summary}\"\n체크포인트 ID: {id}\n변경된 파일: {files}, 추가된 줄: {lines}\n"
        "저장: 파일 {captured}개, 분석: {analysis}, 크기: {size}",
    ),
    "keep_or_drop": (
        "Keep it? /holdfast:keep or /holdfast:drop; without an answer it is kept.",
        "보관할까요? /holdfast:keep 또는 /holdfast:drop. 답하지 않으면 보관됩니다.",
    ),
    "ask_command": (
        "holdfast could not save the files that this command may change: {why}. Run it all the same?",
        "이 명령이 바꿀 수 있는 파일을 holdfast가 저장하지 못했습니다: {why}. 그래도 실행할까요?",
    ),
    "late": ("it takes longer than {seconds:g} s", "{seconds:g}초보다 오래 걸립니다"),
}  # fmt: skip


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
