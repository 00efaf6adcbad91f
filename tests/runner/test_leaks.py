"""No secret that goes through a task is written in the clear; its agent is told the true value all the same.

Keys are made up at run time, one for each way in. They are looked for in everything below the data folder and the workspace,
in all rows of the database, and in what people are shown.
"""

from __future__ import annotations

import gzip
import json
import secrets
import shutil
import string
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from keepfast.model.errors import KeepfastError, Usage, WrongKey
from keepfast.runner.actions import recovery, taskfile, vault
from keepfast.runner.actions.report import report
from keepfast.runner.actions.tasks import Tasks
from keepfast.runner.db.rows import MARKED
from keepfast.runner.domain.questions import check
from keepfast.runner.domain.records import Task
from keepfast.runner.domain.reviews import Remark
from keepfast.runner.process.redaction import Lines, clean, clean_text, is_telling
from keepfast.runner.scheduler import runs
from keepfast.runner.scheduler.attempts import Threads
from keepfast.runner.scheduler.supervisor import Supervisor
from keepfast.runner.scheduler.turns import Turns
from tests.runner.actions.test_finals import without_store
from tests.runner.actions.test_needs import need
from tests.runner.scheduler.test_observation import change

from .place import DONE, PHASE, Place, say_phase

TABLES = ("task", "hold", "run", "prompt", "checkpoint", "secret", "account", "event", "notice")
ALPHABET = string.ascii_letters + string.digits


def made_up() -> str:
    return "ghp_" + "".join(secrets.choice(ALPHABET) for _ in range(36))


class Keys(dict[str, str]):
    """A key for each way in, made when it is first asked for."""

    def __missing__(self, name: str) -> str:
        self[name] = made_up()
        return self[name]


def written(place: Place) -> dict[str, str]:
    """All texts that were written, by where they are."""
    found = {}
    for base in (
        place.data,
        *[path for path in place.base.iterdir() if path.name.startswith("work") and path.is_dir()],
    ):
        for path in base.rglob("*"):
            if path.is_file() and not path.is_symlink():
                data = path.read_bytes()
                data = gzip.decompress(data) if path.suffix == ".gz" else data
                found[str(path.relative_to(place.base))] = data.decode("utf-8", "replace")
    for table in TABLES:
        found[table] = json.dumps(place.runtime.tables.all(f"SELECT * FROM {table}"), ensure_ascii=False)
    return found


def shown(place: Place) -> dict[str, str]:
    """All that people are shown, by what shows it."""
    tasks = place.runtime.tables.tasks()
    found = {
        "list": place.tasks.views.listing(),
        "inbox": place.tasks.views.inbox(),
        "report": report(place.runtime, 0),
    }
    for task in tasks:
        found[f"show {task.id}"], found[f"log {task.id}"] = (
            place.tasks.views.show(task.id),
            place.tasks.views.log(task.id),
        )
    return {name: json.dumps(value, ensure_ascii=False) for name, value in found.items()}


def leaks(place: Place, keys: Keys) -> list[tuple[str, str]]:
    """(which key, where) of all that is in the clear."""
    texts = {**written(place), **shown(place)}
    return [
        (name, where) for name, key in keys.items() for where, text in texts.items() if key in text or key[4:] in text
    ]


def is_told(place: Place, key: str) -> bool:
    return any(key in told for told in place.told())


