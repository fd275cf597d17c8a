"""The shape of the cost: milliseconds per sampled token against four sizes, one at a time.

Sessions in the queue (1 to 4,096; 64 run at once), turns of one session (1 to 256), tokens of
context (256 to 8,192) and members of a group that share a prompt (1 to 64). Long queues are cut
off after some seconds; what was sampled by then counts. At every point, log-probabilities of
the last replies are compared with the learner's. SmolLM2-135M in bf16, prompts from this
project's own pages:
    python benchmarks/shape.py [--json] [--plot docs/images/shape.png]

The ratio of a row is the cost of its first point over that of its last one.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", str(os.cpu_count()))

import pictures
import workload
from measuring import Result, run
from provenance import ROOT

from palaestra.core.model import Sampling
from palaestra.learning.compute.master_weights import Optimisation
from palaestra.learning.compute.packing import Trained
from palaestra.learning.compute.weight_selection import top_layers
from palaestra.learning.loop.learner import Learner
from palaestra.models.local.engine import Engine
from palaestra.models.local.network import DecoderNetwork
from palaestra.models.local.request import Request
from palaestra.models.local.resident import ResidentModel
from palaestra.models.registry import renderer_of

SLOTS, NEW, SAMPLED = 64, 24, 8  # 256 turns fill the context of 8,192 tokens
SESSIONS = (1, 4, 16, 64, 256, 1024, 4096)
TURNS = (1, 4, 16, 64, 256)
CONTEXT = (256, 512, 1024, 2048, 4096, 8192)
GROUP = (1, 2, 4, 8, 16, 32, 64)
GROUP_PROMPT = 512
REPLIES = 16  # whose log-probabilities are compared at each point, at most
TOLERANCE = 0.03  # nats on average, in bf16 (SPECIFICATION.md, E6)


@dataclass(frozen=True, slots=True)
class Point:
    """One measurement."""

    size: int
    cost: float  # milliseconds per sampled token
    gaps: tuple[float, ...]  # between engine and learner, nats, of each token compared


class Bench:
    """The network, its learner, texts, and a clock."""

    def __init__(self, network: DecoderNetwork, seconds: float) -> None:
        self.network, self.seconds = network, seconds
        renderer = renderer_of(workload.checkpoint())
        pages = sorted((ROOT / "docs").rglob("*.md"))
        self.text = renderer.reply("\n".join(page.read_text() for page in pages))
        model = ResidentModel("smollm2-135m", network, renderer, slots=1, context=64)
        # one layer is selected: nothing is trained here, and master weights of all would be copied
        self.learner = Learner(model, top_layers(network, 1), Optimisation(learning_rate=0.0))

    def words(self, dice: random.Random, count: int) -> list[int]:
        """Tokens from anywhere in the texts."""
        start = dice.randrange(len(self.text) - count)
        return self.text[start : start + count]

    def gaps(self, requests: Sequence[Request]) -> tuple[float, ...]:
        """Distances of the engine's and the learner's log-probabilities, token for token."""
        rows = [
            Trained([*r.tokens, *r.completion], [False] * len(r.tokens) + [True] * SAMPLED)
            for r in requests
        ]
        learned = [lp for row in self.learner.logprobs(rows) for lp in row]
        sampled = [lp for request in requests for lp in request.logprobs]
        return tuple(abs(a - b) for a, b in zip(sampled, learned, strict=True))

    def point(self, size: int, slots: int, context: int, live: Live) -> Point:
        """Measure `live` in an engine of its own, after a first one that warms up."""
        dice = random.Random(size)
        engine = Engine(self.network, frozenset(), slots=slots, context=context)
        warm = engine.submit(self.words(dice, 16), Sampling(1.0, SAMPLED), 0)
        _finish(engine)
        assert warm.completion
        started = time.perf_counter()
        requests = live(engine, dice)
        spent = time.perf_counter() - started
        sampled = sum(len(request.completion) for request in requests)
        done = [request for request in requests if len(request.completion) == SAMPLED]
        return Point(size, 1e3 * spent / sampled, self.gaps(done[-REPLIES:]))

    def sessions(self, count: int) -> Point:
        def live(engine: Engine, dice: random.Random) -> list[Request]:
            requests = [
                engine.submit(self.words(dice, NEW), Sampling(1.0, SAMPLED), number)
                for number in range(count)
            ]
            _finish(engine, time.perf_counter() + self.seconds)
            return requests

        return self.point(count, SLOTS, 256, live)

    def turns(self, count: int) -> Point:
        def live(engine: Engine, dice: random.Random) -> list[Request]:
            history: list[int] = []
            asked: list[Request] = []
            for turn in range(count):
                history += self.words(dice, NEW)
                asked.append(engine.submit(history, Sampling(1.0, SAMPLED), turn))
                _finish(engine)
                history += asked[-1].completion
            return asked

        return self.point(count, 1, max(256, count * (NEW + SAMPLED)), live)

    def context(self, tokens: int) -> Point:
        def live(engine: Engine, dice: random.Random) -> list[Request]:
            prompt = self.words(dice, tokens - SAMPLED)
            asked = [engine.submit(prompt, Sampling(1.0, SAMPLED), 0)]
            _finish(engine)
            return asked

        return self.point(tokens, 1, tokens, live)

    def group(self, members: int) -> Point:
        def live(engine: Engine, dice: random.Random) -> list[Request]:
            prompt = self.words(dice, GROUP_PROMPT)
            asked = [
                engine.submit(prompt, Sampling(1.0, SAMPLED), number) for number in range(members)
            ]
            _finish(engine)
            return asked

        return self.point(members, SLOTS, 1024, live)


Live = Callable[[Engine, random.Random], list[Request]]
"""Runs requests in an engine and returns all of them, those that it did not finish too."""


def _finish(engine: Engine, until: float = math.inf) -> None:
    while engine.pending and time.perf_counter() < until:
        engine.step()


def _row(name: str, unit: str, points: Sequence[Point]) -> Result:
    """One curve.

    Raises:
        RuntimeError: engine and learner are further apart than they may be.
    """
    ratios = [points[0].cost / point.cost for point in points]
    gap = statistics.mean(gap for point in points for gap in point.gaps)
    if gap > TOLERANCE:
        raise RuntimeError(
            f"engine and learner are {gap:.4f} nats apart (cost against {name}), which is more "
            f"than {TOLERANCE}: a cost of wrong results is none"
        )
    return Result(
        name=f"shape: cost against {name}",
        ratio=ratios[-1],
        goal=None,
        low=min(ratios),
        high=max(ratios),
        figures={
            **{f"{point.size} {unit}, ms per sampled token": point.cost for point in points},
            "mean gap to the learner, nats": gap,
            "largest mean gap of a point, nats": max(
                statistics.mean(point.gaps) for point in points
            ),
        },
    )


def measure(options: argparse.Namespace) -> list[Result]:
    """A row for each size."""
    bench = Bench(workload.network(), options.seconds)
    curves: dict[str, Sequence[Point]] = {
        "sessions": [bench.sessions(count) for count in SESSIONS],
        "turns": [bench.turns(count) for count in TURNS],
        "tokens of context": [bench.context(tokens) for tokens in CONTEXT],
        "members of a group": [bench.group(members) for members in GROUP],
    }
    if options.plot is not None:
        costs = {name: [(p.size, p.cost) for p in points] for name, points in curves.items()}
        pictures.curves(costs, options.plot)
    units = ("sessions", "turns", "tokens", "members")
    return [_row(name, unit, curves[name]) for name, unit in zip(curves, units, strict=True)]


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=20.0, help="per point (20)")
    parser.add_argument("--plot", type=Path, help="where to draw the curves")


if __name__ == "__main__":
    run(__doc__, measure, _options)
