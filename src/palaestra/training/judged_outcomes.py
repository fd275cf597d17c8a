"""Episodes with the outcomes that a judge, or a learned predictor of success, gives them.

So every rule that filters, weighs, pairs or labels episodes can learn from a judge's verdicts
(Pan et al. 2024, autonomous evaluation; Zhou et al. 2024, PAE). How often they are the true outcome
is recorded beside them, and never learned from.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from palaestra.core.episode import Episode
from palaestra.core.outcome import Outcome
from palaestra.evaluation.judges import stored_verdicts
from palaestra.evaluation.judges.verdict import PASS
from palaestra.learning.data.examples.example import usable
from palaestra.learning.data.rows import rows_of
from palaestra.runtime.progress import percent
from palaestra.training.reward_models import saved_model
from palaestra.training.run_context import RunContext
from palaestra.training.stage_program import Made

JUDGED = "judged/"  # documents: under which name a stage has stored its verdicts
AGREEMENT = "agreement/"  # documents: how often the verdicts that a stage gave or read were right


def with_judged_outcomes(
    context: RunContext, made: Made, stage: str, episodes: Sequence[Episode], speaker: str
) -> list[Episode]:
    """Return the episodes with the outcomes that a stage gives them, without those it left out.

    Args:
        context: of the run.
        made: what earlier stages have made.
        stage: one that judges, or that learned to predict success.
        episodes: as recorded.
        speaker: who replies in them.
    """
    if stage in made.models:
        return _by_model(context, made.models[stage][-1], episodes, speaker)
    return _by_judge(context, made.judges[stage][-1], episodes)


def _by_judge(context: RunContext, record: str, episodes: Sequence[Episode]) -> list[Episode]:
    name = context.store.get(JUDGED + record)
    verdicts = stored_verdicts.verdicts(context.store, str(name))
    values = {key: verdict["value"] for key, verdict in verdicts.items()}
    known = [(e, values.get(str(e.key))) for e in episodes]
    return [_judged_as(e, value >= PASS) for e, value in known if value is not None]


def _by_model(
    context: RunContext, record: str, episodes: Sequence[Episode], speaker: str
) -> list[Episode]:
    model, found = saved_model(context, record), []
    known = usable(episodes, speaker)
    wholes = [rows_of(episode, speaker)[-1].tokens for episode in known]
    for episode, logit in zip(known, model.scores(wholes), strict=True):
        found.append(_judged_as(episode, 1 / (1 + math.exp(-logit)) >= PASS))
    record_agreement(context, record, known, [one.outcome.solved for one in found])
    return found


def record_agreement(
    context: RunContext, judge: str, episodes: Sequence[Episode], passed: Sequence[bool]
) -> None:
    """Record and report how often a judge's verdicts are the true outcomes.

    Args:
        context: of the stage that judges or reads the verdicts.
        judge: its name, or that of the stage that learned to predict success.
        episodes: with their true outcomes.
        passed: the verdict on each.
    """
    both = [(e.outcome.solved, verdict) for e, verdict in zip(episodes, passed, strict=True)]
    found = {
        "episodes": len(both),
        "agreed": sum(solved == verdict for solved, verdict in both),
        "solved": sum(solved for solved, _ in both),
        "passed": sum(passed),
        "passed_and_solved": sum(solved and verdict for solved, verdict in both),
    }
    context.store.put(AGREEMENT + context.record, found)
    agreed = percent(found["agreed"] / len(both)) if both else "none"
    context.reporter.say(
        f"{context.record}: {judge} agrees with {agreed} of the true outcomes; of "
        f"{found['passed']} episodes that it passed {found['passed_and_solved']} succeeded"
    )


def _judged_as(episode: Episode, solved: bool) -> Episode:
    return replace(episode, outcome=Outcome.success() if solved else Outcome.failure())
