"""Reward terms: what an episode earns in one respect, as named pure functions of its record.

A term is a registered function of kind `reward`: from a scored episode to one number for how it
ended, or to a list with one number per step. Terms measure and do not judge: a recipe weights them
by name (`rl.rewards`), with a weight below 0 for what costs. `rewards.Shaping` sums them.

Source: composite rewards of named, weighted functions, as in AlphaDrive (Jiang et al. 2025) and in
TRL's GRPO trainer (`reward_funcs`, `reward_weights`).
"""

from __future__ import annotations

from itertools import pairwise

from palaestra.core.episode import ADVISOR, Episode, Step
from palaestra.core.errors import RecipeError
from palaestra.learning.methods.component import Kind, Need, Options, Status, component
from palaestra.learning.methods.options import Count, Share

OUTCOME = "outcome"  # the term that a reward model, or a player's own result, replaces


# ── how an episode ended ─────────────────────────────────────────────────────


@component(Kind.REWARD, OUTCOME, source="the environment's verdict", status=Status.OURS)
def outcome(episode: Episode, *, turn_cost: Share = 0.2, most_turns: int | None = None) -> float:
    """Return `1 - turn_cost * turns / most_turns` for a success, and 0 for any other end.

    With several players, return the first player's sum of rewards from the environment;
    `turn_cost` is not read there.

    Args:
        turn_cost: share of the reward lost when all turns are used.
        most_turns: actions of an episode; filled in by the run.
    """
    if players := episode.results:
        return next(iter(players.values()))
    if not episode.outcome.solved:
        return 0.0
    return 1.0 if most_turns is None else 1.0 - turn_cost * episode.usage.turns / most_turns


@component(Kind.REWARD, "length", source="length penalties of GRPO recipes", status=Status.OURS)
def length(episode: Episode) -> float:
    """Return the number of sampled tokens; weight it below 0."""
    return float(episode.usage.sampled_tokens)


def _buffer_fits(options: Options) -> None:
    """Raise RecipeError unless the buffer of `overlong` lies within its limit."""
    overlong_punishment(0, limit=options["limit"], buffer=options["buffer"])


@component(
    Kind.REWARD,
    "overlong",
    source="Yu et al. 2025 (DAPO), as in verl",
    status=Status.RELEASE,
    check=_buffer_fits,
)
def overlong(episode: Episode, *, limit: Count = 20480, buffer: Count = 4096) -> float:
    """Return DAPO's soft punishment of rollouts that sample nearly too many tokens, or too many."""
    return overlong_punishment(episode.usage.sampled_tokens, limit=limit, buffer=buffer)


def overlong_punishment(length: int, *, limit: int = 20480, buffer: int = 4096) -> float:
    """Return 0 to `limit - buffer` tokens, then linearly less, and -1 from `limit` on.

    verl's release goes on falling beyond the limit. Leaving truncated rollouts out of the update
    (`Trajectory.truncated`) is the alternative, not an addition.

    Args:
        length: sampled tokens of the rollout; observations do not count.
        limit: tokens from which the punishment is whole.
        buffer: tokens before the limit over which it grows.

    Raises:
        RecipeError: the buffer is not in [1, limit].
    """
    if not 1 <= buffer <= limit:
        raise RecipeError(f"The overlong buffer is {buffer}; use a number in [1, {limit}].")
    over = length - (limit - buffer)
    return -min(over / buffer, 1.0) if over > 0 else 0.0


@component(
    Kind.REWARD,
    "format",
    source="Jiang et al. 2025 (AlphaDrive), format reward; DeepSeek-R1",
    status=Status.OURS,
)
def well_formed(episode: Episode) -> float:
    """Return the share of actions that the environment understood; 0 for an episode without any."""
    valid = [step.transition.valid for step in episode.steps if step.forfeit is None]
    return sum(valid) / len(valid) if valid else 0.0


# ── step by step ─────────────────────────────────────────────────────────────


@component(Kind.REWARD, "invalid", source="the environment's verdict", status=Status.OURS)
def invalid(episode: Episode) -> list[float]:
    """Return 1 for each action that the environment did not understand; weight it below 0.

    A forfeit is no action: the return that the environment states for it counts alone.
    """
    return [float(not step.transition.valid and step.forfeit is None) for step in episode.steps]


@component(Kind.REWARD, "environment", source="the environment's own reward", status=Status.OURS)
def environment(episode: Episode) -> list[float]:
    """Return the environment's own reward of each action; of several players, until the next one.

    With several players, return what the acting player receives from its action until its next
    one, also by actions of the others; what a forfeit adds or takes counts at its last action. So
    a player's rewards sum to its return, which the term `outcome` counts as well: weight one of
    the two.
    """
    returns = episode.results
    if not returns:
        return [step.transition.reward for step in episode.steps]
    found = [0.0] * len(episode.steps)
    for player, total in returns.items():
        own = [k for k, step in enumerate(episode.steps) if step.before.turn == player]
        received, latest = 0.0, 0
        for k, step in enumerate(episode.steps if own else ()):
            while latest + 1 < len(own) and own[latest + 1] <= k:
                latest += 1
            reward = step.transition.rewards.get(player, 0.0)
            found[own[latest]] += reward
            received += reward
        if own:
            found[own[-1]] += total - received
    return found


@component(
    Kind.REWARD,
    "intervention",
    source="Luo et al. 2023 (RLIF)",
    status=Status.EXPERIMENTAL,
    needs=[Need.ADVISOR],
)
def intervention(episode: Episode) -> list[float]:
    """Return 1 for each action after which an advisor took over; weight it below 0."""
    advised = [
        step.call is not None and episode.calls[step.call].role == ADVISOR for step in episode.steps
    ]
    return [float(later and not now) for now, later in pairwise([*advised, False])]


@component(
    Kind.REWARD,
    "progress",
    source="AgentBoard (Ma et al. 2024), progress rate; action rewards as in Mobile-R1",
    status=Status.OURS,
    needs=[Need.PROGRESS],
)
def progress(episode: Episode) -> list[float]:
    """Return how much further each action led; 0 where progress is not known on both sides."""
    return [_progress_made(episode, step) for step in episode.steps]


def _progress_made(episode: Episode, step: Step) -> float:
    later = step.index + 1
    ended = later >= len(episode.steps)
    before = step.before.progress
    after = episode.progress if ended else episode.steps[later].before.progress
    return 0.0 if before is None or after is None else after - before
