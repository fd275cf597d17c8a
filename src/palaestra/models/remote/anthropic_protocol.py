"""The messages protocol: Anthropic, and servers that implement it too (vLLM, LiteLLM …).

It has no seed, and a separate field for the system prompt. Reasoning carries a signature; without
it the provider rejects the reasoning of earlier turns. Some replies have their blocks in an unusual
order (the usual one: reasoning once, then text, then calls) or redacted reasoning. They keep all
their blocks in the signature, and are sent back block by block.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from palaestra.core.message import Image, Message, Reasoning, Text, ToolCall, ToolResult
from palaestra.core.model import Finish, Prompt, Sampling
from palaestra.core.tool import Tool
from palaestra.models.remote.provider_protocol import (
    REASONING_FIELDS,
    Connection,
    Protocol,
    RemoteReply,
    answered_calls,
    count_of,
    own_name,
    wire_name,
)

UNLIMITED = 8192
"""Tokens of a reply if no limit is set and the server does not report the model's own."""

BUDGETS = {"minimal": 1024, "low": 2048, "medium": 8192, "high": 16384, "xhigh": 24576}
"""Effort to tokens of reasoning, for models that accept only budgets."""

EFFORTS = {"minimal": "low"}  # efforts that the provider names differently
CUT = ("max_tokens", "model_context_window_exceeded")  # the reply was not complete
THINKING = ("thinking", "redacted_thinking")

OPTIONAL: dict[str, tuple[str, ...]] = {
    "temperature": ("temperature",),
    "stop_sequences": ("stop_sequences",),
    "effort": ("effort", "output_config"),
    "adaptive": ("adaptive", "thinking"),
    "budget": ("enabled", "budget_tokens", "thinking"),
    "thinking": ("thinking",),
}
"""Parameters that a server may refuse, and their names in its errors."""


