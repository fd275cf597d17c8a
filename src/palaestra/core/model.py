"""Models: messages or tokens in; a reply, its sampled token ids, log-probabilities, version out.

A model that can be trained has a `Renderer`, which turns messages into tokens and
back. The session (not the model, not the agent) uses it to build each prompt from
the tokens already recorded, so that a sampled token is never encoded twice.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from palaestra.core.environment import AsyncEnvironment
from palaestra.core.errors import InputError
from palaestra.core.message import ImageSpan, Message, ToolCall, assistant
from palaestra.core.quick_init import quick_init
from palaestra.core.tool import Tool

if TYPE_CHECKING:
    from palaestra.core.agent import Agent

CHOOSING = "|choices"
"""The suffix of the policy name in calls whose reply was held to choices."""

CONSTRAINED = "|grammar"
"""The suffix of the policy name in calls whose reply was held to a grammar."""

ADAPTER = "|adapter="
"""Begins the suffix of the policy name in calls of a role whose own adapter is in training."""

CONTEXT = "|context"
"""The suffix of the policy name in replies that a learner reads, and does not learn."""

Listener = Callable[[Sequence[int], Sequence[float]], None]
"""Receives the tokens of a reply and their log-probabilities during sampling: each once, in order.
They are those of the final `Generation`; a model may skip these calls."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to sample one reply."""

    temperature: float = 1.0  # 0 means greedy
    max_tokens: int | None = None  # of a reply; None: the model's own limit
    stop: tuple[str, ...] = ()  # a reply ends when its text contains one of them
    choices: tuple[str, ...] | None = None
    """The reply is one of these texts, in full whatever `max_tokens` is; None: any text.
    For models that support it (`Model.chooses`). Each token is sampled among those that continue
    some choice, and its log-probability is the one under that restriction."""
    grammar: str | None = None
    """The reply is a text of this grammar (see `models/local/grammar.py`), unless it is truncated.
    For models that support it (`Model.constrains`); log-probabilities are under the restriction."""
    tool_choice: str = "auto"
    """For a prompt with tools: "auto", "none" or "required", or the name of the tool to call."""
    parallel_tool_calls: bool | None = None
    """Whether one reply may make several calls; None: the model's default."""
    reasoning_effort: str | None = None
    """How much a model reasons, in its provider's terms, such as "low"; None: its default."""
    reasoning_tokens: int | None = None
    """The number of tokens after which a model in this process has to end its thought; None: any.
    The tokens that end it are `forced`, and never trained. Replies that are held to choices or to
    a grammar contain no thoughts."""

    def __post_init__(self) -> None:
        if "" in self.stop:
            raise InputError("`stop` has an empty string, which ends every reply; leave it out.")
        if self.choices is not None and self.stop:
            raise InputError("`stop` has no effect on a reply with `choices`; leave it out.")
        if self.choices is not None and self.grammar is not None:
            raise InputError("`choices` and `grammar` exclude each other; leave one out.")
        if self.reasoning_tokens is not None and self.reasoning_tokens < 1:
            raise InputError(
                f"`reasoning_tokens` is {self.reasoning_tokens}; pass at least 1, or None."
            )
        if self.choices == ():
            raise InputError("`choices` is empty; pass at least one, or None.")

    def policy(self, model: str) -> str:
        """Return the policy name that calls record when `model` is sampled with these settings.

        A model that is held to choices or a grammar is another policy than the unconstrained one.
        The learner's log-probabilities are those of the unconstrained policy, so constrained calls
        are never trained on as if they were unconstrained.
        """
        if self.grammar is not None:
            return f"{model}{CONSTRAINED}"
        return model if self.choices is None else f"{model}{CHOOSING}"


def free(policy: str) -> str:
    """Return the name of the policy without the suffix for choices or a grammar."""
    return policy.removesuffix(CHOOSING).removesuffix(CONSTRAINED)


def adapted(policy: str, role: str) -> str:
    """Return the name of the policy with the adapter of a role, which is trained beside its own."""
    return f"{policy}{ADAPTER}{role}"


def adapter_role(recorded: str, role: str) -> str:
    """Return the role whose adapter replied: that of the recorded name, or else the call's own."""
    _, found, named = recorded.partition(ADAPTER)
    return named.partition("|")[0] if found else role


def without_adapter(recorded: str) -> str:
    """Return the recorded name without the suffix of an adapter; other suffixes stay."""
    if ADAPTER not in recorded:
        return recorded
    own, _, rest = recorded.partition(ADAPTER)
    _, bar, suffix = rest.partition("|")
    return f"{own}{bar}{suffix}"


def is_of(recorded: str, policy: str) -> bool:
    """Return whether a recorded name is that of `policy`, with whichever of its adapters."""
    if recorded == policy:
        return True
    own, found, role = recorded.partition(ADAPTER)
    return bool(found) and own == policy and "|" not in role


