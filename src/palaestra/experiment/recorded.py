"""Recorded episodes as demonstrations: what anybody did before, for the policy to imitate.

They come from another run (its evaluations, its rollouts, or an import from another program), and
may be only those that a person gave a label to, or that a judge holds for solved (filtered by a
judge: Pan et al. 2024, "Autonomous Evaluation and Refinement of Digital Agents").
"""

from __future__ import annotations

from pathlib import Path

from palaestra.core.episode import Episode, Key
from palaestra.core.errors import InputError
from palaestra.evaluation.judges import records
from palaestra.evaluation.judges.verdict import PASS
from palaestra.experiment.sections import Imitation
from palaestra.experiment.setting import Setting
from palaestra.learning.examples.retelling import retold
from palaestra.store.notes import labelled, says
from palaestra.store.run import RunFolder

SPEAKER = "recorded"


def check_recorded(part: Imitation) -> None:
    """Raise InputError unless the run is there and has episodes to choose from."""
    assert part.run is not None
    with RunFolder.read(Path(part.run)) as run:
        if not run.database.phases():
            raise InputError(f"imitation.run = '{part.run}' has no finished episodes yet.")
        if part.label and not any(says(of, part.label) for of in labelled(run.path).values()):
            raise InputError(
                f"imitation.label = '{part.label}': no episode of '{part.run}' has that label; "
                "give it in `palaestra view`, or leave the key out."
            )
        if part.judge and not _passed(run, part.judge):
            known = ", ".join(records.judges(run.database)) or "none"
            raise InputError(
                f"imitation.judge = '{part.judge}': it holds no episode of '{part.run}' for "
                f"solved; judges of that run: {known} (`palaestra judge RUN --judge NAME`)."
            )


def _passed(run: RunFolder, judge: str) -> set[str]:
    """The keys of the episodes that the judge holds for solved."""
    given = records.verdicts(run.database, judge)
    return {key for key, verdict in given.items() if (verdict["value"] or 0.0) >= PASS}


def longest(episode: Episode) -> int:
    """The tokens of its longest conversation; 0 where nothing was said."""
    return max((len(episode.graph.tokens(call.index)) for call in episode.calls), default=0)


def recorded_demonstrations(setting: Setting) -> list[Episode]:
    """The chosen episodes of the other run, in the policy's tokens.

    Those that were not scored, that are of another environment, that said nothing, or that do
    not fit into the model's context are left out.

    Raises:
        InputError: nothing is left.
    """
    part, recipe = setting.recipe.imitation, setting.recipe
    assert part.run is not None
    found: list[Episode] = []
    left = {"another environment": 0, "no valid result": 0, "too long": 0}
    with RunFolder.read(Path(part.run)) as run:
        labels = labelled(run.path)
        passed = _passed(run, part.judge) if part.judge else None

        def chosen(key: Key) -> bool:
            said = not part.label or bool(says(labels.get(key, {}), part.label))
            return said and (passed is None or str(key) in passed)

        for phase in run.database.phases():
            for episode in run.database.episodes(phase):
                if not chosen(episode.key):
                    continue
                if episode.task.environment != recipe.environment.id:
                    left["another environment"] += 1
                    continue
                if not episode.outcome.scored:
                    left["no valid result"] += 1
                    continue
                told = retold(episode, SPEAKER, setting.policy.renderer)
                if longest(told) > recipe.model.context:
                    left["too long"] += 1
                elif told.calls and len(found) < part.demonstrations:
                    found.append(told)
    for why, count in left.items():
        if count:
            setting.reporter.say(f"{count} recorded episodes left out: {why}")
    if not found:
        raise InputError(
            f"Nothing in '{part.run}' can be imitated on '{recipe.environment.id}'; choose "
            "another imitation.run, imitation.label or imitation.judge."
        )
    return found
