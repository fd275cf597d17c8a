"""Causal rules: statements of the form "X is necessary for Y", distilled after each trial.

Source: Majumder et al. 2023 (CLIN). The rules of an environment are rewritten after each episode,
from the episode's rules and its steps.
"""

from __future__ import annotations

from collections.abc import Sequence

from palaestra.agents.memory.lessons import LessonAgent
from palaestra.core.environment import Action


class RulesAgent(LessonAgent):
    """Learns rules of the form "X is necessary for Y" from trial to trial (CLIN)."""

    name = "rules"
    question = (
        "You learn from trials in a world. Write the rules that will help in the next one, one a "
        "line, keeping those that have proved right: `X is necessary for Y`, `X may be necessary "
        "for Y` or `X does not help with Y`."
    )
    head = "Rules from earlier trials:"

    def lesson(self, actions: Sequence[Action]) -> str:
        steps = dict.fromkeys(action.text for action in actions[:4])
        return "\n".join(f"{step} is necessary for the task" for step in steps)
