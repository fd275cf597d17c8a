"""Recorded episodes as demonstrations for imitation.

They come from another run: its evaluations, its rollouts, or an import from another program. They
can be limited to those with a person's label, or to those that a judge marks as solved (Pan et al.
2024, "Autonomous Evaluation and Refinement of Digital Agents").
"""

from __future__ import annotations

from pathlib import Path

from palaestra.core.episode import Episode, Key
from palaestra.core.errors import InputError
from palaestra.evaluation.judges import stored_verdicts
from palaestra.evaluation.judges.verdict import PASS
from palaestra.learning.data.examples.retokenizing import retokenized
from palaestra.store.notes import labelled, matches_label
from palaestra.store.run_folder import RunFolder
from palaestra.training.recipe_sections import Imitation
from palaestra.training.run_context import RunContext
from palaestra.training.stage_sources import FromRun

RECORDED = "recorded"


def check_recorded(part: Imitation | FromRun) -> None:
    """Raise InputError unless the run exists and has episodes to choose from."""
    assert part.run is not None
    with RunFolder.read(Path(part.run)) as run:
        if not run.database.phases():
            raise InputError(
                f"imitation.run = '{part.run}' has no finished episodes yet; name another run."
            )
        if part.label and not any(
            matches_label(of, part.label) for of in labelled(run.path).values()
        ):
            raise InputError(
                f"imitation.label = '{part.label}': no episode of '{part.run}' has that label; "
                "give it in `palaestra view`, or leave the key out."
            )
        if part.judge and not _passed(run, part.judge):
            known = ", ".join(stored_verdicts.judges(run.database)) or "none"
            raise InputError(
                f"imitation.judge = '{part.judge}': it marks no episode of '{part.run}' as "
                f"solved; judges of that run: {known} (`palaestra judge RUN --judge NAME`)."
            )


def _passed(run: RunFolder, judge: str) -> set[str]:
    """Return the keys of the episodes that the judge marks as solved."""
    given = stored_verdicts.verdicts(run.database, judge)
    return {key for key, verdict in given.items() if (verdict["value"] or 0.0) >= PASS}


def longest(episode: Episode) -> int:
    """Return the tokens of the episode's longest conversation; 0 without calls."""
    return max((len(episode.graph.tokens(call.index)) for call in episode.calls), default=0)


def recorded_demonstrations(context: RunContext, part: FromRun) -> list[Episode]:
    """Return the chosen episodes of the other run, in the policy's tokens.

    Leave out episodes that were not scored, come from another environment than the recipe's or the
    named one, hold no reply, or do not fit into the model's context.

    Raises:
        InputError: no episode is left.
    """
    recipe = context.recipe
    environment = part.environment or recipe.environment.id
    found: list[Episode] = []
    left = {"another environment": 0, "no valid result": 0, "too long": 0}
    with RunFolder.read(Path(part.run)) as run:
        labels = labelled(run.path)
        passed = _passed(run, part.judge) if part.judge else None

        def chosen(key: Key) -> bool:
            has_label = not part.label or bool(matches_label(labels.get(key, {}), part.label))
            return has_label and (passed is None or str(key) in passed)

        for phase in run.database.phases():
            for episode in run.database.episodes(phase):
                if not chosen(episode.key):
                    continue
                if episode.task.environment != environment:
                    left["another environment"] += 1
                    continue
                if not episode.outcome.scored:
                    left["no valid result"] += 1
                    continue
                rendered = retokenized(episode, RECORDED, context.policy.renderer)
                if longest(rendered) > recipe.model.context:
                    left["too long"] += 1
                elif rendered.calls and len(found) < part.demonstrations:
                    found.append(rendered)
    for why, count in left.items():
        if count:
            context.reporter.say(f"{count} recorded episodes left out: {why}")
    if not found:
        raise InputError(
            f"No episode of '{part.run}' can be imitated on '{environment}'; choose "
            "another imitation.run, imitation.label or imitation.judge."
        )
    return found
