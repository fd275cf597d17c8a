"""Context distillation: replies sampled with a hint in the prompt, learnt without the hint.

Source: Askell et al. 2021, Snell et al. 2022; for agents Memento No More (Alakuijala et al. 2025),
where people attach hints to failing steps. Learning the hinted policy's own samples minimises
KL(hinted || unhinted) in expectation; the rows keep the hinted log-probabilities, so the learner's
KL statistic (sampler || learner) is that distance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from palaestra.core.episode import Episode
from palaestra.core.errors import InputError
from palaestra.core.graph import Call
from palaestra.core.message import Message, text_message
from palaestra.core.model import Renderer
from palaestra.learning.data.examples.draft import only
from palaestra.learning.data.examples.example import Example, usable
from palaestra.learning.data.examples.rerendering import rerendered
from palaestra.learning.data.rows import Row
from palaestra.learning.methods.component import Kind, Need, Status, component

Hints = Callable[[Episode], Sequence[str]]
"""The hints in the prompts of an episode, word for word; empty where it had none."""


@component(
    Kind.EXAMPLES,
    "distillation",
    source="Memento No More, 2025",
    status=Status.EXPERIMENTAL,
    needs=[Need.HINT],
)
def distilled(
    episodes: Sequence[Episode], policy: str, renderer: Renderer, hints: Hints
) -> list[Example]:
    """Take replies given under hints, after the same prompts without them.

    Only replies whose context held a hint are trained; episodes without hints give nothing.

    Args:
        episodes: of any tasks; those without a valid result are left out.
        policy: whose replies are imitated.
        renderer: of the policy; prompts are rendered again, replies stay as recorded.
        hints: what is removed from the prompts. A message that was nothing else is left out.

    Raises:
        InputError: a hint is in no prompt of its episode, or was a whole prompt.
    """
    return [
        Example(row)
        for episode in usable(episodes, policy)
        for row in _unhinted(episode, policy, renderer, hints(episode))
    ]


def _unhinted(episode: Episode, policy: str, renderer: Renderer, hints: Sequence[str]) -> list[Row]:
    for hint in hints:
        if not any(hint in m.text for call in episode.calls for m in call.messages):
            raise InputError(
                f"The hint '{hint[:60]}' is in no prompt of episode {episode.key}, so nothing can "
                "be distilled; give the hint word for word."
            )
    edited = {call.index: _without(call, hints) for call in episode.calls}
    shaped: set[int] = set()  # calls whose context held a hint
    for call in episode.calls:
        if edited[call.index] != call.messages or call.parent in shaped:
            shaped.add(call.index)
    rows = rerendered(episode, policy, renderer, lambda call: edited[call.index])
    kept = [only(row, shaped) for row in rows]
    return [row for row in kept if row is not None]


def _without(call: Call, hints: Sequence[str]) -> tuple[Message, ...]:
    found: list[Message] = []
    for message in call.messages:
        content = message.text
        for hint in hints:
            content = content.replace(hint, "")
        if content == message.text:
            found.append(message)
        elif content.strip():
            found.append(text_message(message.role, content, *message.images))
    return tuple(found)
