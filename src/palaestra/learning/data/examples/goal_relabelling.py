"""Hindsight relabelling: episodes under goals that they reached, whatever their own goal was.

Sources: hindsight experience replay with "future" goals (Andrychowicz et al. 2017); supervised
learning of relabelled episodes (GCSL, Ghosh et al. 2019); weighted by advantages (WGCSL, Yang et
al. 2022), and by the uncertainty of an ensemble (GOAT, Yang et al. 2023). Weights and constants are
those of GOAT's release; the critic is a table (see `goal_values`), not a network, and the share of
the data below the best-advantage threshold is fixed, where theirs rises during training.

A row trains an episode's replies up to the first one that reaches the new goal, where the episode
would have ended. The goal is stated in the prompt (see `core.goals`).
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from palaestra.core.episode import Episode
from palaestra.core.errors import InputError, RecipeError
from palaestra.core.goals import ACHIEVED, restated, states_goal
from palaestra.core.graph import Call
from palaestra.core.message import Message, text_message
from palaestra.core.model import Renderer
from palaestra.learning.critics.goal_values import GoalValues, Move, fit_goal_values
from palaestra.learning.data.examples.action_free import states_of
from palaestra.learning.data.examples.draft import only
from palaestra.learning.data.examples.example import Example, usable
from palaestra.learning.data.examples.rerendering import rerendered
from palaestra.learning.data.rows import Row
from palaestra.learning.methods.component import Kind, Need, Options, Status, component
from palaestra.learning.methods.options import Count, Decay, Range, Share

LARGEST = 10.0  # weight by the exponential of the advantage
BELOW = 0.05  # factor of advantages below the threshold of the best
LEAST_FACTOR = 0.5  # by the uncertainty of a state; the largest one is 1 more


@dataclass(frozen=True, slots=True)
class Relabelled:
    """An episode's replies up to the one that reaches a goal."""

    episode: Episode
    goal: str
    moves: Mapping[int, Move]  # by the model call that proposed them, in order

    @property
    def steps_left(self) -> dict[int, int]:
        """Moves after each one until the goal is reached, by call."""
        return {call: len(self.moves) - 1 - n for n, call in enumerate(self.moves)}


@component(
    Kind.EXAMPLES,
    "hindsight-goals",
    source="Ghosh et al. 2019 (GCSL), as in GOAT's release",
    status=Status.RELEASE,
    needs=[Need.GOAL],
)
def hindsight_goals(
    episodes: Sequence[Episode], policy: str, renderer: Renderer, *, goals: Count = 4
) -> list[Example]:
    """Take all episodes, each under goals that it reached, as far as it needed to reach them.

    Args:
        episodes: of any tasks; those without a valid result are left out.
        policy: whose replies are imitated.
        renderer: of the policy; prompts are rendered again, replies stay as recorded.
        goals: most goals of one episode, sampled from those that it reached.
    """
    return [
        Example(row)
        for one in _all_relabelled(usable(episodes, policy), policy, goals)
        for row in _rows(one, policy, renderer)
    ]


def _check_uncertainty(options: Options) -> None:
    if options["ensemble"] == 1 and options["uncertain"] == "less":
        raise RecipeError(
            "uncertain = 'less' has no effect with ensemble = 1, which knows no uncertainty; give "
            "2 or more members, or unset it."
        )


@component(
    Kind.EXAMPLES,
    "weighted-goals",
    source="Yang et al. 2022 (WGCSL); Yang et al. 2023 (GOAT)",
    status=Status.RELEASE,
    needs=[Need.GOAL],
    check=_check_uncertainty,
)
def weighted_goals(
    episodes: Sequence[Episode],
    policy: str,
    renderer: Renderer,
    *,
    goals: Count = 4,
    discount: Decay = 0.95,
    discounted: bool = False,
    expectile: Annotated[float, Range(above=0, below=1)] = 0.5,
    best: Share = 0.5,
    ensemble: Count = 5,
    uncertain: Literal["more", "less"] = "more",
) -> list[Example]:
    """Take what `hindsight-goals` takes, each reply weighed by how well it serves its goal.

    A weight is the product of the exponential of the advantage (at most 10), of 0.05 where the
    advantage is not among the `best`, of a factor from 0.5 to 1.5 that rises with the ensemble's
    uncertainty of the state, and, if `discounted`, of the discount to the power of the moves that
    were left to the goal. WGCSL is `ensemble = 1, discounted = true`.

    Args:
        episodes: of any tasks; those without a valid result are left out.
        policy: whose replies are imitated.
        renderer: of the policy; prompts are rendered again, replies stay as recorded.
        goals: most goals of one episode, sampled from those that it reached.
        discount: of the values, per move.
        discounted: whether replies far from the goal weigh less.
        expectile: of what is earned in a state, that its value is; 0.5 is the mean.
        best: share of the replies whose advantages count as the best.
        ensemble: members of the critic; with 1 there is no uncertainty, and no weight by it.
        uncertain: whether replies in uncertain states weigh more, as in GOAT, or less, as a
            pessimist would have it.
    """
    kept = usable(episodes, policy)
    found = _all_relabelled(kept, policy, goals)
    if not found:
        return []
    critic = fit_goal_values(
        [list(moves_of(episode, policy).values()) for episode in kept],
        discount=discount,
        expectile=expectile,
        members=ensemble,
    )
    weights = _by_advantage(found, critic, best)
    if ensemble > 1:
        weights = _products(weights, _by_uncertainty(found, critic, uncertain))
    if discounted:
        nearness = [{c: discount**n for c, n in one.steps_left.items()} for one in found]
        weights = _products(weights, nearness)
    return [
        Example(row, by_call=own)
        for one, own in zip(found, weights, strict=True)
        for row in _rows(one, policy, renderer)
    ]


