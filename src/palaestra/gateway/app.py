"""The gateway as a web application: its routes, authentication, requests and responses."""

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

from palaestra.gateway import (
    anthropic_messages,
    apps_endpoint,
    mcp_endpoint,
    openai_chat,
    openai_completions,
    openai_responses,
    shell_endpoint,
)
from palaestra.gateway.http_errors import HTTPError, error_body, invalid_body
from palaestra.gateway.openapi import document
from palaestra.gateway.program_requests import Answer, Question
from palaestra.gateway.request_limits import LIMITS, Limits, read
from palaestra.gateway.session_endpoint import SessionEndpoint
from palaestra.gateway.streaming import EventWriter, StreamedReply

M = TypeVar("M", bound=BaseModel)
Handler = Callable[[Request, SessionEndpoint], Awaitable[Response]]

RETRY_AFTER = 1  # seconds until a program may retry after status 429
KEEPALIVE = 10.0  # seconds between keep-alive comments in a stream that waits for its reply


class Endpoints(Protocol):
    """The open sessions, found by id and token."""

    def endpoint(self, id: str, token: str) -> SessionEndpoint:
        """Return the open endpoint of that id; raises HTTPError if the token is wrong."""


class RequestClient:
    """The program behind a request; implements `session_endpoint.Client`."""

    def __init__(self, request: Request) -> None:
        """Begin unanswered."""
        self.request, self.answered = request, False

    @property
    def retries(self) -> bool:
        """Return whether the SDK of OpenAI or Anthropic marks this as a retry."""
        count = self.request.headers.get("x-stainless-retry-count", "")
        return count.isdecimal() and bool(count.strip("0"))

    async def disconnected(self) -> bool:
        return not self.answered and await self.request.is_disconnected()

    async def respond(self, answer: Any) -> Response:
        """Return the response; it counts as answered if the client is still connected."""
        self.answered = not await self.request.is_disconnected()
        return JSONResponse(answer)


def application(
    endpoints: Endpoints, limits: Limits = LIMITS, keepalive: float = KEEPALIVE
) -> Starlette:
    """Return the web application; each request to a session needs its token."""

    def guarded(
        handler: Handler, token: Callable[[Request], str]
    ) -> Callable[[Request], Awaitable[Response]]:
        async def handle(request: Request) -> Response:
            try:
                endpoint = endpoints.endpoint(request.path_params["id"], token(request))
                request.state.limits, request.state.keepalive = limits, keepalive
                return await handler(request, endpoint)
            except HTTPError as failure:
                return error_response(failure, request.url.path)

        return handle

    def route(
        path: str, method: str, handler: Handler, token: Callable[[Request], str] = token_of
    ) -> Route:
        return Route("/sessions/{id}" + path, guarded(handler, token), methods=[method])

    def app_route(path: str, method: str, handler: Handler) -> Route:
        return route("/apps" + path, method, handler, apps_endpoint.session_token)

    def unknown(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        error_of_status = HTTPError(error.status_code, f"{error.detail}: {request.url.path}")
        found = error_response(error_of_status, request.url.path)
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
            app_route("", "GET", apps_endpoint.listed),
            app_route("/{app}/openapi.json", "GET", apps_endpoint.described),
            app_route("/{app}/{api}", "POST", apps_endpoint.called),
            route("", "DELETE", _give_up),
        ],
        exception_handlers={HTTPException: unknown},
    )


async def _models(request: Request, endpoint: SessionEndpoint) -> Response:
    return JSONResponse({"object": "list", "data": [_about(endpoint.model)]})


async def _model(request: Request, endpoint: SessionEndpoint) -> Response:
    return JSONResponse(_about(request.path_params["model"]))  # any name refers to the model


def _about(model: str) -> dict[str, Any]:
    return {"id": model, "object": "model", "created": 0, "owned_by": "palaestra"}


async def _chat(request: Request, endpoint: SessionEndpoint) -> Response:
    asked = await _parsed_body(request, openai_chat.ChatRequest)
    client = RequestClient(request)
    questions = [
        await endpoint.numbered(openai_chat.question(asked), client) for _ in range(asked.n or 1)
    ]
    if asked.stream:
        writer = openai_chat.ChatEventWriter(asked, questions[0], endpoint.model)
        return await _streamed(client, endpoint, questions[0], writer)
    return await client.respond(openai_chat.reply(await _answers(endpoint, questions), asked))


async def _completions(request: Request, endpoint: SessionEndpoint) -> Response:
    asked = await _parsed_body(request, openai_completions.CompletionRequest)
    client = RequestClient(request)
    questions = [
        await endpoint.numbered(one, client) for one in openai_completions.questions(asked)
    ]
    if asked.stream:
        writer = openai_completions.CompletionEventWriter(asked, questions[0], endpoint.model)
        return await _streamed(client, endpoint, questions[0], writer)
    return await client.respond(
        openai_completions.reply(await _answers(endpoint, questions), asked)
    )


async def _answers(endpoint: SessionEndpoint, questions: Sequence[Question]) -> list[Answer]:
    """Ask all questions concurrently; each is a separate model call."""
    groups = groupby(questions, lambda question: replace(question, number=0))
    asking = (endpoint.ask_several(list(group)) for _, group in groups)
    found = await asyncio.gather(*asking, return_exceptions=True)
    for result in found:
        if isinstance(result, BaseException):
            raise result
    return [one for result in found if isinstance(result, list) for one in result]


