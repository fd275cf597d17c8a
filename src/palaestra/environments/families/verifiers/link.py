"""A verifiers environment in its own event loop, controlled turn by turn from outside.

verifiers calls a model; here the caller of `step` takes the model's place. So the environment runs
unchanged with a model endpoint on the loopback interface, which passes each request to the caller
and answers it with the caller's next reply.
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
from palaestra.environments.families.verifiers.seat import SEAT
from palaestra.environments.families.verifiers.turns import Asked, Ended

MODEL = "palaestra"
STARTING = 120.0  # seconds for shared tool servers to start
ENDING = 20.0  # seconds for an abandoned episode to end
LARGEST = 2**28  # bytes of a request

Event = Asked | Ended | BaseException


@dataclass(slots=True)
class _Runner:
    """An event loop with the environment, run by a thread; holds no reference to its `Link`."""

    settings: vf.EnvConfig
    begun: Future[asyncio.AbstractEventLoop] = field(default_factory=Future)
    events: queue.SimpleQueue[Event] = field(default_factory=queue.SimpleQueue)
    orders: asyncio.Queue[Any] = field(default_factory=asyncio.Queue)
    waiting: asyncio.Future[dict[str, Any]] | None = None  # the unanswered request

    def run(self) -> None:
        try:
            asyncio.run(self._main())
        except BaseException as error:
            if not self.begun.done():
                self.begun.set_exception(error)
            self.events.put(error)

    async def _main(self) -> None:
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
            environment = vf.load_environment(self.settings)
            async with environment.serving():
                self.begun.set_result(asyncio.get_running_loop())
                await self._serve(environment, vf.ModelContext(model=MODEL, client=client))
        finally:
            await runner.cleanup()

    async def _serve(self, environment: vf.Env[Any], model: vf.ModelContext) -> None:
        """Run the ordered tasks, one at a time, until an order is None."""
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
            left.set_result(None)  # no event of the previous episode follows
            if task is not None:
                playing = asyncio.create_task(self._play(environment, task, model))

    async def _play(self, environment: vf.Env[Any], task: Any, model: vf.ModelContext) -> None:
        try:
            self.events.put(Ended(await environment.run_episode(task, model)))
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

    def reply(self, completion: dict[str, Any]) -> None:
        if self.waiting is not None and not self.waiting.done():
            self.waiting.set_result(completion)

    def end(self, thread: threading.Thread) -> None:
        with contextlib.suppress(Exception):  # the loop has ended by itself
            loop = self.begun.result(0)
            loop.call_soon_threadsafe(self.orders.put_nowait, None)
        thread.join(ENDING)


class Link:
    """A running environment, open until `close`."""

    def __init__(self, settings: vf.EnvConfig, role: str) -> None:
        """Start the environment with a seat for our agent; its own exceptions pass through."""
        seated = getattr(settings, role).model_copy(
            update={
                "harness": vf.harness_config_type(SEAT).model_validate({"id": SEAT}),
                "runtime": vf.SubprocessConfig(),
                "retries": vf.RetryConfig(),  # no retries: each task runs once
            }
        )
        self._runner = _Runner(settings.model_copy(update={role: seated}))
        self._thread = threading.Thread(target=self._runner.run, daemon=True, name="verifiers")
        self._end = weakref.finalize(self, self._runner.end, self._thread)
        self._thread.start()
        try:
            self._loop = self._runner.begun.result(STARTING)
        except BaseException:
            self._end()
            raise

    def begin(self, task: vf.Task[Any, Any, Any]) -> Asked | Ended:
        """Abandon the current episode, and run this task until the agent's turn."""
        self._order(task)
        return self._event()

    def leave(self) -> None:
        """Abandon the current episode, if any."""
        self._order(None)

    def answer(self, text: str, call: ToolCall | None, number: int) -> Asked | Ended:
        """Send the agent's reply; `number` makes the id of its call unique."""
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
        self._loop.call_soon_threadsafe(self._runner.reply, reply)
        return self._event()

    def close(self) -> None:
        """Stop the environment and its thread; idempotent."""
        self._end()

    def _order(self, task: vf.Task[Any, Any, Any] | None) -> None:
        left: Future[None] = Future()
        self._loop.call_soon_threadsafe(self._runner.orders.put_nowait, (task, left))
        left.result(ENDING)

    def _event(self) -> Asked | Ended:
        event = self._runner.events.get()
        if isinstance(event, BaseException):
            raise RuntimeError(f"{type(event).__name__}: {event}") from event
        return event
