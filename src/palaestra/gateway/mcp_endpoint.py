"""The environment's tools by the Model Context Protocol (stateless streamable HTTP).

An environment without tools gets one, `act`. Each gets `look`, unless it has a tool of that name.
Source: modelcontextprotocol.io, revision 2025-06-18. It does not use the SDK, whose major versions
differ, since only tool requests are needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from palaestra import __version__
from palaestra.core.environment import Action, Observation
from palaestra.core.message import Image, ToolCall
from palaestra.core.session import Session
from palaestra.core.tool import ACT, Tool
from palaestra.gateway.http_errors import HTTPError
from palaestra.gateway.session_endpoint import SessionEndpoint

VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
LOOK = Tool(
    "look",
    "Say again what the world is, how to act in it, and what is seen now; changes nothing.",
    {"type": "object", "properties": {}},
)
CALL_ID = "palaestra/call_id"
"""The key in a call's `_meta` that may hold the id of the model's tool call it executes."""
INVALID_REQUEST, NO_METHOD, INVALID_PARAMS = -32600, -32601, -32602


def offered(session: Session) -> tuple[Tool, ...]:
    """Return the tools that the session's environment offers now."""
    own = tuple(session.tools) or (ACT,)
    return own if any(tool.name == LOOK.name for tool in own) else (*own, LOOK)


async def answer(endpoint: SessionEndpoint, message: Any) -> dict[str, Any] | None:
    """Answer one JSON-RPC message; return None for a notification or a response.

    Raises:
        HTTPError: the episode is over.
    """
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        return _error(None, INVALID_REQUEST, "This is no JSON-RPC 2.0 message.")
    id, method = message.get("id"), message.get("method")
    if not isinstance(id, str | int | None) or isinstance(id, bool):
        return _error(None, INVALID_REQUEST, "An id is a string or a whole number.")
    if method is None and ("result" in message or "error" in message):
        return None
    if not isinstance(method, str):
        return _error(id, INVALID_REQUEST, "The method is missing.")
    if id is None:
        return None
    params = message.get("params") or {}
    if not isinstance(params, dict):
        return _error(id, INVALID_PARAMS, "params must be an object.")
    match method:
        case "initialize":
            return _result(id, _welcome(endpoint.session, params))
        case "ping":
            return _result(id, {})
        case "tools/list":
            return _result(id, {"tools": [_described(tool) for tool in offered(endpoint.session)]})
        case "tools/call":
            return await _call(endpoint, id, params)
        case _:
            return _error(id, NO_METHOD, f"There is no method '{method}' here.")


def action_of(call: ToolCall, session: Session) -> Action:
    """Return the action of a tool call.

    The environment itself replies to invalid arguments, by an observation with `valid=False`.
    """
    if not session.tools and call.name == ACT.name:
        return Action(str(call.arguments["action"]))
    return Action.of(call)


def seen(session: Session) -> Observation:
    """Return the current observation."""
    if session.steps:
        return session.steps[-1].transition.observation
    return session.observation or Observation("")


def look(session: Session) -> str:
    """Return the environment's instructions and the current observation."""
    return f"{session.instructions}\n\n{seen(session).text}"


async def _call(
    endpoint: SessionEndpoint, id: str | int, params: Mapping[str, Any]
) -> dict[str, Any]:
    name, arguments = params.get("name"), params.get("arguments")
    arguments = {} if arguments is None else arguments
    tools = {tool.name: tool for tool in offered(endpoint.session)}
    if not isinstance(name, str):
        return _error(id, INVALID_PARAMS, "A tool's name must be a string.")
    if name not in tools:
        known = ", ".join(tools)
        return _error(id, INVALID_PARAMS, f"There is no tool '{name}'. Tools: {known}.")
    if not isinstance(arguments, dict):
        return _error(id, INVALID_PARAMS, "arguments must be an object.")
    if tools[name] is LOOK:
        images = seen(endpoint.session).images
        return _result(id, _content(look(endpoint.session), images))
    if tools[name] is ACT and not isinstance(arguments.get("action"), str):
        return _error(id, INVALID_PARAMS, "act needs the argument 'action', a text.")
    # an error result, not an HTTP error: a tool loop may have sent two calls at once
    if endpoint.session.over:
        return _result(
            id, {**_content(f"The episode is over: {endpoint.session.outcome}."), "isError": True}
        )
    meta = params.get("_meta")
    call_id = meta.get(CALL_ID) if isinstance(meta, dict) else None
    action = action_of(ToolCall(name, arguments), endpoint.session)
    transition = await endpoint.act(action, call_id if isinstance(call_id, str) else None)
    about = {"palaestra/over": endpoint.session.over, "palaestra/valid": transition.valid}
    observation = transition.observation
    return _result(id, {**_content(observation.text, observation.images), "_meta": about})


def _welcome(session: Session, params: Mapping[str, Any]) -> dict[str, Any]:
    wanted = params.get("protocolVersion")
    return {
        "protocolVersion": wanted if wanted in VERSIONS else VERSIONS[0],
        "capabilities": {"tools": {"listChanged": False}},
        "serverInfo": {"name": "palaestra", "version": __version__},
        "instructions": look(session),
    }


def _described(tool: Tool) -> dict[str, Any]:
    schema = {"type": "object", **tool.parameters}
    return {"name": tool.name, "description": tool.description, "inputSchema": schema}


def _content(text: str, images: Sequence[Image] = ()) -> dict[str, Any]:
    shown = [
        {"type": "image", "data": image.base64, "mimeType": image.media_type} for image in images
    ]
    return {"content": [{"type": "text", "text": text}, *shown], "isError": False}


def _result(id: str | int, result: Mapping[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "result": result}


def _error(id: str | int | None, code: int, reason: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": reason}}


def check(request: Any) -> Any:
    """Return the message; raises HTTPError for a batch, which older revisions allowed."""
    if isinstance(request, list):
        raise HTTPError(400, "Send one JSON-RPC message at a time.", "invalid")
    return request
