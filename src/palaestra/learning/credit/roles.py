"""Credit by speaker and position: several roles, trees of samples, segments of one rollout.

Several players of one policy may share an episode, each with an outcome of its own. A player's
turns are judged in sequence (MARFT), against the role's own past (SPIRAL), by the subtree
below them in a tree of samples (MALT), or by the partner's next replies (WaltzRL). One rollout
in several segments, on the other hand, is judged once (SUPO).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from statistics import fmean

import torch

from palaestra.core.errors import InputError
from palaestra.learning.credit.gae import turn_gae
from palaestra.learning.credit.rule import (
    Credit,
    broadcast,
    centred,
    check_groups,
    normalised,
    per_token,
    turn_starts,
    within,
)
from palaestra.learning.data.trajectory import Trajectory
from palaestra.learning.methods.component import Kind, Need, Status, component
from palaestra.learning.methods.options import Ddof, Decay, NotNegative, Positive, Share


@component(
    Kind.CREDIT,
    "marft",
    source="MARFT; marft/buffers/action_level_buffer.py and algorithms/appo_trainer.py",
    status=Status.RELEASE,
    needs=[Need.VALUE],
    targets=True,
)
def marft(
    batch: Sequence[Trajectory],
    *,
    gamma: Share = 0.99,
    lam: Share = 0.95,
    normalise: bool = True,
    eps: Positive = 1e-8,
) -> Credit:
    """GAE over the turns of all roles in sequence, each bootstrapping from the next speaker.

    Steps and the agents within a step are one time axis, so the discount applies between
    the agents of one step too. `V` is read before a turn's first token, after the replies of
    the step's earlier agents, and is trained only there.

    Args:
        batch: rollouts with a value before each token.
        gamma: discount per turn.
        lam: 0 trusts the critic, 1 the sampled return.
        normalise: `(A - mean) / (std0 + eps)` over the batch's turns; as in the release,
            turns whose advantage is exactly 0 do not count in mean and deviation.
        eps: added to the standard deviation, in units of reward.

    Raises:
        InputError: a turn without values.
    """
    plain = turn_gae(batch, gamma=gamma, lam=lam, whiten=False)
    assert plain.returns is not None
    advantages, targets = plain.advantages, []
    for trajectory, returns in zip(batch, plain.returns, strict=True):
        first = turn_starts(trajectory)
        sparse = torch.full_like(returns, torch.nan)
        sparse[first] = returns[first]
        targets.append(sparse)
    if normalise and batch:
        pairs = zip(batch, advantages, strict=True)
        turns = torch.cat([a[turn_starts(trajectory)] for trajectory, a in pairs])
        counted = turns[turns != 0]
        if len(counted):
            mean, deviation = counted.mean(), counted.std(correction=0)
            advantages = [(a - mean) / (deviation + eps) for a in advantages]
    return Credit(advantages, targets)


@component(
    Kind.CREDIT,
    "spiral",
    source="SPIRAL (role-conditioned advantage); train_spiral.py of its release",
    status=Status.RELEASE,
    needs=[Need.ROLES],
)
def spiral(
    batch: Sequence[Trajectory],
    *,
    decay: Decay = 0.95,
    gamma: Share = 1.0,
    update_first: bool = False,
    state: Mapping[str, float] | None = None,
) -> Credit:
    """Subtract a running mean of the role's returns from its return, for self-play.

    Per role p: `A_p = R_p - b_p`, then `b_p <- decay * b_p + (1 - decay) * R_p`, from 0 on;
    turn i of n of the role gets `A_p * gamma^(n-1-i)`. `R_p` is the role's outcome plus the
    rewards of its own turns, or the rollout's total where outcomes do not differ by role.
    Rollouts are taken in the order of their keys. Baselines are kept per family of tasks and
    role, as in the paper; the release plays one game per run, keeps them per role, and has
    them in each actor process, where they diverge. Store the state with the weights: without
    it a restart begins at 0.

    Args:
        batch: rollouts in which roles speak.
        decay: weight of the past.
        gamma: discount per turn of the role, from its last turn backwards.
        update_first: subtract the baseline that has already seen the return, as the paper's
            pseudo-code can be read; it makes a first win 0.95 instead of 1.
        state: `Credit.state` of the previous batch: baselines named `family/role`.
    """
    baselines = dict(state or {})
    advantages = [torch.zeros(0)] * len(batch)
    for i in _ordered(batch):
        trajectory = batch[i]
        per_turn = [0.0] * len(trajectory.turns)
        for player, spoken in trajectory.turns_by_player.items():
            name = f"{trajectory.task}/{player}"
            earned = role_return(trajectory, player)
            before = baselines.get(name, 0.0)
            baselines[name] = decay * before + (1 - decay) * earned
            advantage = earned - (baselines[name] if update_first else before)
            for left, k in enumerate(reversed(spoken)):
                per_turn[k] = advantage * gamma**left
        advantages[i] = per_token(trajectory, per_turn)
    return Credit(advantages, state=baselines)


def role_return(trajectory: Trajectory, role: str) -> float:
    """Return what a player earned: its outcome and its turns' rewards, or the shared total."""
    return trajectory.totals.get(role, trajectory.total)