# ── what was reached ─────────────────────────────────────────────────────────


def moves_of(episode: Episode, policy: str) -> dict[int, Move]:
    """Return the valid actions of an episode that the policy proposed, by the model call."""
    seen = states_of(episode, policy)
    return {
        step.call: Move(*seen[step.call], step.transition.info.get(ACHIEVED))
        for step in episode.steps
        if step.call is not None and step.call in seen and step.transition.valid
    }


def reached(moves: Mapping[int, Move], start: str | None = None) -> dict[str, int]:
    """Return the goals that moves reached, and the call of the first one that did.

    Args:
        moves: of one episode, by call.
        start: the goal that the episode's first state achieves, which nothing has to reach.
    """
    found: dict[str, int] = {}
    for call, move in moves.items():
        if move.achieved is not None and move.achieved != start:
            found.setdefault(move.achieved, call)
    return found


def _all_relabelled(episodes: Sequence[Episode], policy: str, most: int) -> list[Relabelled]:
    """Return each episode with some of the goals that it reached, in order."""
    every = [moves_of(episode, policy) for episode in episodes]
    achieves = {m.then: m.achieved for moves in every for m in moves.values()}
    found = []
    for episode, moves in zip(episodes, every, strict=True):
        first = next((achieves.get(move.state) for move in moves.values()), None)
        goals = reached(moves, first)
        names = list(goals)
        if len(names) > most:
            rng = random.Random(f"goals of {episode.key}")
            names = [names[n] for n in sorted(rng.sample(range(len(names)), most))]
        for goal in names:
            until = {call: move for call, move in moves.items() if call <= goals[goal]}
            found.append(Relabelled(episode, goal, until))
    return found


def _rows(one: Relabelled, policy: str, renderer: Renderer) -> Iterator[Row]:
    """Yield the rows that train the replies of a relabelled episode.

    Raises:
        InputError: no prompt of the episode states its goal.
    """
    if not any(states_goal(m.text) for call in one.episode.calls for m in call.messages):
        raise InputError(
            f"No prompt of episode {one.episode.key} states its goal in a line of its own, so that "
            "another one cannot take its place; choose an agent that shows observations as they "
            "are, such as direct."
        )

    def edit(call: Call) -> Sequence[Message]:
        return [
            text_message(m.role, restated(m.text, one.goal), *m.images)
            if states_goal(m.text)
            else m
            for m in call.messages
        ]

    for row in rerendered(one.episode, policy, renderer, edit):
        kept = only(row, one.moves)
        if kept is not None:
            yield kept


# ── how well it was reached ──────────────────────────────────────────────────

Weights = dict[int, float]
"""Of the replies of one relabelled episode, by call."""


def _by_advantage(found: Sequence[Relabelled], critic: GoalValues, best: float) -> list[Weights]:
    """Return the exponential of each reply's advantage, cut down where it is not of the best."""
    gains = [
        {call: critic.advantage(move, one.goal) for call, move in one.moves.items()}
        for one in found
    ]
    every = sorted((gain for own in gains for gain in own.values()), reverse=True)
    threshold = every[max(0, math.ceil(best * len(every)) - 1)] if best else math.inf
    return [
        {
            call: min(LARGEST, math.exp(min(gain, LARGEST))) * (1 if gain >= threshold else BELOW)
            for call, gain in own.items()
        }
        for own in gains
    ]


def _by_uncertainty(
    found: Sequence[Relabelled], critic: GoalValues, uncertain: Literal["more", "less"]
) -> list[Weights]:
    """Return a factor from 0.5 to 1.5 of each reply, by the critic's uncertainty of its state."""
    spread = [
        {call: critic.deviation(move.state, one.goal) for call, move in one.moves.items()}
        for one in found
    ]
    every = [deviation for own in spread for deviation in own.values()]
    low, width = min(every), max(every) - min(every) or 1.0
    shares = [{call: (one - low) / width for call, one in own.items()} for own in spread]
    return [
        {c: LEAST_FACTOR + (x if uncertain == "more" else 1 - x) for c, x in own.items()}
        for own in shares
    ]


def _products(one: Sequence[Weights], other: Sequence[Weights]) -> list[Weights]:
    return [
        {call: weight * factors[call] for call, weight in own.items()}
        for own, factors in zip(one, other, strict=True)
    ]
