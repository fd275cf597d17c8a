"""A reward model that goes on learning from the rollouts that it rewards (reward_refresh).

A reward model knows the rollouts of the policy that it learned from; as the policy changes, it is
asked about others, and what exploits its mistakes is rewarded (Leike et al. 2018; Gao et al. 2023).
"""

from __future__ import annotations

from statistics import fmean

from palaestra.learning.critics.reward_model import RewardModel
from palaestra.learning.data.examples.example import usable
from palaestra.learning.data.rows import rows_of
from palaestra.training.demonstrations import longest
from palaestra.training.learned_model_sections import RewardRefresh
from palaestra.training.run_context import RunContext
from palaestra.training.stage_sections import Reward
from palaestra.training.stages.learning_updates import learned_rows
from palaestra.training.stages.rewarding import (
    JudgedRollout,
    judged_rollout,
    split_by_task,
    updates,
)


class Refresher:
    """Updates of a reward model every few steps, on its own data and on the stage's rollouts.

    All of them have their true outcomes. They are read from the record, so a resumed run sees
    the same; the model's weights and moments are in the stage's checkpoints.
    """

    def __init__(
        self,
        context: RunContext,
        model: RewardModel,
        record: str,
        part: Reward,
        plan: RewardRefresh,
    ) -> None:
        """Prepare to refresh `model`.

        Args:
            context: of the stage that reinforces.
            model: the reward model.
            record: of the stage that learned it.
            part: that stage.
            plan: when, and how often.
        """
        self.model, self._context, self._plan = model, context, plan
        self._record, self._part = record, part
        self._data: list[JudgedRollout] = []
        self._read = 0  # steps whose rollouts are in the data

    def after(self, step: int) -> dict[str, float]:
        """Refresh the model after a step (1-based) if it is time; return metrics."""
        if step % self._plan.every:
            return {}
        if not self._read:
            self._data = self._learned_before()
        speaker = self._context.policy.name
        for number in range(self._read + 1, step + 1):
            self._data += self._rollouts(f"{self._context.record}/{number}", speaker)
        self._read = step
        losses = list(updates(self.model, self._data, self._part.kind, self._plan.updates))
        return {"reward_loss": fmean(losses), "reward_rollouts": float(len(self._data))}

    def _learned_before(self) -> list[JudgedRollout]:
        """Return what the model has learned from in its own stage, without its held-out tasks."""
        found: list[JudgedRollout] = []
        for phase, learned in learned_rows(self._context, self._record).items():
            found += self._rollouts(phase, str(learned["speaker"]))
        return split_by_task(self._context, found, self._part.held_out)[0]

    def _rollouts(self, phase: str, speaker: str) -> list[JudgedRollout]:
        context = self._context
        return [
            judged_rollout(context, episode, rows_of(episode, speaker), speaker)
            for episode in usable(context.store.episodes(phase), speaker)
            if longest(episode) <= context.recipe.model.context
        ]
