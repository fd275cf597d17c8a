"""WAKER: a world model is shown the variants of a world that it knows worst.

    PYTHONPATH=. python recipes/classical/waker.py --seeds 1 2 3 4 5

Source: Rigter et al. 2024, Reward-Free Curricula for Training Robust World Models. No reward is
seen while the model learns: it is told a grid, a place and a move, and predicts where one will be.
The rules `waker` (the latest error), `waker-reduction` (how much it falls) and `uniform` of
`palaestra list curricula` choose which of 8 variants the next grids are of: 0 to 6 walls, on firm
ground or on ice, where one slides on to the next wall. Afterwards the model is what a breadth-first
search plans with, in grids never seen, for goals never told before; what counts is the worst
variant. Every rule sees as many moves, and starts from the same weights.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Sequence
from statistics import fmean

import torch
import torch.nn.functional as F
from torch import Tensor

from palaestra.core.environment import Action, Environment, Observation, Transition
from palaestra.core.task import Split, Task, TaskSet
from palaestra.learning.compute.shared_prefix_attention import causal_attention
from palaestra.learning.curricula.task_sampling import (
    TaskHistory,
    sample_tasks,
    uniform,
    waker,
    waker_reduction,
)
from palaestra.models.local.attention import Scores
from palaestra.models.local.network import DecoderNetwork
from palaestra.models.local.tiny import tiny_network
from recipes.classical.procedure_cloning import CELLS, MOVES, beside

RULES: dict[str, Callable[[Sequence[TaskHistory]], list[float]]] = {
    "uniform": uniform,
    "waker": waker,
    "waker-reduction": waker_reduction,
}
VARIANTS = [f"{walls}{ice}" for ice in ("", "-ice") for walls in (0, 2, 4, 6)]
MOST_WALLS = 6
GRIDS, TRIES = 16, 4  # per update, and moves tried in each
WORDS = [*CELLS, *MOVES, "firm", "ice", "none"]
LENGTH = MOST_WALLS + 3  # ground, walls, place, move


class Grid(Environment):
    """A grid with walls; on ice one slides."""

    instructions = "Reach the goal. Reply with one word: up, right, down, left."
    at, goal = "", ""
    walls: tuple[str, ...] = ()

    @classmethod
    def names(cls) -> list[str]:
        return VARIANTS

    @classmethod
    def tasks(cls, environment: str) -> TaskSet:
        return TaskSet(environment)

    @property
    def ground(self) -> str:
        return "ice" if self.spec.name.endswith("ice") else "firm"

    def reset(self, task: Task) -> Observation:
        dice = random.Random(f"grid {self.spec.name} {task.seed}")
        reached: list[str] = []
        while len(reached) < 2:
            self.at, *walls = dice.sample(CELLS, 1 + int(self.spec.name[0]))
            self.walls = tuple(sorted(walls))
            reached = [self.at, *plan(self.at, self.after)]
        self.goal = dice.choice(reached[1:])
        return self._told()

    def step(self, action: Action) -> Transition:
        word = action.text.strip().lower()
        if word not in MOVES or self.at == self.goal:
            return Transition(Observation(self.instructions), valid=False)
        self.at = self.after(self.at, word)
        there = self.at == self.goal
        return Transition(self._told(), float(there), terminated=there, success=there)

    def after(self, at: str, word: str) -> str:
        """Where a move leads."""
        to = beside(at, word)
        while to and to not in self.walls:
            at, to = to, beside(to, word) if self.ground == "ice" else ""
        return at

    def _told(self) -> Observation:
        walls = " ".join(self.walls) or "none"
        return Observation(f"ground {self.ground} walls {walls} at {self.at} goal {self.goal}")


def plan(at: str, after: Callable[[str, str], str]) -> dict[str, list[str]]:
    """The shortest ways to all other cells that can be reached, breadth first."""
    ways: dict[str, list[str]] = {at: []}
    queue = [at]
    for cell in queue:
        for word in MOVES:
            to = after(cell, word)
            if to not in ways:
                ways[to] = [*ways[cell], word]
                queue.append(to)
    del ways[at]
    return ways


def row(grid: Grid, at: str, word: str) -> list[int]:
    """What the model is told, in tokens, all of one length."""
    walls = [*grid.walls, *["none"] * (MOST_WALLS - len(grid.walls))]
    return [WORDS.index(said) for said in (grid.ground, *walls, at, word)]


def predict(model: DecoderNetwork, rows: list[list[int]]) -> Tensor:
    """Log-probabilities of the cell where one will be, [rows, cells]."""
    count = len(rows)

    def attend(layer: int, q: Tensor, k: Tensor, v: Tensor, scores: Scores) -> Tensor:
        split = (x.view(count, LENGTH, *x.shape[1:]) for x in (q, k, v))
        return causal_attention(*split).reshape(q.shape)

    positions = torch.arange(LENGTH).repeat(count)
    hidden = model.run(model.embed(torch.tensor(rows).flatten()), positions, attend)
    last = hidden.view(count, LENGTH, -1)[:, -1]
    return F.log_softmax(model.logits(last)[:, : len(CELLS)], dim=-1)


def learn(rule: str, seed: int, updates: int) -> tuple[DecoderNetwork, list[float]]:
    """The model after so many updates, and which share of the grids was of each variant."""
    model = tiny_network(len(WORDS), layers=2, width=64, heads=4, context=LENGTH, seed=seed)
    optimiser = torch.optim.Adam(model.parameters(), lr=2e-3)
    worlds = [Grid(name) for name in VARIANTS]
    errors: list[list[float]] = [[] for _ in VARIANTS]
    shown = [0] * len(VARIANTS)
    for update in range(updates):
        weights = RULES[rule]([TaskHistory(errors=tuple(known[-50:])) for known in errors])
        chosen = sample_tasks(weights, GRIDS, seed=seed * 1_000_000 + update)
        rows, wanted, of = [], [], []
        for number, variant in enumerate(chosen):
            shown[variant] += 1
            grid, dice = worlds[variant], random.Random(f"{seed} {update} {number}")
            grid.reset(grid.tasks("grid").task(Split.TRAIN, dice.randrange(10**9)))
            for word in dice.choices(list(MOVES), k=TRIES):
                rows.append(row(grid, grid.at, word))
                grid.step(Action(word))
                wanted.append(CELLS.index(grid.at))
                of.append(variant)
        losses = -predict(model, rows)[torch.arange(len(rows)), torch.tensor(wanted)]
        for variant in set(of):
            found = [loss for loss, v in zip(losses.tolist(), of, strict=True) if v == variant]
            errors[variant].append(fmean(found))
        optimiser.zero_grad()
        losses.mean().backward()
        optimiser.step()
    return model, [times / sum(shown) for times in shown]


@torch.no_grad()
def tested(model: DecoderNetwork, variant: str, tasks: int) -> tuple[float, float]:
    """Wrong predictions among all moves in test grids, and goals reached by plans, in per cent."""
    grid = Grid(variant)
    wrong, reached = 0, 0
    moves = [(cell, word) for cell in CELLS for word in MOVES]
    for task in grid.tasks("grid").take(Split.TEST, tasks):
        grid.reset(task)
        free = [(cell, word) for cell, word in moves if cell not in grid.walls]
        guessed = predict(model, [row(grid, *move) for move in free]).argmax(-1).tolist()
        table = {move: CELLS[cell] for move, cell in zip(free, guessed, strict=True)}
        wrong += sum(table[move] != grid.after(*move) for move in free) / len(free)
        ways = plan(grid.at, lambda at, word: table.get((at, word), at))  # noqa: B023 - used here
        ends = [grid.step(Action(word)) for word in ways.get(grid.goal, [])]
        reached += any(end.success for end in ends)
    return 100 * wrong / tasks, 100 * reached / tasks


def main(seeds: list[int], updates: int, tasks: int) -> None:
    print("| rule | seed | error, worst | mean | reached, worst | mean | shown most |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for rule in RULES:
        for seed in seeds:
            model, shares = learn(rule, seed, updates)
            wrong, reached = zip(*(tested(model, name, tasks) for name in VARIANTS), strict=True)
            most = max(range(len(VARIANTS)), key=lambda i: shares[i])
            cells = (max(wrong), fmean(wrong), min(reached), fmean(reached))
            numbers = " | ".join(f"{cell:.1f}" for cell in cells)
            told = f"{VARIANTS[most]} ({100 * shares[most]:.0f} %)"
            print(f"| {rule} | {seed} | {numbers} | {told} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--updates", type=int, default=1000)
    parser.add_argument("--tasks", type=int, default=32)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    main(asked.seeds, asked.updates, asked.tasks)
