"""Notes from a conversation, without a model: what is stated wins over what is inferred."""

from __future__ import annotations

import re
from itertools import chain

from keepfast.agents import shell_views as shell
from keepfast.agents.transcript import Conversation
from keepfast.agents.turns import ASK, OTHER, PLAN, RUN, TASK, TODO, Call, Turn
from keepfast.resume import phrases
from keepfast.resume import signal_reader as signs
from keepfast.resume import task_name as work
from keepfast.resume.inheritance import TEST_FAILS, WAITING, Inheritance, join
from keepfast.resume.notes import CommandRun, FileNote, Notes
from keepfast.resume.run_output import FAILED, says_passed
from keepfast.resume.tokens import calibrate
from keepfast.secrets.cuts import head, tail
from keepfast.secrets.marks import is_secret_by_name

__all__ = ["CommandRun", "FileNote", "Notes", "take"]

MAX_FILES = 60
MAX_STEPS = 8
RECENT_TURNS = 1_200  # where decisions are looked for
SEARCHED = 6_000  # characters of a text in which a decision is looked for
MAX_DECISIONS = 8
MAX_BLOCKERS = 5
MAX_COMMANDS = 10
TAIL = 1_200
TELLING = frozenset((TODO, TASK, PLAN, ASK, RUN, OTHER))
STATED = re.compile(r"(?:^|_)checkpoint_save$")
# How the line of a program begins that runs tests, checks or a build.
TEST = re.compile(
    r"(?:go (?:-C \S+ )?(?:test|build|vet)|pytest|py\.test|unittest|tox|nox|npm (?:.* )?\S*(?:test|build|lint|check)\S*"
    r"|tsc|eslint|vitest|jest|mocha|playwright|(?:bun|deno) (?:run )?\S*test\S*"
    r"|(?:pnpm|yarn) (?!(?:add|install|i|remove|rm|up|why|list|info) )(?:.* )?\S*(?:test|build|lint|check|tsc)\S*"
    r"|cargo (?:\S+ )?(?:test|check|build|clippy|nextest)"
    r"|mvnw?|gradlew?|dotnet (?:test|build)|rspec|rake|phpunit|mix test|swift (?:test|build)|xcodebuild|ctest"
    r"|make(?:$| (?:.* )?\S*(?:test|check|lint|build)\S*)"
    r"|just \S*test\S*|mise run \S*(?:test|lint|check|build)\S*|golangci-lint|ruff|mypy|pyright|flutter test|gotestsum)(?!\S)"
)
BROKEN = re.compile(rf"{TEST.pattern}|make(?!\S)")
WORDS = re.compile(r"[\s;|&<>()'\"`=]+")
TESTING = re.compile(
    r"test|build|vet|tox|nox|lint|check|tsc|mocha|jest|playwright|clippy|mvn|gradle|rspec|rake|unit|xcode|make|ruff|mypy|pyright"
)
"""Parts of all their names: most commands have none, and are not parsed further."""
PRINTS_ABOUT_ITSELF = re.compile(r"(?<!\S)(?:--?(?:version|help)|-h)(?!\S)")
"""With these options a program prints its version or help and runs nothing."""
LISTS = re.compile(
    r"(?<!\S)--(?:co|collect-only|list|list-?[tT]ests|fixtures|markers|dry-run|just-print|notest)(?!\S)"
    r"|make (?:.* )?-(?![CIOWfo])[a-zA-Z]*n\w*(?!\S)"
)
"""With these options a program lists its tests or steps and runs none; that it failed has to be known all the same."""
FORGIVING = re.compile(
    r"(?<!\S)(?:--(?:ignore-errors|exit-zero|fail-never)|-Dmaven\.test\.failure\.ignore\S*)(?!\S)"
    r"|(?:make (?:.* )?-(?![CIOWfo])[a-zA-Z]*i\w*|mvnw? (?:.* )?-fn)(?!\S)"
)
"""With these options a program ends with 0 although something failed."""
TRIVIAL = re.compile(r"^(?:ls|cat|sed -n|head|tail|pwd|echo|cd|grep|rg|find|wc|which|sleep|true|nl|tree)\b[^&|;]*$")
DOCUMENT = re.compile(r"\.(?:md|mdx|rst|adoc|txt)$", re.I)
# Words that only lead up to an edit or a look; the step itself is what follows them.
LOOKING = re.compile(
    r"^(?:check|look|see|read|view|find|search|explore|examine|understand|take a look|verify what|start by)\b", re.I
)