class AnthropicProtocol(Protocol):
    """The messages protocol."""

    scheme = "anthropic"
    title = "the messages protocol"
    package = "anthropic"
    key = "ANTHROPIC_API_KEY"
    url = "ANTHROPIC_BASE_URL"
    logprobs = False
    streams = True
    optional = OPTIONAL

    def client(self, connection: Connection) -> Any:
        import anthropic

        return anthropic.AsyncAnthropic(
            base_url=connection.url and connection.url.rstrip("/").removesuffix("/v1"),
            api_key=connection.key or "none",  # the SDK demands one; see `PacedTransport`
            max_retries=connection.retries,
            timeout=connection.timeout,
            http_client=connection.http,
        )

    def request(self, model: str, prompt: Prompt, *, logprobs: bool = False) -> dict[str, Any]:
        sampling = prompt.sampling
        system = [message.text for message in prompt.messages if message.role == "system"]
        request: dict[str, Any] = {
            "model": model,
            "messages": _turns(answered_calls(prompt.messages)),
            "temperature": sampling.temperature,
        }
        if system:
            request["system"] = "\n\n".join(system)
        if sampling.max_tokens is not None:
            request["max_tokens"] = sampling.max_tokens
        if sampling.stop:
            request["stop_sequences"] = list(sampling.stop)
        if sampling.reasoning_effort is not None:
            request["reasoning_effort"] = sampling.reasoning_effort
        if prompt.tools:
            request["tools"] = [_tool(tool) for tool in prompt.tools]
            choice = _tool_choice(sampling)
            if choice != {"type": "auto"}:
                request["tool_choice"] = choice
        elif earlier := _called(prompt.messages):
            request["tools"] = [_tool(tool) for tool in earlier]  # calls need their tools
            request["tool_choice"] = {"type": "none"}
        return request

    def accepted(
        self, request: Mapping[str, Any], refused: Collection[str], *, stream: bool
    ) -> dict[str, Any]:
        sent = {name: value for name, value in request.items() if name not in refused}
        effort = sent.pop("reasoning_effort", None)
        forced = sent.get("tool_choice", {}).get("type") in ("any", "tool")
        if effort == "none":
            sent["thinking"] = {"type": "disabled"}
        elif effort is not None:
            if "effort" not in refused:
                sent["output_config"] = {"effort": EFFORTS.get(effort, effort)}
            thinking = _thinking(effort, request["max_tokens"], refused)
            if thinking and not forced:  # a forced call does not allow thinking
                sent["thinking"] = thinking
        if "thinking" in refused:
            sent.pop("thinking", None)
        return sent

    def parameters(self, sent: Mapping[str, Any]) -> set[str]:
        kind = sent.get("thinking", {}).get("type")
        thinking = {"adaptive": {"adaptive"}, "enabled": {"budget"}, "disabled": {"thinking"}}
        effort = {"effort"} if "output_config" in sent else set()
        named = {name for name in ("temperature", "stop_sequences") if name in sent}
        return named | effort | thinking.get(kind, set())

    async def limit(self, client: Any, model: str) -> int | None:
        """Return the most tokens that the model can reply with, as the server reports it."""
        try:
            return (await client.models.retrieve(model)).max_tokens or UNLIMITED
        except self.sdk.APIError:  # no such page; a real failure will show in the request
            return UNLIMITED

    async def send(self, client: Any, request: Mapping[str, Any], *, stream: bool) -> Any:
        known = {name: value for name, value in request.items() if name != "temperature"}
        if "temperature" in request:  # newer models, and so the SDK, no longer accept it
            known["extra_body"] = {"temperature": request["temperature"]}
        if not stream:
            return await client.messages.create(**known)
        async with client.messages.stream(**known) as events:
            return await events.get_final_message()

    def reply(self, answer: Any, tools: Sequence[Tool]) -> RemoteReply:
        blocks = [_block(block) for block in answer.content if block.type in BLOCKS]
        usage = answer.usage
        read = count_of(usage and usage.cache_read_input_tokens)
        written = count_of(usage and usage.cache_creation_input_tokens)
        return RemoteReply(
            text="".join(block["text"] for block in blocks if block["type"] == "text"),
            finish=Finish.LENGTH if answer.stop_reason in CUT else Finish.STOP,
            reasoning="\n\n".join(b["thinking"] for b in blocks if b["type"] == "thinking"),
            signature=_signature(blocks),
            tool_calls=tuple(
                ToolCall(own_name(block["name"], tools), block["input"], block["id"])
                for block in blocks
                if block["type"] == "tool_use"
            ),
            prompt_tokens=count_of(usage and usage.input_tokens) + read + written,
            cached_tokens=read,
            sampled_tokens=count_of(usage and usage.output_tokens),
        )


def _thinking(effort: str, limit: int, refused: Collection[str]) -> dict[str, Any] | None:
    """Return how to request reasoning: adaptive, else with a budget, else None."""
    if "adaptive" not in refused:
        return {"type": "adaptive"}
    budget = min(BUDGETS.get(effort, max(BUDGETS.values())), limit - 1)
    if "budget" in refused or budget < min(BUDGETS.values()):
        return None
    return {"type": "enabled", "budget_tokens": budget}


# ── requests ─────────────────────────────────────────────────────────────────


