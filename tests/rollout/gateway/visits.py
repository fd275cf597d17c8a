"""A session that a test visits through the gateway, at a real port."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from palaestra.core.budget import Budget
from palaestra.core.environment import World
from palaestra.core.episode import Episode
from palaestra.core.journal import Event
from palaestra.core.model import Model, Sampling
from palaestra.core.session import Session
from palaestra.rollout.gateway.agent import GatewayAgent
from palaestra.rollout.gateway.body import Limits
from palaestra.rollout.gateway.door import Door
from palaestra.rollout.gateway.gateway import Gateway
from tests.core.small import KEY, TASK, Stairs

SAMPLING = Sampling(1.0, 200)


class Visited(GatewayAgent):
    """Shows its door to whoever waits for it."""

    name = "visited"

    def __init__(self, gateway: Gateway) -> None:
        super().__init__(gateway)
        self.doors: asyncio.Queue[tuple[Door, str]] = asyncio.Queue()

    async def serve(self, door: Door, address: str) -> None:
        self.doors.put_nowait((door, address))
        await door.ended.wait()


@dataclass
class Visit:
    """A session under way."""

    door: Door
    address: str
    client: httpx.AsyncClient  # with the session's token
    life: asyncio.Task[Episode]

    @property
    def session(self) -> Session:
        return self.door.session

    async def post(self, path: str, body: Any, **more: Any) -> httpx.Response:
        return await self.client.post(path, json=body, **more)

    async def chat(self, messages: Sequence[Any], **more: Any) -> httpx.Response:
        body = {"model": "m", "messages": messages, **more}
        return await self.post("/v1/chat/completions", body)

    async def rpc(self, method: str, **params: Any) -> httpx.Response:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return await self.post("/mcp", body)

    async def end(self) -> Episode:
        """Leave, and see what was recorded."""
        with contextlib.suppress(Exception):
            self.door.give_up()
        return await self.life


@contextlib.asynccontextmanager
async def visit(
    model: Model,
    *,
    world: World | None = None,
    budget: Budget = Budget(),
    limits: Limits | None = None,
    beat: float = 5.0,
    past: Sequence[Event] = (),
    agent: Visited | None = None,
    **options: Any,
) -> AsyncIterator[Visit]:
    """A session of `model` in a world of stairs."""
    if agent is None:
        agent = Visited(Gateway(limits=limits or Limits(), beat=beat, **options))
    session = Session(
        KEY,
        TASK,
        world or Stairs(),
        agent,
        {"agent": model},
        budget=budget,
        sampling=SAMPLING,
        past=past,
    )
    life = asyncio.ensure_future(session.live())
    first = asyncio.ensure_future(agent.doors.get())
    await asyncio.wait({life, first}, return_when=asyncio.FIRST_COMPLETED)
    if not first.done():
        life.result()
    door, address = first.result()
    headers = {"Authorization": f"Bearer {door.token}"}
    async with httpx.AsyncClient(base_url=address, headers=headers, trust_env=False) as client:
        found = Visit(door, address, client, life)
        try:
            yield found
        finally:
            await found.end()
