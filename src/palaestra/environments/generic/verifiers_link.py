"""A verifiers environment kept in an event loop of its own, played from outside, turn by turn.

verifiers calls models; here the model is whoever steps the world. So the environment runs as it
always does, and the model that it is given is an endpoint on the loopback interface, which hands
each request out and answers with what is said next.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import queue
import threading
import weakref
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import verifiers.v1 as vf
from aiohttp import web

from palaestra.core.message import ToolCall
from palaestra.core.tool import Tool
from palaestra.environments.generic.verifiers_seat import SEAT
from palaestra.environments.generic.verifiers_turns import Asked, Ended

MODEL = "palaestra"
STARTING = 120.0  # seconds for shared tool servers to be there
ENDING = 20.0  # seconds for an episode that is left to be taken down
LARGEST = 2**28  # bytes of a request


Event = Asked | Ended | BaseException


@dataclass(slots=True)
class _Life:
    """A thread with an event loop and the environment in it; it knows nothing of the link."""

    settings: vf.EnvConfig
    begun: Future[asyncio.AbstractEventLoop] = field(default_factory=Future)
    events: queue.SimpleQueue[Event] = field(default_factory=queue.SimpleQueue)
    orders: asyncio.Queue[Any] = field(default_factory=asyncio.Queue)
    waiting: asyncio.Future[dict[str, Any]] | None = None  # a request without an answer yet

    def run(self) -> None:
        try:
            asyncio.run(self._live())
        except BaseException as error:
            if not self.begun.done():
                self.begun.set_exception(error)
            self.events.put(error)

    async def _live(self) -> None:
        app = web.Application(client_max_size=LARGEST)
        app.router.add_post("/v1/chat/completions", self._answer)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            host, port = runner.addresses[0][:2]
            client = vf.EvalClientConfig(
                base_url=f"http://{host}:{port}/v1", api_key_var="PALAESTRA_HAS_NO_KEY"
            )
            world = vf.load_environment(self.settings)
            async with world.serving():
                self.begun.set_result(asyncio.get_running_loop())
                await self._obey(world, vf.ModelContext(model=MODEL, client=client))
        finally:
            await runner.cleanup()

    async def _obey(self, world: vf.Env[Any], model: vf.ModelContext) -> None:
        """Play the tasks that are ordered, one at a time; None is the end."""
        playing: asyncio.Task[None] | None = None
        while True:
            order = await self.orders.get()
            if self.waiting is not None:
                self.waiting.cancel()
            if playing is not None:
                playing.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await playing
            if order is None:
                return
            task, left = order
            with contextlib.suppress(queue.Empty):
                while True:
                    self.events.get_nowait()
            left.set_result(None)  # nothing of the episode before comes after this
            if task is not None:
                playing = asyncio.create_task(self._play(world, task, model))

    async def _play(self, world: vf.Env[Any], task: Any, model: vf.ModelContext) -> None:
        try:
            self.events.put(Ended(await world.run_episode(task, model)))
        except Exception as error:
            self.events.put(error)

    async def _answer(self, request: web.Request) -> web.Response:
        body = await request.json()
        tools = tuple(
            Tool(
                tool["function"]["name"],
                tool["function"].get("description") or tool["function"]["name"],
                tool["function"].get("parameters") or {"type": "object", "properties": {}},
            )
            for tool in body.get("tools") or ()
        )
        if self.waiting is not None and not self.waiting.done():
            self.events.put(NotImplementedError("its agent is asked for two replies at once"))
            raise web.HTTPBadRequest(text="one request at a time")
        self.waiting = asyncio.get_running_loop().create_future()
        self.events.put(Asked(body["messages"], tools))
        return web.json_response(await self.waiting)

    def reply(self, said: dict[str, Any]) -> None:
        if self.waiting is not None and not self.waiting.done():
            self.waiting.set_result(said)

    def end(self, thread: threading.Thread) -> None:
        with contextlib.suppress(Exception):  # it has ended by itself
            loop = self.begun.result(0)
            loop.call_soon_threadsafe(self.orders.put_nowait, None)
        thread.join(ENDING)


class Link:
    """An environment under way, from its start to `close`."""

    def __init__(self, settings: vf.EnvConfig, role: str) -> None:
        """Set it up with a seat for our agent; raises what its own code raises."""
        seated = getattr(settings, role).model_copy(
            update={
                "harness": vf.harness_config_type(SEAT).model_validate({"id": SEAT}),
                "runtime": vf.SubprocessConfig(),
                "retries": vf.RetryConfig(),  # what is played is played once
            }
        )
        self._life = _Life(settings.model_copy(update={role: seated}))
        self._thread = threading.Thread(target=self._life.run, daemon=True, name="verifiers")
        self._end = weakref.finalize(self, self._life.end, self._thread)
        self._thread.start()
        try:
            self._loop = self._life.begun.result(STARTING)
        except BaseException:
            self._end()
            raise

    def begin(self, task: vf.Task[Any, Any, Any]) -> Asked | Ended:
        """Leave the episode before, and play this task until it is the agent's turn."""
        self._ordered(task)
        return self._event()

    def leave(self) -> None:
        """Leave the episode that is played, if any."""
        self._ordered(None)

    def answer(self, text: str, call: ToolCall | None, number: int) -> Asked | Ended:
        """Say that, or call that tool, as the agent; `number` tells its calls apart."""
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if call is not None:
            asked = {"name": call.name, "arguments": json.dumps(dict(call.arguments))}
            message["tool_calls"] = [
                {"id": f"call_{number}", "type": "function", "function": asked}
            ]
        choice = {
            "index": 0,
            "message": message,
            "finish_reason": "stop" if call is None else "tool_calls",
        }
        reply = {
            "id": f"reply_{number}",
            "object": "chat.completion",
            "created": 0,
            "model": MODEL,
            "choices": [choice],
        }
        self._loop.call_soon_threadsafe(self._life.reply, reply)
        return self._event()

    def close(self) -> None:
        """Take everything down; twice does no harm."""
        self._end()

    def _ordered(self, task: vf.Task[Any, Any, Any] | None) -> None:
        left: Future[None] = Future()
        self._loop.call_soon_threadsafe(self._life.orders.put_nowait, (task, left))
        left.result(ENDING)

    def _event(self) -> Asked | Ended:
        event = self._life.events.get()
        if isinstance(event, BaseException):
            raise RuntimeError(f"{type(event).__name__}: {event}") from event
        return event