Node = tuple[str, ...]
"""Group, then the ids of the nodes from the root on."""


def malt_values(batch: Sequence[Trajectory]) -> dict[Node, float]:
    """Return the value of each node in the trees of samples: the mean of its children's.

    `Trajectory.parents` names the node that each of its turns made, the first turn's first;
    turns beyond these are a leaf of their own, whose value is the trajectory's total. The
    root of a tree is its group (the question), which is no node.

    Raises:
        InputError: no trajectory has parents, or one has more of them than turns.
    """
    return {node: fmean(values) for node, values in _children(batch).items() if len(node) > 1}


@component(
    Kind.CREDIT,
    "malt",
    source="MALT (Motwani et al. 2024), value iteration on the tree; threshold from memory",
    status=Status.EXPERIMENTAL,
    needs=[Need.TREE],
)
def malt(
    batch: Sequence[Trajectory],
    *,
    theta: float = 0.5,
    siblings: bool = False,
    binarise: bool = False,
) -> Credit:
    """Value of a turn's node in the tree of samples, minus a threshold or its siblings' mean.

    The paper trains roles on labels (imitation, then preferences); `binarise` gives these
    labels as advantages, without it the values themselves count. A node that several
    trajectories share has the same advantage in each.

    Args:
        batch: leaves of trees: trajectories that share their first nodes (`malt_values`).
        theta: the threshold; a value equal to it is no success.
        siblings: subtract the mean over the children of the same parent, itself included,
            instead of theta; an only child gets 0.
        binarise: first set values above theta to 1, the others to 0.

    Raises:
        InputError: no trajectory has parents, or one has more of them than turns.
    """

    def label(value: float) -> float:
        return float(value > theta) if binarise else value

    children = _children(batch)
    advantages = []
    for trajectory in batch:
        path: Node = (trajectory.group, *trajectory.parents)
        per_turn = []
        for k in range(len(trajectory.turns)):
            inside = k < len(trajectory.parents)
            value = fmean(children[path[: k + 2]]) if inside else trajectory.total
            parent = path[: k + 1] if inside else path
            base = fmean(label(other) for other in children[parent]) if siblings else theta
            per_turn.append(label(value) - base)
        advantages.append(per_token(trajectory, per_turn))
    return Credit(advantages)


@component(
    Kind.CREDIT,
    "waltz",
    source="WaltzRL (dynamic improvement reward), from a reimplementation; REINFORCE++ per role",
    status=Status.EXPERIMENTAL,
    needs=[Need.TURN_REWARD],
)
def waltz(
    batch: Sequence[Trajectory],
    *,
    feedback: str = "feedback",
    partner: str = "agent",
    alpha: NotNegative = 0.65,
    form: NotNegative = 0.1,
    eps: Positive = 1e-8,
) -> Credit:
    """Reward a feedback turn by how much the partner's next reply is better than its last.

    Reward of a feedback turn: `alpha * improvement + form * valid`; of any other turn its
    own reward (for the partner, 1 if the reply is neither unsafe nor an over-refusal).
    Rewards are whitened over each role's tokens (n - 1). `outcome` is not read. The paper's
    reward for right labels and the condition on them are left out: trajectories hold none.
    If no turn has the role `feedback`, only the whitening is left.

    Args:
        batch: rollouts in which both roles speak.
        feedback: the role that gives comments.
        partner: the role that receives them.
        alpha: weight of the improvement.
        form: reward of a well-formed comment (`valid`).
        eps: added to the standard deviation, in units of reward.
    """
    rewards: list[float] = []
    speakers: list[str] = []
    for trajectory in batch:
        gained = improvements(trajectory, feedback, partner)
        for turn, gain in zip(trajectory.turns, gained, strict=True):
            comment = turn.role == feedback
            reward = alpha * gain + form * turn.valid if comment else turn.reward
            rewards += [reward] * turn.tokens
            speakers += [turn.role] * turn.tokens
    whitened = within(rewards, speakers, partial(normalised, eps=eps))
    return Credit(list(whitened.split([trajectory.tokens for trajectory in batch])))


