"""Episodes and a store in memory, small enough to see, for the tests of this room."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from palaestra.core.budget import Usage
from palaestra.core.environment import Action, Observation, Signals, Transition
from palaestra.core.episode import Episode, Key, Step
from palaestra.core.outcome import Limit, Outcome, Owner
from palaestra.core.task import Split, TaskSet

SUCCESS, FAILURE = Outcome.success(), Outcome.failure()
OUT_OF_TURNS = Outcome.truncated(Limit.TURNS)
CRASH = Outcome.error("crash", Owner.ENVIRONMENT, "the world went away")
LOST = Outcome.error("workers", Owner.INFRASTRUCTURE, "killed by SIGKILL from outside")
UNPARSED = Outcome.error("unparsed", Owner.AGENT, "2 actions in a row were not understood")


def episode(
    phase: str,
    group: int,
    outcome: Outcome,
    actions: Sequence[str] = ("turn left", "go forward"),
    *,
    member: int = 0,
    invalid: Sequence[int] = (),
    environment: str = "babyai/GoToLocal",
    seen: str = "You see a red ball 2 steps ahead.",
) -> Episode:
    """An episode with these actions; those at the places in `invalid` are not understood."""
    steps = []
    for index, action in enumerate(actions):
        last = index == len(actions) - 1
        solved = last and outcome.solved
        step = Step(
            index=index,
            call=None,
            action=Action(action),
            transition=Transition(
                Observation("I do not understand." if index in invalid else seen),
                reward=1.0 if solved else 0.0,
                terminated=solved,
                success=solved,
                valid=index not in invalid,
            ),
            before=Signals(),
        )
        steps.append(step)
    return Episode(
        key=Key(phase, group, member),
        task=TaskSet(environment).task(Split.TEST, group),
        agent="direct",
        observation=Observation(f"Mission: go to the red ball. {seen}"),
        calls=(),
        steps=tuple(steps),
        outcome=outcome,
        usage=Usage(turns=len(steps)),
    )


@dataclass
class MemoryStore:
    """A store that keeps everything in memory."""

    recorded: dict[str, list[Episode]] = field(default_factory=dict)
    curves: dict[str, list[tuple[int, dict[str, float]]]] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)

    def episodes(self, phase: str) -> list[Episode]:
        return self.recorded.get(phase, [])

    def phases(self) -> list[str]:
        return list(self.recorded)

    def metric_phases(self) -> list[str]:
        return list(self.curves)

    def metrics(self, phase: str) -> list[tuple[int, dict[str, float]]]:
        return self.curves.get(phase, [])

    def get(self, key: str) -> Any:
        return self.values.get(key)


def evaluation(
    phase: str, rate: float, count: int, *, environment: str = "babyai/GoToLocal", seed: int = 0
) -> list[Episode]:
    """One episode per task; the same `seed` makes the same tasks hard."""
    hardness = np.random.default_rng(seed).random(count)
    noise = np.random.default_rng([seed, round(rate * 1000)]).random(count)
    words = ["turn left", "go forward", "go forward", "turn right", "go forward"]
    made = []
    for group in range(count):
        solved = 0.7 * hardness[group] + 0.3 * noise[group] < rate
        length = 2 + group % 3 if solved else 12
        made.append(
            episode(
                phase,
                group,
                SUCCESS if solved else OUT_OF_TURNS,
                [words[i % 5] for i in range(length)],
                invalid=() if solved else (1, 4),
                environment=environment,
            )
        )
    return made


def curve(steps: int) -> list[tuple[int, dict[str, float]]]:
    """Metrics of an RL stage that learns."""
    rng = np.random.default_rng(1)
    rows = []
    for step in range(1, steps + 1):
        success = rng.binomial(64, 0.36 + 0.42 * (1 - np.exp(-step / 28))) / 64
        rows.append(
            (
                step,
                {
                    "success": float(success),
                    "reward": float(0.85 * success),
                    "entropy": float(0.9 * np.exp(-step / 25) + 0.18 + rng.normal(0, 0.03)),
                    "kl": 0.001 * step,
                },
            )
        )
    return rows


def full_run(count: int = 256) -> MemoryStore:
    """A run in which every stage has finished."""
    store = MemoryStore()
    for policy, rate, elsewhere in (
        ("base", 0.1, 0.05),
        ("imitation", 0.36, 0.2),
        ("rl", 0.7, 0.3),
    ):
        store.recorded[f"test/{policy}"] = evaluation(f"test/{policy}", rate, count)
        store.recorded[f"transfer/{policy}"] = evaluation(
            f"transfer/{policy}", elsewhere, count // 2, environment="babyai/GoToObj", seed=1
        )
    store.curves["rl"] = curve(60)
    names = ("base evaluation", "imitation", "evaluation", "rl", "evaluation", "transfer")
    store.values = {
        "recipe": {"environment": "babyai/GoToLocal", "algorithm": "loop", "seed": 0},
        "machine": {"cpu": "two cores", "cores": 2, "memory_bytes": 16 * 10**9},
        "totals": {
            "seconds": 492.4,
            "peak_memory_bytes": 5_120_000_000,
            "seconds_setup": 41.2,
        },
        "stages": [
            {
                "name": name,
                "seconds": 40.0 + 50 * place,
                "sampled_tokens": 12_345 * (place + 1),
                "prompt_tokens": 98_765 * (place + 1),
                "trained_tokens": 45_678 if name in ("imitation", "rl") else 0,
            }
            for place, name in enumerate(names)
        ],
    }
    return store
