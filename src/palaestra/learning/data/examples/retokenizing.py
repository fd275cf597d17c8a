"""Retokenizing: any model's episode in the tokens of the policy that is to learn from it.

The replies of a remote model, an import or a policy with another tokenizer have no tokens, or
foreign ones. Rendered again, they are the tokens that the policy would have had to sample.
"""

from __future__ import annotations

from dataclasses import replace

from palaestra.core.episode import Episode, Step
from palaestra.core.graph import Call, MessageGraph
from palaestra.core.message import Message
from palaestra.core.model import Finish, Renderer
from palaestra.core.tool import Tool


def retokenized(episode: Episode, policy: str, renderer: Renderer, role: str = "agent") -> Episode:
    """Render the episode's calls in `role` again; leave out calls in other roles.

    Args:
        episode: recorded with any model.
        policy: the policy of the calls in the result.
        renderer: of the policy that is to learn.
        role: whose calls are rendered.

    Returns:
        an episode whose log-probabilities are 0 (given, not sampled); a reply that was cut
        off has no end token, so that the policy does not learn to stop there.

    Raises:
        TemplateBreaksPrefix: the renderer cannot extend the conversation.
    """
    graph, old, places = MessageGraph(), episode.graph, dict[int, int]()
    for call in episode.calls:
        if call.role != role:
            continue
        messages = old.conversation(call.index)[:-1]
        place = graph.place(messages, policy, role, call.tools)
        new = tuple(messages[place.known :])
        completion = tuple(renderer.reply(call.reply))
        prompt = tuple(_prompt(graph, place.parent, new, call.tools, renderer))
        if call.finish is Finish.LENGTH:
            while completion and completion[-1] in renderer.end_tokens:
                completion = completion[:-1]
        graph.add(
            Call(
                index=len(graph.calls),
                parent=place.parent,
                role=role,
                messages=new,
                prompt=prompt,
                reply=call.reply,
                completion=completion,
                logprobs=(0.0,) * len(completion),
                finish=call.finish,
                policy=policy,
                version=0,
                seconds=call.seconds,
                tools=call.tools,
                images=renderer.images(new, prompt),
            ),
            place.prompt,
        )
        places[call.index] = graph.calls[-1].index
    steps = tuple(renumbered(step, places) for step in episode.steps)
    return replace(episode, calls=tuple(graph.calls), steps=steps)


def _prompt(
    graph: MessageGraph,
    parent: int | None,
    new: tuple[Message, ...],
    tools: tuple[Tool, ...],
    renderer: Renderer,
) -> list[int]:
    if parent is None:
        return renderer.start(new, tools)
    completion = graph.calls[parent].completion
    closed = bool(completion) and renderer.closes(completion[-1], new)
    return renderer.extend(graph.conversation(parent), new, closed, tools)


def renumbered(step: Step, places: dict[int, int]) -> Step:
    """Return the step with the new numbers of the remaining calls."""
    before = sum(number < step.calls_before for number in places)
    if step.calls_made is None:
        return replace(step, call=before - 1 if before else None)
    call = None if step.call is None else places.get(step.call)
    return replace(step, call=call, calls_made=before)
