"""Notes: precision and recall on labelled sessions, and what each kind of note is taken from."""

from __future__ import annotations

import pytest

from keepfast.agents import transcript
from keepfast.resume import extractor as notes
from keepfast.resume import phrases
from keepfast.resume.brief_notes import render_notes
from keepfast.resume.phrases import sentences, steps
from tests.equipment.sessions import CWD, Session

from .labelled_sessions import LABELLED, Label

FLOOR = {"task": (1.0, 1.0), "next steps": (0.9, 0.9), "decisions": (0.8, 0.9), "blockers": (0.8, 0.9)}


def compare(expected: list[str], found: list[str]) -> tuple[int, int, int, int]:
    """(expectations met, expectations, notes that were expected, notes)."""
    met = sum([any(one in note for note in found) for one in expected])
    right = sum([any(one in note for one in expected) for note in found])
    return met, len(expected), right, len(found)


def test_labelled_sessions_are_noted_with_precision_and_recall(capsys: pytest.CaptureFixture[str]) -> None:
    sums = {name: [0, 0, 0, 0] for name in FLOOR}
    for make in LABELLED:
        label: Label = make()
        taken = notes.take(transcript.read(label.session.bytes()))
        pairs = {
            "task": ([label.task], [taken.current_task]),
            "next steps": (label.steps, taken.next_steps),
            "decisions": (label.decisions, taken.decisions),
            "blockers": (label.blockers, taken.blockers),
        }
        for name, (expected, found) in pairs.items():
            for at, value in enumerate(compare(expected, found)):
                sums[name][at] += value
    with capsys.disabled():
        print()
        for name, (met, expected_count, right, found_count) in sums.items():
            print(
                f"{name}: precision {right / found_count:.2f}, recall {met / expected_count:.2f} ({expected_count} labels)"
            )
    for name, (met, expected_count, right, found_count) in sums.items():
        precision, recall = FLOOR[name]
        assert right / found_count >= precision, name
        assert met / expected_count >= recall, name


def taken(session: Session) -> notes.Notes:
    return notes.take(transcript.read(session.bytes()))


def test_prompts_are_kept_word_for_word() -> None:
    session = Session()
    session.asked("First:  keep\n\tthis   spacing")

    assert taken(session).prompts == ["First:  keep\n\tthis   spacing"]


@pytest.mark.parametrize(
    "command",
    [
        "pytest -q",
        "cd a && .venv/bin/python -m pytest -q -n0 x 2>&1 | tail",
        "uv run --with x pytest",
        "npx vitest run",
        "yarn jest",
        "pnpm --filter web test",
        "bash -lc 'cargo test'",
        "docker compose exec app sh -c 'pytest -q'",
        "CI=1 timeout 60 go test ./...",
        "out=$(make test); echo $out",
        "if ! npm run test:unit; then exit 1; fi",
        "./gradlew test",
        "poetry run ruff check",
        "time make",
        "bash <<'E'\npytest\nE",
        "sudo -u x env A=b tox -e py",
        "make -C web lint",
        "npm --prefix web test",
        "go test ./... | tee log",
    ],
)
def test_a_command_that_runs_tests_is_the_last_test(command: str) -> None:
    session = Session()
    session.run(command, "ok")

    run = taken(session).last_run

    assert run is not None and not run.failed and run.command == command