def improvements(trajectory: Trajectory, feedback: str, partner: str) -> list[float]:
    """Return, per `feedback` turn, the partner's next reward minus its last, 0 without both."""
    turns = trajectory.turns
    found = [0.0] * len(turns)
    for k, turn in enumerate(turns):
        if turn.role == feedback:
            earlier = [other.reward for other in turns[:k] if other.role == partner]
            later = [other.reward for other in turns[k:] if other.role == partner]
            if earlier and later:
                found[k] = later[0] - earlier[-1]
    return found


@component(
    Kind.CREDIT,
    "supo",
    source="SUPO, equation 3 as restated; DeepMiner and MEM1 share the rule",
    status=Status.EXPERIMENTAL,
    needs=[Need.GROUP],
)
def supo(
    batch: Sequence[Trajectory], *, std: bool = True, ddof: Ddof = 1, eps: Positive = 1e-6
) -> Credit:
    """One vote per rollout, its advantage on all its segments; truncated ones are not trained.

    `A_i = (R_i - mean) / (std + eps)` on every sampled token of every segment: replies and
    summaries alike. A rollout counts once however often its context was summarised (SUPO),
    its window slid (DeepMiner: a sequence per slide) or its state was rewritten (MEM1): the
    three differ in how segments are made, not in credit. A truncated rollout (overlong) keeps
    its return in mean and deviation and gets 0.

    Args:
        batch: rollouts; `segment` of their turns is not read.
        std: divide by the standard deviation plus eps.
        ddof: 1 divides the variance by n - 1, 0 by n; n counts rollouts.
        eps: added to the standard deviation, in units of reward.

    Raises:
        GroupTooSmall: a group of one rollout.
    """
    check_groups(batch, "supo")
    reduce = partial(normalised, ddof=ddof, eps=eps) if std else centred
    returns = [trajectory.total for trajectory in batch]
    judged = within(returns, [trajectory.group for trajectory in batch], reduce)
    cut = torch.tensor([trajectory.truncated for trajectory in batch], dtype=torch.bool)
    return broadcast(batch, judged.masked_fill(cut, 0.0))


def _ordered(batch: Sequence[Trajectory]) -> list[int]:
    """Return the indices in the order of the rollouts' keys, whatever the order of the batch."""
    keys = [trajectory.key for trajectory in batch]
    return sorted(range(len(batch)), key=lambda i: (keys[i].phase, keys[i].group, keys[i].member))


def _children(batch: Sequence[Trajectory]) -> dict[Node, list[float]]:
    """Return each node's children's values; a leaf without an id is a child of its last parent."""
    if batch and not any(trajectory.parents for trajectory in batch):
        raise InputError(
            "malt needs a tree of samples, but no trajectory has `parents`; sample with "
            "branching, or choose a rule for independent rollouts such as drgrpo."
        )
    found: dict[Node, list[float]] = {}
    for trajectory in batch:
        if len(trajectory.parents) > len(trajectory.turns):
            raise InputError(
                f"{trajectory.key} has {len(trajectory.parents)} nodes in a tree of samples, but "
                f"only {len(trajectory.turns)} turns; each turn makes at most one node."
            )
        found.setdefault((trajectory.group, *trajectory.parents), []).append(trajectory.total)
    for depth in range(max(map(len, found), default=0), 1, -1):
        for node in [node for node in found if len(node) == depth]:
            found.setdefault(node[:-1], []).append(fmean(found[node]))
    return found