def take(conversation: Conversation, before: Inheritance | None = None) -> Notes:
    """Return the notes at the conversation's end; `before` is the work that its session was resumed from."""
    calls: list[Call] = []
    relevant: list[Call] = []  # the few calls that notes are made from; most calls read and edit
    marks: list[Turn] = []
    prompts: list[str] = []
    answers: list[str] = []
    last = ""
    # Once through a long session, not once for each of these.
    for turn in chain(conversation.earlier, conversation.turns):
        if turn.side:
            continue
        last = turn.kind
        if turn.call is not None:
            calls.append(turn.call)
            if turn.call.act in TELLING:
                relevant.append(turn.call)
                marks.append(turn)
        elif last == "said":
            answers.append(turn.text)
        elif last in ("asked", "command"):
            marks.append(turn)
            if last == "asked":
                prompts.append(turn.text)
    tasks = _tasks(relevant)
    notes = Notes(
        prompts=prompts,
        tasks=tasks,
        plan=_plan(relevant),
        answers=_answers(relevant),
        last_answer=answers[-1] if answers else "",
        last_run=_last_run(relevant),
        unfinished=_unfinished(calls),
        commands=_commands(relevant),
        cwd=conversation.cwd,
        branch=conversation.branch,
        model=conversation.model,
        client=conversation.client,
        session=conversation.session,
        ended=conversation.ended,
        characters=calibrate(conversation.measured),
        signals=signs.read(conversation, tasks, calls[-signs.SEARCHED :], relevant),
    )
    _files(notes, conversation)
    stated = _stated(relevant)
    notes.declared = _declared(stated, tasks)
    notes.current_task = _first(stated.get("current_task")) or work.name(
        marks,
        tasks,
        answers=answers,
        files=_names(notes.files),
        title=conversation.title,
        branch=conversation.branch,
        before=before.task if before is not None else "",
    )
    notes.next_steps = _several(stated.get("next_steps"))[:MAX_STEPS] or _steps(tasks, answers)
    notes.decisions = _unique([*_several(stated.get("decisions")), *_decisions(conversation, notes)])[:MAX_DECISIONS]
    notes.blockers = _unique([*_several(stated.get("blockers")), *_blockers(answers, prompts, last, notes)])[
        :MAX_BLOCKERS
    ]
    return notes if notes.empty else join(notes, before)


def _stated(calls: list[Call]) -> dict[str, object]:
    """Return what the agent recorded last through `checkpoint_save`; decisions add up."""
    stated: dict[str, object] = {}
    decisions: list[str] = []
    for call in calls:
        if call.act == OTHER and STATED.search(call.name) and not call.failed:
            stated = dict(call.input)
            decisions = [*_several(call.input.get("decisions")), *decisions]
    if decisions:
        stated["decisions"] = decisions
    return stated


def _declared(stated: dict[str, object], tasks: list[tuple[str, str]]) -> frozenset[str]:
    """Return the fields that the agent stated, through `checkpoint_save` or its list of tasks."""
    statuses = {status for status, text in tasks if text}
    sources = {
        "current_task": bool(_first(stated.get("current_task"))) or "in_progress" in statuses,
        "next_steps": bool(_several(stated.get("next_steps"))) or bool(statuses - {"completed"}),
        "decisions": bool(_several(stated.get("decisions"))),
    }
    return frozenset([name for name, is_said in sources.items() if is_said])


def _first(value: object) -> str:
    return value.strip() if isinstance(value, str) else ""


def _several(value: object) -> list[str]:
    if isinstance(value, str):
        value = value.split("\n")
    return [str(one).strip() for one in value if str(one).strip()] if isinstance(value, list) else []


