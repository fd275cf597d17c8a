"""The environment's tools by the Model Context Protocol (streamable HTTP, without state).

A world of words has one tool, `act`. Every world has `look`, unless it has a tool of that name.
Source: modelcontextprotocol.io, revision 2025-06-18; spoken without the SDK, whose major versions
differ, since requests for tools are all that is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from palaestra import __version__
from palaestra.core.environment import Action
from palaestra.core.message import ToolCall
from palaestra.core.session import Session
from palaestra.core.tool import ACT, Tool
from palaestra.rollout.gateway.door import Door
from palaestra.rollout.gateway.refusal import Refusal

VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
LOOK = Tool(
    "look",
    "Say again what the world is, how to act in it, and what is seen now; changes nothing.",
    {"type": "object", "properties": {}},
)
INVALID_REQUEST, NO_METHOD, INVALID_PARAMS = -32600, -32601, -32602


def offered(session: Session) -> tuple[Tool, ...]:
    """The tools of a session's world as they are now."""
    own = tuple(session.tools) or (ACT,)
    return own if any(tool.name == LOOK.name for tool in own) else (*own, LOOK)


async def answer(door: Door, asked: Any) -> dict[str, Any] | None:
    """The answer to one JSON-RPC message; None to a notification or a response.

    Raises:
        Refusal: the episode is over.
    """
    if not isinstance(asked, dict) or asked.get("jsonrpc") != "2.0":
        return _error(None, INVALID_REQUEST, "This is no JSON-RPC 2.0 message.")
    id, method = asked.get("id"), asked.get("method")
    if not isinstance(id, str | int | None) or isinstance(id, bool):
        return _error(None, INVALID_REQUEST, "An id is a string or a whole number.")
    if method is None and ("result" in asked or "error" in asked):
        return None
    if not isinstance(method, str):
        return _error(id, INVALID_REQUEST, "The method is missing.")
    if id is None:
        return None
    params = asked.get("params") or {}
    if not isinstance(params, dict):
        return _error(id, INVALID_PARAMS, "params must be an object.")
    match method:
        case "initialize":
            return _result(id, _welcome(door.session, params))
        case "ping":
            return _result(id, {})
        case "tools/list":
            return _result(id, {"tools": [_described(tool) for tool in offered(door.session)]})
        case "tools/call":
            return await _call(door, id, params)
        case _:
            return _error(id, NO_METHOD, f"There is no method '{method}' here.")


def action_of(call: ToolCall, session: Session) -> Action:
    """The action that the call of a tool means.

    The world itself answers to unsound arguments: in words, with `valid=False`.
    """
    if not session.tools and call.name == ACT.name:
        return Action(str(call.arguments["action"]))
    return Action(str(call), call)


def look(session: Session) -> str:
    """How the world explains itself, and what is seen now."""
    seen = session.steps[-1].transition.observation if session.steps else session.observation
    return f"{session.instructions}\n\n{seen.text if seen is not None else ''}"


async def _call(door: Door, id: str | int, params: Mapping[str, Any]) -> dict[str, Any]:
    name, arguments = params.get("name"), params.get("arguments")
    arguments = {} if arguments is None else arguments
    tools = {tool.name: tool for tool in offered(door.session)}
    if not isinstance(name, str):
        return _error(id, INVALID_PARAMS, "A tool's name must be a string.")
    if name not in tools:
        known = ", ".join(tools)
        return _error(id, INVALID_PARAMS, f"There is no tool '{name}'. Tools: {known}.")
    if not isinstance(arguments, dict):
        return _error(id, INVALID_PARAMS, "arguments must be an object.")
    if tools[name] is LOOK:
        return _result(id, _told(look(door.session)))
    if tools[name] is ACT and not isinstance(arguments.get("action"), str):
        return _error(id, INVALID_PARAMS, "act needs the argument 'action', a text.")
    if door.session.over:  # such as the second of two calls at once; a tool loop bears an answer
        return _result(
            id, {**_told(f"The episode is over: {door.session.outcome}."), "isError": True}
        )
    transition = await door.act(action_of(ToolCall(name, arguments), door.session))
    about = {"palaestra/over": door.session.over, "palaestra/valid": transition.valid}
    return _result(id, {**_told(transition.observation.text), "_meta": about})


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


def _told(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "isError": False}


def _result(id: str | int, result: Mapping[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "result": result}


def _error(id: str | int | None, code: int, reason: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": reason}}


def check(request: Any) -> Any:
    """The message; raises Refusal for the batches that older revisions had."""
    if isinstance(request, list):
        raise Refusal(400, "Send one JSON-RPC message at a time.", "invalid")
    return request