TOLD = [
    "pytest -q",
    "cd a && pytest -q",
    "cd a; pytest -q",
    "go vet ./... && go test ./... && git commit -qm x",
    "set -e; npm run build; npm test; echo done",
    "set -euo pipefail\ngo test ./... 2>&1 | tee log\n",
    "pytest -q || exit 1; echo done",
    "pytest -q || { echo broken; exit 2; }",
    "(cd web && npm test)",
    "{ pytest -q; }",
    "bash -euo pipefail -c 'pytest -q | tail'",
    "timeout 60 bash -c 'cd a && pytest -q'",
    "time make test",
    "if [ -d a ]; then cd a; fi; pytest -q",
    "echo | pytest -q",
    "make -C include -j4 test",
    "make -Cbin -Onone test",
    "make --no-print-directory test",
    "pytest -n 4",
]
MASKED = [
    "pytest -q || true",
    "go test ./... ; true",
    "go test ./x || true; go build ./cmd || true",
    "pytest -q 2>&1 | tail -5",
    "go test ./... | tee log",
    "pytest -q; echo $?",
    "pytest -q\necho done",
    "pytest -q &",
    "! pytest -q",
    "make build || pytest -q",
    "if pytest -q; then echo a; fi",
    "for d in a b; do pytest $d; done",
    "out=$(pytest -q); echo $out",
    "bash -c 'pytest -q || true'",
    "bash -c 'pytest -q' | tail",
    "(pytest -q || true) && echo done",
    "set -e; pytest -q && echo a; true",
    "set -e; set +e; pytest -q; true",
    "set -o pipefail; pytest -q | tail; echo done",
    "pytest -q || { echo broken; exit 0; }",
    "t() { pytest -q; }; t; true",
    "trap 'exit 0' EXIT; pytest -q",
    "trap 'rm -rf x; exit 0' EXIT INT\npytest -q",
    "bash -ec 'trap \"exit 0\" ERR; pytest -q'",
    "set +e; pytest -q; exit 0",
    "pytest -q; true",
    "if ! pytest -q; then :; fi",
    "pytest -q & wait",
    "timeout 60 pytest -q; echo done",
    "make -i test",
    "make -kij4 test",
    "make --ignore-errors test && echo done",
    "mvn -fn test",
    "ruff check --exit-zero src",
]


@pytest.mark.parametrize("command", TOLD)
def test_an_exit_code_of_zero_says_that_the_test_passed(command: str) -> None:
    session = Session()
    session.run(command, "")

    run = taken(session).last_run

    assert run is not None and run.passed


@pytest.mark.parametrize("command", MASKED)
def test_a_masked_exit_code_says_nothing_of_the_test(command: str) -> None:
    session = Session()
    session.run("pytest tests/unit", "1 failed", failed=True)
    session.run(command, "collected 3 items\n")
    notes = taken(session)

    run = notes.last_run

    assert run is not None and run.command == command
    assert not run.passed and not run.is_known and "collected" in run.tail
    assert not [one for one in notes.blockers if "test fails" in one]
    assert "## Last test: result not known\n$ " in render_notes(notes)


@pytest.mark.parametrize(
    ("command", "output", "result"),
    [
        ("pytest -q || true", "...\n3 passed in 0.04s\n", "passed"),
        ("pytest | tail -1", "===== 3 passed, 1 warning in 0.04s =====\n", "passed"),
        ("pytest | tail -1", "==== 1 failed, 3 passed in 0.04s ====\n", "FAILED"),
        ("pytest || true", "no tests ran in 0.01s\n", "result not known"),
        ("go test ./... | tail -3", "ok  \tshop/cart\t0.004s\nok  \tshop/tax\t(cached)\n", "passed"),
        ("go test ./... | tail -3", "ok  \tshop/cart\t0.004s\nFAIL\tshop/tax\t0.1s\nFAIL\n", "FAILED"),
        ("go test ./... | grep ok", "ok  \tshop/cart\t0.004s\n", "result not known"),
        ("go test ./x || true; go build ./cmd || true", "ok  \tshop/x\t0.004s\n", "result not known"),
        ("ruff check . ; pytest -q", "All checks passed!\n3 passed in 0.04s\n", "passed"),
        ("mypy src; pytest -q | cat", "Success: no issues found in 3 source files\n", "result not known"),
        ("python -m unittest 2>&1 || true", "Ran 3 tests in 0.001s\n\nOK\n", "passed"),
        ("npm test | tail", "Tests:       3 passed, 3 total\n", "passed"),
    ],
)
def test_where_the_exit_code_is_masked_the_output_may_say_it(command: str, output: str, result: str) -> None:
    session = Session()
    session.run(command, output)

    assert f"## Last test: {result}\n" in render_notes(taken(session))


def test_a_test_in_the_background_has_no_result_yet() -> None:
    session = Session()
    session.call(
        "Bash", {"command": "pytest -q", "run_in_background": True}, "Command running in background with ID: x"
    )

    assert "## Last test: result not known\n" in render_notes(taken(session))


