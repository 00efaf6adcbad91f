"""How the next run of a task begins: by table."""

from __future__ import annotations

import pytest

from keepfast.model.budget import TokenUsage
from keepfast.resume.brief import Brief, Excerpt
from keepfast.runner.actions import checkpoints
from keepfast.runner.actions.memory import choose, ranges, render
from keepfast.runner.domain.options import Options
from keepfast.runner.process.drivers import Claude, Driver
from tests.runner.place import DONE, PHASE, Place, say_phase

SMALL, LARGE, FULL = 50_000, 300_000, 800_000


def used(tokens: int) -> TokenUsage:
    return TokenUsage(tokens, "", 1_000_000, "")


@pytest.mark.parametrize(
    ("mode", "has_session", "tokens", "idle", "resumes"),
    [
        ("auto", True, SMALL, 0, True), ("auto", True, SMALL, 7200, True), ("auto", True, LARGE, 0, True),
        ("auto", True, LARGE, 7200, False), ("auto", True, FULL, 0, False), ("auto", False, SMALL, 0, False),
        ("history", True, FULL, 7200, True), ("history", False, SMALL, 0, False), ("brief", True, SMALL, 0, False),
    ],
)  # fmt: skip
def test_history_or_brief(mode: str, has_session: bool, tokens: int, idle: float, resumes: bool) -> None:
    found, why = choose(mode, has_session, used(tokens), idle, 100_000)

    assert found is resumes and why


def test_any_number_of_tokens_is_worth_its_price_if_somebody_says_so() -> None:
    assert choose("auto", True, used(LARGE), 7200, 0)[0]


def test_mentions_stand_for_excerpts_where_the_client_reads_them() -> None:
    excerpts = [
        Excerpt("/w/a.py", 1, 10, "x"), Excerpt("/w/a.py", 15, 20, "x"), Excerpt("/w/a.py", 90, 95, "x"),
        Excerpt("/w/.env", 1, 2, "x"), Excerpt("/w/b.py", 1, 2, "key = [redacted:token]"), Excerpt("/etc/motd", 1, 2, "x"),
        Excerpt("/w/with space.py", 1, 2, "x"),
    ]  # fmt: skip
    brief = Brief(text="all of it @a", notes="notes say @b", excerpts=excerpts)

    assert ranges(brief, "/w") == [("a.py", 1, 20), ("a.py", 90, 95), ("with space.py", 1, 2)]
    shown = render(brief, "/w", Claude({}, Options()))
    assert shown.splitlines() == [
        "notes say '@b", "The files you worked on, as they are on disk now:", "@a.py#L1-20", "@a.py#L90-95",
    ]  # fmt: skip
    assert render(brief, "/w", Driver({"command": ["x"]}, Options())) == "all of it '@a"


def test_what_a_restore_went_back_behind_is_no_longer_on_the_way(place: Place) -> None:
    task = place.task(
        [
            {"write": ["a", "1"]},
            {"say": "[ERROR]\ntype: recoverable\nmessage: no\nrecovery: pause_and_retry\n[/ERROR]"},
        ],
        [{"write": ["a", "2"]}, DONE],
        [{"write": ["a", "3"]}, DONE],
    )
    place.supervise()
    assert place.reasons(task) == ["start", "error", "final"]

    place.tasks.restore(task.id, "v2")

    assert (place.workspace() / "a").read_text() == "1"
    assert [taken.version for taken in checkpoints.lineage(place.runtime, task.id)] == [2, 2, 1]
    event = next(one for one in place.tasks.views.log(task.id) if one["type"] == "checkpoint_restored")
    assert (event["success"], event["messages_restored"], event["environment_variables"]) == (True, 0, 0)
    place.supervise()
    assert place.state(task) == ("done", "")
    assert (place.workspace() / "a").read_text() == "3"
    assert "restored to checkpoint v2" in place.told()[-1]


SCRIPT = 'cat > "given-$KEEPFAST_ATTEMPT"; cat "$KEEPFAST_PROMPT_FILE" > "../prompt-$KEEPFAST_ATTEMPT"; '
WORK = 'echo "def total(rows): return 42" > total.py; echo "I wrote total, next the tests."; '
END = '[ "$KEEPFAST_ATTEMPT" = 2 ] && echo "=== CUSTOM TASK COMPLETE ===" || exit 3'


@pytest.mark.parametrize("given", ["prompt", "brief", "none"])
def test_any_command_is_told_a_brief_when_it_is_started_again(place: Place, given: str) -> None:
    agent = {"command": ["sh", "-c", SCRIPT + WORK + END], "input": given}
    task = place.task(agent=agent, brief="Sum the rows. Use {braces} as they are.")

    place.supervise()

    assert place.outcomes(task) == ["crashed", "complete"], place
    folder = place.workspace()
    first, second = [(folder / f"given-{number}").read_text() for number in (1, 2)]
    begun, again = [(place.base / f"prompt-{number}").read_text() for number in (1, 2)]
    assert "total.py" not in begun
    assert "Sum the rows." in again and "def total(rows): return 42" in again
    assert "I wrote total, next the tests." in again and "# Resuming from Checkpoint" in again
    assert {"prompt": (begun, again), "brief": (task.brief, task.brief), "none": ("", "")}[given] == (first, second)