def _unique(items: list[str]) -> list[str]:
    unique: list[str] = []
    keys: set[str] = set()
    for item in items:
        key = re.sub(r"\W+", " ", item).strip().lower()
        if key and key not in keys:
            keys.add(key)
            unique.append(item)
    return unique


def _tasks(calls: list[Call]) -> list[tuple[str, str]]:
    """Return the agent's list of tasks as (status, text), whichever of its tools wrote it."""
    listed: list[tuple[str, str]] = []
    numbered: dict[str, list[str]] = {}
    for call in calls:
        if call.act == TODO:
            items = call.input.get("todos")
            listed = [
                (str(item.get("status") or "pending"), str(item.get("content") or item.get("text") or ""))
                for item in (items if isinstance(items, list) else [])
                if isinstance(item, dict)
            ]
        elif call.act == TASK and not call.failed:
            _number(numbered, call)
    return [*listed, *[(status, text) for status, text in numbered.values() if status != "deleted"]]


def _number(numbered: dict[str, list[str]], call: Call) -> None:
    if call.name.endswith("Create"):
        task = call.task
        identity = str(task.get("id")) if isinstance(task, dict) else str(len(numbered) + 1)
        numbered[identity] = ["pending", str(call.input.get("subject") or call.input.get("description") or "")]
        return
    entry = numbered.get(str(call.input.get("taskId")))
    if entry is not None:
        entry[0] = str(call.input.get("status") or entry[0])
        entry[1] = str(call.input.get("subject") or entry[1])


def _plan(calls: list[Call]) -> str:
    """Return the last plan that was not refused."""
    for call in reversed(calls):
        if call.act == PLAN and call.done and not call.failed:
            return _first(call.input.get("plan"))
    return ""


def _answers(calls: list[Call]) -> list[tuple[str, str]]:
    answers = []
    for call in calls:
        if call.act != ASK or not call.done or call.failed:
            continue
        if isinstance(call.answers, dict):
            answers += [(str(question), str(answer)) for question, answer in call.answers.items()]
        elif call.output:
            answers.append(("", head(call.output.strip(), 400)))
    return answers[-6:]


def _last_run(calls: list[Call]) -> CommandRun | None:
    for call in reversed(calls):
        if call.act == RUN and call.done and not call.refused and _is_test(call.command, call.failed):
            broken = call.failed or bool(FAILED.search(call.output))
            is_known = broken or _is_told(call)
            passed = is_known and not broken
            sealed = _sealed_file(call.command)
            output = (
                f"(output not shown: the command names {sealed}, which is sealed)" if sealed else _tail(call.output)
            )
            return CommandRun(call.command.strip(), passed, "" if passed else output, call.number, is_known)
    return None


def _is_told(call: Call) -> bool:
    """Return whether a command that did not fail shows by exit code or output that its tests passed."""
    if call.input.get("run_in_background"):
        return False
    tests = [part for part in shell.parts(call.command) if any(_runs(TEST, line) for line in part.programs)]
    return says_passed(
        call.output, [part for part in tests if not part.is_told or any(map(FORGIVING.search, part.programs))]
    )


def _sealed_file(command: str) -> str:
    """Return the first file in the command that is secret by its name: its contents may be in the output."""
    words = [word for word in WORDS.split(command) if word]
    return next((word for word in words if is_secret_by_name(word.encode("utf-8", "surrogateescape"))), "")


def _is_test(command: str, failed: bool = False) -> bool:
    """Return whether one of its programs runs tests; quoted text, such as a commit message, does not count.

    A failed `make deploy` counts too, because somebody has to know of it.
    """
    kind = BROKEN if failed else TEST
    if not TESTING.search(command):
        return False
    return any(_runs(kind, line) and (failed or not LISTS.search(line)) for line in shell.programs(command))


def _runs(kind: re.Pattern[str], line: str) -> bool:
    return kind.match(line) is not None and not PRINTS_ABOUT_ITSELF.search(line)


def _tail(output: str) -> str:
    """Return the end of an output, from the first line that names a failure if that is near."""
    end = tail(output.rstrip(), TAIL)
    return end[end.find("\n") + 1 :] if len(output) > TAIL else end


