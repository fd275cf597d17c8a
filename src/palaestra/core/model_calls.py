"""Model calls: the prompt from recorded tokens, the model's reply, and the call that records both.

Sampled text is never tokenised again. A prompt that continues a conversation is the tokens of that
conversation, followed by the tokens of the new messages. Each call has a seed of its own, by its
number in the episode.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from typing import NamedTuple

from palaestra.core.budget import Spending
from palaestra.core.chain import Chain
from palaestra.core.episode import Key, Recording, derive_seed
from palaestra.core.errors import (
    AgentFault,
    ContextTooLong,
    InfrastructureFault,
    InputError,
    PalaestraError,
    ReplayMismatch,
    TemplateBreaksPrefix,
)
from palaestra.core.graph import Call, MessageGraph, Place
from palaestra.core.message import ImageSpan, Message
from palaestra.core.model import Finish, Generation, Listener, Model, Prompt, Sampling
from palaestra.core.tool import Tool

LONG = 20_000  # characters that take some hundredths of a second to tokenise

Tokens = tuple[int, ...]


class Question(NamedTuple):
    """A prompt to a model, with its position in the message graph; it may be sampled repeatedly."""

    model: Model
    role: str
    parent: int | None  # the call whose conversation it continues; None starts a conversation
    new: tuple[Message, ...]  # the messages after that call
    delta: Tokens  # the tokens of `new`; empty for a model without a renderer
    messages: Chain[Message]  # the whole prompt
    tokens: Tokens | None  # the tokens of `messages`; None for a model without a renderer
    images: tuple[ImageSpan, ...]  # in `tokens`
    new_images: tuple[ImageSpan, ...]  # in `delta`
    sampling: Sampling
    listen: Listener | None = None
    tools: tuple[Tool, ...] = ()
    answer: str | None = None  # see `Prompt.answer`

    def asked_by(self, call: Call) -> bool:
        """Return whether a recorded call has this prompt."""
        return (call.parent, call.role, call.messages, call.prompt, call.tools) == (
            self.parent,
            self.role,
            self.new,
            self.delta,
            self.tools,
        )

    def prompt(self, seed: int, program: str, limit: int | None) -> Prompt:
        """Return the prompt with a seed, for a reply of at most `limit` tokens; None: no limit."""
        sampling = self.sampling
        if limit is not None and (sampling.max_tokens is None or limit < sampling.max_tokens):
            sampling = replace(sampling, max_tokens=limit)
        return Prompt(
            self.messages,
            self.tokens,
            sampling,
            seed,
            program,
            self.listen,
            self.tools,
            self.images,
            self.answer,
            self.role,
        )


def check_held(model: Model, sampling: Sampling, tools: Sequence[Tool] = ()) -> None:
    """Raise InputError for tools or sampling options that the model does not support."""
    if tools and model.renderer is None and not model.native_tools:
        raise InputError(
            f"The model '{model.name}' does not support tools; describe them in the prompt, or use "
            "a model that calls tools."
        )
    if sampling.reasoning_tokens is not None and not model.limits_reasoning:
        raise InputError(
            f"reasoning_tokens={sampling.reasoning_tokens} is not supported by the model "
            f"'{model.name}'; leave it out, or use a model in this process "
            "whose chat template keeps reasoning apart."
        )
    if sampling.choices is not None and not model.chooses:
        raise InputError(
            f"The model '{model.name}' cannot be held to choices; check `can_choose` first, or "
            "use a model in this process, such as smollm2-135m."
        )
    if sampling.grammar is not None and not model.constrains:
        raise InputError(
            f"The model '{model.name}' cannot be held to a grammar; check `can_constrain` first, "
            "or use a model in this process and: pip install 'palaestra[serving]'."
        )


class Rendered(NamedTuple):
    """A prompt and its position in the graph; see the fields of `Question`."""

    parent: int | None
    new: tuple[Message, ...]
    delta: Tokens
    messages: Chain[Message]
    tokens: Tokens | None
    images: tuple[ImageSpan, ...] = ()
    new_images: tuple[ImageSpan, ...] = ()


def rendered(
    graph: MessageGraph,
    model: Model,
    place: Place,
    messages: Sequence[Message],
    tools: tuple[Tool, ...],
    environment: str,
) -> Rendered:
    """Return a prompt with its tokens; a model without a renderer has none.

    The prompt starts a new branch where the model's chat template would change sampled tokens (many
    strip the reasoning of earlier replies). The model then reads the conversation as its template
    renders it, and the tokens of the earlier branch stay as they are.

    Args:
        graph: the conversations so far.
        model: the model that will reply.
        place: the position of the prompt in the graph.
        messages: the whole prompt.
        tools: the tools that the model may call.
        environment: the id of the environment, for error messages.

    Raises:
        InputError: the model reads text only and the messages contain images, or its template
            rejects the messages.
    """
    parent, known, asked = place
    new = tuple(messages[known:])
    renderer = model.renderer
    if renderer is None:
        return Rendered(parent, new, (), asked, None)
    shown = any(message.images for message in new)
    if shown and not renderer.sees:
        raise InputError(
            f"The model '{model.name}' reads text only, and '{environment}' shows images; "
            "leave out the knob observation, or use a model that reads images."
        )
    if parent is not None:
        call = graph.calls[parent]
        closed = bool(call.completion) and renderer.closes(call.completion[-1], new)
        try:
            delta = tuple(renderer.extend(graph.conversation(parent), new, closed, tools))
        except TemplateBreaksPrefix:
            asked, new = Chain.of(messages), tuple(messages)
        else:
            whole = (*graph.tokens(parent), *delta)
            if not renderer.sees:
                return Rendered(parent, new, delta, asked, whole)
            own, before = renderer.images(new, delta), len(whole) - len(delta)
            images = (*graph.images(parent), *(span.moved(before) for span in own))
            return Rendered(parent, new, delta, asked, whole, images, own)
    delta = tuple(renderer.start(new, tools))
    images = renderer.images(new, delta)
    return Rendered(None, new, delta, asked, delta, images, images)


async def ask(model: Model, prompt: Prompt) -> Generation:
    """Return the model's reply.

    Raises:
        InfrastructureFault: the model raised an unexpected error; palaestra's own errors pass
            unchanged.
    """
    try:
        return await model.generate(prompt)
    except PalaestraError:
        raise
    except Exception as error:
        detail = f"{model.name}: {type(error).__name__}: {error}"
        raise InfrastructureFault("model", detail) from error


async def too_long(model: Model, prompt: Prompt) -> ContextTooLong | None:
    """Return the error of a prompt that is too long for the model; None for any other prompt."""
    try:
        await ask(model, prompt)
    except ContextTooLong as error:
        return error
    except PalaestraError:
        pass
    return None


def call_of(question: Question, generation: Generation, index: int) -> Call:
    """Return the record of a reply as call number `index` of its episode."""
    return Call(
        index=index,
        parent=question.parent,
        role=question.role,
        messages=question.new,
        prompt=question.delta,
        reply=generation.message,
        completion=generation.tokens,
        logprobs=generation.logprobs,
        finish=generation.finish,
        policy=generation.policy,
        version=generation.version,
        computed_tokens=generation.computed_tokens,
        seconds=generation.seconds,
        versions=generation.versions if len(set(generation.versions)) > 1 else (),
        sampled_tokens=generation.sampled_tokens,
        entropies=generation.entropies,
        tools=question.tools,
        forced=generation.forced,
        images=question.new_images,
        answer_logprobs=generation.answer_logprobs,
    )


def generation_of(call: Call) -> Generation:
    """Return the reply that a call records."""
    return Generation(
        text=call.reply.text,
        tokens=call.completion,
        logprobs=call.logprobs,
        finish=Finish(call.finish),
        policy=call.policy,
        version=call.version,
        versions=call.versions,
        entropies=call.entropies,
        sampled_tokens=call.sampled_tokens,
        call=call.index,
        tool_calls=call.reply.tool_calls,
        reasoning=call.reply.reasoning,
        signature=call.reply.signature,
        forced=call.forced,
        answer_logprobs=call.answer_logprobs,
    )


class ModelCalls:
    """The model calls of one episode: asked, replayed from its record, and added to its graph."""

    def __init__(
        self, key: Key, environment: str, seed: int, recording: Recording, spending: Spending
    ) -> None:
        """Begin without calls.

        Args:
            key: the episode; models know it under this name.
            environment: the id of its environment, for error messages.
            seed: the seed from which those of the calls are derived.
            recording: holds the calls to replay, and takes the new ones.
            spending: counts the tokens of every call.
        """
        self.graph = MessageGraph()
        self._program, self._environment, self._seed = str(key), environment, seed
        self._recording, self._spending = recording, spending
        self._begun = 0  # calls begun, so that calls at the same time have seeds of their own
        self._latest: Generation | None = None  # the reply that was recorded last

    def length(
        self, model: Model, role: str, messages: Sequence[Message], tools: tuple[Tool, ...]
    ) -> int:
        """Return how many tokens the prompt of these messages has, or a quarter of its characters.

        The latter is for models that do not expose tokens.
        """
        place = self.graph.place(messages, model.name, role, tools)
        return _length(self._rendered(model, place, messages, tools), messages)

    async def counted(
        self, model: Model, role: str, messages: Sequence[Message], tools: tuple[Tool, ...]
    ) -> int:
        """Return `length` without blocking other sessions."""
        place = self.graph.place(messages, model.name, role, tools)
        return _length(await self._prompt(model, place, messages, tools), messages)

    async def question(
        self,
        model: Model,
        role: str,
        messages: Sequence[Message],
        sampling: Sampling,
        listen: Listener | None = None,
        tools: tuple[Tool, ...] = (),
        within: tuple[str, str] | None = None,
    ) -> Question:
        """Return the prompt, with its position in the graph.

        Args:
            model: replies.
            role: recorded with the call.
            messages: the whole prompt.
            sampling: settings of the reply.
            listen: receives the reply during sampling.
            tools: that the model may call.
            within: policy and role whose conversations the prompt may continue; None: its own.

        Raises:
            InputError: the model does not support the choices, the grammar, the tools or the
                images.
        """
        check_held(model, sampling, tools)
        speaker = within or (sampling.policy(model.name), role)
        place = self.graph.place(messages, *speaker, tools)
        prompt = await self._prompt(model, place, messages, tools)
        return Question(model, role, *prompt, sampling, listen, tools)

    async def replayed(self, question: Question) -> Generation | None:
        """Return the reply that the interrupted attempt recorded; None after its last event.

        Raises:
            ReplayMismatch: the next recorded event is not this call.
            ContextTooLong: the prompt is too long for the model, which leaves no record.
        """
        try:
            recorded = self._recording.replayed(Call, question.asked_by)
        except ReplayMismatch as mismatch:
            # A prompt that is too long leaves no record; ask the model again.
            prompt = question.prompt(self._next_seed(), self._program, None)
            raise await too_long(question.model, prompt) or mismatch from None
        if recorded is None:
            return None
        self._begun += 1
        self.add(recorded, question.messages)
        return generation_of(recorded)

    async def sample(self, question: Question, most: int, left: int | None) -> list[Generation]:
        """Sample 1 to `most` replies; record them in the order of their seeds.

        Args:
            question: the prompt.
            most: the number of replies requested; fewer where a budget could run out in between.
            left: the number of tokens that the budget leaves for each reply; None: any number.
        """
        reading = None if question.tokens is None else len(question.delta)
        count = self._spending.at_once(most, reading, question.sampling.max_tokens)
        prompts = [question.prompt(self._next_seed(), self._program, left) for _ in range(count)]
        if count == 1:
            answer, saved = self._record(question, await ask(question.model, prompts[0]))
            if saved is not None:
                await saved
            return [answer]
        asking = [asyncio.ensure_future(ask(question.model, prompt)) for prompt in prompts]
        try:
            written = [self._record(question, await asked) for asked in asking]
        finally:
            for asked in asking:
                asked.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
        for _, saved in written:
            if saved is not None:
                await saved
        return [answer for answer, _ in written]

    def index_of(self, reply: Generation) -> int:
        """Return the index of the call that sampled a reply; raises AgentFault if none did."""
        calls, index = self.graph.calls, reply.call
        if index is not None and reply is self._latest:  # nearly always; saves the comparison
            return index
        if index is None or index >= len(calls) or calls[index].reply != reply.message:
            detail = "it acts by a reply that `generate` of this episode did not give"
            raise AgentFault("reply", detail)
        return index

    def _rendered(
        self, model: Model, place: Place, messages: Sequence[Message], tools: tuple[Tool, ...]
    ) -> Rendered:
        return rendered(self.graph, model, place, messages, tools, self._environment)

    async def _prompt(
        self, model: Model, place: Place, messages: Sequence[Message], tools: tuple[Tool, ...]
    ) -> Rendered:
        """Return `_rendered`; a thread tokenises a long text, so that other sessions continue."""
        if model.renderer is None or _characters(messages[place.known :]) < LONG:
            return self._rendered(model, place, messages, tools)
        return await asyncio.to_thread(self._rendered, model, place, messages, tools)

    def _record(
        self, question: Question, answer: Generation
    ) -> tuple[Generation, Awaitable[None] | None]:
        """Return the reply with its call index, and what to await until it is stored."""
        # Concurrent calls are numbered in the order of their replies.
        call = call_of(question, answer, len(self.graph.calls))
        saved = self._recording.write(call)
        self.add(call, question.messages)
        self._latest = answer.numbered(call.index)
        return self._latest, saved

    def _next_seed(self) -> int:
        """Return the seed of the next call of this episode."""
        seed = derive_seed(self._seed, self._begun)
        self._begun += 1
        return seed

    def add(self, call: Call, messages: Chain[Message] | None = None) -> None:
        """Add a call to the record; `messages` is its whole prompt, if known."""
        self.graph.add(call, messages)
        self._spending.call(len(call.prompt) or call.computed_tokens, call.sampled)


def _length(prompt: Rendered, messages: Sequence[Message]) -> int:
    return _characters(messages) // 4 if prompt.tokens is None else len(prompt.tokens)


def _characters(messages: Sequence[Message]) -> int:
    return sum(len(message.text) for message in messages)