@pytest.mark.databases
def test_what_people_write_is_sealed_and_the_agent_is_told_it(place: Place) -> None:
    keys = Keys()
    secret = "hunter2-" + secrets.token_hex(4)
    turns: list[list[dict[str, Any]]] = [
        [{"show_variable": "CHOSEN"}, {"show_variable": "PLAIN"},
         {"say": "[USER_QUESTION]\nquestion: Which one?\n[/USER_QUESTION]"}],
        [need("service", "a server")],
        [need("api_key", "SHOP_KEY")],
        [{"show_variable": "SHOP_KEY"}, say_phase(1)],
        [say_phase(1)],
        [say_phase(1)],
        [say_phase(2)],
        [say_phase(2)],
    ]  # fmt: skip
    agent = place.agent("work", *turns)
    agent["command"] += ["--key", keys["command"], "--password", secret]
    agent["set"] = {"CHOSEN": keys["set"], "PLAIN": "9f86d081884c" + secrets.token_hex(6), "MODE": "quick", "COUNT": 3}
    plain = agent["set"]["PLAIN"]
    phases = [
        {**PHASE, "prompt": f"Use {keys['phase']}.", "verify": f"echo {keys['verify']}; test -e ready", "review": True},
        PHASE,
    ]
    task = place.task(
        *turns, title=f"Deploy {keys['title']}", brief=f"Log in with {keys['brief']}.", agent=agent, phases=phases
    )
    place.supervise()
    place.tasks.answers.answer(task.id, f"The one with {keys['answer']}")
    place.supervise()
    place.tasks.answers.answer(task.id, f"It runs, its key is {keys['service']}")
    place.supervise()
    place.tasks.answers.secret(task.id, "SHOP_KEY", keys["secret"])
    (place.workspace() / "ready").touch()
    place.supervise()
    place.tasks.answers.comment(task.id, f"Not with {keys['comment']}.")
    place.tasks.answers.reject(task.id, f"Rather with {keys['reject']}.", [Remark("a.py", 1, f"here {keys['remark']}")])
    place.supervise()
    place.tasks.answers.approve(task.id)
    place.supervise()
    assert place.state(task) == ("done", ""), place
    place.tasks.follow_up(task.id, f"One more thing: {keys['follow up']}.")
    place.supervise()

    assert leaks(place, keys) == []
    assert leaks(place, Keys(password="    " + secret, plain="    " + plain)) == []
    told = ("title", "brief", "phase", "answer", "service", "comment", "reject", "remark", "follow up")
    assert [name for name in told if not is_told(place, keys[name])] == []
    row = place.runtime.tables.task(task.id)
    assert set(row.agent["set"]) == {"CHOSEN", "PLAIN", "MODE", "COUNT"}
    assert all(value.startswith("encrypted:") for value in row.agent["set"].values())
    opened = vault.open_agent(place.runtime, row)
    assert opened["set"] == {"CHOSEN": keys["set"], "PLAIN": plain, "MODE": "quick", "COUNT": "3"}
    assert opened["command"][-4:] == ["--key", keys["command"], "--password", secret]


@pytest.mark.databases
def test_what_agents_say_is_redacted_before_it_is_written(place: Place) -> None:
    keys = Keys()
    place.runtime.options = place.options.but(
        notify_command=[
            sys.executable,
            "-c",
            f"import sys; open({str(place.data / 'told')!r}, 'a').write(sys.stdin.read())",
        ]
    )
    script = json.dumps({"type": "item.completed", "item": {"type": "agent_message", "text": f"I use {keys['line']}"}})
    pem = (
        "-----BEGIN PRIVATE KEY-----\n"
        + "\n".join(secrets.token_urlsafe(48) for _ in range(20))
        + "\n-----END PRIVATE KEY-----"
    )
    keys["pem"] = pem.split("\n")[7]
    task = place.task(
        [{"say": f"export TOKEN={keys['stdout']}\n{script}"}, {"say": pem}, {"error": f"refused: {keys['stderr']}"},
         {"say": f"[PROGRESS]\nstep: using {keys['step']}\npercent: 10\n[/PROGRESS]"}, {"sleep": 0.3},
         {"say": f"[USER_QUESTION]\nquestion: Is {keys['question']} right?\noptions:\n  - {keys['option']}\n  - no\n"
                 f"default: {keys['default']}\n[/USER_QUESTION]"}],
        [need("api_key", "SHOP_KEY", description=f"like {keys['need']}")],
        [{"say": f"[ERROR] type: recoverable, message: cannot log in with {keys['error']}"}],
        [{"error": f"died of {keys['crash']}"}, {"exit": 3}],
        [{"say": f"[ERROR]\ntype: {keys['malformed']}\n[/ERROR]"}],
    )  # fmt: skip
    place.supervise()
    place.tasks.answers.answer(task.id, "no")
    place.supervise()
    place.tasks.answers.secret(task.id, "SHOP_KEY", "4711-0815")
    place.supervise()
    assert place.state(task) in {("active", "no_progress"), ("active", "crashed")}, place
    place.tasks.resume(task.id)
    other = place.task([{"say": f"[ERROR]\ntype: fatal\nmessage: {keys['fatal']}\n[/ERROR]"}], name="work2")
    place.supervise()
    place.supervise(until=lambda: place.runtime.tables.one("SELECT 1 FROM notice WHERE sent_at = 0") is None)

    assert place.state(other) == ("failed", ""), place
    assert leaks(place, keys) == []
    assert "[redacted:github-token]" in (place.data / "told").read_text()


