"""The gateway's OpenAPI 3.1 document, generated from the models that validate requests."""

from __future__ import annotations

from functools import cache
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from palaestra import __version__
from palaestra.gateway.anthropic_messages import CountRequest, MessagesRequest
from palaestra.gateway.openai_chat import ChatRequest
from palaestra.gateway.openai_completions import CompletionRequest
from palaestra.gateway.openai_responses import ResponseRequest
from palaestra.gateway.shell_endpoint import StepRequest

REF = "#/components/schemas/{model}"
ERRORS = {  # errors of any request
    "401": "the token is missing or wrong",
    "403": "the token is another session's",
    "404": "there is no such session, or nothing at this place in it",
    "410": "the episode has ended",
}
BODY_ERRORS = {
    "400": "the body is not understood",
    "408": "the body did not come in time",
    "413": "the body is too large",
    "429": "too many requests are under way",
}
BODIES: dict[str, tuple[str, type[BaseModel]]] = {
    "/v1/chat/completions": ("OpenAI's chat completions", ChatRequest),
    "/v1/completions": ("OpenAI's text completions", CompletionRequest),
    "/v1/responses": ("OpenAI's responses", ResponseRequest),
    "/anthropic/v1/messages": ("Anthropic's messages", MessagesRequest),
    "/anthropic/v1/messages/count_tokens": ("how long a prompt would be", CountRequest),
    "/world/step": ("act in the world", StepRequest),
}
MODEL = "/v1/models/{model}"
READS = {
    "/v1/models": "the model's name",
    MODEL: "the model by that name",
    "/world": "what the world is, and what is seen",
}
EVENTS: dict[str, Any] = {"text/event-stream": {"schema": {}}}  # an event is not a JSON value
RPC = {
    "type": "object",
    "properties": {
        "jsonrpc": {"const": "2.0"},
        "id": {"type": ["string", "integer"]},
        "method": {"type": "string"},
        "params": {"type": "object"},
    },
    "required": ["jsonrpc", "method"],
}


@cache
def document() -> dict[str, Any]:
    """Return the document that `/openapi.json` serves."""
    shapes = [(model, "validation") for _, model in BODIES.values()]
    _, definitions = models_json_schema(shapes, ref_template=REF)  # type: ignore[arg-type]
    paths: dict[str, Any] = {}
    for path, (summary, model) in BODIES.items():
        streams = {"200": _json("the answer, whole or in events", EVENTS)}
        more = streams if "stream" in model.model_fields else None
        shape = {"$ref": REF.format(model=model.__name__)}
        paths[path] = {"post": _operation(summary, shape, more)}
    paths |= {path: {"get": _operation(summary)} for path, summary in READS.items()}
    accepted = {"202": {"description": "a notification was taken down"}}
    paths["/mcp"] = {"post": _operation("the world's tools (MCP)", RPC, accepted)}
    ended = {"204": {"description": "the episode has been given up"}}
    paths["/apps"] = {"get": _operation("the apps, where the world has some as services")}
    paths["/apps/{app}/openapi.json"] = {
        "get": _operation("an app's OpenAPI document"),
        "parameters": [_path_parameter("app")],
    }
    paths["/apps/{app}/{api}"] = {
        "post": _operation("call an API of an app", {"type": "object"}),
        "parameters": [_path_parameter("app"), _path_parameter("api")],
    }
    paths[""] = {"delete": _operation("give the episode up", more=ended)}
    paths[MODEL]["parameters"] = [_path_parameter("model")]
    token = {"type": "http", "scheme": "bearer"}
    return {
        "openapi": "3.1.0",
        "info": {"title": "palaestra's gateway", "version": __version__},
        "security": [{"token": []}],
        "paths": {
            f"/sessions/{{id}}{path}": {
                **methods,
                "parameters": [_path_parameter("id"), *methods.get("parameters", ())],
            }
            for path, methods in paths.items()
        },
        "components": {
            "schemas": definitions["$defs"],
            "securitySchemes": {"token": token},
        },
    }


def _path_parameter(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}


def _operation(
    summary: str, shape: dict[str, Any] | None = None, more: dict[str, Any] | None = None
) -> dict[str, Any]:
    errors = ERRORS | (BODY_ERRORS if shape is not None else {})
    answers = {} if more and "204" in more else {"200": _json("the answer")}
    answers |= {status: _json(why) for status, why in errors.items()} | (more or {})
    operation: dict[str, Any] = {"summary": summary, "responses": answers}
    if shape is not None:
        content = {"application/json": {"schema": shape}}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _json(description: str, also: dict[str, Any] | None = None) -> dict[str, Any]:
    content = {"application/json": {"schema": {"type": "object"}}, **(also or {})}
    return {"description": description, "content": content}
