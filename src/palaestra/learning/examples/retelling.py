"""Retelling: an episode of anybody, in the tokens of the policy that is to learn from it.

What a remote model, a person's import or a policy with another tokenizer said has no tokens, or
foreign ones. Told anew, its replies are the tokens that the policy would have had to sample.
"""

from __future__ import annotations

from dataclasses import replace

from palaestra.core.episode import Episode, Step
from palaestra.core.graph import Call, MessageGraph
from palaestra.core.message import Message
from palaestra.core.model import Finish, Renderer


def retold(episode: Episode, policy: str, renderer: Renderer, role: str = "agent") -> Episode:
    """The episode with its calls in `role` rendered anew; calls in other roles are left out.

    Args:
        episode: recorded with any model.
        policy: the name under which the calls stand afterwards.
        renderer: of the policy that is to learn.
        role: whose calls are told.

    Returns:
        an episode whose log-probabilities are 0 (given, not sampled); a reply that was cut
        off has no end token, so that nobody learns to stop there.

    Raises:
        TemplateBreaksPrefix: the renderer cannot extend the conversation.
    """
    graph, old, places = MessageGraph(), episode.graph, dict[int, int]()
    for call in episode.calls:
        if call.role != role:
            continue
        told = old.conversation(call.index)[:-1]
        place = graph.place(told, policy, role)
        new = tuple(told[place.known :])
        completion = tuple(renderer.reply(call.reply.content))
        if call.finish is Finish.LENGTH:
            while completion and completion[-1] in renderer.end_tokens:
                completion = completion[:-1]
        graph.add(
            Call(
                index=len(graph.calls),
                parent=place.parent,
                role=role,
                messages=new,
                prompt=tuple(_prompt(graph, place.parent, new, renderer)),
                reply=call.reply,
                completion=completion,
                logprobs=(0.0,) * len(completion),
                finish=call.finish,
                policy=policy,
                version=0,
                seconds=call.seconds,
            ),
            place.prompt,
        )
        places[call.index] = graph.calls[-1].index
    steps = tuple(_kept(step, places) for step in episode.steps)
    return replace(episode, calls=tuple(graph.calls), steps=steps)


def _prompt(
    graph: MessageGraph, parent: int | None, new: tuple[Message, ...], renderer: Renderer
) -> list[int]:
    if parent is None:
        return renderer.start(new)
    said = graph.calls[parent].completion
    closed = bool(said) and said[-1] in renderer.end_tokens
    return renderer.extend(graph.conversation(parent), new, closed)


def _kept(step: Step, places: dict[int, int]) -> Step:
    """The step with the new numbers of the calls that were kept."""
    before = sum(number < step.calls_before for number in places)
    if step.calls_made is None:
        return replace(step, call=before - 1 if before else None)
    call = None if step.call is None else places.get(step.call)
    return replace(step, call=call, calls_made=before)
