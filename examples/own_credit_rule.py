"""A credit rule of your own: train with it, and compare it with ten others on recorded rollouts.

A rule says how much better than expected each turn was. This one compares a rollout with the
others of its task; the advantage fades for turns far from the end.
Run it: python examples/own_credit_rule.py
"""

from collections.abc import Sequence

from torch import Tensor

import palaestra as pa
from palaestra.learning.credit.compose import parse
from palaestra.learning.credit.returns import rloo
from palaestra.learning.credit.rule import per_token
from palaestra.learning.methods.credit_comparison import compare
from palaestra.training.trace import open_recorded, read_trace

OTHERS = (
    "anchor", "broadcast", "drgrpo", "gigpo", "grpo", "reinforce", "reinforce++", "return_to_go",
    "rloo", "step_grpo",
)  # fmt: skip


@pa.credit_rule(source="this example", needs=["groups"])
def recency(batch: Sequence[pa.Trajectory], *, half_life: float = 2.0) -> list[Tensor]:
    """Leave-one-out advantages that fade with the distance from the end."""
    found = []
    for trajectory, advantages in zip(batch, rloo(batch).advantages, strict=True):
        last = len(trajectory.turns) - 1
        fade = [0.5 ** ((last - turn) / half_life) for turn in range(last + 1)]
        found.append(advantages * per_token(trajectory, fade))
    return found


if __name__ == "__main__":
    run = pa.train(
        "quick",
        env="babyai/GoToObjS4",
        model={"context": 512, "tiny": {"layers": 2, "width": 64}},
        imitation={"demonstrations": 96, "epochs": 6, "learning_rate": 3e-3},
        rl={"steps": 4, "tasks": 8, "group": 4, "credit": recency},
        evaluation={"tasks": 16},
    )
    print(run)

    recorded, _ = open_recorded(str(run.path))
    trace = read_trace(recorded, "rl/4")
    rules = {name: parse(name) for name in ("recency", *OTHERS)}
    comparison = compare(trace.batch, rules)
    print(f"\n{comparison.turns} turns of {len(trace.batch)} rollouts")
    print(f"{'rule':14}{'varies within rollouts':>24}{'agrees with recency':>22}")
    for figures in comparison.rules:
        pair = comparison.pairs.get(("recency", figures.name))
        within = "" if figures.within is None else f"{100 * figures.within:.0f} %"
        agreement = "" if pair is None or pair.pearson is None else f"{pair.pearson:+.2f}"
        print(f"{figures.name:14}{within:>24}{agreement:>22}")
