"""The chat-completions protocol: OpenAI, Azure, and most other servers (vLLM, SGLang, Ollama …).

Reasoning comes in a field that OpenAI's own servers do not have (`reasoning_content`, or
`reasoning`). It is sent back in the same field, which `Reasoning.signature` names. The protocol has
no flag for a tool result that is an error; its text is sent unchanged. Images in tool results
follow in a user message, because tool messages hold text only.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from palaestra.core.message import Image, Message, Reasoning, Text, ToolCall
from palaestra.core.model import Finish, Prompt, Sampling
from palaestra.core.tool import Tool, arguments_of, arguments_text
from palaestra.models.remote.provider_protocol import (
    REASONING_FIELDS,
    Connection,
    Protocol,
    RemoteReply,
    answered_calls,
    count_of,
    finite,
    own_name,
    text_of,
    wire_name,
)

API_VERSION = "OPENAI_API_VERSION"  # environment variable that Azure needs
LIMIT, OLD_LIMIT = "max_completion_tokens", "max_tokens"
SEED_BITS = 0x7FFFFFFF  # several servers take no more than 31 bits

OPTIONAL: dict[str, tuple[str, ...]] = {
    "temperature": ("temperature",),
    "seed": ("seed",),
    "stop": ("stop",),
    LIMIT: (LIMIT,),
    OLD_LIMIT: (OLD_LIMIT,),
    "parallel_tool_calls": ("parallel_tool_calls",),
    "reasoning_effort": ("reasoning_effort",),
    "logprobs": ("logprobs",),
    "stream_options": ("stream_options", "include_usage"),
    **{field: (field,) for field in REASONING_FIELDS},
}
"""Parameters that a server may refuse, and their names in its errors."""


class OpenAIProtocol(Protocol):
    """The chat-completions protocol."""

    scheme = "openai"
    title = "the chat-completions protocol"
    package = "openai"
    key = "OPENAI_API_KEY"
    url = "OPENAI_BASE_URL"
    logprobs = True
    streams = False
    limits = (LIMIT, OLD_LIMIT)  # the one to try first
    optional = OPTIONAL

    def client(self, connection: Connection) -> Any:
        import openai

        return openai.AsyncOpenAI(
            base_url=connection.url,
            api_key=connection.key or "none",  # the SDK demands one; see `PacedTransport`
            max_retries=connection.retries,
            timeout=connection.timeout,
            http_client=connection.http,
        )

    def request(self, model: str, prompt: Prompt, *, logprobs: bool = False) -> dict[str, Any]:
        sampling = prompt.sampling
        request: dict[str, Any] = {
            "model": model,
            "messages": list(_messages(answered_calls(prompt.messages))),
            "temperature": sampling.temperature,
            "seed": prompt.seed & SEED_BITS,
        }
        if sampling.max_tokens is not None:
            request[LIMIT] = sampling.max_tokens
        if sampling.stop:
            request["stop"] = list(sampling.stop)
        if sampling.reasoning_effort is not None:
            request["reasoning_effort"] = sampling.reasoning_effort
        if logprobs:
            request["logprobs"] = True
        if prompt.tools:
            request["tools"] = [_tool(tool) for tool in prompt.tools]
            if sampling.tool_choice != "auto":
                request["tool_choice"] = _tool_choice(sampling)
            if sampling.parallel_tool_calls is not None:
                request["parallel_tool_calls"] = sampling.parallel_tool_calls
        return request

    def accepted(
        self, request: Mapping[str, Any], refused: Collection[str], *, stream: bool
    ) -> dict[str, Any]:
        sent = {name: value for name, value in request.items() if name not in refused}
        sent.pop(LIMIT, None)
        limit = request.get(LIMIT)
        name = next((name for name in self.limits if name not in refused), None)
        if limit is not None and name is not None:
            sent[name] = limit
        if stream and "stream_options" not in refused:
            sent["stream_options"] = {"include_usage": True}
        fields = set(REASONING_FIELDS).intersection(refused)
        if fields:
            sent["messages"] = [
                {name: value for name, value in message.items() if name not in fields}
                for message in request["messages"]
            ]
        return sent

    def parameters(self, sent: Mapping[str, Any]) -> set[str]:
        names = {name for message in sent["messages"] for name in message}
        return {*sent, *names.intersection(REASONING_FIELDS)}.intersection(self.optional)

    async def send(self, client: Any, request: Mapping[str, Any], *, stream: bool) -> Any:
        if not stream:
            return await client.chat.completions.create(**request)
        async with client.chat.completions.stream(**request) as events:
            try:
                return await events.get_final_completion()
            except self.sdk.LengthFinishReasonError as cut:  # a fault to the SDK, a finish to us
                return cut.completion
            except self.sdk.ContentFilterFinishReasonError as cut:
                return cut.completion

    def reply(self, answer: Any, tools: Sequence[Tool]) -> RemoteReply:
        choice = answer.choices[0]
        message = choice.message
        usage, logprobs = answer.usage, choice.logprobs
        details = None if usage is None else usage.prompt_tokens_details
        field, reasoning = _reasoning(message)
        return RemoteReply(
            text=text_of(message.content) or text_of(message.refusal),
            finish=Finish.LENGTH if choice.finish_reason == "length" else Finish.STOP,
            reasoning=reasoning,
            signature=field,
            tool_calls=tuple(_call(call, tools) for call in message.tool_calls or ()),
            logprobs=tuple(
                finite(token.logprob) for token in (logprobs and logprobs.content) or ()
            ),
            prompt_tokens=0 if usage is None else count_of(usage.prompt_tokens),
            cached_tokens=0 if details is None else count_of(details.cached_tokens),
            sampled_tokens=0 if usage is None else count_of(usage.completion_tokens),
        )


class CompatibleProtocol(OpenAIProtocol):
    """Chat completions of other servers; some ignore the newer name of the limit."""

    limits = (OLD_LIMIT, LIMIT)


class AzureProtocol(OpenAIProtocol):
    """Chat completions of a deployment on Azure, in the API version of OPENAI_API_VERSION."""

    scheme = "azure"
    title = "Azure's chat-completions protocol"
    key = "AZURE_OPENAI_API_KEY"
    url = "AZURE_OPENAI_ENDPOINT"

    def client(self, connection: Connection) -> Any:
        import openai

        return openai.AsyncAzureOpenAI(
            azure_endpoint=connection.url or "",  # names without one are refused
            api_version=os.environ[API_VERSION],
            api_key=connection.key or "none",
            max_retries=connection.retries,
            timeout=connection.timeout,
            http_client=connection.http,
        )


# ── requests ─────────────────────────────────────────────────────────────────


def _messages(messages: Sequence[Message]) -> Iterator[dict[str, Any]]:
    shown: list[Image] = []  # of tool results, until the last of them has been sent
    for message in messages:
        if message.role == "tool":
            (result,) = message.tool_results
            yield {"role": "tool", "tool_call_id": result.id, "content": result.text}
            shown += message.images
            continue
        if shown:
            yield {"role": "user", "content": [_part(image) for image in shown]}
            shown = []
        if message.role == "assistant":
            yield _assistant(message)
        else:
            yield {"role": message.role, "content": _content(message)}
    if shown:
        yield {"role": "user", "content": [_part(image) for image in shown]}


def _content(message: Message) -> str | list[dict[str, Any]]:
    """Return text as it is; with images, return text and images as parts."""
    if not message.images:
        return message.text
    return [_part(part) for part in message.parts if isinstance(part, Text | Image)]


def _part(part: Text | Image) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    return {"type": "image_url", "image_url": {"url": part.url}}


def _assistant(message: Message) -> dict[str, Any]:
    sent: dict[str, Any] = {"role": "assistant", "content": message.text}
    for part in message.parts:
        if isinstance(part, Reasoning) and part.signature in REASONING_FIELDS:
            sent[part.signature] = part.text
    if message.tool_calls:
        sent["content"] = message.text or None
        sent["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": wire_name(call.name), "arguments": arguments_text(call)},
            }
            for call in message.tool_calls
        ]
    return sent


def _tool(tool: Tool) -> dict[str, Any]:
    function = {
        "name": wire_name(tool.name),
        "description": tool.description,
        "parameters": dict(tool.parameters),
    }
    return {"type": "function", "function": function}


def _tool_choice(sampling: Sampling) -> Any:
    if sampling.tool_choice in ("none", "required"):
        return sampling.tool_choice
    return {"type": "function", "function": {"name": wire_name(sampling.tool_choice)}}


# ── replies ──────────────────────────────────────────────────────────────────


def _reasoning(message: Any) -> tuple[str, str]:
    """Return the field that holds the reasoning, and its text; both "" without any."""
    for field in REASONING_FIELDS:
        text = text_of(getattr(message, field, None))
        if text:
            return field, text
    return "", ""


def _call(call: Any, tools: Sequence[Tool]) -> ToolCall:
    name = own_name(_named(call.function.name), tools)
    return ToolCall(name, arguments_of(text_of(call.function.arguments)), text_of(call.id))


def _named(name: Any) -> str:
    if not text_of(name):
        raise ValueError("a call without a name")
    return text_of(name)


OPENAI = OpenAIProtocol()
COMPATIBLE = CompatibleProtocol()
AZURE = AzureProtocol()
