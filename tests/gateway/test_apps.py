"""Apps through the gateway: by MCP with the SDK's client, and as HTTP services."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from palaestra.core.episode import Key
from palaestra.core.session import Session
from palaestra.core.task import Split, Task
from palaestra.environments.families.apps.environment import Apps
from palaestra.gateway.program_agents import CommandAgent
from palaestra.models.scripted.scripted_model import ScriptedModel
from palaestra.rollout.guarded_environment import LocalEnvironment
from tests.gateway.test_clients import Client
from tests.gateway.visits import Visit, visit

CODE = "easy:code"
TASK = Apps.tasks(f"apps/{CODE}").task(Split.TEST, 0)


@contextlib.asynccontextmanager
async def services(
    name: str = CODE, task: Task = TASK
) -> AsyncIterator[tuple[Visit, httpx.AsyncClient]]:
    """Open a session, and a client whose Authorization header is free for an app's token."""
    world = LocalEnvironment(Apps(name))
    async with visit(ScriptedModel([]), world=world, task=task) as visited:
        key = {"x-api-key": visited.endpoint.token}
        base = f"{visited.address}/apps"
        async with httpx.AsyncClient(base_url=base, headers=key, trust_env=False) as client:
            yield visited, client


async def signed_in(client: httpx.AsyncClient, app: str) -> dict[str, str]:
    """Sign in to an app; return the header that says so."""
    listed = await client.post("/supervisor/list_credentials", json={"per_page": 20})
    mine = next(row for row in listed.json()["credentials"] if row["app"] == app)
    known = {name: mine[name] for name in ("username", "password")}
    token = (await client.post(f"/{app}/login", json=known)).json()["access_token"]
    return {"Authorization": f"Bearer {token}"}


def test_an_api_is_a_post_with_the_status_of_its_reply() -> None:
    async def run() -> None:
        async with services() as (visited, client):
            assert (await client.get(f"{visited.address}/apps")).json().keys() >= {"mail", "bank"}
            header = await signed_in(client, "contacts")
            new = {"name": "Ada Lovelace", "email": "ada@engine.example"}
            made = await client.post("/contacts/create_contact", json=new, headers=header)
            assert (made.status_code, made.json()["name"]) == (200, "Ada Lovelace")
            assert made.headers["content-type"] == "application/json"
            without = await client.post("/contacts/list_contacts")
            assert (without.status_code, "contacts.login" in without.json()["error"]) == (401, True)
            body = {"access_token": header["Authorization"].split()[1], "per_page": 2}
            listed = await client.post("/contacts/list_contacts", json=body)
            assert listed.status_code == 200 and len(listed.json()["contacts"]) == 2
            names = [step.action.call.name for step in visited.session.steps if step.action.call]
            assert names[-3:] == [
                "contacts.create_contact", "contacts.list_contacts", "contacts.list_contacts",
            ]  # fmt: skip

    asyncio.run(run())


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/mail/fly", b"{}", 404),
        ("/nothing/list_messages", b"{}", 404),
        ("/contacts/show_contact", b"{}", 400),
        ("/contacts/show_contact", b'{"contact_id": "one"}', 422),
        ("/contacts/show_contact", b'{"contact_id": 999999}', 404),
        ("/contacts/show_contact", b'{"contact_id": 1, "wings": 2}', 400),
        ("/contacts/show_contact", b'{"contact_id": 1', 400),
        ("/contacts/show_contact", b"[1]", 400),
        ("/contacts/search_contacts", b'{"query": "\'; DROP TABLE x; --"}', 200),
        ("/contacts/search_contacts", b'{"query": "' + b"a" * 100_000 + b'"}', 413),
        ("/contacts/search_contacts", b'{"query": "' + b"a" * 10_000_000 + b'"}', 413),
    ],
)
def test_bad_requests_are_answered_as_a_service_does_and_change_nothing(
    path: str, body: bytes, status: int
) -> None:
    async def run() -> None:
        async with services() as (visited, client):
            header = await signed_in(client, "contacts")
            key = visited.session.state.signals.state_key
            answer = await client.post(path, content=body, headers=header)
            assert answer.status_code == status, answer.text[:200]
            assert status == 200 or isinstance(answer.json()["error"], str)
            assert visited.session.state.signals.state_key == key

    asyncio.run(run())


