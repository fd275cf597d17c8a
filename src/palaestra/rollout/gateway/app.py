"""The gateway as a web application: who is let in, what is read, and what is answered."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, Protocol, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from palaestra.rollout.gateway import (
    anthropic,
    chat,
    completions,
    mcp_tools,
    responses,
    world,
)
from palaestra.rollout.gateway.body import LIMITS, Limits, read
from palaestra.rollout.gateway.conversation import Answer, Question
from palaestra.rollout.gateway.door import Door
from palaestra.rollout.gateway.openapi import document
from palaestra.rollout.gateway.refusal import Refusal, body, invalid
from palaestra.rollout.gateway.telling import Teller, Telling

M = TypeVar("M", bound=BaseModel)
Handler = Callable[[Request, Door], Awaitable[Response]]

SOON = 1  # seconds until whoever asked too much at once may try again
BEAT = 10.0  # seconds between signs of life in a stream whose reply is not there yet


class Doors(Protocol):
    """Where the sessions are."""

    def door(self, id: str, token: str) -> Door:
        """The open door of that id; raises Refusal for whom it does not open."""


class Asker:
    """The program behind a request; see `door.Asker`."""

    def __init__(self, request: Request) -> None:
        """It waits."""
        self.request, self.answered = request, False

    @property
    def again(self) -> bool:
        """As the SDKs of OpenAI and Anthropic say it."""
        count = self.request.headers.get("x-stainless-retry-count", "")
        return count.isdecimal() and bool(count.strip("0"))

    async def left(self) -> bool:
        return not self.answered and await self.request.is_disconnected()

    async def given(self, answer: Any) -> Response:
        """The answer, which it gets unless it has left."""
        self.answered = not await self.request.is_disconnected()
        return JSONResponse(answer)


def application(doors: Doors, limits: Limits = LIMITS, beat: float = BEAT) -> Starlette:
    """All that is answered to programs; each request to a session needs its token."""

    def guarded(handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        async def handle(request: Request) -> Response:
            try:
                door = doors.door(request.path_params["id"], _token(request))
                request.state.limits, request.state.beat = limits, beat
                return await handler(request, door)
            except Refusal as refusal:
                return _refused(refusal, request.url.path)

        return handle

    def route(path: str, method: str, handler: Handler) -> Route:
        return Route("/sessions/{id}" + path, guarded(handler), methods=[method])

    def unknown(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        refused = Refusal(error.status_code, f"{error.detail}: {request.url.path}")
        found = _refused(refused, request.url.path)
        found.headers.update(error.headers or {})
        return found

    return Starlette(
        routes=[
            Route("/openapi.json", lambda request: JSONResponse(document()), methods=["GET"]),
            route("/v1/models", "GET", _models),
            route("/v1/models/{model:path}", "GET", _model),
            route("/v1/chat/completions", "POST", _chat),
            route("/v1/completions", "POST", _completions),
            route("/v1/responses", "POST", _responses),
            route("/anthropic/v1/messages", "POST", _messages),
            route("/anthropic/v1/messages/count_tokens", "POST", _count_tokens),
            route("/mcp", "POST", _mcp),
            route("/world", "GET", _world),
            route("/world/step", "POST", _step),
            route("", "DELETE", _give_up),
        ],
        exception_handlers={HTTPException: unknown},
    )


async def _models(request: Request, door: Door) -> Response:
    return JSONResponse({"object": "list", "data": [_about(door.model)]})


async def _model(request: Request, door: Door) -> Response:
    return JSONResponse(_about(request.path_params["model"]))  # any name is the model's


def _about(model: str) -> dict[str, Any]:
    return {"id": model, "object": "model", "created": 0, "owned_by": "palaestra"}


async def _chat(request: Request, door: Door) -> Response:
    asked = await _asked(request, chat.ChatRequest)
    asker = Asker(request)
    questions = [await door.numbered(chat.question(asked), asker) for _ in range(asked.n or 1)]
    if asked.stream:
        teller = chat.Chunks(asked, questions[0], door.model)
        return await _streamed(asker, door, questions[0], teller)
    return await asker.given(chat.reply(await _answers(door, questions), asked))


async def _completions(request: Request, door: Door) -> Response:
    asked = await _asked(request, completions.CompletionRequest)
    asker = Asker(request)
    questions = [await door.numbered(one, asker) for one in completions.questions(asked)]
    if asked.stream:
        teller = completions.Parts(asked, questions[0], door.model)
        return await _streamed(asker, door, questions[0], teller)
    return await asker.given(completions.reply(await _answers(door, questions), asked))


async def _answers(door: Door, questions: Sequence[Question]) -> list[Answer]:
    """The replies, asked for at once; each is a call of its own."""
    alike = groupby(questions, lambda question: replace(question, number=0))
    asking = (door.ask_several(list(group)) for _, group in alike)
    found = await asyncio.gather(*asking, return_exceptions=True)
    for some in found:
        if isinstance(some, BaseException):
            raise some
    return [one for some in found if isinstance(some, list) for one in some]


async def _responses(request: Request, door: Door) -> Response:
    asked = await _asked(request, responses.ResponseRequest)
    asker = Asker(request)
    question = await door.numbered(responses.question(asked, door.issued), asker)

    def remembered(answer: Answer) -> None:
        door.issued.add(question, answer, asked)

    if asked.stream:
        teller = responses.Events(asked, question, door.model)
        return await _streamed(asker, door, question, teller, remembered)
    answer = await door.ask(question)
    remembered(answer)
    return await asker.given(responses.reply(answer, asked))


async def _messages(request: Request, door: Door) -> Response:
    asked = await _asked(request, anthropic.MessagesRequest)
    asker = Asker(request)
    question = await door.numbered(anthropic.question(asked), asker)
    if asked.stream:
        return await _streamed(asker, door, question, anthropic.Blocks(question, door.model))
    return await asker.given(anthropic.reply(await door.ask(question)))


async def _count_tokens(request: Request, door: Door) -> Response:
    asked = await _asked(request, anthropic.CountRequest)
    return JSONResponse({"input_tokens": await door.length(anthropic.question(asked))})


async def _mcp(request: Request, door: Door) -> Response:
    asked = mcp_tools.check(await read(request, request.state.limits))
    try:
        found = await mcp_tools.answer(door, asked)
    except Refusal as refusal:
        return _refused(refusal, request.url.path, asked.get("id"))
    if found is None:
        return Response(status_code=202)
    unsound = "error" in found and found["error"]["code"] == mcp_tools.INVALID_REQUEST
    return JSONResponse(found, 400 if unsound else 200)


async def _world(request: Request, door: Door) -> Response:
    return JSONResponse(world.view(door.session))


async def _step(request: Request, door: Door) -> Response:
    return JSONResponse(await world.step(door, await _asked(request, world.StepRequest)))


async def _give_up(request: Request, door: Door) -> Response:
    door.give_up()
    return Response(status_code=204)


async def _streamed(
    asker: Asker,
    door: Door,
    question: Question,
    teller: Teller,
    remembered: Callable[[Answer], None] = lambda answer: None,
) -> Response:
    """The reply as server-sent events, while it is sampled where the model tells.

    An error keeps its own status while nothing is sent.
    """
    telling = Telling(question, door.renderer)
    task = asyncio.ensure_future(door.ask(question, telling.listen))
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    beat, path = asker.request.state.beat, asker.request.url.path
    alive = await telling.wait(task, beat)
    if task.done():
        task.result()  # raises a refusal

    async def told() -> AsyncIterator[str]:
        nonlocal alive
        begun = False
        while not task.done():
            part = telling.part() if alive else None
            if part is not None:
                for event in (*(() if begun else teller.begin()), *teller.more(part)):
                    yield event
                begun = True
            elif not alive:
                yield ": the reply is being made\n\n"
            alive = await telling.wait(task, beat)
        try:
            answer = task.result()
            remembered(answer)
            last = teller.end(telling.rest(answer), answer)
            for event in (*(() if begun else teller.begin()), *last):
                yield event
            asker.answered = True
        except Refusal as refusal:
            text = json.dumps(body(refusal, path))
            yield f"event: error\ndata: {text}\n\n"

    headers = {"Cache-Control": "no-store"}
    return StreamingResponse(told(), media_type="text/event-stream", headers=headers)


async def _asked(request: Request, shape: type[M]) -> M:
    given = await read(request, request.state.limits)
    try:
        return shape.model_validate(given)
    except ValidationError as error:
        raise invalid(error) from None


def _token(request: Request) -> str:
    """As OpenAI's and Anthropic's SDKs send it, or in the address of whoever sends no headers."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return token.strip()
    return request.headers.get("x-api-key") or request.query_params.get("token", "")


def _refused(refusal: Refusal, path: str, id: str | int | None = None) -> JSONResponse:
    """The answer in the shape of the protocol that is spoken at `path`."""
    # as the SDKs of OpenAI and Anthropic read it; of these nothing was begun
    headers = {"x-should-retry": "true" if refusal.status == 429 else "false"}
    if refusal.status == 429:
        headers["Retry-After"] = str(SOON)
    if refusal.status in (408, 413):  # the rest of the body is not waited for
        headers["Connection"] = "close"
    if refusal.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(body(refusal, path, id), refusal.status, headers)