def _turns(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Group messages into turns: roles alternate, and no turn is empty."""
    turns: list[tuple[str, list[dict[str, Any]]]] = []
    for message in messages:
        if message.role == "system":
            continue
        role = "assistant" if message.role == "assistant" else "user"
        blocks = _blocks(message)
        if turns and turns[-1][0] == role:
            turns[-1][1].extend(blocks)
        elif blocks:
            turns.append((role, blocks))
    return [{"role": role, "content": _content(blocks)} for role, blocks in turns]


def _content(blocks: list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    if any(block["type"] != "text" for block in blocks):
        return blocks
    return "\n\n".join(block["text"] for block in blocks)


def _blocks(message: Message) -> list[dict[str, Any]]:
    if message.role == "tool":
        (result,) = message.tool_results
        return [_result(result, message.images)]
    if message.role == "assistant":
        return _assistant(message)
    return _shown(message.parts)


def _shown(parts: Sequence[Any]) -> list[dict[str, Any]]:
    """Return texts and images as blocks; the protocol takes no blank text."""
    blocks: list[dict[str, Any]] = []
    for part in parts:
        if isinstance(part, Text) and part.text.strip():
            blocks.append({"type": "text", "text": part.text})
        elif isinstance(part, Image):
            source = {"type": "base64", "media_type": part.media_type, "data": part.base64}
            blocks.append({"type": "image", "source": source})
    return blocks


def _result(result: ToolResult, images: Sequence[Image]) -> dict[str, Any]:
    shown = _shown((Text(result.text), *images))
    block = {"type": "tool_result", "tool_use_id": result.id, "content": _content(shown)}
    return block | {"is_error": True} if result.error else block


def _assistant(message: Message) -> list[dict[str, Any]]:
    visible = _shown([part for part in message.parts if isinstance(part, Text)])
    for call in message.tool_calls:
        block = {"type": "tool_use", "id": call.id, "name": wire_name(call.name)}
        visible.append(block | {"input": dict(call.arguments)})
    thoughts: list[dict[str, Any]] = []
    for part in message.parts:
        if not isinstance(part, Reasoning) or part.signature in ("", *REASONING_FIELDS):
            continue
        if not part.signature.startswith("["):
            block = {"type": "thinking", "thinking": part.text}
            thoughts.append(block | {"signature": part.signature})
            continue
        blocks = json.loads(part.signature)
        if _without_reasoning(blocks) == _without_reasoning(visible):
            return blocks
        thoughts += [block for block in blocks if block["type"] in THINKING]
    return [*thoughts, *visible]


def _without_reasoning(blocks: Sequence[Mapping[str, Any]]) -> tuple[str, list[Mapping[str, Any]]]:
    """Return the text and calls of blocks, to detect whether a reply was edited."""
    text = "".join(block["text"] for block in blocks if block["type"] == "text")
    return text.strip(), [block for block in blocks if block["type"] == "tool_use"]


def _tool(tool: Tool) -> dict[str, Any]:
    return {
        "name": wire_name(tool.name),
        "description": tool.description,
        "input_schema": dict(tool.parameters),
    }


def _tool_choice(sampling: Sampling) -> dict[str, Any]:
    choice: dict[str, Any]
    match sampling.tool_choice:
        case "auto" | "none":
            choice = {"type": sampling.tool_choice}
        case "required":
            choice = {"type": "any"}
        case name:
            choice = {"type": "tool", "name": wire_name(name)}
    if sampling.parallel_tool_calls is False and choice["type"] != "none":
        choice["disable_parallel_tool_use"] = True
    return choice


def _called(messages: Sequence[Message]) -> list[Tool]:
    """Return the tools that earlier messages call; only their names are known."""
    names = {call.name: None for message in messages for call in message.tool_calls}
    return [Tool(name, "", {"type": "object"}) for name in names]


# ── replies ──────────────────────────────────────────────────────────────────


BLOCKS: dict[str, dict[str, type]] = {
    "text": {"text": str},
    "thinking": {"thinking": str, "signature": str},
    "redacted_thinking": {"data": str},
    "tool_use": {"id": str, "name": str, "input": dict},
}
"""What is read from a reply: types of blocks, their fields, and the fields' types."""


def _block(block: Any) -> dict[str, Any]:
    """Return a block of a reply in the form in which the protocol accepts it back."""
    found = {"type": block.type}
    for name, kind in BLOCKS[block.type].items():
        value = getattr(block, name)
        if name == "signature" and value is None:  # only the provider's servers sign
            value = ""
        if not isinstance(value, kind):
            raise TypeError(f"{name} is no {kind.__name__}")
        found[name] = value
    return found


def _signature(blocks: Sequence[Mapping[str, Any]]) -> str:
    """Return what is needed to send the reasoning back: its signature, else all blocks as JSON."""
    kinds = [block["type"] for block in blocks]
    if not set(kinds).intersection(THINKING):
        return ""
    rest = kinds[1:]
    usual = ["text"] * ("text" in rest) + ["tool_use"] * rest.count("tool_use")
    if kinds[0] == "thinking" and rest == usual and blocks[0]["signature"]:
        return str(blocks[0]["signature"])
    return json.dumps([b for b in blocks if b["type"] != "text" or b["text"].strip()])


ANTHROPIC = AnthropicProtocol()
