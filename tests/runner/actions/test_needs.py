"""What an agent needs: values for its environment, and things that a person sees to; each can be met or refused."""

from __future__ import annotations

import pytest

from keepfast.model.errors import Usage
from tests.runner.place import DONE, Place
from tests.runner.scheduler.test_observation import change


def need(type: str, name: str, **fields: str) -> dict[str, str]:
    lines = [f"type: {type}", f"name: {name}", *[f"{key}: {value}" for key, value in fields.items()]]
    return {"say": "\n".join(["[DEPENDENCY_REQUEST]", *lines, "[/DEPENDENCY_REQUEST]"])}


@pytest.mark.databases
@pytest.mark.parametrize("by", ["prompt", "task"])
def test_what_is_no_variable_is_seen_to_by_a_person_who_says_so(place: Place, by: str) -> None:
    task = place.task([need("service", "a Redis server on port 6379")], [DONE])
    place.supervise()
    [prompt] = place.tasks.views.inbox()
    assert (prompt["kind"], prompt["category"], prompt["name"]) == (
        "dependency",
        "service",
        "a Redis server on port 6379",
    )
    assert place.state(task) == ("active", "dependency")
    assert "secret" not in place.tasks.views.show(task.id)["actions"]
    assert place.tasks.views.show(task.id)["status"] == "waiting_dependency"
    assert "answer" in place.tasks.views.show(task.id)["actions"]

    place.tasks.answers.answer(prompt["id"] if by == "prompt" else task.id, "It runs, on 6380.")
    place.supervise()

    assert place.state(task) == ("done", "")
    assert "You needed: a Redis server on port 6379\nThe answer: It runs, on 6380." in place.told()[1]


def test_a_name_that_no_variable_can_have_is_answered_back(place: Place) -> None:
    """Nobody could ever provide it: a person may give only what a process can be given."""
    task = place.task([need("api_key", "Stripe API key")], [DONE])

    place.supervise()

    assert place.state(task) == ("done", "")
    assert "must be the name of an environment variable" in place.told()[1]


@pytest.mark.databases
def test_a_secret_may_be_refused_and_the_agent_does_without(place: Place) -> None:
    task = place.task([need("api_key", "SHOP_KEY")], [{"show_variable": "SHOP_KEY"}, DONE])
    place.supervise()
    with pytest.raises(Usage, match="cannot be given as an answer"):
        place.tasks.answers.answer(task.id, "sk-something")

    place.tasks.answers.answer(task.id, "refused")
    place.supervise()

    assert place.state(task) == ("done", "")
    assert "SHOP_KEY is not provided; do without it." in place.told()[1]
    assert [one["answer"] for one in place.tasks.views.log(task.id) if one["type"] == "answered"] == ["refused"]


def test_what_the_task_itself_names_cannot_be_refused(place: Place) -> None:
    task = place.task([DONE], secrets=["TOKEN"])
    place.supervise()

    with pytest.raises(Usage, match="The task requires TOKEN"):
        place.tasks.answers.answer(task.id, "refused")


@pytest.mark.databases
def test_what_is_not_required_is_not_waited_for_longer_than_a_question(place: Place) -> None:
    change(place, question_timeout=0.3)
    asked = [need("env_variable", "COLOUR", required="false", default="blue"), need("api_key", "KEY", required="false")]
    task = place.task(asked, [DONE])

    place.supervise(until=lambda: place.state(task)[0] == "done")

    assert "COLOUR is not provided; go on with 'blue'." in place.told()[1]
    assert "KEY is not provided; do without it." in place.told()[1]


def test_what_is_required_is_waited_for(place: Place) -> None:
    change(place, question_timeout=0.01)
    task = place.task([need("api_key", "KEY")], [DONE])
    place.supervise()

    assert place.state(task) == ("active", "secret")
    assert "question_expired" not in place.events(task)


def test_the_log_tells_a_dependency_from_a_secret(place: Place) -> None:
    need = "[DEPENDENCY_REQUEST]\ntype: {}\nname: {}\n[/DEPENDENCY_REQUEST]"
    task = place.task([{"say": need.format("service", "redis")}, {"say": need.format("api_key", "A_KEY")}], [DONE])
    place.supervise()
    for prompt in place.shown(task)["prompts"]:
        if prompt["name"] == "redis":
            place.tasks.answers.answer(prompt["id"], "it runs")
    place.tasks.answers.secret(task.id, "A_KEY", "value-of-it")

    kinds = [event["kind"] for event in place.tasks.views.log(task.id) if event["type"] == "answered"]
    assert kinds == ["dependency", "secret"]
