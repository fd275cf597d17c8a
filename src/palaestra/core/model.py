"""Models: messages or tokens in; text, sampled token ids, log-probabilities and version out.

A model that can be trained has a `Renderer`, which turns messages into tokens and
back. The session (not the model, not the agent) uses it to build each prompt from
the tokens already recorded, so that a sampled token is never encoded twice.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from enum import StrEnum

from palaestra.core.environment import World
from palaestra.core.errors import InputError
from palaestra.core.message import Message

CHOOSING = "|choices"
"""Behind the name of a model that was held to choices, in the record of its calls."""

CONSTRAINED = "|grammar"
"""Likewise of one that was held to a grammar."""

Listener = Callable[[Sequence[int], Sequence[float]], None]
"""Told the tokens of a reply and their log-probabilities while it is sampled: each once, in order.
What a listener hears is what the `Generation` will hold; a model need not tell anything."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to sample one reply."""

    temperature: float = 1.0  # 0 means greedy
    max_tokens: int = 64
    stop: tuple[str, ...] = ()  # a reply ends when its text contains one of them
    choices: tuple[str, ...] | None = None
    """The reply is one of these texts, said to its end whatever `max_tokens` is; None: any text.
    For models that can be held to it (`Model.chooses`). Each token is drawn among those with which
    some choice goes on, and its log-probability is the one under that restriction."""
    grammar: str | None = None
    """The reply is a text of this grammar (see `models/grammar.py`), unless it is cut short. For
    models that can be held to it (`Model.constrains`); log-probabilities likewise."""

    def __post_init__(self) -> None:
        if "" in self.stop:
            raise InputError("A stop string is empty: every reply would end at once. Leave it out.")
        if self.choices is not None and self.stop:
            raise InputError("A reply with choices ends where its choice does: leave out `stop`.")
        if self.choices is not None and self.grammar is not None:
            raise InputError("A reply is held to choices or to a grammar: leave one out.")
        if self.choices == ():
            raise InputError("There is no choice, so there is no reply; give one, or None for any.")

    def policy(self, model: str) -> str:
        """The policy that speaks when `model` is sampled so, as calls record it.

        A model that may only choose, or is held to a grammar, is another policy than the free one,
        and never learned from as if it were: the learner's log-probabilities are those of the free
        one.
        """
        if self.grammar is not None:
            return f"{model}{CONSTRAINED}"
        return model if self.choices is None else f"{model}{CHOOSING}"


def free(policy: str) -> str:
    """The policy that spoke, or would have had it not been held to choices or a grammar."""
    return policy.removesuffix(CHOOSING).removesuffix(CONSTRAINED)


@dataclass(frozen=True, slots=True)
class Prompt:
    """One question to a model."""

    messages: Sequence[Message]
    tokens: tuple[int, ...] | None  # None for models without a renderer
    sampling: Sampling
    seed: int  # equal seeds and equal weights give equal replies
    program: str | None = None  # prompts of one program belong together: those of an episode
    listen: Listener | None = None  # changes nothing about the reply


class Finish(StrEnum):
    STOP = "stop"  # the model ended its message, or wrote a stop string
    LENGTH = "length"  # `max_tokens` were sampled


@dataclass(frozen=True, slots=True)
class Generation:
    """One reply of a model."""

    text: str
    tokens: tuple[int, ...]  # sampled ids, the end token included; empty if unknown
    logprobs: tuple[float, ...]  # of `tokens` at the sampling temperature; empty if unknown
    finish: Finish
    policy: str  # which model spoke; see `Sampling.policy`
    version: int  # how often its weights had been updated when it sampled the first token
    prompt_tokens: int = 0  # length of the prompt
    computed_tokens: int = 0  # prompt tokens that no cache held
    seconds: float = 0.0  # from the request to the reply
    versions: tuple[int, ...] = ()  # of each token, where the weights may change in between
    sampled_tokens: int = 0  # as a server tells that does not tell `tokens`
    entropies: tuple[float, ...] = ()  # of what each token was drawn from, in nats; empty: unknown
    call: int | None = None  # its index in the episode, as the session tells the agent


class Renderer(ABC):
    """Messages to tokens and back, with the exact-prefix property.

    `start` renders a new conversation up to where the model speaks. `extend` gives
    only the tokens that follow a reply already sampled: by construction, what was
    recorded before is never touched.
    """

    name: str

    @property
    @abstractmethod
    def end_tokens(self) -> frozenset[int]:
        """Tokens that end the model's message when sampled."""

    @abstractmethod
    def start(self, messages: Sequence[Message]) -> list[int]:
        """Tokens of a conversation, up to and with the header of the reply to come."""

    @abstractmethod
    def extend(self, history: Sequence[Message], new: Sequence[Message], closed: bool) -> list[int]:
        """Tokens between a sampled reply and the next one.

        Args:
            history: the conversation so far; its last message is the sampled reply.
            new: the messages after it, at least one.
            closed: whether the reply's last sampled token was an end token.

        Raises:
            TemplateBreaksPrefix: adding `new` would change the tokens of `history`.
        """

    @abstractmethod
    def reply(self, text: str) -> list[int]:
        """Tokens of a reply as the model would sample it, its end token included."""

    @abstractmethod
    def text(self, tokens: Sequence[int]) -> str:
        """The words of sampled tokens, without control tokens."""

    @abstractmethod
    def pieces(self, tokens: Sequence[int]) -> list[str]:
        """Each token as a readable string, for displays."""

    def vocabulary(self) -> str | None:
        """The tokenizer as a `tokenizer.json`; None where there is none."""
        return None


class Model(ABC):
    """Anything that answers prompts."""

    name: str
    renderer: Renderer | None = None
    chooses: bool = False
    """Whether it can be held to `Sampling.choices`."""

    @property
    def constrains(self) -> bool:
        """Whether it can be held to `Sampling.grammar`."""
        return False

    @abstractmethod
    async def generate(self, prompt: Prompt) -> Generation:
        """Answer one prompt.

        Raises:
            InputError: there are choices or a grammar that it cannot be held to, or cannot say.
            ContextTooLong: the prompt leaves no room to answer.
            InfrastructureFault: the model could not be reached or broke.
        """

    def for_world(self, world: World) -> Model:
        """The model as one session uses it; all but an expert serve every world alike."""
        return self

    def participant(self) -> AbstractContextManager[None]:
        """Held by everyone who may ask at any moment; a lockstep model waits for them all."""
        return nullcontext()

    async def close(self) -> None:
        """Free what the model holds."""
