"""Reinforcement learning in imagined pages, on real ones, and with an expert's rollouts between.

    PYTHONPATH=. python recipes/web/dynaweb.py --seeds 1 2 3

Source: DynaWeb 2026, Model-Based Reinforcement Learning of Web Agents. A policy imitates an expert
on the shelter. Then each arm learns in `--rounds` rounds of 192 rollouts from their successes so
far, which is the policy gradient of a reward of 0 or 1:

    real          the rollouts are on the real site
    dream         in place of them, the policy that imitated takes equally many steps there; from
                  these a model learns the next page, and all rollouts are in the model
                  (`page_model.py`)
    mixed         the same, and the expert's rollouts are among those learned, in random order
                  (DynaWeb)
    real+expert   as `real`, with the expert's

The expert's rollouts are the demonstrations and cost no further step. A rollout exploits the model
if its actions succeed in the dream and not on the real site; each success in a dream is replayed
there, to be counted and not to be learned from.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch

from palaestra.agents.direct import DirectAgent
from palaestra.core.budget import Budget
from palaestra.core.environment import AsyncEnvironment
from palaestra.core.episode import Episode, Key
from palaestra.core.model import Model, Sampling
from palaestra.core.task import Split, Task
from palaestra.evaluation.statistics.intervals import Interval, paired_difference, wilson
from palaestra.learning.compute.master_weights import Optimisation
from palaestra.learning.compute.weight_selection import everything
from palaestra.learning.data.examples.example import Example
from palaestra.learning.data.rows import rows_of
from palaestra.learning.loop.imitation import ImitationPlan, batches_of, imitate
from palaestra.learning.loop.learner import Learner
from palaestra.models.local.resident import ResidentModel
from palaestra.models.local.tiny import learn_vocabulary, tiny_network
from palaestra.models.renderers.chatml import ChatMLRenderer
from palaestra.models.scripted.expert import ExpertModel
from palaestra.rollout.guarded_environment import LocalEnvironment
from palaestra.rollout.runner import Job, Rollout
from recipes.web.page_model import DONE, ImaginedSite, PageModel, agrees, is_page, visits_of
from recipes.web.shelter import PROPOSED, ShelterTasks

REAL, IMAGINED = "shelter", "imagined"  # environments
ARMS = ("real", "dream", "mixed", "real+expert")
TURNS, LONGEST, CONTEXT = 4, 8, 384  # of an episode; tokens of a reply and of a conversation
TASKS, GROUP = 96, 2  # rollouts of one round
DEMONSTRATIONS = 64


@dataclass(slots=True)
class Learned:
    """What an arm did, and what its policy solves."""

    real_steps: int = 0  # of its rollouts
    rounds: list[tuple[int, int, int]] = field(default_factory=list)
    """Of each round: rollouts, successes (in the dream, if it is one), those that are none on the
    real site."""

    proposed: list[bool] = field(default_factory=list)  # held-out tasks solved, by task
    written: list[bool] = field(default_factory=list)  # tasks of a person


class Experiment:
    """One seed: the policy that imitated, the expert's rollouts, and the arms."""

    def __init__(self, seed: int) -> None:
        self.seed, self.agent = seed, DirectAgent(history=0, first=False)
        self.pages: PageModel | None = None
        self.demonstrated = self._tasks(Split.TRAIN, DEMONSTRATIONS, 0)
        texts = [ShelterTasks.instructions]
        world = ShelterTasks(PROPOSED)
        for task in self.demonstrated:
            texts.append(world.reset(task).text)
            for action in world.oracle():
                texts += [action.text, world.step(action).observation.text]
        self.tokenizer = learn_vocabulary(texts)
        network = tiny_network(
            self.tokenizer.get_vocab_size(),
            layers=2,
            width=64,
            heads=4,
            context=CONTEXT,
            seed=seed,
        )
        renderer = ChatMLRenderer(self.tokenizer)
        self.policy = ResidentModel("policy", network, renderer, context=CONTEXT)
        self.expert = ExpertModel(self.agent, renderer)
        self.experts: list[Episode] = []
        self.start: dict[str, torch.Tensor] = {}

    def _tasks(self, split: Split, count: int, first: int, environment: str = REAL) -> list[Task]:
        return ShelterTasks.tasks(environment).take(split, count, first)

    async def roll_out(
        self,
        jobs: Sequence[Job],
        model: Model | None = None,
        temperature: float = 1.0,
    ) -> list[Episode]:
        """Return an episode of each job, of the policy unless another model is given."""
        models = {"agent": model or self.policy}
        rollout = Rollout(
            self.agent,
            self._opened,
            models,
            budget=Budget(turns=TURNS),
            sampling=Sampling(temperature, LONGEST),
            seed=self.seed,
        )
        return await rollout.run(jobs)

    async def _opened(self, environment: str) -> AsyncEnvironment:
        if environment == REAL:
            return LocalEnvironment(ShelterTasks(PROPOSED))
        assert self.pages is not None  # dreams begin after the model has learned
        return ImaginedSite(PROPOSED, self.pages)

    async def imitate(self, plan: ImitationPlan) -> None:
        """Let the policy imitate the expert; every arm starts there."""
        jobs = [Job(Key("expert", n), task) for n, task in enumerate(self.demonstrated)]
        self.experts = await self.roll_out(jobs, self.expert)
        examples = [Example(row) for e in self.experts for row in rows_of(e, "expert")]
        learner = self._learner(plan.learning_rate)
        for _ in imitate(learner, batches_of(examples, plan, self.seed), plan):
            pass
        learner.close()
        self.start = {k: v.detach().clone() for k, v in self.policy.network.state_dict().items()}

    def _learner(self, rate: float) -> Learner:
        selection = everything(self.policy.network)
        return Learner(self.policy, selection, Optimisation(learning_rate=rate))

    async def explore(self, steps: int) -> list[Episode]:
        """Return rollouts of the policy that imitated, of at least so many real steps."""
        found: list[Episode] = []
        while sum(len(one.steps) for one in found) < steps:
            tasks = self._tasks(Split.TRAIN, 32, DEMONSTRATIONS + len(found))
            jobs = [Job(Key("visits", len(found) + n), task) for n, task in enumerate(tasks)]
            found += await self.roll_out(jobs)
        return found

    async def learn_pages(self, visited: Sequence[Episode], plan: ImitationPlan) -> str:
        """Let a page model learn from rollouts; return how well it knows others."""
        self.pages = PageModel(self.tokenizer, self.seed)
        visits = visits_of([*visited, *self.experts])
        loss = self.pages.learn(visits, plan, self.seed)
        tasks = self._tasks(Split.VALIDATION, 64, 1000)
        jobs = [Job(Key("unseen", n), task) for n, task in enumerate(tasks)]
        unseen = visits_of(await self.roll_out(jobs))
        real_steps = len(visits_of(visited))
        texts = await asyncio.gather(*(self.pages.after(v.page, v.action) for v in unseen))
        right: dict[str, list[bool]] = {}
        for visit, text in zip(unseen, texts, strict=True):
            right.setdefault(kind_of(visit.after), []).append(agrees(text, visit.after))
        shares = (f"{kind} {sum(found)} of {len(found)}" for kind, found in sorted(right.items()))
        return (
            f"{real_steps} real steps, loss {loss:.3f}; right of unseen ones: {', '.join(shares)}"
        )

    async def learn(self, arm: str, rounds: int, plan: ImitationPlan) -> Learned:
        """Let one arm learn from where imitation ended, and test it."""
        self.policy.network.load_state_dict(self.start)
        self.policy.updated()
        where = REAL if arm.startswith("real") else IMAGINED
        learner, found = self._learner(plan.learning_rate), Learned()
        rows = []
        if arm in ("mixed", "real+expert"):
            rows += [row for one in self.experts for row in rows_of(one, "expert")]
        for number in range(rounds):
            tasks = self._tasks(Split.TRAIN, TASKS, 10_000 + TASKS * number, environment=where)
            jobs = [
                Job(Key(f"round/{number}", n, member), task)
                for n, task in enumerate(tasks)
                for member in range(GROUP)
            ]
            rolled = await self.roll_out(jobs)
            solved = [one for one in rolled if one.outcome.solved]
            exploits = 0
            if where == REAL:
                found.real_steps += sum(len(one.steps) for one in rolled)
            else:
                exploits = sum(not solved_really(one) for one in solved)
            found.rounds.append((len(rolled), len(solved), exploits))
            rows += [row for one in solved for row in rows_of(one, "policy")]
            batches = batches_of([Example(row) for row in rows], plan, self.seed + number)
            for _ in imitate(learner, batches, plan):
                pass
        learner.close()
        found.proposed, found.written = await self.tested(192), await self.tested(96, written=True)
        return found

    async def tested(self, count: int, *, written: bool = False) -> list[bool]:
        """Return which held-out tasks the policy solves, with its likeliest replies."""
        tasks = self._tasks(Split.TEST if written else Split.VALIDATION, count, 0)
        jobs = [Job(Key("test", n), task) for n, task in enumerate(tasks)]
        return [one.outcome.solved for one in await self.roll_out(jobs, temperature=0.0)]