@pytest.mark.parametrize(
    "command",
    [
        "pip install pytest",
        "uv pip install pytest",
        "yarn add jest",
        "echo pytest passed",
        "git commit -m 'run pytest'",
        "git commit -m \"$(cat <<'EOF'\ngo test passes\npytest\nEOF\n)\"",
        'gh pr create --body "- [x] npm test"',
        "cat <<EOF > n.md\nmake test\nEOF",
        "grep -n pytest Makefile",
        "pytest --version",
        "pytest --collect-only -q",
        "jest --listTests",
        "make -n test",
        "make --dry-run test",
        "which ruff",
        "make install",
        "docker pull mcr/playwright",
        "npx prettier --write jest.config.js",
        "# pytest\nls",
        "cat tests/pytest.ini",
        'git add tsc.log && git commit -m "fix jest" && gh pr create --title "pytest"',
    ],
)
def test_a_command_that_only_speaks_of_tests_is_none(command: str) -> None:
    session = Session()
    session.run(command, "ok")

    assert taken(session).last_run is None


def test_tests_that_could_not_even_be_listed_are_a_failure() -> None:
    session = Session()
    session.run("pytest --collect-only", "ImportError while importing test module", failed=True)

    run = taken(session).last_run

    assert run is not None and run.is_known and not run.passed


