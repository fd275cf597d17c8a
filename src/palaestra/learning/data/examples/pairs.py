"""Pairs: the better and the worse of two responses to one question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from palaestra.core.episode import Episode
from palaestra.learning.data.examples.decisions import Option, decisions, on_best_path
from palaestra.learning.data.examples.example import Score, group_of, grouped, scoring, usable
from palaestra.learning.data.examples.preferred import Pair
from palaestra.learning.data.examples.replies import Reply, history, replies, reply_row
from palaestra.learning.data.rows import rows_of
from palaestra.learning.methods.component import Kind, Need, Status, component


def extremes(scores: Sequence[float], *, gap: float = 0.0) -> tuple[int, int] | None:
    """Return the indices of the highest and of the lowest score, the first of equals each.

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
    """Pair whole rollouts of a group: best with worst, second best with second worst, and so on.

    Each rollout is in one pair at most. Observations are context in both (Xiong et al. 2024,
    multi-turn preference learning, mask them alike).

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
    "contrastive-pairs",
    source="Song et al. 2024 (ETO)",
    status=Status.EXPERIMENTAL,
    needs=[Need.PREFERENCE],
)
def contrastive_pairs(
    shown: Mapping[str, Sequence[Episode]], *, gap: float = 0.0, score: Score | str = "success"
) -> list[Pair]:
    """Pair each rollout with the best one of another speaker at the same task, if that is better.

    So the expert's success is preferred to the policy's failure: exploration-based trajectory
    optimisation (Song et al. 2024). How its authors choose among several failures is not verified.

    Args:
        shown: episodes by who replies in them, on tasks that several attempted; those without a
            valid result are left out.
        gap: scores of a pair differ by more than this.
    """
    score = scoring(score)
    attempts: dict[tuple[str, str], list[tuple[str, Episode]]] = {}
    for speaker, episodes in shown.items():
        for episode in usable(episodes, speaker):
            task = episode.task.environment, episode.task.id
            attempts.setdefault(task, []).append((speaker, episode))
    found: list[Pair] = []
    for tried in attempts.values():
        for speaker, worse in tried:
            others = [(who, one) for who, one in tried if who != speaker]
            if not others:
                continue
            who, best = max(others, key=lambda other: score(other[1]))
            margin = score(best) - score(worse)
            if margin > gap:
                rejected = tuple(rows_of(worse, speaker))
                found.append(Pair(tuple(rows_of(best, who)), rejected, margin))
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
    """Pair single replies to one history: the one of the highest value with that of the lowest.

    Source: step-level Q models (Zhai et al. 2024) pair like this along the best path of a tree
    search; MPO (Xiong et al. 2025) pairs meta-plans, where `policy` is the planner and a plan's
    value the mean over the agent's runs with it. How Zhai et al. choose pairs is not verified.

    Args:
        episodes: the leaves of a search, or repeated runs; those without a valid result are left
            out.
        policy: whose replies are compared.
        gap: values of a pair differ by more than this.
        best_path: only at decisions that are reached by always taking the best reply.
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
    """Pair single replies to one history: each one above a value with each one that is not.

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
    """Pair single replies in one environment state: that of the best action with the worst's.

    For rollouts that never share a history but come to equal states. A preference loss compares
    replies to the same question, so the rejected reply (its recorded tokens) is put after the
    history of the chosen one. An action's value is the mean score of the episodes that took it
    there; of equal actions the first reply represents all. Thoughts in a call of their own
    stay context.

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
                actions.setdefault(_actions_of(reply), []).append((episode, reply))
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


def _actions_of(reply: Reply) -> tuple[str, ...]:
    """Return the actions of a reply, without its thoughts: equal for equal actions."""
    actions = (step.action for step in reply.steps)
    return tuple(str(action.call) if action.call else action.text.strip() for action in actions)
