"""The stage that names the actions of episodes whose own it does not read.

An inverse dynamics model learns from the share of the episodes whose actions are known. The true
actions of the others are read once, to say how many were named right.
"""

from __future__ import annotations

import asyncio
import copy
import math
import time
from collections.abc import Awaitable, Callable, Sequence

from palaestra.core.episode import Episode
from palaestra.core.errors import InputError
from palaestra.core.message import user
from palaestra.learning.critics.inverse_dynamics import InverseDynamics, Labelled
from palaestra.learning.data.examples.action_free import States, actions_of, states_of
from palaestra.learning.data.examples.example import usable
from palaestra.runtime.progress import percent
from palaestra.training.proxy_labels import LABELS
from palaestra.training.run_context import RunContext
from palaestra.training.stage_program import Made
from palaestra.training.stage_sections import Label
from palaestra.training.stages.reading import read
from palaestra.training.stages.testing import tokens_of

Spoken = tuple[Episode, str]  # and who replies in it


async def label(
    context: RunContext, part: Label, made: Made, ready: Callable[[], Awaitable[None]]
) -> None:
    """Learn an inverse dynamics model, and name actions with it, unless that is done.

    Args:
        context: of the stage.
        part: its table.
        made: what earlier stages have made.
        ready: puts the policy's latest version in place, with which the model begins.

    Raises:
        InputError: a source has nothing to show, or there are too few episodes to learn from some
            and to label others.
    """
    record = context.record
    if context.accounts.is_done(record):
        return
    await ready()
    started = time.monotonic()
    sources = await read(context, part.sources, made)
    every = [(e, one.speaker) for one in sources for e in usable(one.episodes, one.speaker)]
    known = math.ceil(part.share * len(every))
    given, rest = every[:known], every[known:]
    shown = [
        (states, actions_of(episode, by)[call])
        for episode, by in given
        for call, states in states_of(episode, by).items()
    ]
    if not shown or not rest:
        raise InputError(
            f"{record}: share = {part.share:g} of {len(every)} episodes gives actions to {known}, "
            f"and leaves {len(rest)} to be labelled; explore more tasks, or change the share."
        )
    model = InverseDynamics(
        copy.deepcopy(context.policy.network),
        seed=context.stage_seed,
        learning_rate=part.learning_rate,
        batch=part.batch,
    )
    reply = context.policy.renderer.reply
    labelled = [Labelled(_prompt(context, states), reply(action)) for states, action in shown]
    with context.reporter.stage(record, part.updates, "updates") as line:
        for step in range(1, part.updates + 1):
            loss = model.learn(labelled)
            context.add_metrics(record, step, {"loss": loss})
            line.show(step, {"loss": f"{loss:.3f}"}, total=part.updates)
            await asyncio.sleep(0)  # lets Ctrl-C through
    named = _named(context, model, shown, rest)
    document = {
        "given": [str(episode.key) for episode, _ in given],
        "labels": {
            str(episode.key): {
                str(call): named[states] for call, states in states_of(episode, by).items()
            }
            for episode, by in rest
        },
    }
    context.store.put(LABELS + record, document)
    right = [
        named[states] == actions_of(episode, by)[call]
        for episode, by in rest
        for call, states in states_of(episode, by).items()
    ]
    accuracy = sum(right) / max(1, len(right))
    found = {"episodes": len(rest), "actions": len(right), "accuracy": accuracy}
    context.store.put(f"labelled/{record}", found)
    context.reporter.say(
        f"{record}: learned from {len(given)} of {len(every)} episodes, and named "
        f"{percent(accuracy)} of the {len(right)} actions of the others right"
    )
    seconds = time.monotonic() - started
    counted = tokens_of([e for one in sources if one.counted for e in one.episodes])
    context.accounts.finish_stage(record, seconds, **counted, trained=model.processed)


def _named(
    context: RunContext,
    model: InverseDynamics,
    shown: Sequence[tuple[States, str]],
    rest: Sequence[Spoken],
) -> dict[States, str]:
    """Return the name of the action between any two states of the other episodes."""
    actions = list(dict.fromkeys(action for _, action in shown))
    every = [states for episode, by in rest for states in states_of(episode, by).values()]
    pairs = list(dict.fromkeys(every))
    replies = [context.policy.renderer.reply(action) for action in actions]
    names = model.name([_prompt(context, states) for states in pairs], replies)
    return {states: actions[name] for states, name in zip(pairs, names, strict=True)}


def _prompt(context: RunContext, states: States) -> list[int]:
    return context.policy.renderer.start([user("\n".join(states))])