async def _responses(request: Request, endpoint: SessionEndpoint) -> Response:
    asked = await _parsed_body(request, openai_responses.ResponseRequest)
    client = RequestClient(request)
    question = await endpoint.numbered(openai_responses.question(asked, endpoint.issued), client)

    def remember(answer: Answer) -> None:
        endpoint.issued.add(question, answer, asked)

    if asked.stream:
        writer = openai_responses.ResponseEventWriter(asked, question, endpoint.model)
        return await _streamed(client, endpoint, question, writer, remember)
    answer = await endpoint.ask(question)
    remember(answer)
    return await client.respond(openai_responses.reply(answer, asked))


async def _messages(request: Request, endpoint: SessionEndpoint) -> Response:
    asked = await _parsed_body(request, anthropic_messages.MessagesRequest)
    client = RequestClient(request)
    question = await endpoint.numbered(anthropic_messages.question(asked), client)
    if asked.stream:
        return await _streamed(
            client,
            endpoint,
            question,
            anthropic_messages.MessagesEventWriter(question, endpoint.model),
        )
    return await client.respond(anthropic_messages.reply(await endpoint.ask(question)))


async def _count_tokens(request: Request, endpoint: SessionEndpoint) -> Response:
    asked = await _parsed_body(request, anthropic_messages.CountRequest)
    return JSONResponse({"input_tokens": await endpoint.length(anthropic_messages.question(asked))})


async def _mcp(request: Request, endpoint: SessionEndpoint) -> Response:
    asked = mcp_endpoint.check(await read(request, request.state.limits))
    try:
        found = await mcp_endpoint.answer(endpoint, asked)
    except HTTPError as failure:
        return error_response(failure, request.url.path, asked.get("id"))
    if found is None:
        return Response(status_code=202)
    invalid = "error" in found and found["error"]["code"] == mcp_endpoint.INVALID_REQUEST
    return JSONResponse(found, 400 if invalid else 200)


async def _world(request: Request, endpoint: SessionEndpoint) -> Response:
    return JSONResponse(shell_endpoint.view(endpoint.session))


async def _step(request: Request, endpoint: SessionEndpoint) -> Response:
    return JSONResponse(
        await shell_endpoint.step(endpoint, await _parsed_body(request, shell_endpoint.StepRequest))
    )


async def _give_up(request: Request, endpoint: SessionEndpoint) -> Response:
    endpoint.give_up()
    return Response(status_code=204)


async def _streamed(
    client: RequestClient,
    endpoint: SessionEndpoint,
    question: Question,
    writer: EventWriter,
    remember: Callable[[Answer], None] = lambda answer: None,
) -> Response:
    """Send the reply as server-sent events, during sampling where the model supports that.

    An error has its own HTTP status as long as nothing has been sent.
    """
    streamed = StreamedReply(question, endpoint.renderer, native=endpoint.native)
    task = asyncio.ensure_future(endpoint.ask(question, streamed.listen))
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    keepalive, path = client.request.state.keepalive, client.request.url.path
    has_news = await streamed.wait(task, keepalive)
    if task.done():
        task.result()  # raises an HTTPError

    async def events() -> AsyncIterator[str]:
        nonlocal has_news
        begun = False
        while not task.done():
            chunk = streamed.next_chunk() if has_news else None
            if chunk is not None:
                for event in (*(() if begun else writer.begin()), *writer.more(chunk)):
                    yield event
                begun = True
            elif not has_news:
                yield ": the reply is being made\n\n"
            has_news = await streamed.wait(task, keepalive)
        try:
            answer = task.result()
            remember(answer)
            last = writer.end(streamed.rest(answer), answer)
            for event in (*(() if begun else writer.begin()), *last):
                yield event
            client.answered = True
        except HTTPError as failure:
            text = json.dumps(error_body(failure, path))
            yield f"event: error\ndata: {text}\n\n"

    headers = {"Cache-Control": "no-store"}
    return StreamingResponse(events(), media_type="text/event-stream", headers=headers)


async def _parsed_body(request: Request, shape: type[M]) -> M:
    given = await read(request, request.state.limits)
    try:
        return shape.model_validate(given)
    except ValidationError as error:
        raise invalid_body(error) from None


def token_of(request: Request) -> str:
    """Return the token from the headers that OpenAI's and Anthropic's SDKs send, or the query."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return token.strip()
    return request.headers.get("x-api-key") or request.query_params.get("token", "")


def error_response(failure: HTTPError, path: str, id: str | int | None = None) -> JSONResponse:
    """Return an error response in the format of the protocol at `path`."""
    # for the SDKs of OpenAI and Anthropic; with status 429 nothing was started
    headers = {"x-should-retry": "true" if failure.status == 429 else "false"}
    if failure.status == 429:
        headers["Retry-After"] = str(RETRY_AFTER)
    if failure.status in (408, 413):  # the rest of the body is not read
        headers["Connection"] = "close"
    if failure.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(error_body(failure, path, id), failure.status, headers)