def test_what_a_verification_prints_is_redacted(place: Place) -> None:
    keys = Keys()
    (place.workspace() / "check.sh").write_text("cat ../output; exit 1\n")
    (place.base / "output").write_text("x" * 30_000 + "\n" + keys["output"] + "\n" + "y" * 19_980 + "\n")
    task = place.task(*[[say_phase(1)]] * 5, phases=[{**PHASE, "verify": "sh check.sh"}])

    place.supervise()

    assert place.state(task) == ("review", "approval"), place
    (place.base / "output").unlink()
    assert leaks(place, keys) == []
    assert keys["output"][-10:] not in json.dumps(shown(place)), "cut first, half of a key would be left"


def test_a_title_that_is_cut_from_the_brief_has_no_half_of_a_key(tmp_path: Path) -> None:
    key = made_up()

    spec = taskfile.check({"brief": "x" * 60 + " " + key, "workspace": str(tmp_path)}, str(tmp_path))

    assert key[:10] not in spec.title


def test_a_value_in_the_place_of_a_name_is_refused_and_not_told(tmp_path: Path) -> None:
    key = made_up()

    with pytest.raises(Usage) as refused:
        taskfile.check({"brief": "b", "workspace": str(tmp_path), "secrets": [f"KEY={key}"]}, str(tmp_path))

    assert key not in str(refused.value)


@pytest.mark.parametrize("how", ["restart", "rebuild"])
def test_the_agent_is_told_the_true_value_after_a_restart(place: Place, how: str) -> None:
    key, chosen = made_up(), made_up()
    turn = [{"show_variable": "CHOSEN"}, DONE]
    agent = {**place.agent("work", turn), "set": {"CHOSEN": chosen}}
    agent["command"] = [
        "/bin/sh",
        "-c",
        f'printf %s "$CHOSEN" > {place.base}/chosen; exec "$@"',
        "sh",
        *agent["command"],
    ]
    task = place.task(turn, brief=f"Use {key}.", agent=agent)
    place.close()
    place.runtime = place.make_runtime()
    place.tasks = Tasks(place.runtime)
    if how == "rebuild":
        place.lose_database()
        recovery.rebuild(place.runtime, [str(place.base)])
        place.tasks.resume(task.id)

    place.supervise()

    assert place.state(task) == ("done", ""), place
    assert is_told(place, key)
    assert (place.base / "chosen").read_text() == chosen


def test_another_host_that_has_the_keys_opens_it_and_one_without_does_not(place: Place, tmp_path: Path) -> None:
    key = made_up()
    task = place.task(brief=f"Use {key}.", agent={"command": ["true"], "set": {"CHOSEN": key}}, start=False)
    for name, has_keys in (("with", True), ("without", False)):
        base = tmp_path / name
        base.mkdir()
        shutil.copytree(
            place.data, base / "data", ignore=None if has_keys else shutil.ignore_patterns("keys", "*.key", "key")
        )
        other = Place(base)
        row = other.runtime.tables.task(task.id)
        if has_keys:
            assert vault.open_agent(other.runtime, row)["set"] == {"CHOSEN": key}
            assert vault.reveal(other.runtime, task.id, row.brief) == f"Use {key}."
        else:
            with pytest.raises(WrongKey):
                vault.open_agent(other.runtime, row)
            assert vault.agent_of(other.runtime, row)["set"] == {}
        other.close()


def test_an_agent_whose_values_do_not_open_is_not_started(place: Place) -> None:
    task = place.task([DONE], brief=f"Use {made_up()}.")
    with place.runtime.tables.write() as tables:
        tables.do("UPDATE secret SET sealed = 'encrypted:AAAA' WHERE task = ? AND type = ?", task.id, MARKED)

    place.supervise()

    assert place.state(task) == ("failed", "")
    assert place.journal() == []


