"""Collects plans and actions for one application, each tried on its real pages.

    PYTHONPATH=. python recipes/web/collect_plans.py runs/cattery --tasks 400

For each training task of `cattery.py` a write-up of the help is drawn and filled in with what the
task states (task-plan data). The plan is done in Chromium, each step grounded in the page that is
then open, which gives gestures (task-action data); these are done again in a fresh world. Both
episodes are recorded with the verdict of the application's state, in the runs FOLDER/plans and
FOLDER/actions. The recipe `lam.toml` imitates those that succeeded.

Source of the experiment: Wang et al. 2024 (Large Action Models).
"""

from __future__ import annotations

import argparse
import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path

from palaestra.agents.direct import DirectAgent
from palaestra.core.environment import AsyncEnvironment
from palaestra.core.episode import Episode, Key
from palaestra.core.task import Split, Task
from palaestra.environments.registry import tasks
from palaestra.models.scripted.scripted_model import ScriptedModel
from palaestra.rollout.groups import Job
from palaestra.rollout.guarded_environment import LocalEnvironment
from palaestra.rollout.runner import Rollout
from palaestra.store.run_folder import RunFolder
from recipes.web.cattery import ACTIONS, BROWSER, PLANS, Cattery
from recipes.web.plan_grounding import plans_of

ID = "recipes.web.cattery:Cattery/"
NO_PLAN, NOT_DONE, NOT_AGAIN, KEPT = (
    "the help has no write-up", "the plan fails", "the gestures fail", "kept",
)  # fmt: skip


class Collector:
    """Records plans and the gestures that they become, task by task."""

    def __init__(self, form: str, seed: int, record_in: Callable[[str, Episode], object]) -> None:
        """Open both environments.

        Args:
            form: `BROWSER` for real pages, or empty for pages as text.
            seed: of the write-ups drawn.
            record_in: takes the kind of each episode, `PLANS` or `ACTIONS`, and the episode.
        """
        self._ids = {kind: f"{ID}{kind}{form}" for kind in (PLANS, ACTIONS)}
        self._worlds = {kind: Cattery(f"{kind}{form}") for kind in (PLANS, ACTIONS)}
        self._rng = random.Random(seed)
        self._record_in = record_in

    async def collect(self, number: int) -> str:
        """Try a plan for a training task; return what came of it."""
        task = tasks(self._ids[PLANS]).task(Split.TRAIN, number)
        world = self._worlds[PLANS]
        world.reset(task)
        plans = plans_of(world.goal)
        if not plans:
            return NO_PLAN
        plan = "\n".join(self._rng.choice(plans))
        planned = await self._record(PLANS, task, number, [plan])
        if not planned.outcome.solved:
            return NOT_DONE
        again = tasks(self._ids[ACTIONS]).task(Split.TRAIN, number)
        acted = await self._record(ACTIONS, again, number, list(world.gestures))
        return KEPT if acted.outcome.solved else NOT_AGAIN

    async def _record(self, kind: str, task: Task, number: int, replies: Iterable[str]) -> Episode:
        """Record an episode with these replies; after the last one the task is given up."""
        world, left = self._worlds[kind], iter(replies)

        async def make(_: str) -> AsyncEnvironment:
            return LocalEnvironment(world)

        async def keep(_: str, __: AsyncEnvironment) -> None:
            """Leave the world open for the next task."""

        model = ScriptedModel(lambda _: next(left, "give up"), name="help")
        [episode] = await Rollout(DirectAgent(), make, {"agent": model}, keep=keep).run(
            [Job(Key(kind, number), task)]
        )
        self._record_in(kind, episode)
        return episode

    def close(self) -> None:
        for world in self._worlds.values():
            world.close()


async def collected(collector: Collector, count: int) -> Counter[str]:
    """Collect on the first training tasks; return how many ended how."""
    return Counter([await collector.collect(number) for number in range(count)])


def main(folder: Path, count: int, form: str, seed: int) -> None:
    about = {"collected": {"tasks": count, "seed": seed}}
    with ExitStack() as stack:
        runs = {
            kind: stack.enter_context(RunFolder.create(folder / kind, about))
            for kind in (PLANS, ACTIONS)
        }
        collector = Collector(form, seed, lambda kind, one: runs[kind].database.finish(one))
        stack.callback(collector.close)
        found = asyncio.run(collected(collector, count))
    for what in (NO_PLAN, NOT_DONE, NOT_AGAIN, KEPT):
        print(f"{what}: {found[what]} of {count} tasks")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tasks", type=int, default=400)
    parser.add_argument("--text", action="store_true", help="read pages as text, without Chromium")
    parser.add_argument("--seed", type=int, default=0, help="of the write-ups drawn")
    asked = parser.parse_args()
    main(asked.folder, asked.tasks, "" if asked.text else BROWSER, asked.seed)