def test_a_token_of_another_app_or_session_does_not_open() -> None:
    async def run() -> None:
        async with services() as (visited, client):
            header = await signed_in(client, "mail")
            wrong = await client.post("/bank/list_accounts", headers=header)
            assert wrong.status_code == 401 and "not valid" in wrong.json()["error"]
            thief = await client.post("/bank/list_accounts", headers={"x-api-key": "guess"})
            assert thief.status_code == 401
            # The session's own token in the Authorization header opens the session, and no app.
            own = {"Authorization": f"Bearer {visited.endpoint.token}"}
            async with httpx.AsyncClient(base_url=visited.address, trust_env=False) as plain:
                assert (await plain.get("/apps", headers=own)).status_code == 200
                closed = await plain.post("/apps/bank/list_accounts", headers=own)
                assert closed.status_code == 401 and "bank.login" in closed.json()["error"]

    asyncio.run(run())


def test_the_openapi_document_of_an_app_names_what_can_be_posted() -> None:
    async def run() -> None:
        async with services() as (_, client):
            served = (await client.get("/mail/openapi.json")).json()
            assert served["openapi"] == "3.1.0" and served["info"]["title"] == "mail"
            for path in served["paths"]:
                answer = await client.post(f"/mail{path}", json={})
                assert answer.status_code in (400, 401)
            assert (await client.get("/nothing/openapi.json")).status_code == 404

    asyncio.run(run())


def test_two_clients_at_the_same_moment_are_served_one_after_the_other() -> None:
    async def run() -> None:
        async with services() as (visited, client):
            header = await signed_in(client, "contacts")
            already = len(visited.session.steps)

            async def make(number: int) -> Any:
                new = {"name": f"Person {number}", "email": f"p{number}@many.example"}
                return (
                    await client.post("/contacts/create_contact", json=new, headers=header)
                ).json()

            made = await asyncio.gather(*map(make, range(6)))
            assert len({one["id"] for one in made}) == 6
            steps = visited.session.steps[already:]
            bodies = [json.loads(step.transition.observation.text)["id"] for step in steps]
            assert sorted(bodies) == bodies and len(bodies) == 6

    asyncio.run(run())


def test_what_happens_meanwhile_stands_in_a_header() -> None:
    async def run() -> None:
        source = Apps.tasks("apps/timed:code")
        for number in range(10):
            async with services("timed:code", source.task(Split.TEST, number)) as (_, client):
                waited = await client.post("/clock/wait", json={"minutes": 600})
                assert waited.status_code == 200 and waited.json()["now"] == "2026-03-02 19:00"
                if "x-notifications" in waited.headers:
                    told = json.loads(waited.headers["x-notifications"])
                    assert told and all(one.startswith("[") for one in told)
                    return
        raise AssertionError("nothing happened in ten tasks")

    asyncio.run(run())


def test_a_world_without_services_says_so_and_is_not_touched() -> None:
    async def run() -> None:
        async with visit(ScriptedModel([])) as visited:
            answer = await visited.post("/apps/mail/list_messages", {})
            assert answer.status_code == 404 and "apps/easy:code" in answer.json()["error"]
            assert not visited.session.steps

    asyncio.run(run())


@pytest.mark.slow
def test_the_sdks_client_solves_a_task_by_mcp(tmp_path: Path) -> None:
    """With every API as a tool; the calls are the reference's."""
    world, task = Apps("easy:all"), Apps.tasks("apps/easy:all").task(Split.TEST, 0)
    world.reset(task)
    calls = [action.call for action in world.oracle() if action.call is not None]
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps([[call.name, dict(call.arguments)] for call in calls]))
    command = Client("mcp_apps.py", "mcp", "mcp").command
    program = CommandAgent(line=" ".join([*command, str(plan)]), seconds=120.0)
    models = {"agent": ScriptedModel([])}
    session = Session(Key("t", 0), task, LocalEnvironment(Apps("easy:all")), program, models)
    episode = asyncio.run(session.run())
    assert episode.outcome.solved, episode.outcome.detail
    assert [step.action.call for step in episode.steps] == calls
