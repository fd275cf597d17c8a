"""Needs: whether a batch of trajectories has the inputs that a rule reads, and the remedy."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from palaestra.learning.credit.rule import groups
from palaestra.learning.data.trajectory import Trajectory
from palaestra.learning.methods.component import Need

LACKS: dict[Need, tuple[str, str]] = {
    Need.GROUP: (
        "some task was rolled out only once",
        "choose rollouts that come in groups, such as those of an RL phase with rl.group of 2 or "
        "more, or of `palaestra eval --repeats 4`",
    ),
    Need.OTHERS: ("there is only one rollout", "choose a run with more of them"),
    Need.TURN_REWARD: (
        "no turn earned a reward of its own",
        "record a run with a reward term per step, such as rl.rewards.progress",
    ),
    Need.VALUE: ("no critic's values are recorded", "it can only run while a critic is trained"),
    Need.ANCHOR: (
        "the environment gives no state keys",
        "choose an environment that declares state_key",
    ),
    Need.BELIEF: (
        "the probability of the right answer was not measured after each turn",
        "measure it in an environment whose answers are known",
    ),
    Need.CONTRIBUTION: (
        "no progress model estimated what each turn adds",
        "fill in the turns' contributions",
    ),
    Need.GREEDY: (
        "no greedy rollout of the same tasks is recorded",
        "record a run with rl.credit=remax, which makes them",
    ),
    Need.ROLES: (
        "no outcome is recorded for each role",
        "choose an environment in which several roles play",
    ),
    Need.TREE: (
        "no rollout names the samples that it shares",
        "choose rollouts that were sampled as a tree",
    ),
    Need.DURATION: (
        "it is not recorded how long each turn took",
        "record the rollouts with a clock",
    ),
    Need.PROGRESS: (
        "the environment does not say how much of the task is done",
        "choose an environment that declares progress",
    ),
    Need.REFERENCE: (
        "a trace holds no reference model's log-probabilities",
        "it can only run while a policy is trained",
    ),
    Need.ADVISOR: ("no advisor acted", "record a run with rl.advisor"),
    Need.SNAPSHOT: ("a trace holds no running environment", "it can only run during rollouts"),
    Need.ERROR: (
        "no estimate of a model's error on each task is given",
        "call it with histories that hold errors, as recipes/classical/waker.py does",
    ),
    Need.SKILL: ("tasks name no skill that they exercise", "count results by skill yourself"),
    Need.PREFERENCE: ("rollouts are neither paired nor labelled", "make pairs or labels of them"),
    Need.ATTEMPT: ("rewards alone cannot be joined to one attempt", "call it with episodes"),
    Need.HINT: ("rewards hold no prompts", "call it with episodes"),
    Need.COMMAND: ("rewards hold no prompts", "call it with episodes"),
    Need.GOAL: ("rewards hold no goals", "call it with episodes"),
    Need.ACTION_VALUE: (
        "a trace holds no critic of actions",
        "it can only run in a loop that trains one",
    ),
}
"""What is missing when a need is not met, and the remedy."""


def lacking(needs: Collection[Need], batch: Sequence[Trajectory]) -> list[Need]:
    """Return the needs that the batch does not meet, in the order of `Need`."""
    return [need for need in Need if need in needs and not _met(need, batch)]


def unmet_needs_reason(
    rule: str, needs: Collection[Need], batch: Sequence[Trajectory]
) -> str | None:
    """Return one sentence that says why the rule cannot run on the batch; None if it can."""
    missing = lacking(needs, batch)
    if not missing:
        return None
    lack, remedy = LACKS[missing[0]]
    return f"'{rule}' needs {missing[0]}, but {lack}: {remedy}, or leave the rule out."


def _met(need: Need, batch: Sequence[Trajectory]) -> bool:
    turns = [turn for t in batch for turn in t.turns]
    match need:
        case Need.GROUP:
            return all(len(members) > 1 for members in groups([t.group for t in batch]))
        case Need.OTHERS:
            return len(batch) > 1
        case Need.TURN_REWARD:
            return any(turn.reward for turn in turns)
        case Need.VALUE:
            return all(len(turn.values) == turn.tokens for turn in turns)
        case Need.ANCHOR:
            return any(turn.anchor is not None for turn in turns)
        case Need.BELIEF:
            several = [t for t in batch if len(t.turns) > 1]  # the outcome judges the last turn
            known = all(t.belief is not None for t in several)
            return known and all(turn.belief is not None for t in several for turn in t.turns[:-1])
        case Need.CONTRIBUTION:
            return all(turn.contribution is not None for turn in turns)
        case Need.GREEDY:
            return all(t.greedy is not None for t in batch)
        case Need.ROLES:
            return all(t.outcomes for t in batch)
        case Need.TREE:
            return all(t.parents for t in batch)
        case Need.DURATION:
            return all(turn.seconds > 0 for turn in turns)
        case Need.PROGRESS:
            return all(turn.progress is not None for turn in turns)
        case _:  # no field of a trajectory holds it
            return False