def test_a_prompt_that_is_only_a_file_is_on_no_disk(place: Place) -> None:
    key = "sk-ant-api03-" + "aB3dE5gH7jK9mN1pQ3sT5vX7zA9" * 3
    check = f'grep -q {key[:20]} "$KEEPFAST_PROMPT_FILE" && echo "=== CUSTOM TASK COMPLETE ==="; [ "$KEEPFAST_ATTEMPT" = 2 ]'
    task = place.task(agent={"command": ["sh", "-c", check], "input": "none"}, brief=f"Call it with {key}.")

    place.supervise()

    assert place.outcomes(task) == ["crashed", "complete"], place
    run = place.runtime.tables.last_run(task.id)
    assert run is not None and key not in run.prompt
    assert not [path for path in place.data.rglob("*") if path.is_file() and key.encode() in path.read_bytes()]


def question(text: str) -> list[dict[str, str]]:
    return [{"say": f"[USER_QUESTION]\nquestion: {text}\n[/USER_QUESTION]"}]


NEED = [
    {
        "say": "[DEPENDENCY_REQUEST]\ntype: api_key\nname: SHOP_KEY\ndescription: to buy\nrequired: true\n[/DEPENDENCY_REQUEST]"
    }
]


def test_every_later_prompt_of_a_command_has_all_answers_in_order(place: Place) -> None:
    task = place.task(
        question("Which database?"), NEED, question("Which colour?"), [say_phase(1)], question("Which name?"), [say_phase(2)],
        phases=[{**PHASE, "name": "One"}, {**PHASE, "name": "Two"}],
    )  # fmt: skip
    place.supervise()
    place.tasks.answers.answer(task.id, "PostgreSQL")
    place.supervise()
    place.tasks.answers.secret(task.id, "SHOP_KEY", "violet-hammer-93")
    for answer in ("ochre", "Ann"):
        place.supervise()
        place.tasks.answers.answer(task.id, answer)
    place.supervise()

    assert place.state(task) == ("done", ""), place
    told = place.told()
    answers = [
        "Your question: Which database?\nThe answer: PostgreSQL\n", "SHOP_KEY is in your environment now.",
        "Your question: Which colour?\nThe answer: ochre\n", "Your question: Which name?\nThe answer: Ann\n",
    ]  # fmt: skip
    known = [[prompt.count(answer) for answer in answers] for prompt in told]
    assert known == [[0] * 4, [1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 0], [1] * 4]
    places = [told[-1].index(answer) for answer in answers]
    assert places == sorted(places)
    assert not [prompt for prompt in told if "violet-hammer-93" in prompt]


def test_of_very_many_words_the_newest_answers_are_told(place: Place) -> None:
    asked = [question(f"Is {number} right? {'x' * 9_000}") for number in range(9)]
    task = place.task(*asked, [DONE])
    for number in range(9):
        place.supervise()
        place.tasks.answers.answer(task.id, f"yes, {number}")
    place.supervise()

    last = place.told()[-1]
    assert [number for number in range(9) if f"The answer: yes, {number}\n" in last] == [2, 3, 4, 5, 6, 7, 8]
    assert "2 earlier ones are left out" in last


KEY = "sk-ant-api03-" + "aB3dE5gH7jK9mN1pQ3sT5vX7zA9" * 3


@pytest.mark.parametrize(
    ("error", "outcome", "said"),
    [
        (f"no network for {KEY}", "retry", "Your last run was cut off by an error that it reported: no network for "),
        ("Rate limit exceeded. Please retry in 0.1s", "limited", "the account's limit was reached at 20"),
    ],
)
def test_the_next_prompt_says_why_the_run_before_was_cut_off(place: Place, error: str, outcome: str, said: str) -> None:
    cut = [{"say": f"[ERROR]\ntype: recoverable\nmessage: {error}\n[/ERROR]"}]
    task = place.task(
        question("Which one?"), cut, [say_phase(1)], cut, [say_phase(2)], phases=[{**PHASE, "name": "One"}, PHASE]
    )
    place.supervise()
    place.tasks.answers.answer(task.id, "this one")
    place.supervise()

    assert place.outcomes(task) == ["asked", outcome, "phase", outcome, "phase"], place
    told = place.told()
    assert [said in prompt for prompt in told] == [False, False, True, False, True]
    assert not [prompt for prompt in told if KEY in prompt]
    assert "The answer: this one" in told[2] and "Phase 2: Only" in told[4]
