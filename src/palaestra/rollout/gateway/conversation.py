"""A program's conversation as palaestra's messages, so that what it appends continues a branch.

A program sends its whole history with each request. Where it sends back a reply that this session
gave, that reply's recorded text is taken, to the letter, whatever became of its blanks and of the
form of its calls on the way. Hence a history that is only appended to extends the recorded tokens,
and one that was edited begins a new branch. What the program made up itself is written anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from palaestra.core.environment import Action
from palaestra.core.graph import MessageGraph
from palaestra.core.message import Message, Speaker, ToolCall, assistant, system
from palaestra.core.model import Generation
from palaestra.core.tool import ACT, Tool
from palaestra.rollout.gateway import hermes
from palaestra.rollout.gateway.forms import Form


@dataclass(frozen=True, slots=True)
class Called:
    """A call in a program's conversation."""

    id: str
    name: str
    arguments: Mapping[str, Any] | str  # text where it is no JSON object

    @property
    def canonical(self) -> str:
        """The same for calls that differ in nothing but the spelling of their JSON."""
        return json.dumps([self.name, self.arguments], sort_keys=True)

    def is_of(self, action: Action) -> bool:
        """Whether it calls for that action; frameworks may put a server's name before a tool's."""
        told = action.call or ToolCall(ACT.name, {"action": action.text})
        named = self.name == told.name or self.name.endswith(f"_{told.name}")
        return named and self.arguments == told.arguments

    @property
    def as_json(self) -> str:
        """The arguments as OpenAI's protocols send them."""
        plain = self.arguments
        return plain if isinstance(plain, str) else json.dumps(dict(plain), ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Said:
    """One message of a program's conversation, whatever protocol it came in."""

    role: Speaker
    content: str
    calls: tuple[Called, ...] = ()
    images: tuple[str, ...] = ()  # in base64
    call_id: str | None = None  # the call that a tool's result is of


@dataclass(frozen=True, slots=True)
class Question:
    """What a program asks of the model."""

    messages: tuple[Said, ...]
    tools: tuple[Tool, ...] = ()
    choice: str = "auto"  # or "none", "required", a tool's name
    max_tokens: int | None = None
    limit: str = "max_tokens"  # the field that sets it
    stop: tuple[str, ...] = ()
    temperature: float | None = None
    form: Form | None = None  # None: words as they come
    logprobs: str | None = None  # the field that asks for those of the sampled tokens
    ignored: tuple[str, ...] = ()  # what was asked for and is not honoured
    number: int = 0  # among the questions of its session; replies and calls are named after it

    @property
    def calls(self) -> bool:
        """Whether calls are read from the reply."""
        return bool(self.tools) and self.choice != "none"


@dataclass(frozen=True, slots=True)
class Answer:
    """What it is answered, and where that lies in the message graph."""

    index: int | None  # of the call; None: the episode is over, and there was none
    number: int  # of the question
    parent: int | None  # the call that it continues; None: it begins a branch
    generation: Generation
    content: str  # the words: what is neither a call nor behind a stop string
    calls: tuple[Called, ...]
    stopped: str | None = None  # the program's stop string that ended it
    known: tuple[tuple[str, float], ...] = ()  # its tokens as texts, and their log-probabilities
    ignored: tuple[str, ...] = ()

    @property
    def model(self) -> str:
        """The name of the model that programs are told."""
        return public(self.generation.policy)

    @property
    def about(self) -> dict[str, Any]:
        """What a reply says of its own record, beside what the protocol asks for."""
        branch = "begins" if self.parent is None else "continues"
        return {
            "call": self.index,
            "parent": self.parent,
            "branch": None if self.index is None else branch,
            "policy_version": self.generation.version,
            "ignored": list(self.ignored),
        }


@dataclass(slots=True)
class Transcript:
    """The replies of one session as its program was given them."""

    graph: MessageGraph
    _answers: dict[int, Answer] = field(default_factory=dict)
    _alike: dict[tuple[str, ...], list[int]] = field(default_factory=dict)
    _done: set[str] = field(default_factory=set)  # ids of the calls that became actions

    def add(self, answer: Answer) -> None:
        """Remember what the program was given by a call."""
        assert answer.index is not None
        self._answers[answer.index] = answer
        self._alike.setdefault(_signature(answer.content, answer.calls), []).append(answer.index)

    def proposer(self, action: Action) -> Generation | None:
        """The reply by which a program does an action; None before the first one.

        Programs do not tell which. It is the latest reply with this very call that was not done
        yet, else with these very words, else the latest of all, of which the program made it.
        """
        by_words: Answer | None = None
        answers = list(reversed(self._answers.values()))
        for answer in answers:
            called = next((c for c in answer.calls if c.is_of(action)), None)
            if called is not None and called.id not in self._done:
                self._done.add(called.id)
                return answer.generation
            if by_words is None and answer.content.strip() == action.text.strip():
                by_words = answer
        found = by_words or next(iter(answers), None)
        return None if found is None else found.generation

    def messages(self, question: Question, form: Form | None = None) -> list[Message]:
        """The prompt of a question, with a form that the model is to be told of."""
        told = [hermes.told(question.tools, question.choice)] if question.tools else []
        told += [form.told] if form is not None else []
        found = [self._system(question, told)] if told else []
        rest = question.messages
        if found and rest and rest[0].role == "system":
            rest = rest[1:]
        for said in rest:
            if said.role == "assistant":
                found.append(assistant(self._reply(said, found)))
            elif said.role == "tool":
                found.append(Message("tool", hermes.response(said.content), said.images))
            else:
                found.append(Message(said.role, said.content, said.images))
        return found

    def _system(self, question: Question, told: Sequence[str]) -> Message:
        """The program's own system message, and after it what else is told."""
        first = question.messages[0] if question.messages else None
        own = [first.content] if first is not None and first.role == "system" else []
        return system("\n\n".join([*own, *told]))

    def _reply(self, said: Said, before: Sequence[Message]) -> str:
        """The recorded text of a reply that was given here; else the reply written anew."""
        given = self._alike.get(_signature(said.content, said.calls), ())
        if not given:
            calls = [hermes.written(ToolCall(c.name, _mapping(c.arguments))) for c in said.calls]
            return "\n".join(filter(None, [said.content, *calls]))
        best = max(given, key=lambda index: (self._likeness(index, said, before), index))
        return self._answers[best].generation.text

    def _likeness(self, index: int, said: Said, before: Sequence[Message]) -> tuple[bool, ...]:
        """How much an alike reply is the one that was said here; the larger, the more."""
        answer, conversation = self._answers[index], self.graph.conversation(index)
        ids = [call.id for call in answer.calls] == [call.id for call in said.calls]
        here = len(conversation) == len(before) + 1 and conversation[:-1] == list(before)
        return (ids and bool(said.calls), here, answer.content == said.content)


def public(model: str) -> str:
    """The name of a model without the address at which it is served."""
    return model.partition("@")[0]


def without_address(text: str, models: Iterable[str]) -> str:
    """A text in which models have their `public` names, and no address is told."""
    for model in models:
        name, at, address = model.partition("@")
        if at and address:
            text = text.replace(model, name).replace(address, "the model's address")
    return text


def _signature(content: str, calls: Sequence[Called]) -> tuple[str, ...]:
    return (content.strip(), *(call.canonical for call in calls))


def _mapping(arguments: Mapping[str, Any] | str) -> Mapping[str, Any]:
    return {"arguments": arguments} if isinstance(arguments, str) else arguments
