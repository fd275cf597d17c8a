"""Pairs: of two responses to one question, the better and the worse."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from palaestra.core.episode import Episode
from palaestra.learning.component import Kind, Need, Status, component
from palaestra.learning.examples.decisions import Option, decisions, on_best_path
from palaestra.learning.examples.example import Score, group_of, grouped, scoring, usable
from palaestra.learning.examples.preferred import Pair
from palaestra.learning.examples.replies import Reply, history, replies, reply_row
from palaestra.learning.rows import rows_of


def extremes(scores: Sequence[float], *, gap: float = 0.0) -> tuple[int, int] | None:
    """Which of several scores is the highest and which the lowest, the first of equals each.

    Source: MPO (Xiong et al. 2025), as released; the release pairs any two that differ, here they
    must differ by more than `gap`, as small differences of sampled scores are noise.

    Returns:
        (index of the highest, index of the lowest), or None.
    """
    if not scores:
        return None
    best, worst = scores.index(max(scores)), scores.index(min(scores))
    return (best, worst) if scores[best] - scores[worst] > gap else None


@component(
    Kind.EXAMPLES,
    "trajectory-pairs",
    source="Xiong et al. 2024 (multi-turn preference learning)",
    status=Status.EXPERIMENTAL,
    needs=[Need.PREFERENCE],
)
def trajectory_pairs(
    episodes: Sequence[Episode], policy: str, *, gap: float = 0.0, score: Score | str = "success"
) -> list[Pair]:
    """Whole rollouts of one group: the best with the worst, the second best with the second worst.

    Each rollout stands in one pair at most. What tools and worlds said is context in both
    (Xiong et al. 2024, multi-turn preference learning, mask it alike).

    Args:
        episodes: groups of rollouts; those without a valid result are left out.
        policy: whose replies are compared.
        gap: scores of a pair differ by more than this.
    """
    score = scoring(score)
    found: list[Pair] = []
    for group in grouped(usable(episodes, policy)):
        ranked = sorted(group, key=score, reverse=True)
        for good, bad in zip(ranked[: len(ranked) // 2], reversed(ranked), strict=False):
            margin = score(good) - score(bad)
            if margin <= gap:
                break
            found.append(Pair(tuple(rows_of(good, policy)), tuple(rows_of(bad, policy)), margin))
    return found


@component(
    Kind.EXAMPLES,
    "sibling-pairs",
    source="Zhai et al. 2024 (step-level Q models); Xiong et al. 2025 (MPO)",
    status=Status.EXPERIMENTAL,
    needs=[Need.PREFERENCE],
)
def sibling_pairs(
    episodes: Sequence[Episode],
    policy: str,
    *,
    gap: float = 0.0,
    best_path: bool = False,
    score: Score | str = "success",
) -> list[Pair]:
    """Single replies to one history: the one of the highest value with that of the lowest.

    Source: step-level Q models (Zhai et al. 2024) pair so along the best path of a tree search; MPO
    (Xiong et al. 2025) pairs meta-plans, where `policy` is the planner and a plan's value the mean
    over the agent's runs with it. How Zhai et al. choose pairs is not verified.

    Args:
        episodes: the leaves of a search, or repeated runs; those without a valid result are left
            out.
        policy: whose replies are compared.
        gap: values of a pair differ by more than this.
        best_path: only where one comes by always taking the best reply.
        score: whose mean is a reply's value.
    """
    found = decisions(episodes, policy, score=score)
    if best_path:
        found = on_best_path(found, episodes, policy)
    pairs: list[Pair] = []
    for decision in found:
        chosen = extremes([option.value for option in decision.options], gap=gap)
        if chosen is not None:
            pairs.append(_pair(decision.options[chosen[0]], decision.options[chosen[1]]))
    return pairs


@component(
    Kind.EXAMPLES,
    "threshold-pairs",
    source="Motwani et al. 2024 (MALT), the preference stage",
    status=Status.EXPERIMENTAL,
    needs=[Need.PREFERENCE],
)
def threshold_pairs(
    episodes: Sequence[Episode], policy: str, *, theta: float = 0.5, score: Score | str = "success"
) -> list[Pair]:
    """Single replies to one history: each one above a value with each one that is not.

    Source: the preference stage of MALT (Motwani et al. 2024); the threshold is not verified.
    Arguments as in `thresholded`, which gives the examples of its supervised stage.
    """
    return [
        _pair(good, bad)
        for decision in decisions(episodes, policy, score=score)
        for good in decision.options
        for bad in decision.options
        if good.value > theta >= bad.value
    ]


@component(
    Kind.EXAMPLES,
    "anchor-pairs",
    source="replies taken in one state",
    status=Status.OURS,
    needs=[Need.PREFERENCE],
)
def anchor_pairs(
    episodes: Sequence[Episode], policy: str, *, gap: float = 0.0, score: Score | str = "success"
) -> list[Pair]:
    """Single replies in one state of the world: the one of the best action with that of the worst.

    For rollouts that never share a history but come to equal states. A preference loss compares
    replies to the same question, so the rejected reply (its recorded tokens) is put after the
    history of the chosen one. An action's value is the mean score of the episodes that took it
    there; of equal actions the first reply stands for all. Thoughts in a call of their own stay
    context.

    Args:
        episodes: groups of rollouts of an environment with state keys; those without a valid
            result are left out.
        policy: whose replies are compared.
        gap: values of a pair differ by more than this.
    """
    score = scoring(score)
    met: dict[tuple[str, str], dict[tuple[str, ...], list[tuple[Episode, Reply]]]] = {}
    for episode in usable(episodes, policy):
        for reply in replies(episode, policy):
            if reply.state is not None and reply.steps:
                actions = met.setdefault((group_of(episode), reply.state), {})
                actions.setdefault(_deed(reply), []).append((episode, reply))
    pairs: list[Pair] = []
    for actions in met.values():
        taken = list(actions.values())
        values = [fmean(score(episode) for episode, _ in each) for each in taken]
        chosen = extremes(values, gap=gap)
        if chosen is None:
            continue
        (good, well), (bad, badly) = taken[chosen[0]][0], taken[chosen[1]][0]
        past = history(good.graph, well.call)
        pairs.append(
            Pair(
                (reply_row(good.key, past, well.call),),
                (reply_row(bad.key, past, badly.call),),
                values[chosen[0]] - values[chosen[1]],
            )
        )
    return pairs


def _pair(good: Option, bad: Option) -> Pair:
    return Pair((good.row,), (bad.row,), good.value - bad.value)


def _deed(reply: Reply) -> tuple[str, ...]:
    """What was done, whatever was thought: equal for equal actions."""
    actions = (step.action for step in reply.steps)
    return tuple(str(action.call) if action.call else action.text.strip() for action in actions)
