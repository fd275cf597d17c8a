"""Refusals: requests that are answered with an error, in the shape of the protocol asked in."""

from __future__ import annotations

from typing import Any

RPC = {400: -32600, 404: -32601, 422: -32602}  # MCP's words for what HTTP says
KINDS = {  # what OpenAI and Anthropic call it, who differ in little
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
}


class Refusal(Exception):
    """Why a request is not fulfilled."""

    def __init__(self, status: int, reason: str, code: str | None = None) -> None:
        """With `code`, a word for programs, such as `context_length_exceeded`."""
        super().__init__(reason)
        self.status, self.reason, self.code = status, reason, code


def over(outcome: object) -> Refusal:
    """What is answered once an episode has ended."""
    return Refusal(410, f"The episode has ended: {outcome}.", "episode_over")


def invalid(error: Exception) -> Refusal:
    """What is answered to a body that pydantic does not take; names the first such place."""
    errors = getattr(error, "errors", None)
    if errors is None:
        return Refusal(400, str(error), "invalid")
    first = errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    return Refusal(400, f"{place}: {first['msg']}" if place else first["msg"], "invalid")


def body(refusal: Refusal, path: str, id: str | int | None = None) -> dict[str, Any]:
    """The error object of the protocol that is spoken at `path`; `id` is a JSON-RPC request's."""
    status, reason = refusal.status, refusal.reason
    if path.endswith("/mcp"):
        error = {"code": RPC.get(status, -32000), "message": reason, "data": {"status": status}}
        return {"jsonrpc": "2.0", "id": id, "error": error}
    kind = KINDS.get(status, "invalid_request_error" if status < 500 else "api_error")
    if "/anthropic/" in path:
        return {"type": "error", "error": {"type": kind, "message": reason}}
    return {"error": {"message": reason, "type": kind, "param": None, "code": refusal.code}}
