"""Episodes without actions: what can be read of them, and what they are with proxy labels.

Source: SS-ORL (Zheng et al. 2023), Torabi et al. 2018 (behavioural cloning from observation).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from palaestra.core.environment import Action
from palaestra.core.episode import Episode
from palaestra.core.goals import without_goal
from palaestra.core.message import assistant
from palaestra.core.model import Finish, Renderer, is_of
from palaestra.learning.data.examples.retokenizing import retokenized

States = tuple[str, str]
"""What an agent sees before an action and after it."""


def states_of(episode: Episode, policy: str) -> dict[int, States]:
    """Return what was seen before and after each action, by the call that proposed it.

    An action that was not understood changes nothing: the state after it is the one before.
    The goal that a task states is no part of a state.
    """
    found: dict[int, States] = {}
    seen = "" if episode.observation is None else without_goal(episode.observation.text)
    for step in episode.steps:
        transition = step.transition
        then = without_goal(transition.observation.text) if transition.valid else seen
        if step.call is not None and is_of(episode.calls[step.call].policy, policy):
            found[step.call] = (seen, then)
        seen = then
    return found


def actions_of(episode: Episode, policy: str) -> dict[int, str]:
    """Return the actions of an episode, by the call that proposed them."""
    return {
        step.call: step.action.text
        for step in episode.steps
        if step.call is not None and is_of(episode.calls[step.call].policy, policy)
    }


def with_labels(
    episode: Episode,
    policy: str,
    labels: Mapping[int, str],
    phrase: Callable[[Action], str],
    renderer: Renderer,
) -> Episode:
    """Return the episode with other actions in place of its own, rendered again.

    Args:
        episode: as recorded; what was seen in it stays.
        policy: whose actions are replaced; calls in other roles than its own are left out.
        labels: the actions, by the call that proposed the replaced ones.
        phrase: the agent's, which words an action as a reply.
        renderer: of the policy that is to learn.
    """
    calls = tuple(
        replace(call, reply=assistant(phrase(Action(labels[call.index]))), finish=Finish.STOP)
        if call.index in labels
        else call
        for call in episode.calls
    )
    steps = tuple(
        replace(step, action=Action(labels[step.call]))
        if step.call is not None and step.call in labels
        else step
        for step in episode.steps
    )
    role = next((call.role for call in calls if call.index in labels), "agent")
    return retokenized(replace(episode, calls=calls, steps=steps), policy, renderer, role)
