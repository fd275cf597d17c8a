"""Diagnosis by stages: where in its loop an agent goes wrong, whatever the outcome.

An agent that serves a user tracks the state, acts, follows a policy, and answers. Each stage has
criteria that are checked turn by turn from the record alone. A stage with nothing to judge is
None. Satisfaction (a judge's verdict or a person's label) is not part of it.

Source: Kim et al. 2025 (PIPA): behaviour split as in a POMDP into state tracking, action, policy
adherence and response. The authors' criteria are judged by models; these are rules, and tests
measure how often they find a planted defect.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from palaestra.core.episode import Episode
from palaestra.core.tool import Tool
from palaestra.evaluation.attribution.adherence import Procedure, adherence
from palaestra.evaluation.attribution.dependencies import grounded, trace
from palaestra.evaluation.statistics.episode_metrics import repeated


@dataclass(frozen=True, slots=True)
class Stages:
    """The share of turns that meet each stage's criteria, in [0, 1]; None: nothing to judge."""

    tracking: float | None  # calls whose names and numbers occurred before
    action: float | None  # valid actions that are not repetitions
    adherence: float | None  # steps that the procedure allows; 0 if it ends at a wrong step
    response: float | None  # messages whose names and numbers occurred before

    @property
    def weakest(self) -> str | None:
        """The stage with the lowest share below 1; among equals the first in the agent's loop."""
        known = {name: getattr(self, name) for name in self.__slots__}
        faulty = {name: share for name, share in known.items() if share is not None and share < 1}
        return min(faulty, key=faulty.__getitem__) if faulty else None


def stages(
    episode: Episode,
    *,
    procedure: Procedure | None = None,
    tools: Sequence[Tool] = (),
    instructions: str = "",
) -> Stages:
    """Judge one episode stage by stage.

    Args:
        episode: its tool calls are actions; if there are any, its other actions are messages to
            a user.
        procedure: the order of calls that the policy requires.
        tools: the environment's tools, see `adherence`.
        instructions: the environment's own instructions, if the record does not contain them.
    """
    known = grounded(episode, trace(episode, instructions))
    called = [step.index for step in episode.steps if step.action.call is not None]
    spoken = [step.index for step in episode.steps if step.action.call is None]
    if not called:
        called, spoken = spoken, []
    again = repeated(episode)
    fine = [step.transition.valid and not again[step.index] for step in episode.steps]
    return Stages(
        tracking=_share([known[turn] for turn in called]),
        action=_share(fine),
        adherence=None if procedure is None else _adherence_share(episode, procedure, tools),
        response=_share([known[turn] for turn in spoken]),
    )


def _share(marks: Sequence[bool]) -> float | None:
    return sum(marks) / len(marks) if marks else None


def _adherence_share(episode: Episode, procedure: Procedure, tools: Sequence[Tool]) -> float | None:
    found = adherence(episode, procedure, tools)
    return found.share if found.ended or found.share is None else 0.0
