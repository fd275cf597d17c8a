"""Context distillation: replies sampled with a hint in the prompt, learnt without the hint.

Source: Askell et al. 2021, Snell et al. 2022; for agents Memento No More (Alakuijala et al. 2025),
where people attach hints to failing steps. Learning the hinted policy's own samples minimises
KL(hinted || unhinted) in expectation; the rows keep the hinted log-probabilities, so the learner's
KL statistic (sampler || learner) is that distance. Where the teacher can be run again (`taught`),
the student learns its whole distribution at each recorded token instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from palaestra.core.episode import Episode
from palaestra.core.errors import InputError
from palaestra.core.graph import Call
from palaestra.core.message import Message, reworded
from palaestra.core.model import Renderer
from palaestra.learning.data.examples.draft import only
from palaestra.learning.data.examples.example import Example, usable
from palaestra.learning.data.examples.rerendering import rerendered
from palaestra.learning.data.rows import Row, rows_of
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


@dataclass(frozen=True, slots=True)
class Taught:
    """The same recorded replies, as the student and as the teacher read them."""

    row: Row  # of the student
    teacher: Row


def taught(
    episodes: Sequence[Episode], policy: str, renderer: Renderer, hints: Hints
) -> list[Taught]:
    """Take all replies: the teacher reads the recorded prompts, the student those without hints.

    Args:
        episodes: of any tasks; those without a valid result are left out.
        policy: whose replies are learned from.
        renderer: of the student; only prompts that held a hint are rendered again.
        hints: what is removed from the student's prompts, as in `distilled`.

    Raises:
        InputError: a hint is in no prompt of its episode, or was a whole prompt; without its hints,
            an episode trains other tokens.
    """
    found: list[Taught] = []
    for episode in usable(episodes, policy):
        theirs, given = rows_of(episode, policy), hints(episode)
        own = _all_unhinted(episode, policy, renderer, given) if given else theirs
        if [_trained(row) for row in own] != [_trained(row) for row in theirs]:
            raise InputError(
                f"Without its hints, episode {episode.key} trains other tokens than with them, so "
                "that student and teacher cannot be compared; give all roles one adapter."
            )
        found += [Taught(*pair) for pair in zip(own, theirs, strict=True)]
    return found


def _trained(row: Row) -> list[int]:
    return [token for token, on in zip(row.tokens, row.mask, strict=True) if on]


def _all_unhinted(
    episode: Episode, policy: str, renderer: Renderer, hints: Sequence[str]
) -> list[Row]:
    _check_stated(episode, hints)
    return rerendered(episode, policy, renderer, lambda call: _without(call, hints))


def _unhinted(episode: Episode, policy: str, renderer: Renderer, hints: Sequence[str]) -> list[Row]:
    _check_stated(episode, hints)
    edited = {call.index: _without(call, hints) for call in episode.calls}
    shaped: set[int] = set()  # calls whose context held a hint
    for call in episode.calls:
        if edited[call.index] != call.messages or call.parent in shaped:
            shaped.add(call.index)
    rows = rerendered(episode, policy, renderer, lambda call: edited[call.index])
    kept = [only(row, shaped) for row in rows]
    return [row for row in kept if row is not None]


def _check_stated(episode: Episode, hints: Sequence[str]) -> None:
    for hint in hints:
        if not any(hint in m.text for call in episode.calls for m in call.messages):
            raise InputError(
                f"The hint '{hint[:60]}' is in no prompt of episode {episode.key}, so nothing can "
                "be distilled; give the hint word for word."
            )


def _without(call: Call, hints: Sequence[str]) -> tuple[Message, ...]:
    def edit(text: str) -> str:
        for hint in hints:
            text = text.replace(hint, "")
        return text

    edited = [(message, reworded(message, edit)) for message in call.messages]
    return tuple(new for old, new in edited if new == old or new.text.strip())
