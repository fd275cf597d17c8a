"""The stage that learns a reward model from recorded episodes, and tests it on held-out tasks."""

from __future__ import annotations

import asyncio
import copy
import math
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass

from palaestra.core.episode import Episode, derive_seed
from palaestra.core.errors import InputError
from palaestra.evaluation.statistics.self_report import binned, brier_score, calibration_error
from palaestra.learning.critics.encoder import replies
from palaestra.learning.critics.reward_model import Judged, RewardModel
from palaestra.learning.data.examples.example import group_of, usable
from palaestra.learning.data.rows import Row, rows_of
from palaestra.learning.data.trajectory import Trajectory
from palaestra.store import checkpoint
from palaestra.training.loop_plan import shaping
from palaestra.training.reward_models import KIND, saved_parts
from palaestra.training.run_context import RunContext
from palaestra.training.stage_program import Made
from palaestra.training.stage_sections import Reward
from palaestra.training.stages.learning_updates import rows_learned
from palaestra.training.stages.reading import read
from palaestra.training.stages.testing import tokens_of

Pair = tuple[Sequence[int], Sequence[int]]  # chosen, rejected


@dataclass(frozen=True, slots=True)
class JudgedRollout:
    """A rollout, and its task."""

    group: str
    judged: Judged

    @property
    def whole(self) -> Sequence[int]:
        """All its tokens up to its last reply."""
        return self.judged.replies[-1]


async def reward(
    context: RunContext, part: Reward, made: Made, ready: Callable[[], Awaitable[None]]
) -> None:
    """Train the stage's reward model, unless that is done.

    Args:
        context: of the stage.
        part: its table.
        made: what earlier stages have made.
        ready: puts the policy's latest version in place, with which the model begins.

    Raises:
        InputError: a source has nothing to show, or there is nothing to tell apart.
    """
    record = context.record
    if context.accounts.is_done(record) and saved_parts(context, record) is not None:
        return
    await ready()
    done, started = context.accounts.is_done(record), time.monotonic()
    shown = await read(context, part.sources, made)
    rollouts: list[JudgedRollout] = []
    rows: list[Row] = []
    for one in shown:
        for episode in usable(one.episodes, one.speaker):
            own = rows_of(episode, one.speaker)
            rows += own
            rollouts.append(judged_rollout(context, episode, own, one.speaker))
    rows_learned(context, rows, shown)
    kept, tested = split_by_task(context, rollouts, part.held_out)
    model = blank_model(context, part)
    if not (
        _pairs(kept) if part.kind == "preference" else len({r.judged.success for r in kept}) > 1
    ):
        raise InputError(
            f"{record}: all {len(kept)} rollouts to learn from ended alike, so a reward model "
            "cannot tell them apart; explore more tasks, or with a larger group."
        )
    with context.reporter.stage(record, part.updates, "updates") as line:
        for step, loss in enumerate(updates(model, kept, part.kind, part.updates), 1):
            context.add_metrics(record, step, {"loss": loss})
            line.show(step, {"loss": f"{loss:.3f}"}, total=part.updates)
            await asyncio.sleep(0)  # lets Ctrl-C through
    found = _tested(model, tested, part.kind)
    context.store.put(f"reward/{record}", found)
    context.reporter.say(f"{record}: {_words(found)}")
    context.store.sync()
    checkpoint.save(context.run.checkpoints, record, model.state(), {KIND: part.kind})
    if not done:
        counted = tokens_of([e for one in shown if one.counted for e in one.episodes])
        trained = sum(row.trained for row in rows)
        seconds = time.monotonic() - started
        context.accounts.finish_stage(record, seconds, **counted, trained=trained)


def blank_model(context: RunContext, part: Reward) -> RewardModel:
    """Return a reward model that begins as a copy of the policy, with the stage's settings."""
    return RewardModel(
        copy.deepcopy(context.policy.network),
        seed=context.stage_seed,
        learning_rate=part.learning_rate,
        batch=part.batch,
    )


def judged_rollout(
    context: RunContext, episode: Episode, rows: Sequence[Row], speaker: str
) -> JudgedRollout:
    """Return an episode with its true outcome, as a reward model learns from it."""
    own = shaping(context.recipe.rl, context.turns, context.recipe.seed)
    trajectory: Trajectory = own.trajectory(episode, speaker)
    (turns,) = replies([trajectory], rows)
    judged = Judged(tuple(turn.whole for turn in turns), float(episode.outcome.solved))
    return JudgedRollout(group_of(episode), judged)


def split_by_task(
    context: RunContext, rollouts: Sequence[JudgedRollout], held_out: float
) -> tuple[list[JudgedRollout], list[JudgedRollout]]:
    """Return rollouts to learn from, and those of a share of the tasks, to test on."""
    split: tuple[list[JudgedRollout], list[JudgedRollout]] = ([], [])
    for one in rollouts:
        number = derive_seed("held out", context.recipe.seed, one.group) % 1000
        split[number < 1000 * held_out].append(one)
    return split


def updates(
    model: RewardModel, rollouts: Sequence[JudgedRollout], kind: str, count: int
) -> Iterator[float]:
    """Run updates of a reward model on rollouts; yield the loss of each."""
    judged, pairs = [one.judged for one in rollouts], _pairs(rollouts)
    for _ in range(count):
        if kind == "preference":
            yield model.learn_preferences(pairs)
        else:
            yield model.learn_success(judged)


def _pairs(rollouts: Sequence[JudgedRollout]) -> list[Pair]:
    """Return all (success, failure) of the same task, in order."""
    together: dict[str, list[JudgedRollout]] = {}
    for one in rollouts:
        together.setdefault(one.group, []).append(one)
    return [
        (good.whole, bad.whole)
        for of in together.values()
        for good in of
        for bad in of
        if good.judged.success > bad.judged.success
    ]


def _tested(model: RewardModel, rollouts: Sequence[JudgedRollout], kind: str) -> dict[str, float]:
    """Return how well the model judges rollouts on tasks that it never saw.

    For a success predictor, of all turns and of the last ones alone; for both kinds, the share of
    pairs of success and failure at one task that it ranks right.
    """
    found: dict[str, float] = {"rollouts": len(rollouts)}
    if kind == "success" and rollouts:
        turns = [(reply, one.judged.success) for one in rollouts for reply in one.judged.replies]
        for name, of in (
            ("turns", turns),
            ("last", [(one.whole, one.judged.success) for one in rollouts]),
        ):
            logits = model.scores([tokens for tokens, _ in of])
            predicted = [1 / (1 + math.exp(-logit)) for logit in logits]
            both = list(zip(predicted, (success for _, success in of), strict=True))
            found[f"brier_{name}"] = brier_score(both)
            found[f"ece_{name}"] = calibration_error(binned(both))
    pairs = _pairs(rollouts)
    found["pairs"] = len(pairs)
    if pairs:
        good = model.scores([better for better, _ in pairs])
        bad = model.scores([worse for _, worse in pairs])
        right = [float(a > b) + 0.5 * (a == b) for a, b in zip(good, bad, strict=True)]
        found["accuracy"] = sum(right) / len(right)
    return found


def _words(found: dict[str, float]) -> str:
    parts = [f"on {found['rollouts']:.0f} held-out rollouts"]
    names = {"brier_turns": "Brier score", "ece_turns": "calibration error"}
    parts += [f"{words} {found[name]:.3f}" for name, words in names.items() if name in found]
    if "accuracy" in found:
        parts.append(f"{found['accuracy']:.0%} of {found['pairs']:.0f} pairs ranked right")
    return ", ".join(parts)
