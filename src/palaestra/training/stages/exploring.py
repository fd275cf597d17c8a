"""The stage that records episodes on training tasks, for later stages to learn from."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from palaestra.training.run_context import RunContext
from palaestra.training.stage_program import Made
from palaestra.training.stage_sections import Explore
from palaestra.training.stages.prompt_notes import notes_of
from palaestra.training.stages.recording import record
from palaestra.training.stages.testing import tokens_of


async def explore(
    context: RunContext, part: Explore, made: Made, ready: Callable[[], Awaitable[None]]
) -> None:
    """Record the episodes of the stage, unless that is done.

    Args:
        context: of the stage.
        part: its table.
        made: what earlier stages have made, of which hints and commands are made.
        ready: puts the policy's latest version in place.

    Raises:
        InputError: see `record`, and `notes_of`.
    """
    phase, count = context.record, part.tasks * part.group
    if context.accounts.is_done(phase) and not context.lacks(phase, count):
        return
    if part.speaker == "policy":
        await ready()
    started = time.monotonic()
    if part.agent is not None:
        context = context.acting_as(part.agent)
    notes = notes_of(context, part, made)
    counts = {context.recipe.environment.id: part.tasks}
    episodes = await record(context, phase, part.speaker, counts, part.group, notes)
    seconds = time.monotonic() - started
    context.accounts.finish_stage(phase, seconds, **tokens_of(episodes), trained=0)
