"""The API's document is true: whatever it allows is answered as it says, and what it forbids is refused."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any
from urllib.parse import urlencode

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from keepfast.web.api import Operation, document
from keepfast.web.operations import OPERATIONS
from tests.web.scene import SUCCEEDS, Scene
from tests.web.served import Answer, Served

CHECKS: Any = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
SAMPLE, CAMPAIGN = 8, 230
"""Cases an operation; the campaign's are more than 10,000 altogether."""
LONGEST = 16 << 10


@pytest.fixture
def open_gate(served: Served, monkeypatch: pytest.MonkeyPatch) -> Served:
    """Nobody is slowed down: what is tried here is the document, not the limits."""
    monkeypatch.setattr(served.world.access, "BURST", 1e12)
    monkeypatch.setattr(served.world.access, "PER_SECOND", 1e12)
    served.gate.buckets.clear()
    return served


def ask(served: Served, operation: Operation, scene: Scene) -> Answer:
    found = SUCCEEDS[operation.id](scene)
    path = operation.path.format(**found.parts)
    query = {name: value for name, value in found.query.items() if name in operation.query}
    return served.ask(operation.method, f"{path}?{urlencode(query)}" if query else path, found.body)


def test_every_operation_succeeds(open_gate: Served) -> None:
    scene = Scene(open_gate)
    answers = {one.id: ask(open_gate, one, scene) for one in OPERATIONS}

    assert {name: (one.status, one.body) for name, one in answers.items() if one.status != 200} == {}
    assert {one.id for one in OPERATIONS} == answers.keys()


@pytest.mark.timeout(3600)
def test_what_the_document_allows_is_answered_as_it_says(open_gate: Served, request: pytest.FixtureRequest) -> None:
    cases = CAMPAIGN if request.config.getoption("campaign") else SAMPLE
    trial, wrong = Trial(open_gate, cases), []
    found: Any = schemathesis.openapi.from_dict(document(OPERATIONS)).get_all_operations()
    for operation in [one.ok() for one in found]:
        try:
            trial.run(operation)
        except (Exception, BaseExceptionGroup) as error:  # each operation is tried, whatever became of the one before
            wrong.append(f"{operation.label}: {error}")

    succeeded = [one.id for one in OPERATIONS if ask(open_gate, one, trial.scene).status == 200]
    print(f"\n{trial}; {len(succeeded)} of {len(OPERATIONS)} succeed")
    assert wrong == []
    assert max(trial.answered) < 500
    assert succeeded == [one.id for one in OPERATIONS]
    assert open_gate.ask("GET", "/api/workspaces").status == 200


class Trial:
    """Cases that the document allows, and others that it forbids, half of them about things that are there."""

    def __init__(self, served: Served, cases: int) -> None:
        self.served, self.cases, self.sending = served, cases, requests.Session()
        self.tried, self.answered = Counter[str](), Counter[int]()
        scene = self.scene = Scene(served)
        self.known = {
            "workspace": [scene.workspace], "reference": ["v1", "v2", "latest"], "task": [scene.task(), scene.task()],
            "prompt": [scene.prompt("question"), scene.prompt("approval")],
        }  # fmt: skip

    def __str__(self) -> str:
        return (
            f"{sum(self.tried.values())} cases of {len(self.tried)} operations: {dict(sorted(self.answered.items()))}"
        )

    def run(self, operation: Any) -> None:
        bare = not operation.definition.raw["parameters"] and "requestBody" not in operation.definition.raw

        @settings(
            max_examples=self.cases, deadline=None, phases=[Phase.generate], database=None, derandomize=self.cases == SAMPLE,
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        @given(data=st.data())
        def holds(data: st.DataObject) -> None:
            right = bare or data.draw(st.booleans(), "as the document allows")
            case = data.draw(operation.as_strategy(GenerationMode.POSITIVE if right else GenerationMode.NEGATIVE))
            if right and data.draw(st.booleans(), "about things that are there"):
                for name in case.path_parameters or ():
                    case.path_parameters[name] = data.draw(st.sampled_from(self.known[name]))
            self.ask(operation.label, case, [*CHECKS] if right else [*CHECKS, negative_data_rejection])

        holds()

    def ask(self, label: str, case: Any, checks: list[Any]) -> None:
        _stay_inside(case, str(self.served.base))
        if len(urlencode(case.query or {}, doseq=True, errors="surrogatepass")) > LONGEST:
            return  # a head that large is refused before anybody knows what it asks for
        headers = {"Host": self.served.host, "Authorization": f"Bearer {self.served.session}"}
        response = case.call(base_url=f"http://127.0.0.1:{self.served.port}", session=self.sending, headers=headers)
        self.tried[label] += 1
        self.answered[response.status_code] += 1
        case.validate_response(response, checks=checks)


def _stay_inside(case: Any, base: str) -> None:
    """Folders that are to be made lie in the test's own."""
    if isinstance(case.body, dict):
        for name in ("folder", "workspace"):
            if isinstance(case.body.get(name), str) and case.body[name].startswith("/"):
                case.body[name] = base + "/made" + case.body[name]


def test_the_document_can_be_written_down() -> None:
    text = json.dumps(document(OPERATIONS))

    assert json.loads(text)["openapi"].startswith("3.1")
