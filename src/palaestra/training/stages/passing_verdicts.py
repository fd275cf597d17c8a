"""The stage that lets a judge say which recorded episodes succeeded."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from palaestra.core.model import Model
from palaestra.environments.registry import make
from palaestra.evaluation.judges import stored_verdicts
from palaestra.evaluation.judges.case import case_of
from palaestra.evaluation.judges.registry import JudgeRequest, load_to_judge, make_judge
from palaestra.evaluation.judges.verdict import PASS, Cost
from palaestra.store.notes import labelled
from palaestra.training.judged_outcomes import JUDGED, record_agreement
from palaestra.training.run_context import RunContext
from palaestra.training.stage_program import Made
from palaestra.training.stage_sections import Judge
from palaestra.training.stages.reading import read

SELF = "policy"  # as a judge's name: the policy itself


async def judge(
    context: RunContext, part: Judge, made: Made, ready: Callable[[], Awaitable[None]]
) -> None:
    """Judge the episodes of the sources; those that have a verdict already are left out.

    Args:
        context: of the stage.
        part: its table.
        made: what earlier stages have made.
        ready: puts the policy's latest version in place, which may be the judge.

    Raises:
        InputError: there is no such judge, or a source has nothing to show.
    """
    record = context.record
    if context.accounts.is_done(record):
        return
    if part.judge == SELF:
        await ready()
    started = time.monotonic()
    shown = await read(context, part.sources, made)
    episodes = [e for one in shown for e in one.episodes if e.outcome.scored]

    def load(name: str) -> Model:
        return context.policy if name == SELF else load_to_judge(name, context.reporter.say)

    rubric = None if part.rubric is None else Path(part.rubric)
    request = JudgeRequest(part.judge, rubric, tokens=part.tokens)
    judging, loaded = make_judge(request, make, load, labelled(context.run.path))
    context.store.put(JUDGED + record, judging.name)
    known = stored_verdicts.verdicts(context.store, judging.name)
    passed, cost = 0, Cost()
    try:
        with context.reporter.stage(record, len(episodes), "episodes") as line:
            for number, episode in enumerate(episodes, 1):
                if str(episode.key) not in known:
                    verdict = await judging.judge(case_of(episode))
                    cost += verdict.cost
                    found = {episode.key: verdict}
                    stored_verdicts.store_verdicts(context.store, judging.name, found)
                    passed += bool(verdict.solved)
                line.show(number, {"passed": f"{passed}"})
                await asyncio.sleep(0)  # lets Ctrl-C through
    finally:
        for model in loaded:
            if model is not context.policy:
                await model.close()
    known = stored_verdicts.verdicts(context.store, judging.name)
    values = [(e, known.get(str(e.key), {}).get("value")) for e in episodes]
    judged = [(e, value >= PASS) for e, value in values if value is not None]
    record_agreement(context, judging.name, [e for e, _ in judged], [v for _, v in judged])
    context.accounts.finish_stage(
        record,
        time.monotonic() - started,
        sampled=cost.sampled_tokens,
        prompt=cost.prompt_tokens,
        trained=0,
    )