def test_a_task_whose_store_is_away_when_its_back_off_ends_is_tried_again(place: Place) -> None:
    """Its secrets do not open then; that says nothing of the key."""
    task = place.task([{"exit": 3}], [DONE], brief=f"Use {made_up()}.")
    held = place.holds(task, "backoff")
    place.supervise(until=held)
    change(place)  # what another process has opened is not known to this one

    with without_store(place):
        place.supervise(until=lambda: held() and "cannot be opened" in place.runtime.tables.holds()[0].reason)
        [first] = place.runtime.tables.holds()
        place.supervise(until=lambda: held() and place.runtime.tables.holds()[0].id > first.id)
        assert not first.human and first.due_at
        assert place.outcomes(task) == ["crashed"]
    place.supervise()

    assert place.state(task) == ("done", ""), place
    assert place.outcomes(task) == ["crashed", "complete"]


def test_a_task_that_was_never_started_waits_for_the_store_of_its_secrets(place: Place) -> None:
    task = place.task([DONE], agent={**place.agent("work", [DONE]), "set": {"CHOSEN": made_up()}})
    change(place)

    with without_store(place):
        place.supervise(until=place.holds(task, "backoff"))
        assert place.outcomes(task) == []
    place.supervise()

    assert place.state(task) == ("done", ""), place


def test_a_run_whose_store_goes_away_just_before_its_agent_starts_is_started_later(place: Place) -> None:
    task = place.task([DONE], brief=f"Use {made_up()}.")
    run = Turns(place.runtime, "").begin(task)
    assert run is not None
    change(place)

    with without_store(place), pytest.raises(KeepfastError):
        runs.spawn(place.runtime, run.id)
    place.supervise()

    assert place.state(task) == ("done", ""), place
    assert place.outcomes(task) == ["complete"]


def test_a_fork_knows_the_values_of_its_task(place: Place) -> None:
    key, chosen = made_up(), made_up()
    task = place.task([DONE], brief=f"Use {key}.", agent={**place.agent("work", [DONE]), "set": {"CHOSEN": chosen}})
    place.supervise()

    fork = place.tasks.fork(task.id, str(place.base / "work-fork"))

    assert vault.open_agent(place.runtime, fork)["set"] == {"CHOSEN": chosen}
    assert vault.reveal(place.runtime, fork.id, fork.brief) == f"Use {key}."
    assert leaks(place, Keys(brief=key, chosen=chosen)) == []


def test_rows_of_an_older_version_are_sealed_when_the_supervisor_starts(place: Place) -> None:
    key, chosen = made_up(), made_up()
    task = place.task([DONE], start=False)
    old = json.dumps({**task.agent, "set": {"CHOSEN": chosen}})
    with place.runtime.tables.write() as tables:
        tables.do("UPDATE task SET brief = ?, agent = ? WHERE id = ?", f"Use {key}.", old, task.id)

    recovery.finish_interrupted(place.runtime)

    row = place.runtime.tables.task(task.id)
    assert key not in row.brief
    assert vault.reveal(place.runtime, task.id, row.brief) == f"Use {key}."
    assert row.agent["set"]["CHOSEN"].startswith("encrypted:")
    assert vault.open_agent(place.runtime, row)["set"] == {"CHOSEN": chosen}
    again = place.runtime.tables.task(task.id)
    recovery.finish_interrupted(place.runtime)
    assert place.runtime.tables.task(task.id) == again


def test_the_prompt_is_on_no_disk_and_its_file_can_be_read_by_name(place: Place) -> None:
    key = made_up()
    copy = place.base / "copy"
    agent = {
        "command": ["/bin/sh", "-c", f"exec < /dev/null; cat {{prompt_file}} > {copy}; exit 0"],
        "completes_on": "exit",
    }
    task = place.task(brief=f"Use {key}.", agent=agent)

    place.supervise()

    assert place.state(task) == ("done", ""), place
    assert key in copy.read_text()
    assert leaks(place, Keys(brief=key)) == []


def test_an_answer_that_was_asked_for_as_a_secret_is_one_however_it_looks(place: Place) -> None:
    word = "sunflower" + secrets.token_hex(2)
    task = place.task(
        [{"say": "[USER_QUESTION]\nquestion: What is the password of the shop?\n[/USER_QUESTION]"}], [DONE]
    )
    place.supervise()

    place.tasks.answers.answer(task.id, word)
    place.supervise()

    assert place.state(task) == ("done", ""), place
    assert is_told(place, word)
    assert leaks(place, Keys(answer="    " + word)) == []