@pytest.mark.parametrize("words", ["env ", "npx env ", "npx sh ", "python -m ", "$(", "make ", "npm x "])
def test_a_command_of_programs_without_end_is_read_to_an_end(words: str) -> None:
    session = Session()
    session.run(words * (20_000 // len(words)) + " # pytest", "ok")

    assert taken(session).last_run is None


def test_the_last_test_counts_with_its_end() -> None:
    session = Session()
    session.asked("test it")
    session.run("npm run test -- cart", "ok\n" * 900 + "✗ cart adds tax\n1 failed", failed=False)

    run = taken(session).last_run

    assert run is not None
    assert not run.passed
    assert run.tail.endswith("1 failed")
    assert len(run.tail) <= 1_200


@pytest.mark.parametrize(
    "command", ["cat .env; make test", "set -a && . ./.env && pytest -q", "PGPASSFILE=conf/.pgpass make test"]
)
def test_the_output_of_a_test_whose_command_names_a_sealed_file_is_not_shown(command: str) -> None:
    session = Session()
    session.run(command, "FLAVOUR=heron\n1 failed", failed=True)

    run = taken(session).last_run

    assert run is not None
    assert not run.passed
    assert "heron" not in run.tail


def test_a_passing_test_has_no_tail() -> None:
    session = Session()
    session.run("cargo test", "test result: ok. 12 passed; 0 failed")

    run = taken(session).last_run

    assert run is not None
    assert run.passed
    assert run.tail == ""


def test_a_command_without_a_result_is_told_and_blocks_nothing() -> None:
    """Before each tool call the transcript ends like this."""
    session = Session()
    session.asked("deploy")
    session.begin("Bash", {"command": "make deploy\necho done"})

    result = taken(session)

    assert result.unfinished == "make deploy\necho done"
    assert result.blockers == []
    told = render_notes(result)
    assert "$ make deploy" in told
    assert "Blockers" not in told


def test_files_packages_documents_and_commands_are_named() -> None:
    session = Session(files={"src/cart/a.py": "a\nb\nc\n", "docs/cart.md": "# Cart\n", "src/cart/b.py": "x\n"})
    session.asked("work")
    session.read("docs/cart.md")
    session.read("src/cart/b.py")
    session.read("src/cart/a.py")
    session.edit("src/cart/a.py", "b", "B")
    session.run("ls -la")
    session.run("git commit -m 'cart'")

    result = taken(session)

    assert [file.path for file in result.files] == [
        f"{CWD}/{name}" for name in ("src/cart/a.py", "src/cart/b.py", "docs/cart.md")
    ]
    assert result.files[0].edited
    assert result.files[0].changed == [(2, 2)]
    assert result.documents == ["docs/cart.md"]
    assert result.packages == ["src/cart", "docs"]
    assert result.commands == ["git commit -m 'cart'"]


def test_a_refused_plan_is_no_decision() -> None:
    session = Session()
    session.asked("plan")
    session.planned("# Rewrite", refused="no way")

    result = taken(session)

    assert result.plan == ""
    assert not any("Rewrite" in decision for decision in result.decisions)


def test_code_is_not_taken_for_sentences() -> None:
    assert sentences("Done.\n```\nlet's use this\n```\n| a | b |") == ["Done."]


def test_steps_that_are_done_do_not_count() -> None:
    assert steps("Next steps:\n- [x] one\n- [ ] two\n✅ three\nThat is all.\n- four") == ["two"]


def test_an_empty_conversation_has_empty_notes() -> None:
    assert notes.take(transcript.read(b"")).empty


def test_a_long_prompt_makes_a_short_summary() -> None:
    session = Session()
    session.asked("fix " + "the very long thing " * 40)

    assert len(taken(session).summary()) <= 80


def closing(said: str) -> notes.Notes:
    """The notes of a session whose agent ends with these words."""
    session = Session()
    session.asked("Give the API a login with JSON web tokens")
    session.said(said)
    return taken(session)


@pytest.mark.parametrize(
    ("said", "steps"),
    [
        ("Tests passing! Next: Add token refresh", ["Add token refresh"]),
        ("The migration runs. Next step: Drop the old column.", ["Drop the old column"]),
        ("All green, next: wire up the scheduler", ["wire up the scheduler"]),
        ("**Next**: Cache the lookups", ["Cache the lookups"]),
        ("**Next Steps**:\n1. Add token refresh logic\n2. Update docs", ["Add token refresh logic", "Update docs"]),
        ("Next steps: add a retry; document the limit", ["add a retry", "document the limit"]),
        ("다음: 토큰 갱신 추가", ["토큰 갱신 추가"]),
        ("Done. Next steps:\n1. Add token refresh logic\n2. Update docs", ["Add token refresh logic", "Update docs"]),
        ("Done. **Next steps:**\n- Add token refresh logic\n- Update docs", ["Add token refresh logic", "Update docs"]),
        ("Tests passing! **Next:** Add token refresh", ["Add token refresh"]),
        ("All passing! next up: the docs", ["the docs"]),
        ("테스트 통과! 다음: 토큰 갱신 추가", ["토큰 갱신 추가"]),
        ("테스트 통과. 다음 단계:\n- 토큰 갱신 추가", ["토큰 갱신 추가"]),
    ],
)  # fmt: skip
def test_a_step_that_is_announced_is_a_next_step(said: str, steps: list[str]) -> None:
    assert closing(said).next_steps == steps


@pytest.mark.parametrize("said", ["What happens next: nobody knows?", "The next: field is read by the parser."])
def test_the_word_next_alone_announces_no_step(said: str) -> None:
    assert closing(said).next_steps == []


SOURCE_DECISIONS = ["Use HS256 for now (RS256 later)", "1-hour token expiration", "Store secret in env var"]


@pytest.mark.parametrize(
    "heading", ["**Decisions Made**:", "## Decisions", "Key decisions:", "### Design decisions made", "결정 사항:"]
)
def test_items_under_a_heading_of_decisions_are_decisions(heading: str) -> None:
    listed = "\n".join([f"- {one}" for one in SOURCE_DECISIONS])

    found = closing(f"The middleware is in place.\n\n{heading}\n{listed}\n\nTell me when to go on.").decisions

    assert found == SOURCE_DECISIONS


@pytest.mark.parametrize("said", ["Decisions made: keep the cookie name", "**Decision**: keep the cookie name"])
def test_a_decision_beside_its_heading_is_a_decision(said: str) -> None:
    assert closing(said).decisions == ["keep the cookie name"]


@pytest.mark.parametrize(
    ("said", "blocker"),
    [
        ("I'm blocked: the staging database refuses my user.", "the staging database refuses my user"),
        ("I am blocked. The registry is read-only.", "I am blocked"),
        ("We're stuck: the vendor's sandbox answers 500.", "the vendor's sandbox answers 500"),
        ("Status: blocked: no licence for the compiler", "no licence for the compiler"),
        ("**Blockers**:\n- The signing certificate has expired\n", "The signing certificate has expired"),
    ],
)
def test_who_says_that_he_is_blocked_is_blocked(said: str, blocker: str) -> None:
    found = closing(said).blockers

    assert len(found) == 1
    assert blocker in found[0]


@pytest.mark.parametrize(
    "said",
    ["**Blockers**: none", "Blockers:\n- None\n", "I'm not blocked: the key has arrived.", "No blockers so far."],
)
def test_who_says_that_nothing_blocks_is_not_blocked(said: str) -> None:
    assert closing(said).blockers == []


def test_the_sources_own_session_is_noted() -> None:
    """The example of the source document: an agent works, says how far it is and what is next, and the user clears."""
    session = Session(
        files={"pkg/auth/middleware.go": "package auth\n", "pkg/auth/middleware_test.go": "package auth\n"}
    )
    session.said("Working on JWT authentication...")
    session.edit("pkg/auth/middleware.go", "package auth", "package auth\n\nconst expiry = 3600")
    session.edit("pkg/auth/middleware_test.go", "package auth", "package auth\n\nconst tested = true")
    session.said("Tests passing! Next: Add token refresh")
    session.asked("<command-name>/clear</command-name><command-args></command-args>")

    result = taken(session)

    assert "JWT authentication" in result.summary()
    assert result.next_steps == ["Add token refresh"]
    assert result.packages == ["pkg/auth"]
    assert [file.path.rpartition("/")[2] for file in result.files] == ["middleware_test.go", "middleware.go"]


@pytest.mark.parametrize(
    "words",
    [
        "The user doesn't want to proceed with this tool use. The tool use was rejected (eg. if it was a file edit, the "
        "new_string was NOT written to the file). STOP what you are doing and wait for the user to tell you how to proceed.",
        "Permission to use Bash with command pytest -q has been denied.",
    ],
)
def test_a_test_that_was_not_allowed_to_run_did_not_fail(words: str) -> None:
    session = Session()
    session.asked("Round the totals of the shopping cart")
    session.run("pytest tests/cart.py", "3 passed")
    session.run("pytest -q", words, failed=True)

    notes = taken(session)

    assert notes.last_run is not None and notes.last_run.passed
    assert notes.last_run.command == "pytest tests/cart.py"
    assert notes.blockers == [] and notes.commands == ["pytest tests/cart.py"]


def test_what_is_named_as_next_stands_beside_a_list_of_things_to_do() -> None:
    session = Session()
    session.asked("Give the API a login")
    session.said("Tests passing! Next: Add token refresh\n\nTODO:\n- [ ] update the docs\n- [x] wire it\n")

    assert taken(session).next_steps == ["Add token refresh", "update the docs"]


def test_what_is_named_as_next_stands_beside_the_tasks_that_the_agent_keeps() -> None:
    session = Session()
    session.asked("Give the API a login")
    session.todos(("completed", "wire it"), ("pending", "update the docs"))
    session.said("Tests passing! Next: Add token refresh")

    assert taken(session).next_steps == ["Add token refresh", "update the docs"]


@pytest.mark.parametrize(
    ("task", "steps"),
    [
        ("Add token refresh logic", ["Add token refresh logic", "update the docs"]),
        ("Add the token refresh", ["Add the token refresh", "update the docs"]),
        ("Add token", ["Add token refresh", "update the docs"]),
        ("Add tests", ["Add token refresh", "update the docs", "Add tests"]),
        ("Remove token refresh", ["Add token refresh", "update the docs", "Remove token refresh"]),
    ],
)
@pytest.mark.parametrize("kept_as", ["tasks", "list"])
def test_a_step_that_is_announced_and_listed_is_one(task: str, steps: list[str], kept_as: str) -> None:
    session = Session()
    session.asked("Give the API a login")
    if kept_as == "tasks":
        session.todos(("completed", "wire it"), ("pending", "update the docs"), ("pending", task))
    listed = "" if kept_as == "tasks" else f"\n\nTODO:\n- [ ] update the docs\n- [ ] {task}\n"
    session.said(f"Tests passing! Next: Add token refresh{listed}")

    assert taken(session).next_steps == steps


@pytest.mark.parametrize("label", ["Blockers: ", "**Blockers:** ", "Open blocker: "])
def test_a_blocker_does_not_repeat_its_heading(label: str) -> None:
    assert phrases.blockers(f"{label}blocked by the key for staging.") == ["blocked by the key for staging."]
