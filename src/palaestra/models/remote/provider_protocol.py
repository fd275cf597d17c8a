"""Provider protocols: requests and replies of remote models, through their providers' SDKs.

A protocol translates a `Prompt` into the arguments of the SDK's call, and the SDK's object into a
`RemoteReply`. The SDK handles connections, retries, streaming and authentication.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from types import ModuleType
from typing import TYPE_CHECKING, Any

from palaestra.core.errors import MissingPackage
from palaestra.core.message import Image, Message, Part, Text, ToolCall, ToolResult
from palaestra.core.model import Finish, Prompt
from palaestra.core.tool import Tool

if TYPE_CHECKING:
    import httpx2

REASONING_FIELDS = ("reasoning_content", "reasoning")
"""Fields of a chat completion's message that hold reasoning; also the signature of such reasoning,
because it is sent back in the same field."""

NOT_MADE = "This call was not made."
"""The result of a call without one in the conversation; both protocols require a result."""

UNUSABLE = (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError)
"""Exceptions raised by reading a response that lacks what its protocol promises."""


@dataclass(frozen=True, slots=True)
class RemoteReply:
    """A parsed response."""

    text: str
    finish: Finish
    reasoning: str = ""
    signature: str = ""  # what this provider needs to take the reasoning back
    tool_calls: tuple[ToolCall, ...] = ()
    logprobs: tuple[float, ...] = ()
    prompt_tokens: int = 0  # as the server counts; 0 if it does not report them
    cached_tokens: int = 0  # prompt tokens that the server did not have to compute
    sampled_tokens: int = 0  # including hidden reasoning


@dataclass(frozen=True, slots=True)
class Connection:
    """How an SDK's client reaches its server."""

    url: str | None  # base URL of the API; None is the provider's own
    key: str | None  # the API key; None sends none
    retries: int  # attempts after the first
    timeout: float  # seconds after which an attempt without a response fails
    http: httpx2.AsyncClient = field(repr=False)


class Protocol(ABC):
    """One provider's protocol, through its SDK."""

    scheme: str  # prefix of its models' names
    title: str
    package: str  # the SDK's name, to import and to install
    key: str  # environment variable of the API key for the provider's own servers
    url: str  # environment variable of the base URL
    logprobs: bool  # whether it can return log-probabilities
    streams: bool  # whether replies are streamed unless the model's name says otherwise
    optional: Mapping[str, Collection[str]]
    """Parameters that a server may refuse, each with its possible names in errors."""

    @property
    def sdk(self) -> ModuleType:
        """The SDK's module."""
        return importlib.import_module(self.package)

    def check_package(self) -> None:
        """Raise MissingPackage unless the SDK is installed."""
        if importlib.util.find_spec(self.package) is None:
            raise MissingPackage(
                f"Models named '{self.scheme}:…' need the Python package '{self.package}', which "
                "is not installed; install it with: pip install 'palaestra[remote]'."
            )

    @abstractmethod
    def client(self, connection: Connection) -> Any:
        """Return the SDK's asynchronous client."""

    @abstractmethod
    def request(self, model: str, prompt: Prompt, *, logprobs: bool = False) -> dict[str, Any]:
        """Return everything that a prompt asks for, as arguments of the SDK's call."""

    @abstractmethod
    def accepted(
        self, request: Mapping[str, Any], refused: Collection[str], *, stream: bool
    ) -> dict[str, Any]:
        """Return the request without the parameters that its server refuses."""

    @abstractmethod
    def parameters(self, sent: Mapping[str, Any]) -> set[str]:
        """Return which of the `optional` parameters the sent request contains."""

    async def limit(self, client: Any, model: str) -> int | None:
        """Return the `max_tokens` to send if a prompt sets none; None sends none."""
        return None

    @abstractmethod
    async def send(self, client: Any, request: Mapping[str, Any], *, stream: bool) -> Any:
        """Return the SDK's object for the response; raise what the SDK raises."""

    @abstractmethod
    def reply(self, answer: Any, tools: Sequence[Tool]) -> RemoteReply:
        """Parse the SDK's object; raise one of UNUSABLE if it is malformed."""


# ── conversations ────────────────────────────────────────────────────────────


def answered_calls(messages: Sequence[Message]) -> list[Message]:
    """Return the conversation with each tool call answered right after it, by its id.

    Calls without an id get one by their position. A result that names no call of the message
    before goes to the first call without a result; if there is none, it becomes a user message. A
    call without a result gets `NOT_MADE`. Tool messages hold one result each, then its images.
    """
    done: list[Message] = []
    starts = [i for i, message in enumerate(messages) if message.role == "assistant"]
    bounds = [0, *starts, len(messages)]
    count = 0
    for start, end in pairwise(bounds):
        first, rest = messages[start:end][:1], messages[start:end][1:]
        if not first or first[0].role != "assistant":
            done += _matched((), [*first, *rest])
            continue
        parts: list[Part] = []
        for part in first[0].parts:
            if isinstance(part, ToolCall):
                count += 1
                part = part if part.id else replace(part, id=f"call{count:05d}")
            parts.append(part)
        done.append(replace(first[0], parts=tuple(parts)))
        done += _matched([part.id for part in parts if isinstance(part, ToolCall)], rest)
    return done


def _matched(ids: Sequence[str], messages: Sequence[Message]) -> list[Message]:
    """Return the results of those calls, in the order of the calls, then the other messages."""
    results: dict[str, Message] = {}
    others: list[Message] = []
    for message in messages:
        if message.role != "tool":
            others.append(message)
            continue
        for result, images in _results(message):
            free = next((id for id in ids if id not in results), None)
            id = result.id if result.id in ids and result.id not in results else free
            if id is None or (result.id and result.id != id):
                others.append(Message("user", (Text(result.text), *images)))
            else:
                results[id] = Message("tool", (replace(result, id=id), *images))
    missing = {id: Message("tool", (ToolResult(NOT_MADE, id, error=True),)) for id in ids}
    return [*(missing | results).values(), *others]


def _results(message: Message) -> Iterator[tuple[ToolResult, tuple[Image, ...]]]:
    """Yield each result of a tool message with the images after it; plain text is a result too."""
    result: ToolResult | None = None
    images: list[Image] = []
    for part in message.parts:
        if isinstance(part, Image):
            images.append(part)
            continue
        if not isinstance(part, ToolResult | Text):
            continue
        if result is not None:
            yield result, tuple(images)
            images = []
        result = part if isinstance(part, ToolResult) else ToolResult(part.text)
    if result is not None or images:
        yield result or ToolResult(""), tuple(images)


# ── names and values ─────────────────────────────────────────────────────────


def wire_name(name: str) -> str:
    """Return a tool's name in the characters that both providers accept; most stay unchanged."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:64]


def own_name(name: str, tools: Sequence[Tool]) -> str:
    """Return the name of the tool with that wire name."""
    return next((tool.name for tool in tools if wire_name(tool.name) == name), name)


def text_of(value: Any) -> str:
    """Return a text, "" for None.

    Raises:
        TypeError: the value is something else.
    """
    if not isinstance(value, str | None):
        raise TypeError("not a text")
    return value or ""


def count_of(value: Any) -> int:
    """Return a number of tokens, 0 for None.

    Raises:
        TypeError, ValueError, OverflowError: the value is something else.
    """
    number = int(value or 0)
    if number < 0:
        raise ValueError("less than no tokens")
    return number


def finite(value: Any) -> float:
    """Return a log-probability.

    Raises:
        TypeError, ValueError: the value is something else.
    """
    number = float(value)
    if not math.isfinite(number):
        raise ValueError("not a finite number")
    return number