@pytest.mark.parametrize(("answer", "exactly"), [("use {}", False), ("use {}", True), ("signed {}", True)])
def test_a_warning_about_an_answer_does_not_say_it_again(place: Place, answer: str, exactly: bool) -> None:
    question = "[USER_QUESTION]\nquestion: Which token format?\noptions:\n  - opaque\n  - signed\n[/USER_QUESTION]"
    task = place.task([{"say": question}], [DONE])
    place.supervise()
    key = made_up()

    _, warning = place.tasks.answers.answer(task.id, answer.format(key), exactly=exactly)

    assert warning and key not in warning


def test_an_answer_that_is_nearly_an_option_is_not_said_again() -> None:
    key = made_up()

    checked = check(f"use {key}", [f"use {key[:-4]}"])

    assert checked.value is None and key not in checked.why


def test_an_option_that_the_agent_offered_is_no_secret(place: Place) -> None:
    question = "[USER_QUESTION]\nquestion: Which token format?\noptions:\n  - opaque\n  - signed\n[/USER_QUESTION]"
    task = place.task([{"say": question}], [DONE])
    place.supervise()

    place.tasks.answers.answer(task.id, "signed")

    [prompt] = place.tasks.views.show(task.id)["prompts"]
    assert prompt["answer"] == "signed"


def test_what_only_the_whole_prompt_shows_to_be_a_secret_reaches_the_agent(place: Place) -> None:
    """Title and brief are looked at by themselves; beside each other they may show more."""
    word = "sunflower" + secrets.token_hex(2)
    task = place.task([DONE], title="The shop has password =", brief=word)
    assert place.runtime.tables.task(task.id).brief == word, "by itself it is a word"

    place.supervise()

    assert is_told(place, word)


def test_what_only_its_place_shows_to_be_a_secret_reaches_the_agent(place: Place) -> None:
    word = "sunflower" + secrets.token_hex(2)
    task = place.task([say_phase(1)], [say_phase(1)], phases=[{**PHASE, "review": True}])
    place.supervise()

    place.tasks.answers.reject(task.id, "", [Remark("password", 0, word)])
    place.supervise()

    assert place.state(task) == ("review", "approval"), place
    assert is_told(place, f"password: {word}")
    assert word not in place.runtime.tables.task(task.id).next_prompt


def test_a_row_of_an_older_version_makes_no_prompt_in_the_clear(place: Place) -> None:
    key, task = made_up(), place.task([DONE])
    with place.runtime.tables.write() as tables:
        tables.do("UPDATE task SET brief = ? WHERE id = ?", f"Use {key}.", task.id)

    run = Turns(place.runtime, "").begin(place.runtime.tables.task(task.id))

    assert run is not None
    assert key not in run.prompt
    assert key in vault.reveal(place.runtime, task.id, run.prompt)


def test_a_command_that_is_run_has_a_title_without_its_secrets(tmp_path: Path) -> None:
    from keepfast.cli.run import _spec

    key = made_up()
    title = _spec(["deploy", "--password", "hunter2xyz", "x" * 30, key], None)["title"]

    assert key[:12] not in title
    assert "hunter2xyz" not in title


def test_the_account_has_no_password_of_its_address(place: Place) -> None:
    from keepfast.runner.process.drivers import driver

    word = "pw" + secrets.token_hex(6)
    account = driver({"kind": "claude"}, place.options).account(
        {"HOME": "/h", "ANTHROPIC_BASE_URL": f"https://ann:{word}@proxy.test"}
    )

    assert word not in account


# Programs that the client starts


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    return folder


def run_tools(words: list[str], given: str, **variables: str) -> None:
    subprocess.run(
        [sys.executable, "-I", "-m", "keepfast.runner.process.agent_tools", *words], input=given.encode(), env=variables,
        check=True,
        stdout=subprocess.DEVNULL,
    )  # fmt: skip


def test_calls_of_tools_are_noted_without_secrets(tools: Path) -> None:
    key, given = made_up(), "Pin" + secrets.token_hex(4)
    question = {"name": "ask_user", "arguments": {"question": f"Is {key} or {given} right?", "options": [key, "no"]}}
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": question}

    run_tools([str(tools), "SHOP_PIN"], json.dumps(request) + "\n", SHOP_PIN=given)

    noted = (tools / "tools.jsonl").read_text()
    assert key not in noted
    assert given not in noted
    assert json.loads(noted)["lists"] == {"options": ["[redacted:github-token]", "no"]}


