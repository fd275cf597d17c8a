"""A session that a test uses through the gateway, at a real port."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from palaestra.core.budget import Budget
from palaestra.core.environment import AsyncEnvironment
from palaestra.core.episode import Episode, Event
from palaestra.core.model import Model, Sampling
from palaestra.core.session import Session
from palaestra.core.task import Task
from palaestra.gateway.gateway import Gateway
from palaestra.gateway.program_agents import GatewayAgent
from palaestra.gateway.request_limits import Limits
from palaestra.gateway.session_endpoint import SessionEndpoint
from tests.core.small import KEY, TASK, Stairs

SAMPLING = Sampling(1.0, 200)


class Visited(GatewayAgent):
    """Passes its endpoint to the test."""

    name = "visited"

    def __init__(self, gateway: Gateway) -> None:
        super().__init__(gateway)
        self.endpoints: asyncio.Queue[tuple[SessionEndpoint, str]] = asyncio.Queue()

    async def serve(self, endpoint: SessionEndpoint, address: str) -> None:
        self.endpoints.put_nowait((endpoint, address))
        await endpoint.ended.wait()


@dataclass
class Visit:
    """A running session."""

    endpoint: SessionEndpoint
    address: str
    client: httpx.AsyncClient  # with the session's token
    life: asyncio.Task[Episode]

    @property
    def session(self) -> Session:
        return self.endpoint.session

    async def post(self, path: str, body: Any, **more: Any) -> httpx.Response:
        return await self.client.post(path, json=body, **more)

    async def chat(self, messages: Sequence[Any], **more: Any) -> httpx.Response:
        body = {"model": "m", "messages": messages, **more}
        return await self.post("/v1/chat/completions", body)

    async def rpc(self, method: str, **params: Any) -> httpx.Response:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return await self.post("/mcp", body)

    async def end(self) -> Episode:
        """Disconnect, and return the recorded episode."""
        with contextlib.suppress(Exception):
            self.endpoint.give_up()
        return await self.life


@contextlib.asynccontextmanager
async def visit(
    model: Model,
    *,
    world: AsyncEnvironment | None = None,
    budget: Budget = Budget(),
    limits: Limits | None = None,
    keepalive: float = 5.0,
    past: Sequence[Event] = (),
    agent: Visited | None = None,
    task: Task = TASK,
    **options: Any,
) -> AsyncIterator[Visit]:
    """Open a session of `model` in an environment, of stairs unless given."""
    if agent is None:
        agent = Visited(Gateway(limits=limits or Limits(), keepalive=keepalive, **options))
    session = Session(
        KEY,
        task,
        world or Stairs(),
        agent,
        {"agent": model},
        budget=budget,
        sampling=SAMPLING,
        past=past,
    )
    life = asyncio.ensure_future(session.run())
    first = asyncio.ensure_future(agent.endpoints.get())
    await asyncio.wait({life, first}, return_when=asyncio.FIRST_COMPLETED)
    if not first.done():
        life.result()
    endpoint, address = first.result()
    headers = {"Authorization": f"Bearer {endpoint.token}"}
    async with httpx.AsyncClient(base_url=address, headers=headers, trust_env=False) as client:
        found = Visit(endpoint, address, client, life)
        try:
            yield found
        finally:
            await found.end()