@quick_init
@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt to a model, with how to sample the reply."""

    messages: Sequence[Message]
    tokens: tuple[int, ...] | None  # None for models without a renderer
    sampling: Sampling
    seed: int  # equal seeds and equal weights give equal replies
    program: str | None = None  # groups the prompts of one episode
    listen: Listener | None = None  # does not affect the reply
    tools: tuple[Tool, ...] = ()  # the tools that the reply may call
    images: tuple[ImageSpan, ...] = ()  # among `tokens`, in order
    answer: str | None = None
    """The known right reply, whose log-probabilities are measured beside the sampled one's, by
    models that support it (`Model.scores_answers`); it does not affect the reply."""
    role: str = "agent"  # who is asked; only a router reads it


class Finish(StrEnum):
    """Why a reply ended."""

    STOP = "stop"  # the model ended its message, or wrote a stop string
    LENGTH = "length"  # `max_tokens` were sampled


@quick_init
@dataclass(frozen=True, slots=True)
class Generation:
    """One reply of a model."""

    text: str  # without reasoning and without calls
    tokens: tuple[int, ...]  # sampled ids, the end token included; empty if unknown
    logprobs: tuple[float, ...]  # of `tokens` at the sampling temperature; empty if unknown
    finish: Finish
    policy: str  # the model that replied; see `Sampling.policy`
    version: int  # the number of updates of its weights when it sampled the first token
    prompt_tokens: int = 0  # length of the prompt
    computed_tokens: int = 0  # prompt tokens that were not cached
    seconds: float = 0.0  # from the request to the reply
    versions: tuple[int, ...] = ()  # of each token, where the weights may change in between
    sampled_tokens: int = 0  # the count from a server that does not return `tokens`
    entropies: tuple[float, ...] = ()  # of each token's distribution, in nats; empty: unknown
    call: int | None = None  # its index in the episode, set by the session
    tool_calls: tuple[ToolCall, ...] = ()  # in order
    reasoning: str = ""
    signature: str = ""  # of the reasoning, from its provider
    forced: tuple[int, ...] = ()
    """Positions in `tokens` that were not sampled but written by the engine, where it ended a
    thought; their log-probabilities and entropies are 0."""
    answer_logprobs: tuple[float, ...] = ()
    """Log-probabilities of the tokens of `Prompt.answer`, at temperature 1; empty without one."""

    @property
    def message(self) -> Message:
        """The reply as a message of the conversation."""
        return assistant(
            self.text,
            reasoning=self.reasoning,
            signature=self.signature,
            tool_calls=self.tool_calls,
        )

    def numbered(self, call: int) -> Generation:
        """Return the reply as call number `call`; `dataclasses.replace` takes thrice as long."""
        return Generation(
            self.text,
            self.tokens,
            self.logprobs,
            self.finish,
            self.policy,
            self.version,
            self.prompt_tokens,
            self.computed_tokens,
            self.seconds,
            self.versions,
            self.sampled_tokens,
            self.entropies,
            call,
            self.tool_calls,
            self.reasoning,
            self.signature,
            self.forced,
            self.answer_logprobs,
        )


class Reply(NamedTuple):
    """The parsed text of a reply."""

    text: str  # without reasoning and tool calls
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()


def joined(parts: Iterable[Reply]) -> Reply:
    """Return consecutive parts of a reply as one."""
    texts, thoughts, calls = "", "", list[ToolCall]()
    for part in parts:
        texts, thoughts = texts + part.text, thoughts + part.reasoning
        calls += part.tool_calls
    return Reply(texts, thoughts, tuple(calls))


class ReplyParser:
    """A parser of one reply while it is sampled; this one finds text only.

    The parts are the same however the reply is cut into chunks. Only what no later text can change
    is returned, so half a tag never is.
    """

    thinking = False
    """Whether the reply is within its reasoning, after what was fed."""

    def feed(self, text: str) -> Reply:
        """Append characters; return the parts that have become certain, without earlier ones."""
        return Reply(text)

    def finish(self) -> Reply:
        """End the reply; return the parts that were not returned yet."""
        return Reply("")

    def parse(self, text: str) -> Reply:
        """Parse a whole reply."""
        return joined((self.feed(text), self.finish()))


class Renderer(ABC):
    """The conversion of messages to tokens and back, with the exact-prefix property.

    `start` renders a new conversation up to where the model replies. `extend` returns
    only the tokens that follow a sampled reply, so recorded tokens never change.
    """

    name: str
    native_tools: bool = False
    """Whether the model's own chat template renders tools."""

    sees: bool = False
    """Whether it renders images, for a model that sees them."""

    drops_thoughts: bool = False
    """Whether its template drops the reasoning of earlier replies, and so begins new branches."""

    @property
    def thought_end(self) -> list[int]:
        """The tokens that end the model's reasoning; empty if it has none apart from its text."""
        return []

    @property
    @abstractmethod
    def end_tokens(self) -> frozenset[int]:
        """The tokens that end the model's message when sampled."""

    @abstractmethod
    def start(self, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> list[int]:
        """Return the tokens of a conversation, up to and including the header of the next reply.

        Raises:
            InputError: it cannot render the tools, or a part of a message.
        """

    @abstractmethod
    def extend(
        self,
        history: Sequence[Message],
        new: Sequence[Message],
        closed: bool,
        tools: Sequence[Tool] = (),
    ) -> list[int]:
        """Return the tokens between a sampled reply and the next one.

        Args:
            history: the conversation so far; its last message is the sampled reply.
            new: the messages after it, at least one.
            closed: whether the reply's last sampled token was an end token.
            tools: those that `start` rendered.

        Raises:
            InputError: as in `start`.
            TemplateBreaksPrefix: adding `new` would change the tokens of `history`.
        """

    def images(self, messages: Sequence[Message], tokens: Sequence[int]) -> tuple[ImageSpan, ...]:
        """Return the places of the messages' images among the tokens that they were rendered to.

        Raises:
            InputError: an image cannot be read.
        """
        return ()

    @abstractmethod
    def reply(self, reply: str | Message) -> list[int]:
        """Return the tokens of a reply as the model would sample it, including its end token."""

    @abstractmethod
    def text(self, tokens: Sequence[int]) -> str:
        """Return the text of sampled tokens, without control tokens."""

    def parser(self, calls: bool = True, prompt: Sequence[int] | None = None) -> ReplyParser:
        """Return a parser of one reply; the default finds text only.

        Args:
            calls: whether the reply may call tools; if not, calls are text.
            prompt: its tokens, which may already open a thought; None: one with tools.
        """
        return ReplyParser()

    def parse(self, text: str, calls: bool = True, prompt: Sequence[int] | None = None) -> Reply:
        """Parse a whole reply, like `parser`."""
        return self.parser(calls, prompt).parse(text)

    def closes(self, token: int, new: Sequence[Message]) -> bool:
        """Return whether a sampled token ends a reply so that `new` can follow it."""
        return token in self.end_tokens

    @abstractmethod
    def token_strings(self, tokens: Sequence[int]) -> list[str]:
        """Return each token as a readable string, for displays."""

    def vocabulary(self) -> str | None:
        """Return the tokenizer as a `tokenizer.json`; None where there is none."""
        return None


class Model(ABC):
    """The base class of models: anything that replies to prompts."""

    name: str
    renderer: Renderer | None = None
    chooses: bool = False
    """Whether it supports `Sampling.choices`."""

    native_tools: bool = False
    """Whether it takes `Prompt.tools` natively and returns tool calls."""

    limits_reasoning: bool = False
    """Whether `Sampling.reasoning_tokens` holds for its replies."""

    scores_answers: bool = False
    """Whether it measures `Prompt.answer`."""

    reads_environment: bool = False
    """Whether its replies depend on the state of the environment, beyond the prompt."""

    max_tokens: int | None = 64
    """The length of a reply where `Sampling.max_tokens` is None; None: its server decides."""

    @property
    def constrains(self) -> bool:
        """Whether it supports `Sampling.grammar`."""
        return False

    @abstractmethod
    async def generate(self, prompt: Prompt) -> Generation:
        """Return a reply to one prompt.

        Raises:
            InputError: it does not support the choices or the grammar, or cannot generate them.
            ContextTooLong: the prompt leaves no room for a reply.
            InfrastructureFault: the model could not be reached, or failed.
        """

    def limited(self, sampling: Sampling) -> Sampling:
        """Return the sampling with this model's limit where it has none of its own."""
        if sampling.max_tokens is not None or self.max_tokens is None:
            return sampling
        return _limited(sampling, self.max_tokens)

    def for_environment(self, environment: AsyncEnvironment) -> Model:
        """Return the model for one session, where it `reads_environment`."""
        return self

    def for_agent(self, agent: Agent) -> Model:
        """Return the model for another agent, whose phrasing of actions it may have to take."""
        return self

    @property
    def host(self) -> Model:
        """The model in whose batches it runs; adapters of one base share theirs."""
        return self

    def participant(self) -> AbstractContextManager[None]:
        """Return a context that each concurrent caller holds; a lockstep model waits for all."""
        return nullcontext()

    async def close(self) -> None:
        """Free all resources of the model."""


@lru_cache(maxsize=256)
def _limited(sampling: Sampling, max_tokens: int) -> Sampling:
    """Return the sampling with that limit; an agent uses the same ones in every turn."""
    return replace(sampling, max_tokens=max_tokens)
