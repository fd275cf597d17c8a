"""Rollouts of other policies in a batch: stored successes, and turns of stale versions.

Nothing is recomputed here. What is stored is the key of an episode; its rows keep the
log-probabilities and versions of the policy that sampled them, so that corrections see
the true off-policy gap.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, pstdev

from palaestra.core.episode import Key
from palaestra.learning.data.trajectory import Trajectory


@dataclass(frozen=True, slots=True)
class SuccessBuffer:
    """Keys of the latest successes of each task; oldest first, at most `capacity`.

    Source: ARPO (Lu et al. 2025), release. A step first asks for a `replacement` in each
    group, then stores its own successes with `pushed`. The release recomputes the old
    log-probabilities of a stored rollout under the present policy, which hides how far off
    policy it is; here they stay as sampled.
    """

    capacity: int = 8
    keys: Mapping[str, tuple[Key, ...]] = field(default_factory=dict)  # by task

    def replacement(
        self,
        task: str,
        group: Sequence[Trajectory],
        *,
        seed: int,
        spread: float = 0.05,
        mean: float = 0.2,
    ) -> Key | None:
        """Return the stored success that should replace the group's first rollout, if any.

        It should where the outcomes (task results, without turn rewards) hardly vary (standard
        deviation over n below `spread`) and are low (mean below `mean`), and the task was
        solved before; it is sampled uniformly.
        """
        stored = self.keys.get(task, ())
        outcomes = [t.outcome for t in group]
        if not stored or not outcomes or pstdev(outcomes) >= spread or fmean(outcomes) >= mean:
            return None
        return random.Random(f"{seed}/{task}").choice(stored)

    def pushed(
        self, task: str, rollouts: Sequence[Trajectory], *, above: float = 0.1
    ) -> SuccessBuffer:
        """Return the buffer with the fresh rollouts that score above `above`; drop the oldest.

        A rollout that is stored already is not stored twice.
        """
        stored = self.keys.get(task, ())
        fresh = tuple(t.key for t in rollouts if t.outcome > above and t.key not in stored)
        if not fresh:
            return self
        return SuccessBuffer(self.capacity, {**self.keys, task: (stored + fresh)[-self.capacity :]})


def repair(group: Sequence[Trajectory], success: Trajectory) -> list[Trajectory]:
    """Return the group with `success` in place of its first rollout, to be judged together.

    Source: ARPO release. The success keeps its key, by which its rows are found.
    """
    return [replace(success, group=group[0].group), *group[1:]]
