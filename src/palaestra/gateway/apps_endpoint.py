"""Apps as HTTP services: an environment whose tools are functions such as `mail.send_message`.

`POST apps/{app}/{api}` calls an API with the arguments as JSON; the response has the service's
status and body, and notifications as a JSON list in a header. `GET apps` lists the apps, and
`GET apps/{app}/openapi.json` returns an app's OpenAPI document. Each request is an action of the
episode, so reading documentation counts, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from palaestra.core.environment import Action
from palaestra.core.message import ToolCall
from palaestra.core.session import Session
from palaestra.gateway.http_errors import HTTPError
from palaestra.gateway.request_limits import read
from palaestra.gateway.session_endpoint import SessionEndpoint

LIST, OPENAPI = "list_apps", "read_openapi"
NOTIFICATIONS = "X-Notifications"
TOO_LARGE = 413
DISCARDED = 2**26  # the most bytes of a body that is too large that are read before the answer
STATUS = "status"  # the key of a transition's `info` with the status of a service's answer


async def listed(request: Request, endpoint: SessionEndpoint) -> Response:
    """Return the apps."""
    return await _answer(endpoint, ToolCall(LIST, {}))


async def described(request: Request, endpoint: SessionEndpoint) -> Response:
    """Return the OpenAPI document of an app."""
    return await _answer(endpoint, ToolCall(OPENAPI, {"app": request.path_params["app"]}))


async def called(request: Request, endpoint: SessionEndpoint) -> Response:
    """Call an API; the access token may be in the Authorization header or in the body.

    Raises:
        HTTPError: the body is not a JSON object, or see `read`.
    """
    arguments = await _body(request) if _has_body(request) else {}
    if not isinstance(arguments, dict):
        raise HTTPError(400, "The body must be a JSON object: the arguments by name.")
    if (token := access_token(request)) is not None:
        arguments["access_token"] = token
    name = f"{request.path_params['app']}.{request.path_params['api']}"
    return await _answer(endpoint, ToolCall(name, arguments))


def session_token(request: Request) -> str:
    """Return the session's token: of `x-api-key` or `?token=`, else the bearer's."""
    given = request.headers.get("x-api-key") or request.query_params.get("token")
    return given or _bearer(request)


def access_token(request: Request) -> str | None:
    """Return the app's access token: the bearer's, where the session's token is elsewhere."""
    bearer = _bearer(request)
    return bearer if bearer and bearer != session_token(request) else None


def offers_apps(session: Session) -> bool:
    """Return whether the environment has apps that can be called by HTTP."""
    return any(tool.name == LIST and tool.answers_json for tool in session.tools)


async def _answer(endpoint: SessionEndpoint, call: ToolCall) -> Response:
    if not offers_apps(endpoint.session):
        raise HTTPError(404, "This world has no apps as services; 'apps/easy:code', say, has.")
    transition = await endpoint.act(Action.of(call))
    status, text = transition.info.get(STATUS), transition.observation.text
    if not isinstance(status, int):
        return _json(404, {"error": text})
    body, _, rest = text.partition("\n")
    headers = {NOTIFICATIONS: json.dumps(rest.split("\n"))} if rest else {}
    return Response(body, status, headers, media_type="application/json")


async def _body(request: Request) -> Any:
    try:
        return await read(request, request.state.limits)
    except HTTPError as failure:
        if failure.status == TOO_LARGE:
            await _discard(request)
        raise


async def _discard(request: Request) -> None:
    """Read the rest of a body: many clients do not read a response while they are sending."""
    size = 0
    with contextlib.suppress(TimeoutError, ClientDisconnect):
        async with asyncio.timeout(request.state.limits.seconds):
            async for part in request.stream():
                size += len(part)
                if size > DISCARDED:
                    return


def _json(status: int, body: Any) -> Response:
    return Response(json.dumps(body), status, media_type="application/json")


def _has_body(request: Request) -> bool:
    length = request.headers.get("content-length", "0")
    return length != "0" or "transfer-encoding" in request.headers


def _bearer(request: Request) -> str:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""
