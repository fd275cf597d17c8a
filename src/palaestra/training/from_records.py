"""Learning from recorded episodes, after the run: a policy, a Q model, or a value model.

`policy`  DPO on the best and the worst of a role's replies to one history. For the role "planner"
          of the agent `meta` this is MPO (Xiong et al. 2025): its plans are judged by how the runs
          with them went. The result is a checkpoint like any other.
`q`       the same, stored with its reference model: a scorer of actions (Zhai et al. 2024).
`value`   regression on the states in which a role replied: a scorer of states (Xia et al. 2025).

A share of the groups is held out to measure how much was learned.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Literal, TypeVar

import torch

from palaestra.core.episode import Episode
from palaestra.core.errors import InputError, UnknownName
from palaestra.learning.credit.rule import explained_variance
from palaestra.learning.critics.agent_rm import ValueModel
from palaestra.learning.critics.recorded_values import ACTS, Choice, State, choices, states
from palaestra.learning.critics.step_q import StepQ
from palaestra.models import registry
from palaestra.models.local import scoring
from palaestra.models.local.devices import device
from palaestra.models.local.network import DecoderNetwork
from palaestra.models.local.networks import load_network
from palaestra.runtime.progress import Reporter

Kind = Literal["policy", "q", "value"]
T = TypeVar("T", Choice, State)
CHECKED_REPLIES = 32  # whose text is compared with what the base decodes from their tokens


@dataclass(frozen=True, slots=True)
class Lesson:
    """The settings of learning from records."""

    kind: Kind
    role: str = ACTS  # whose replies
    score: str = "success"  # success, reward or progress
    gap: float = 0.0  # values of a pair differ by more
    updates: int = 60
    batch: int = 16  # pairs or states of an update
    learning_rate: float = 1e-5
    beta: float = 0.1  # DPO: strength of the pull to the reference
    held_out: float = 0.2  # share of the groups
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Learned:
    """The measured result of learning from records."""

    base: str
    items: int  # pairs or states that were learned from …
    held: int  # … and that were held out
    first_loss: float  # means of the first and the last tenth of the updates
    last_loss: float
    held_score: float | None  # share of held-out pairs ranked right, or of variance explained
    seconds: float


def learn(
    episodes: Sequence[Episode], lesson: Lesson, folder: Path, reporter: Reporter, base: str = ""
) -> Learned:
    """Learn from episodes and write the learned model into a folder.

    Args:
        episodes: with several rollouts of each task.
        lesson: the settings.
        folder: new or empty.
        reporter: receives progress.
        base: the model to start from; by default the one whose replies are learned from.

    Raises:
        InputError: no episode can be learned from, or the base uses other tokens.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"'{folder}' is not empty; name a new or empty folder with --out.")
    started = time.monotonic()
    base = _base(episodes, lesson.role, base)
    found = registry.checkpoint(base, reporter.say)
    registry.check_unrouted(base)
    if found.adapter is not None:
        raise InputError(
            f"'{base}' names an adapter, which episodes do not train here; merge it into its base "
            "with peft, and give the result with --base."
        )
    if found.quantise is not None:
        raise InputError(
            f"'{base}' is quantised, and all of its weights are trained here; give --base without "
            "quantise."
        )
    origin = found.folder
    _check_tokens(episodes, lesson.role, origin, base)
    network = load_network(origin, torch.float32).to(device("auto"))
    train = _values if lesson.kind == "value" else _pairs
    counts, losses, score = train(network, episodes, lesson, origin, folder)
    tenth = max(1, len(losses) // 10)
    return Learned(
        base,
        *counts,
        first_loss=fmean(losses[:tenth]),
        last_loss=fmean(losses[-tenth:]),
        held_score=score,
        seconds=time.monotonic() - started,
    )


Trained = tuple[tuple[int, int], list[float], float | None]
"""Counts of training and held-out items, the loss of each update, and the held-out score."""


def _pairs(
    network: DecoderNetwork, episodes: Sequence[Episode], lesson: Lesson, origin: Path, folder: Path
) -> Trained:
    found = choices(episodes, lesson.role, score=lesson.score, gap=lesson.gap)
    if not found:
        raise InputError(
            f"The role '{lesson.role}' has no two replies to one prompt with different values, so "
            "there are no pairs; record more rollouts of each task (--repeats, a higher "
            "--temperature), or use --score progress."
        )
    training, held = _split(found, lesson)
    rate, batch = lesson.learning_rate, lesson.batch
    q = StepQ(network, seed=lesson.seed, beta=lesson.beta, learning_rate=rate, batch=batch)
    losses = q.learn([choice.preference for choice in training], lesson.updates)
    if lesson.kind == "q":
        scoring.save_q(folder, q.network, q.reference, origin, beta=lesson.beta)
    else:
        scoring.save_policy(folder, q.network, origin)
    pairs = [choice.preference for choice in held]
    scores = [q.scores(pair.history, [pair.chosen, pair.rejected]) for pair in pairs]
    right = fmean(good > bad for good, bad in scores) if scores else None
    return (len(training), len(held)), losses, right


def _values(
    network: DecoderNetwork, episodes: Sequence[Episode], lesson: Lesson, origin: Path, folder: Path
) -> Trained:
    found = states(episodes, lesson.role, score=lesson.score)
    training, held = _split(found, lesson)
    rate, batch = lesson.learning_rate, lesson.batch
    value = ValueModel(network, seed=lesson.seed, learning_rate=rate, batch=batch)
    targets = [state.value for state in training]
    losses = value.learn([state.tokens for state in training], targets, lesson.updates)
    scoring.save_value(folder, network, dict(value.model.head.named_parameters()), origin)
    predicted = torch.tensor(value.scores([state.tokens for state in held]))
    true = torch.tensor([state.value for state in held])
    explained = explained_variance(predicted, true) if len(held) > 1 and true.var() > 0 else None
    return (len(training), len(held)), losses, explained


def _split(items: Sequence[T], lesson: Lesson) -> tuple[list[T], list[T]]:
    """Split items by whole groups into training and held out; a single group is not held out."""
    groups = sorted({item.group for item in items})
    random.Random(lesson.seed).shuffle(groups)
    held = set(groups[: int(lesson.held_out * len(groups))])
    training = [item for item in items if item.group not in held]
    return training, [item for item in items if item.group in held]


def _base(episodes: Sequence[Episode], role: str, named: str) -> str:
    """Return the named model, or else the one that played the role."""
    names = {call.policy for episode in episodes for call in episode.calls if call.role == role}
    if not names:
        roles = {call.role for episode in episodes for call in episode.calls}
        raise UnknownName("role in these episodes", role, roles)
    if len(names) > 1 and not named:
        raise InputError(
            f"The role '{role}' was played by {', '.join(sorted(names))}; name the one to start "
            "from with --model."
        )
    return named or names.pop()


def _check_tokens(episodes: Sequence[Episode], role: str, origin: Path, base: str) -> None:
    """Raise InputError if the base decodes the recorded tokens to other text."""
    renderer = registry.renderer_of(origin)
    calls = (call for e in episodes for call in e.calls if call.role == role and call.completion)
    for call in itertools.islice(calls, CHECKED_REPLIES):
        try:
            same = renderer.text(call.completion) == call.reply.text
        except (IndexError, ValueError, OverflowError, TypeError):
            same = False
        if not same:
            raise InputError(
                f"The replies of '{role}' were recorded in other tokens than those of '{base}'; "
                "name the model that made them with --model."
            )
