"""HTTP errors, in the format of the request's protocol."""

from __future__ import annotations

from typing import Any

RPC = {400: -32600, 404: -32601, 422: -32602}  # HTTP status to JSON-RPC error code
KINDS = {  # HTTP status to the error type of OpenAI and Anthropic
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
}


class HTTPError(Exception):
    """The reason why a request fails, with its HTTP status."""

    def __init__(self, status: int, reason: str, code: str | None = None) -> None:
        """Set a `code` for programs, such as `context_length_exceeded`."""
        super().__init__(reason)
        self.status, self.reason, self.code = status, reason, code


def episode_over(outcome: object) -> HTTPError:
    """Return the error for requests after the end of an episode."""
    return HTTPError(410, f"The episode has ended: {outcome}.", "episode_over")


def invalid_body(error: Exception) -> HTTPError:
    """Return the error for a body that fails validation; it names the first invalid field."""
    errors = getattr(error, "errors", None)
    if errors is None:
        return HTTPError(400, str(error), "invalid")
    first = errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    return HTTPError(400, f"{place}: {first['msg']}" if place else first["msg"], "invalid")


def error_body(failure: HTTPError, path: str, id: str | int | None = None) -> dict[str, Any]:
    """Return the error object of the protocol at `path`; `id` is that of a JSON-RPC request."""
    status, reason = failure.status, failure.reason
    if path.endswith("/mcp"):
        error = {"code": RPC.get(status, -32000), "message": reason, "data": {"status": status}}
        return {"jsonrpc": "2.0", "id": id, "error": error}
    if "/apps" in path:
        return {"error": reason}
    kind = KINDS.get(status, "invalid_request_error" if status < 500 else "api_error")
    if "/anthropic/" in path:
        return {"type": "error", "error": {"type": kind, "message": reason}}
    return {"error": {"message": reason, "type": kind, "param": None, "code": failure.code}}