def kind_of(after: str) -> str:
    """Return what followed an action: a page, the end of the task, or a refusal."""
    if after.startswith(DONE):
        return "ends"
    return "pages" if is_page(after) else "refusals"


def solved_really(episode: Episode) -> bool:
    """Return whether the actions of an episode solve its task on the real site."""
    world = ShelterTasks(PROPOSED)
    world.reset(replace(episode.task, environment=REAL))
    return any(world.step(step.action).success for step in episode.steps)


def percent(solved: Sequence[bool]) -> str:
    return _interval(wilson(sum(solved), len(solved)))


def _interval(one: Interval) -> str:
    return f"{100 * one.mean:.0f} [{100 * one.low:.0f}, {100 * one.high:.0f}] %"


async def run(seed: int, rounds: int, epochs: int) -> None:
    began = time.process_time()

    def say(text: str) -> None:
        print(f"seed {seed}, {time.process_time() - began:4.0f} s: {text}", flush=True)

    experiment = Experiment(seed)
    await experiment.imitate(ImitationPlan(epochs=16, batch=16, learning_rate=3e-3))
    base = Learned(
        proposed=await experiment.tested(192), written=await experiment.tested(96, written=True)
    )
    say(f"imitation: proposed {percent(base.proposed)}, written {percent(base.written)}")
    found = {"imitation": base}
    for arm in ARMS:
        if arm == "dream":
            visited = await experiment.explore(found["real"].real_steps)
            known = await experiment.learn_pages(visited, ImitationPlan(epochs, 16, 3e-3))
            say(f"page model: {known}")
        found[arm] = one = await experiment.learn(arm, rounds, ImitationPlan(4, 16, 2e-3))
        shown = "; ".join(
            f"{solved} of {rolled} succeed" + (f", {exploits} only there" if exploits else "")
            for rolled, solved, exploits in one.rounds
        )
        say(
            f"{arm}: {one.real_steps} real steps; {shown}; "
            f"proposed {percent(one.proposed)}, written {percent(one.written)}"
        )
    for left, right in (("dream", "real"), ("mixed", "real+expert"), ("mixed", "dream")):
        for kind in ("proposed", "written"):
            a, b = getattr(found[left], kind), getattr(found[right], kind)
            say(f"{left} - {right}, {kind}: {_interval(paired_difference(a, b))}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=8, help="of the page model")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    for number in asked.seeds:
        asyncio.run(run(number, asked.rounds, asked.epochs))
