"""The gateway's OpenAPI document: complete, valid, and correct under fuzzing."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from starlette.applications import Starlette

from palaestra.core.session import Session
from palaestra.gateway.app import application
from palaestra.gateway.http_errors import HTTPError
from palaestra.gateway.openapi import document
from palaestra.gateway.session_endpoint import SessionEndpoint
from palaestra.models.scripted.scripted_model import ScriptedModel
from tests.core.small import KEY, TASK, Acting, Stairs, renderer

TOKEN = "token"
EXAMPLES = 25  # requests to each operation, and as many that it forbids


class Fresh:
    """Always an open endpoint: a new one when the last one has ended."""

    def __init__(self) -> None:
        self._endpoint: SessionEndpoint | None = None

    def endpoint(self, id: str, token: str) -> SessionEndpoint:
        if token != TOKEN:
            raise HTTPError(401, "The session's token is missing or wrong.")
        if id != "open":
            raise HTTPError(404, f"There is no session '{id}'.")
        if self._endpoint is None or self._door.ended.is_set() or self._door.session.over:
            model = ScriptedModel(lambda messages: "up", renderer=renderer())
            session = Session(KEY, TASK, Stairs(9), Acting(), {"agent": model})
            self._endpoint = SessionEndpoint(id, TOKEN, session)
        return self._endpoint


@pytest.fixture(scope="module")
def app() -> Starlette:
    return application(Fresh())


def test_every_route_is_described_and_nothing_else(app: Starlette) -> None:
    described = {
        (path, method.upper())
        for path, methods in document()["paths"].items()
        for method in methods
        if method != "parameters"
    }
    routes: Any = app.routes
    real = {
        (route.path.replace(":path", ""), method)
        for route in routes
        for method in route.methods - {"HEAD"}
        if route.path != "/openapi.json"
    }
    assert described == real


def test_the_document_needs_no_token_and_its_references_resolve(
    app: Starlette,
) -> None:
    async def get() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            return await client.get("/openapi.json")

    served = asyncio.run(get()).json()
    text = json.dumps(served)
    for part in text.split('"$ref": "')[1:]:
        place: Any = served
        for name in part.partition('"')[0].removeprefix("#/").split("/"):
            place = place[name]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["positive", "negative"])
def test_no_request_that_the_document_allows_or_forbids_breaks_the_gateway(
    app: Starlette, mode: str
) -> None:
    schemathesis = pytest.importorskip(
        "schemathesis", reason="needs schemathesis; see Tests in docs/gateway.md"
    )
    checks = [
        getattr(schemathesis.checks, name)
        for name in (
            "not_a_server_error",
            "status_code_conformance",
            "content_type_conformance",
            "response_schema_conformance",
        )
    ]
    headers = {"Authorization": f"Bearer {TOKEN}"}
    statuses: Counter[tuple[str, int]] = Counter()

    def attempt(case: Any) -> None:
        answer = case.call(headers=headers)
        case.validate_response(answer, checks=checks)
        statuses[case.operation.label, answer.status_code] += 1

    for found in schemathesis.openapi.from_asgi("/openapi.json", app).get_all_operations():
        strategy = found.ok().as_strategy(
            schemathesis.GenerationMode(mode), path_parameters={"id": "open"}, headers=headers
        )
        checked = given(case=strategy)(attempt)
        with contextlib.suppress(Unsatisfiable):  # there is nothing to make wrong
            settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))(checked)()
    print(dict(statuses))
    assert sum(statuses.values()) > EXAMPLES