def test_failed_stops_are_noted_without_secrets(tools: Path) -> None:
    key, given = made_up(), "Pin" + secrets.token_hex(4)
    facts = {"error": "rate_limit", "last_assistant_message": f"with {key} and {given}", "session_id": "5f0c"}

    run_tools(["--failure", str(tools), "SHOP_PIN"], json.dumps(facts), SHOP_PIN=given)

    noted = (tools / "failures.jsonl").read_text()
    assert key not in noted
    assert given not in noted
    assert json.loads(noted)["error"] == "rate_limit"


# Lines of output


def test_a_line_of_json_stays_one(tmp_path: Path) -> None:
    key = made_up()
    line = {"type": "assistant", "session_id": "Xk9vQ2mN7pL4rT8wZ1yB5cD3fG6hJ0sA", "message": {
        "id": "msg_01XFDUDYJgAABZ2GEkPjGe2W9qKx7TzQ4LmNp", "content": [
            {"type": "tool_use", "id": "toolu_01A09q90qw90lq917835lq9zXy", "input": {"command": f"curl -u a:{key}"}},
            {"type": "text", "text": f'"password": "{key}"\nnext line'}],
        "usage": {"input_tokens": 3}}, "env": {"API_TOKEN": "s3cr3tw0rd"}}  # fmt: skip

    found = json.loads(Lines().clean(json.dumps(line).encode() + b"\n"))

    assert key not in json.dumps(found)
    assert "s3cr3tw0rd" not in json.dumps(found)
    assert found["session_id"] == line["session_id"], "as random as a secret, but by its name none"
    assert found["message"]["id"] == line["message"]["id"]  # type: ignore[index]
    assert clean({"word": line["session_id"]}) != {"word": line["session_id"]}
    assert found["message"]["content"][0]["id"] == line["message"]["content"][0]["id"]  # type: ignore[index]
    assert found["message"]["usage"] == {"input_tokens": 3}


@pytest.mark.parametrize("line", [
    '{{"a": "{key}", "a": "b"}}', '{{"{key}": 1}}', '{{"id": "{key}"}}', '{{"a": "{key}"}} trailing}}', '{{"a": "{key}"',
    '{{"type": "x", "a": "{{\\"b\\": \\"{key}\\"}}"}}', "[redacted:{key}#0123456789ab]", "encrypted:{key}", "\x1b[31m{key}\x1b[0m",
    "[ERROR] {key} [/ERROR]", "=== PHASE 1 COMPLETE === {key}",
])  # fmt: skip
def test_a_key_is_found_wherever_a_line_has_it(line: str) -> None:
    key = made_up()

    found = Lines().clean(line.format(key=key).encode() + b"\n")

    assert key.encode() not in found
    assert clean_text(line.format(key=key)).find(key) < 0


def test_a_value_is_called_by_the_name_beside_it() -> None:
    line = {"env": [{"name": "DB_PASSWORD", "value": "sunflower1"}, {"name": "MODE", "value": "sunflower2"}]}

    found = json.loads(Lines().clean(json.dumps(line).encode() + b"\n"))

    assert [one["value"] for one in found["env"]] == ["[redacted:secret]", "sunflower2"]


@pytest.mark.parametrize("is_random", [True, False])
def test_a_private_key_is_found_although_its_lines_come_one_by_one(is_random: bool) -> None:
    """Lines that are not random are known by nothing but what the key began with, long before."""
    body = [secrets.token_urlsafe(48) if is_random else chr(65 + number % 26) * 64 for number in range(30)]
    lines, seen = Lines(), b""
    for line in ["-----BEGIN RSA PRIVATE KEY-----", *body, "-----END RSA PRIVATE KEY-----", "done"]:
        seen += lines.clean(line.encode() + b"\n")

    assert not any(line.encode() in seen for line in body)
    assert seen.endswith(b"done\n")


@pytest.mark.parametrize("block", [
    "[DEPENDENCY_REQUEST]\ntype: api_key\nname: PAYMENT_KEY\ndescription: the token of the shop\n[/DEPENDENCY_REQUEST]\n",
    "The password:\n=== PHASE 1 COMPLETE ===\nSummary: the secret\n",
    "[USER_QUESTION]\nquestion: Which token?\noptions:\n  - a\n  - b\n[/USER_QUESTION]\n",
    '[ERROR_JSON]\n{"type": "fatal", "message": "no password"}\n[/ERROR_JSON]\n',
])  # fmt: skip
def test_what_agents_say_by_protocol_is_left_as_it_is(block: str) -> None:
    assert Lines().clean(block.encode()) == block.encode()


