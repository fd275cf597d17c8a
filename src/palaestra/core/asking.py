"""Asking: a prompt built from recorded tokens, a model's answer, and the call that records both.

What a model has sampled is never tokenised again: a prompt that goes on with a conversation is the
tokens of that conversation with those of the new messages behind them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from palaestra.core.chain import Chain
from palaestra.core.errors import (
    ContextTooLong,
    InfrastructureFault,
    InputError,
    PalaestraError,
)
from palaestra.core.graph import Call, MessageGraph
from palaestra.core.message import Message, assistant
from palaestra.core.model import Finish, Generation, Listener, Model, Prompt, Sampling

Tokens = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """What a model is asked, and where that stands in the graph; it may be asked several times."""

    model: Model
    role: str
    parent: int | None  # the call whose conversation goes on; None starts one
    new: tuple[Message, ...]  # the messages after it
    delta: Tokens  # the same as tokens; empty of a model without a renderer
    messages: Chain[Message]  # the whole prompt
    tokens: Tokens | None  # likewise
    sampling: Sampling
    listen: Listener | None = None

    def asked_by(self, call: Call) -> bool:
        """Whether a recorded call asks this."""
        return (call.parent, call.role, call.messages, call.prompt) == (
            self.parent,
            self.role,
            self.new,
            self.delta,
        )

    def prompt(self, seed: int, program: str, most: int | None) -> Prompt:
        """The question with a seed, for an answer of at most so many tokens."""
        sampling = self.sampling
        if most is not None and most < sampling.max_tokens:
            sampling = replace(sampling, max_tokens=most)
        return Prompt(self.messages, self.tokens, sampling, seed, program, self.listen)


def check_held(model: Model, sampling: Sampling) -> None:
    """Refuse choices or a grammar that the model cannot be held to."""
    if sampling.choices is not None and not model.chooses:
        raise InputError(
            f"The model '{model.name}' cannot be held to choices; ask `can_choose` before, or "
            "use a model in this process, such as smollm2-135m."
        )
    if sampling.grammar is not None and not model.constrains:
        raise InputError(
            f"The model '{model.name}' cannot be held to a grammar; ask `can_constrain` "
            "before, or use a model in this process and: pip install 'palaestra[serving]'."
        )


def prompt_tokens(
    graph: MessageGraph,
    model: Model,
    parent: int | None,
    new: tuple[Message, ...],
    environment: str,
) -> tuple[Tokens, Tokens | None]:
    """The new tokens of a prompt, and the whole prompt; none of a model without a renderer.

    Args:
        graph: the conversations so far.
        model: who is asked.
        parent: the call whose conversation goes on; None starts one.
        new: the messages that are added.
        environment: where they come from, as an error names it.

    Raises:
        InputError: the model reads words only, and the messages show pictures.
    """
    if model.renderer is not None and any(message.images for message in new):
        raise InputError(
            f"The model '{model.name}' reads words only, and '{environment}' shows pictures; "
            "leave out observation=image, or take a remote model that sees."
        )
    if model.renderer is None:
        return (), None
    if parent is None:
        delta = tuple(model.renderer.start(new))
        return delta, delta
    call = graph.calls[parent]
    closed = bool(call.completion) and call.completion[-1] in model.renderer.end_tokens
    delta = tuple(model.renderer.extend(graph.conversation(parent), new, closed))
    return delta, (*graph.tokens(parent), *delta)


async def ask(model: Model, prompt: Prompt) -> Generation:
    """The model's answer.

    Raises:
        InfrastructureFault: the model broke; what it raised on purpose passes as it is.
    """
    try:
        return await model.generate(prompt)
    except PalaestraError:
        raise
    except Exception as error:
        detail = f"{model.name}: {type(error).__name__}: {error}"
        raise InfrastructureFault("model", detail) from error


async def too_long(model: Model, prompt: Prompt) -> ContextTooLong | None:
    """What a model says to a prompt that it finds too long; None of any other prompt."""
    try:
        await ask(model, prompt)
    except ContextTooLong as error:
        return error
    except PalaestraError:
        pass
    return None


def call_of(question: Question, generation: Generation, index: int) -> Call:
    """The record of an answer, the call number `index` of its episode."""
    return Call(
        index=index,
        parent=question.parent,
        role=question.role,
        messages=question.new,
        prompt=question.delta,
        reply=assistant(generation.text),
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
    )


def generation_of(call: Call) -> Generation:
    """The answer that a call records."""
    return Generation(
        text=call.reply.content,
        tokens=call.completion,
        logprobs=call.logprobs,
        finish=Finish(call.finish),
        policy=call.policy,
        version=call.version,
        versions=call.versions,
        entropies=call.entropies,
        sampled_tokens=call.sampled_tokens,
        call=call.index,
    )
