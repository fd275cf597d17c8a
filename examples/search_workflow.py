"""Searches for the order in which the roles of a team should act, by Monte-Carlo tree search.

A workflow is a sequence of stages, at most LONGEST and an ending. Each simulation of the search
(UCT, Kocsis and Szepesvári 2006) adds a stage to the tree, completes the workflow at random, and
plays it on a few training tasks, until a budget of model calls is spent. HALO (Hou et al. 2025)
searches workflows of language models this way. The members here are simulated (`reader`, see
docs/teams.md), so that it takes a minute; in their place, name a model of your own in ROLES.

Run it: python examples/search_workflow.py
"""

import math
import random
import tempfile
from pathlib import Path

import palaestra as pa
from palaestra.core.environment import Action, Environment, Observation, Transition

ROLES = {
    "author": "reader?right=0.5",
    "other": "reader?right=0.4",
    "critic": "reader?recall=0.9&false=0.1",
    "judge": "reader?honesty=0.8",
}
STAGES = {
    "draft": 'do = "propose"\nwho = ["author"]',  # after a review it is a revision
    "alternative": 'do = "propose"\nwho = ["other"]',
    "review": 'do = "talk"\nwho = ["critic"]',
}
ENDINGS = {"count": 'do = "count"', "judge": 'do = "vote"\nwho = ["judge"]'}
LONGEST, TASKS, CALLS, EXPLORE, ENOUGH = 5, 16, 8000, 0.3, 20
FIXED = ("draft", "alternative", "review", "draft", "judge")
SIDES = ("left", "right")


class Sides(Environment, capabilities={"answer", "admissible"}, typical_turns=1):
    """One question with two answers."""

    instructions = "Where is it? Say one of: left, right."

    def reset(self, task):
        self.right = random.Random(task.seed).choice(SIDES)
        return Observation("Where is it?")

    def step(self, action):
        solved = action.text == self.right
        return Transition(Observation("Over."), float(solved), terminated=True, success=solved)

    def admissible(self):
        return SIDES

    def answer(self):
        return Action(self.right)


def choices(flow):
    """The stages that may come next; a workflow begins with a proposal."""
    if not flow:
        return ["draft", "alternative"]
    return [*ENDINGS] if len(flow) == LONGEST else [*STAGES, *ENDINGS]


def play(flow, n, split, seed, folder):
    """The results of a workflow, and the model calls that it took."""
    file = folder / f"{'-'.join(flow)}.toml"
    roles = [f'[members.{name}]\nmodel = "{model}"\n' for name, model in ROLES.items()]
    stages = [f"[[stage]]\n{(STAGES | ENDINGS)[name]}\n" for name in flow]
    file.write_text("".join(roles + stages))
    run = folder / f"run-{split}-{seed}-{len(list(folder.iterdir()))}"
    results = pa.evaluate(
        Sides, team=str(file), model="reader", n=n, split=split, seed=seed, run=run, workers=0,
        progress=False,
    )  # fmt: skip
    return results, results.data["turns"] * n


def search(folder, calls=CALLS, seed=0):
    """The best workflow that was played below the most visited node of the tree."""
    visits, total, played = {(): 0}, {(): 0.0}, {}
    rng, spent, number = random.Random(seed), 0.0, 0
    while spent < calls:
        flow, number = (), number + 1
        path = [flow]
        while not flow or flow[-1] not in ENDINGS:
            children = [(*flow, name) for name in choices(flow)]
            new = [child for child in children if child not in visits]
            if new:
                flow = rng.choice(new)
                path.append(flow)
                break
            seen = math.log(visits[flow])
            flow = max(
                children,
                key=lambda c: total[c] / visits[c] + EXPLORE * math.sqrt(seen / visits[c]),
            )
            path.append(flow)
        while flow[-1] not in ENDINGS:
            flow = (*flow, rng.choice(choices(flow)))
        results, took = play(flow, TASKS, "train", number, folder)
        spent += took
        played.setdefault(flow, []).append(results.success)
        for node in path:
            visits[node] = visits.get(node, 0) + 1
            total[node] = total.get(node, 0.0) + results.success
    print(f"{number} simulations, {spent:.0f} calls")
    best = ()
    while visits[best] >= ENOUGH and (not best or best[-1] not in ENDINGS):
        best = max(((*best, name) for name in choices(best)), key=lambda c: visits.get(c, 0))
    below = {flow: got for flow, got in played.items() if flow[: len(best)] == best}
    return max(below, key=lambda flow: sum(below[flow]) / len(below[flow]))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        for name, flow in (("fixed", FIXED), ("found", search(Path(temporary)))):
            results, calls = play(flow, 1000, "test", 0, Path(temporary))
            low, high = results.interval
            print(f"{name}: {', '.join(flow)}: success {results.success:.3f} "
                  f"({low:.3f} to {high:.3f}), {calls / 1000:.2f} calls a task")  # fmt: skip