def _unfinished(calls: list[Call]) -> str:
    """Return the last command if it has no result: it may be pending, running, or cut off. It is no blocker."""
    if calls and not calls[-1].done and calls[-1].act == RUN:
        return calls[-1].command.strip()
    return ""


def _commands(calls: list[Call]) -> list[str]:
    commands: list[str] = []
    for call in reversed(calls):
        if call.act != RUN or call.refused:
            continue
        line = head(call.command.strip().split("\n")[0], 200)
        if line and not TRIVIAL.match(line) and line not in commands:
            commands.append(line)
            if len(commands) == MAX_COMMANDS:
                break
    return commands


def _files(notes: Notes, conversation: Conversation) -> None:
    folders: dict[str, int] = {}
    for file in conversation.files.newest_first():
        path = relative(file.path, notes.cwd)
        if len(notes.files) < MAX_FILES:
            notes.files.append(
                FileNote(
                    file.path,
                    file.edited,
                    len(file.lines),
                    [(hunk.start, hunk.end) for hunk in file.hunks[-20:]],
                    [(span.start, span.end) for span in file.reads[-10:]],
                )
            )
        if DOCUMENT.search(path) and len(notes.documents) < 8:
            notes.documents.append(path)
        folder = path.rsplit("/", 1)[0] if "/" in path else "."
        if not folder.startswith("/"):
            folders[folder] = folders.get(folder, 0) + (3 if file.edited else 1)
    notes.packages = sorted(folders, key=lambda folder: (-folders[folder], folder))[:8]


def _names(files: list[FileNote]) -> list[str]:
    """Return the base names of the files, changed ones first."""
    ordered = sorted(files, key=lambda file: not file.edited)
    names = [file.path.rpartition("/")[2] for file in ordered]
    return list(dict.fromkeys([name for name in names if "." in name]))


def relative(path: str, cwd: str) -> str:
    """Return the path as seen from the working folder."""
    return path[len(cwd) :].lstrip("/") if cwd and path.startswith(cwd.rstrip("/") + "/") else path


def _steps(tasks: list[tuple[str, str]], answers: list[str]) -> list[str]:
    """Return open tasks with the steps that the last answer names; without tasks the steps that it announces."""
    steps = [text for status, text in tasks if status == "in_progress" and text]
    steps += [text for status, text in tasks if status not in ("in_progress", "completed") and text]
    if steps:
        return _unique(phrases.merged(phrases.named(answers[-1]) if answers else [], steps))[:MAX_STEPS]
    for text in reversed(answers[-2:]):
        if phrases.listed(text, phrases.HEADING):
            return phrases.steps(text)[:MAX_STEPS]
        steps = phrases.steps(text)
        if steps:
            return steps[-3:]
    return []


def _decisions(conversation: Conversation, notes: Notes) -> list[str]:
    """Return answers and approved plans, then sentences that decide, newest first."""
    decisions = [f"{question} → {answer}" if question else answer for question, answer in reversed(notes.answers)]
    if notes.plan:
        title = notes.plan.strip().split("\n")[0].lstrip("# ").strip()
        decisions.append(head(f"Plan approved: {title}", 200))
    for turn in reversed([*conversation.earlier, *conversation.turns[-RECENT_TURNS:]]):
        if turn.side or turn.kind not in ("said", "asked"):
            continue
        decisions += phrases.decisions(turn.text[:SEARCHED], is_prompt=turn.kind == "asked")
        if len(decisions) >= MAX_DECISIONS * 2:
            break
    return decisions


def _blockers(answers: list[str], prompts: list[str], last: str, notes: Notes) -> list[str]:
    blockers = []
    if notes.last_run is not None and notes.last_run.failed:
        blockers.append(f"{TEST_FAILS}{head(notes.last_run.command.splitlines()[0], 120)}")
    for text in reversed(answers[-4:]):
        blockers += phrases.blockers(text)
    if answers and last == "said":
        closing = phrases.sentences(answers[-1])
        if closing and closing[-1].endswith(("?", "？")) and len(closing[-1]) < 300:
            blockers.append(f"{WAITING}{closing[-1]}")
    return blockers
