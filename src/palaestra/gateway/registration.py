"""The address at which processes register for a team, as a web application over its desk."""

from __future__ import annotations

import asyncio
import json
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from palaestra.gateway.app import error_response, token_of
from palaestra.gateway.http_errors import HTTPError, invalid_body
from palaestra.gateway.listener import Listener
from palaestra.gateway.registration_desk import Desk, Process
from palaestra.gateway.request_limits import Limits, read

LIMITS = Limits(bytes=2**20, seconds=10.0, values=100)

B = TypeVar("B", bound=BaseModel)


class Registering(BaseModel):
    """The body of a registration."""

    model_config = ConfigDict(extra="forbid")

    role: str | None = None
    capability: str = Field("", max_length=10_000)


class Replying(BaseModel):
    """The body of a reply."""

    model_config = ConfigDict(extra="forbid")

    text: str = Field(max_length=200_000)


@asynccontextmanager
async def desk_opened(
    roles: Mapping[str, str],
    nearest: Callable[[str, Sequence[str]], int | None],
    *,
    host: str,
    port: int,
    public: str | None,
    heartbeat: float,
    patience: float,
    places: Collection[str] = (),
) -> AsyncIterator[Desk]:
    """Let processes register within the context; print the address as one JSON line.

    Args:
        roles: see `Desk`, as `nearest`, `heartbeat` and `patience`.
        nearest: see `Desk`.
        host: a name or address of this machine.
        port: where to listen; 0 is any free port.
        public: the address to print instead, such as that of a proxy.
        heartbeat: see `Desk`.
        patience: see `Desk`.
        places: see `Desk`.
    """
    desk = Desk(roles, nearest, heartbeat, patience, _say, places)
    listener = Listener(application(desk), host, port)
    await listener.up()
    desk.address = (public or listener.address).rstrip("/")
    _say({"registration": f"{desk.address}/processes", "token": desk.token, "roles": list(roles)})
    watching = asyncio.ensure_future(desk.watch())
    try:
        yield desk
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
        desk.close()
        await listener.down()


def application(desk: Desk) -> Starlette:
    """Return the web application over a desk; each request needs a token."""

    async def register(request: Request) -> Response:
        desk.check_token(token_of(request))
        given = await _body(request, Registering)
        process = desk.register(given.role, given.capability)
        about = {
            "process": process.id,
            "token": process.token,
            "role": process.role,
            "heartbeat": desk.heartbeat,
        }
        return JSONResponse(about, 201)

    async def next_question(request: Request, process: Process) -> Response:
        question = await desk.next(process)
        return Response(status_code=204) if question is None else JSONResponse(question.content)

    async def heartbeat(request: Request, process: Process) -> Response:
        return Response(status_code=204)

    async def reply(request: Request, process: Process) -> Response:
        given = await _body(request, Replying)
        desk.reply(process, request.path_params["number"], given.text)
        return Response(status_code=204)

    async def leave(request: Request, process: Process) -> Response:
        desk.leave(process)
        return Response(status_code=204)

    def of_process(
        path: str, method: str, handler: Callable[[Request, Process], Awaitable[Response]]
    ) -> Route:
        async def handle(request: Request) -> Response:
            process = desk.process(request.path_params["id"], token_of(request))
            return await handler(request, process)

        return Route(f"/processes/{{id}}{path}", handle, methods=[method])

    def failed(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPError)
        return error_response(error, request.url.path)

    def unknown(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        reason = f"{error.detail}: {request.url.path}"
        return error_response(HTTPError(error.status_code, reason), request.url.path)

    return Starlette(
        routes=[
            Route("/processes", register, methods=["POST"]),
            of_process("/next", "GET", next_question),
            of_process("/heartbeat", "POST", heartbeat),
            of_process("/replies/{number:int}", "POST", reply),
            of_process("", "DELETE", leave),
        ],
        exception_handlers={HTTPError: failed, HTTPException: unknown},
    )


async def _body(request: Request, shape: type[B]) -> B:
    """Return the body of a request; raises HTTPError if it is too large, slow or malformed."""
    try:
        return shape.model_validate(await read(request, LIMITS))
    except ValidationError as error:
        raise invalid_body(error) from None


def _say(what: Mapping[str, Any]) -> None:
    print(json.dumps(what), flush=True)