def test_marks_of_sealed_values_are_no_secrets() -> None:
    for text in (
        "password=[redacted:secret#0123456789ab]",
        "Use [redacted:github-token#0123456789ab].",
        "encrypted:SEZWMQ" + "A" * 60,
        "https://shop.example/?token=user;[redacted:secret#0123456789ab]",
    ):
        assert clean_text(text) == text
        assert clean({"api_key": text}) == {"api_key": text}


@pytest.mark.parametrize(("name", "value", "telling"), [
    ("DB_PASSWORD", "tr0ub4dor", True), ("SHOP", "9f86d081884c7d65", True), ("MODE", "quick", False), ("MODE", "assistant", False),
    ("CLAUDE_CONFIG_DIR", "/home/ann/.claude-2a9f86d08", False), ("MODEL", "claude-sonnet-4-5-20250929", False),
    ("URL", "https://example.org/a1b2c3d4e5f6", False), ("COUNT", "300000000000", False), ("API_KEY", "none", False),
])  # fmt: skip
def test_which_values_of_an_environment_are_struck_out(name: str, value: str, telling: bool) -> None:
    assert is_telling(name, value) is telling


def test_an_ordinary_value_that_is_set_does_not_disturb_the_output(place: Place) -> None:
    turn = [{"say": "quick: 1"}, DONE]
    task = place.task(turn, agent={**place.agent("work", turn), "set": {"MODE": "quick", "WORD": "COMPLETE"}})

    place.supervise()

    assert place.state(task) == ("done", ""), place
    [run] = place.runtime.tables.runs("task = ?", task.id)
    assert "quick: 1" in Path(run.folder, "out.log").read_text()


def test_what_stops_a_step_is_not_told_to_the_engine_of_workflows(place: Place) -> None:
    from keepfast.runner.scheduler import workflows

    key, task = made_up(), place.task([DONE])
    place.supervise()
    [run] = place.runtime.tables.runs("task = ?", task.id)
    workflows._Here.runtime = place.runtime
    try:
        with pytest.raises(workflows.StepFailed) as stopped, workflows._logged(run.id):
            raise OSError(f"cannot open {key}")
    finally:
        workflows._Here.runtime = None

    assert key not in str(stopped.value)
    assert stopped.value.__cause__ is None
    assert stopped.value.__suppress_context__
    assert place.events(task)[-1] == "trouble"
    assert leaks(place, Keys(error=key)) == []


def test_what_stops_the_supervisor_is_noted_without_secrets(place: Place) -> None:
    key, noted = made_up(), list[str]()
    supervisor = Supervisor(place.runtime, Threads(place.runtime))
    supervisor.note = noted.append

    supervisor._say(f"cannot reach {key}")

    assert noted == ["cannot reach [redacted:github-token]"]


def test_the_trail_of_the_page_has_no_secrets(tmp_path: Path) -> None:
    from keepfast.web.sessions import WebDatabase

    key, book = made_up(), WebDatabase(str(tmp_path), lambda: 1)
    book.audit(None, "POST", f"/x?{key}", f"{'x' * 480} {key}")
    [row] = book.audit_rows(10)
    book.close()

    assert key[:12] not in json.dumps(row)


def kept_secrets(place: Place, task: Task) -> Any:
    return place.tasks.views.show(task.id)["secrets"]


def test_sealed_words_are_no_variables(place: Place) -> None:
    task = place.task([need("api_key", "SHOP_KEY")], [{"say": "on"}, DONE], brief=f"Use {made_up()}.")
    place.supervise()
    place.tasks.answers.secret(task.id, "SHOP_KEY", "4711-0815")
    place.supervise()

    assert kept_secrets(place, task) == ["SHOP_KEY"]
    latest = json.loads((place.workspace() / ".checkpoints/latest.json").read_text())
    assert list(latest["environment"]["variables"]) == ["SHOP_KEY"]
    assert [one["name"] for one in latest["environment"]["dependencies"]] == ["SHOP_KEY"]
