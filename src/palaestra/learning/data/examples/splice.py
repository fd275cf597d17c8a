"""Splices: a failed attempt up to its first mistake, a reflection, and the good rest from there.

Source: Agent-R (Yuan et al. 2025). Its release trains the reflection and the good tail only (not
the failed prefix), pairs every good attempt with every one that scored clearly less, and joins
them where their replies differ, whatever the mistake changed in the environment. Here attempts are
joined only at equal environment states, so that no splice shows an impossible episode.
"""

from __future__ import annotations

from collections.abc import Sequence

from palaestra.agents.direct import ANSWER, REFLECTION
from palaestra.core.episode import Episode
from palaestra.core.model import Renderer
from palaestra.learning.data.examples.example import Example, Score, grouped, scoring, usable
from palaestra.learning.data.examples.journey import Studied, linearised
from palaestra.learning.data.examples.mistakes import Mistakes
from palaestra.learning.methods.component import Kind, Need, Status, component


@component(
    Kind.EXAMPLES,
    "splices",
    source="Yuan et al. 2025 (Agent-R)",
    status=Status.EXPERIMENTAL,
    needs=[Need.ATTEMPT],
)
def splices(
    episodes: Sequence[Episode],
    policy: str,
    renderer: Renderer,
    *,
    alpha: float = 0.5,
    gap: float = 0.2,
    reflection: str = REFLECTION,
    answer: str = ANSWER,
    studied: Studied = Studied.TAIL,
    mistakes: Mistakes | str = "misunderstood",
    score: Score | str = "success",
) -> list[Example]:
    """Make one revised attempt of each bad one that a better one of its group can continue.

    If several can, the best one is taken. The method trains on these together with the good
    attempts themselves (`filtered_cloning`) and repeats with the new policy and a higher `alpha`.

    Args:
        episodes: groups of rollouts, or the leaves of a search; environments must declare state
            keys. Those without a valid result are left out.
        policy: whose replies are imitated.
        renderer: of the policy.
        alpha: a good attempt scores more than this; it rises over the rounds (0.5, 0.7, 0.9,
            unverified).
        gap: the bad one scores lower by more than this.
        reflection, answer, studied, mistakes: as in `linearised`. In the paper the policy itself
            names the step of a failed attempt that was the first mistake.

    Raises:
        InputError: the prompts of `policy` do not only grow.
    """
    score = scoring(score)
    found: list[Example] = []
    for group in grouped(usable(episodes, policy)):
        best_first = sorted(group, key=score, reverse=True)
        for bad in group:
            for good in best_first:
                if score(good) <= alpha or score(good) - score(bad) <= gap:
                    break
                row = linearised(
                    [bad, good],
                    policy,
                    renderer,
                    reflection=reflection,
                    answer=answer,
                    studied=studied,
                    mistakes=mistakes,
                )
                if row is not None:
                    found.append(Example(row))
                    break
    return found
