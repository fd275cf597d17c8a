"""Mistakes: which replies of an episode were wrong, as far as its record shows.

A better source (a teacher, a judge, the policy itself) provides another function.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Literal

from palaestra.core.episode import Episode
from palaestra.core.errors import UnknownName
from palaestra.learning.data.examples.replies import Reply, replies

Mistakes = Callable[[Episode, str], Collection[int]]
"""(episode, policy) -> indices of the calls that were mistakes."""
MistakesName = Literal["misunderstood", "futile"]
"""Those of `MISTAKES`."""


def misunderstood(episode: Episode, policy: str) -> set[int]:
    """Return the calls whose action was invalid, and the thoughts that led to them."""

    def wrong(reply: Reply) -> bool:
        return not all(step.transition.valid for step in reply.steps)

    return with_thoughts(episode, policy, wrong)


def futile(episode: Episode, policy: str) -> set[int]:
    """Return the calls whose actions left the state unchanged, and their thoughts.

    Needs an environment that declares state keys; without them nothing is futile.
    """

    def wrong(reply: Reply) -> bool:
        after = reply.steps[-1].index + 1
        if reply.state is None or after >= len(episode.steps):
            return False
        return episode.steps[after].before.state_key == reply.state

    return with_thoughts(episode, policy, wrong)


MISTAKES: Mapping[str, Mistakes] = {"misunderstood": misunderstood, "futile": futile}


def finder(mistakes: Mistakes | str) -> Mistakes:
    """Return the function of that name, or the function itself.

    Raises:
        UnknownName: no such function.
    """
    if not isinstance(mistakes, str):
        return mistakes
    if mistakes not in MISTAKES:
        raise UnknownName("kind of mistakes", mistakes, MISTAKES)
    return MISTAKES[mistakes]


def with_thoughts(episode: Episode, policy: str, wrong: Callable[[Reply], bool]) -> set[int]:
    """Return the acting calls of which `wrong` holds, and the thoughts that led to them."""
    found: set[int] = set()
    turn: list[int] = []
    for reply in replies(episode, policy):
        turn = [reply.call.index] if reply.opens else [*turn, reply.call.index]
        if reply.steps and wrong(reply):
            found.update(turn)
    return found
