"""Rollouts of a task as a tree: later ones go on from the recorded beginnings of earlier ones.

A branch is begun as an interrupted rollout is resumed: its record starts with events of the rollout
that it leaves, so the session takes its environment to that state by the same actions, asks no
model for the replies before it, and samples the next one with a seed of its own. So a branch can
be interrupted and resumed like any other rollout.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

from palaestra.core.episode import Episode, Event, Key
from palaestra.core.errors import CapabilityMissing, RecipeError
from palaestra.core.graph import Call
from palaestra.environments.registry import spec
from palaestra.learning.methods.algorithms import Method
from palaestra.learning.methods.component import Need
from palaestra.rollout.runner import EpisodeStore, Job, Rollout
from palaestra.store.header import events_in_order
from palaestra.training.recipe import Recipe
from palaestra.training.reinforcement_section import Reinforcement, Tree

Run = Callable[[Rollout, Sequence[Job]], Awaitable[list[Episode]]]
"""Returns the episodes of the jobs, in their order."""


def tree_of(part: Reinforcement, method: Method) -> Tree | None:
    """Return the tree if the credit rule reads one (the default one if unset), or None."""
    return (part.tree or Tree()) if Need.TREE in method.needs else None


def parent(tree: Tree, member: int) -> tuple[int, int] | None:
    """Return the rollout that a member of a group branches off from, and after how many replies.

    Members are numbered as the leaves of the trees: the digits of the number to the base `width`,
    the last of them for the last branching. A member shares all that it can with the one whose last
    digit other than 0 is 0. None: it begins a tree.
    """
    for place, replies in enumerate(reversed(tree.after)):
        digit = member // tree.width**place % tree.width
        if digit:
            return member - digit * tree.width**place, replies
    return None


def waves(tree: Tree, jobs: Sequence[Job]) -> list[list[Job]]:
    """Return the jobs in the order in which they can run: what branches off comes later."""
    found: list[list[Job]] = [[] for _ in (0, *tree.after)]
    for job in jobs:
        origin = parent(tree, job.key.member)
        found[0 if origin is None else 1 + tree.after.index(origin[1])].append(job)
    return [wave for wave in found if wave]


def beginning(episode: Episode, replies: int) -> list[Event]:
    """Return the events with which a rollout begins that branches off after so many replies.

    Of a shorter episode, all replies but the last are shared, so that a branch has one of its own.
    """
    kept = min(replies, len(episode.calls) - 1)
    found: list[Event] = []
    for event in events_in_order(episode):
        if isinstance(event, Call):
            if event.index >= kept:
                break
            if event.shared_by is None:
                event = replace(event, shared_by=episode.key.member)
        found.append(event)
    return found


async def run_tree(tree: Tree, rollout: Rollout, jobs: Sequence[Job], run: Run) -> list[Episode]:
    """Run jobs whose members are the leaves of trees; return their episodes in the jobs' order.

    Args:
        tree: where rollouts branch.
        rollout: the settings; it has a store.
        jobs: all members of each group.
        run: runs one wave of them.

    Raises:
        TooManyFaults: most episodes failed for reasons other than the agent.
    """
    assert rollout.store is not None
    found: dict[Key, Episode] = {}
    for wave in waves(tree, jobs):
        begun: dict[Key, list[Event]] = {}
        for key in (job.key for job in wave):
            origin = parent(tree, key.member)
            if origin is not None:
                begun[key] = beginning(found[replace(key, member=origin[0])], origin[1])
        branching = replace(rollout, store=Branches(rollout.store, begun))
        found.update((episode.key, episode) for episode in await run(branching, wave))
    return [found[job.key] for job in jobs]


def check_tree(recipe: Recipe, method: Method, who: str) -> None:
    """Raise RecipeError if the rollouts of a group cannot be trees, or nothing reads them."""
    part = recipe.rl
    if Need.TREE not in method.needs:
        if part.tree is not None:
            raise RecipeError(f"rl.tree has no effect: {who} reads no trees; leave it out.")
        return
    tree = part.tree or Tree()
    if part.group % tree.leaves:
        raise RecipeError(
            f"rl.group = {part.group} is no multiple of the {tree.leaves} rollouts of a tree that "
            f"branches into {tree.width} {len(tree.after)} times; set rl.group or rl.tree."
        )
    for environment in (recipe.environment.id, *part.levels):
        if not spec(environment).deterministic:
            raise CapabilityMissing(
                f"{who} needs {Need.TREE}, and '{environment}' is not deterministic, so that no "
                "rollout can go on from another one's state; choose another rule or environment."
            )
    for key in ("quorum", "success_replay", "advisor", "privileged"):
        if getattr(part, key):
            raise RecipeError(
                f"rl.{key} is for rollouts that share nothing, and {who} reads trees; unset it."
            )
    for need in (Need.VALUE, Need.CONTRIBUTION, Need.GREEDY):
        if need in method.needs:
            raise RecipeError(
                f"{who} reads {need} and {Need.TREE}, but {need} belong to rollouts that share "
                "nothing; choose one of them."
            )


class Branches:
    """The run's store, in which a rollout that branches off begins with what it shares."""

    def __init__(self, store: EpisodeStore, begun: Mapping[Key, Sequence[Event]]) -> None:
        self._store, self._begun = store, begun
        self.append, self.forget = store.append, store.forget
        self.episode, self.finish = store.episode, store.finish

    def past(self, key: Key) -> list[Event]:
        """Return the recorded events; first record what is shared, as far as that is not done."""
        past = self._store.past(key)
        for event in self._begun.get(key, ())[len(past) :]:
            self._store.append(key, event)
            past.append(event)
        return past
