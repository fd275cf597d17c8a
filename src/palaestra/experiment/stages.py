"""The stages of a training run, each one resumable: test, imitation, reinforcement."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from statistics import fmean

from palaestra.core.environment import Capability
from palaestra.core.episode import Episode, Key
from palaestra.core.errors import InputError
from palaestra.core.task import Split, TaskSet
from palaestra.environments.registry import make, tasks
from palaestra.experiment.counters import EpisodeCounter, StepCounter
from palaestra.experiment.progress import percent
from palaestra.experiment.setting import Setting, typical_turns
from palaestra.learning.imitation import ImitationPlan, imitate
from palaestra.learning.reinforce import ReinforcementPlan, StepResult, reinforce
from palaestra.learning.rewards import Shaping
from palaestra.models.expert import ExpertModel
from palaestra.rollout.runner import Job
from palaestra.store import checkpoint

DEMONSTRATED_FROM = 1_000_000_000  # training tasks from here on are demonstrated only


async def test(setting: Setting, policy: str) -> None:
    """Test the policy on the held-out tasks, and, trained, on an environment it never saw."""
    part, world = setting.recipe.evaluation, setting.recipe.environment
    await _evaluate(setting, f"test/{policy}", setting.tasks, setting.turns, part.tasks)
    if world.transfer is not None and policy != "base":
        turns = typical_turns(world.transfer)
        others = tasks(world.transfer)
        await _evaluate(setting, f"transfer/{policy}", others, turns, part.transfer_tasks)


async def _evaluate(setting: Setting, phase: str, tasks: TaskSet, turns: int, count: int) -> None:
    if setting.is_done(phase):
        return
    jobs = [Job(Key(phase, i), task) for i, task in enumerate(tasks.take(Split.TEST, count))]
    started = time.monotonic()
    with setting.reporter.stage(phase.replace("/", " "), count, "tasks") as shown:
        counter = EpisodeCounter(setting, shown)
        rollout = setting.rollout({"agent": setting.policy}, turns, counter.add)
        episodes = await setting.live(rollout, jobs)
    scored = [e.outcome.solved for e in episodes if e.outcome.scored]
    where = "" if phase.startswith("test/") else f" on {tasks.environment}, never trained on"
    setting.reporter.say(f"{phase}: success {percent(fmean(scored))} of {len(scored)}{where}")
    setting.finish_stage(phase, time.monotonic() - started, **_tokens(episodes), trained=0)


async def imitation(setting: Setting) -> None:
    """Record demonstrations of the environment's expert, and study them.

    Raises:
        InputError: the environment declares no expert.
    """
    plan, environment = setting.recipe.imitation, setting.recipe.environment.id
    learner = setting.learner(plan.learning_rate)
    if setting.is_done("imitation"):
        if setting.resume(learner, "imitation") is None:
            raise checkpoint.CorruptCheckpoint(
                f"The checkpoint after imitation in {setting.run.checkpoints} is gone or corrupt, "
                "so this run cannot go on; start a new one."
            )
        learner.close()
        return
    if Capability.ORACLE not in make(environment).capabilities:
        raise InputError(f"'{environment}' has no expert to imitate; use --no-imitation.")
    started = time.monotonic()
    demonstrations = await record_demonstrations(setting, plan.demonstrations)
    study = imitate(
        learner,
        demonstrations,
        ExpertModel.name,
        ImitationPlan(plan.epochs, plan.batch, plan.learning_rate),
        setting.recipe.seed,
    )
    trained = 0
    expected = plan.epochs * math.ceil(plan.demonstrations / plan.batch)
    with setting.reporter.stage("imitation", expected, "updates") as shown:
        for step, steps, update in study:
            trained += update.processed
            setting.store.add_metrics("imitation", step, asdict(update))
            rate = trained / (time.monotonic() - started)
            figures = {"loss": f"{update.loss:.2f}", "entropy": f"{update.entropy:.2f}"}
            shown.show(step, {**figures, "tokens/s": f"{rate:.0f}"}, total=steps)
            await asyncio.sleep(0)  # lets a Ctrl-C in
    setting.save("imitation", learner, {})
    learner.close()
    seconds = time.monotonic() - started
    setting.finish_stage("imitation", seconds, **_tokens(demonstrations), trained=trained)


async def record_demonstrations(setting: Setting, count: int) -> list[Episode]:
    """What the environment's expert does in `count` training tasks, said as the agent would."""
    start = DEMONSTRATED_FROM + setting.recipe.seed * 1_000_000
    drawn = setting.tasks.take(Split.TRAIN, count, start)
    jobs = [Job(Key("demonstrations", i), task) for i, task in enumerate(drawn)]
    with setting.reporter.stage("demonstrations", count, "episodes") as shown:
        counter = EpisodeCounter(setting, shown)
        expert = ExpertModel(setting.agent, setting.policy.renderer)
        return await setting.live(
            setting.rollout({"agent": expert}, setting.turns, counter.add), jobs
        )


async def reinforcement(setting: Setting) -> None:
    """Learn from rollouts, from the last checkpoint on."""
    part = setting.recipe.rl
    learner = setting.learner(part.learning_rate)
    state = setting.resume(learner, "rl-")
    first = state["step"] + 1 if state else 1
    plan = ReinforcementPlan(
        steps=part.steps,
        tasks=part.tasks,
        group=part.group,
        minibatches=part.minibatches,
        learning_rate=part.learning_rate,
        warmup=part.warmup,
        shaping=Shaping(setting.turns, part.turn_cost, part.invalid_cost),
    )
    if first <= part.steps and not _time_is_up(setting):
        with setting.reporter.stage("reinforcement", part.steps, "steps") as shown:
            counter = StepCounter(setting, shown)

            def after(result: StepResult) -> bool:
                counter.add(result)
                last = result.step == part.steps or _time_is_up(setting)
                if result.step % setting.recipe.checkpoint_every == 0 or last:
                    setting.save(f"rl-{result.step:06d}", learner, {"step": result.step})
                return not last

            rollout = setting.rollout({"agent": setting.policy}, setting.turns, lambda e: None)
            await reinforce(
                learner,
                partial(setting.live, rollout),
                setting.tasks,
                setting.algorithm,
                plan,
                seed=setting.recipe.seed,
                first=first,
                after=after,
            )
    learner.close()
    if not setting.is_done("rl"):
        rows = [values for _, values in setting.store.metrics("rl")]
        setting.finish_stage(
            "rl",
            sum(row["seconds"] for row in rows),
            sampled=int(sum(row["sampled_tokens"] for row in rows)),
            prompt=int(sum(row["prompt_tokens"] for row in rows)),
            trained=int(sum(row.get("processed", 0) for row in rows)),
        )


def _time_is_up(setting: Setting) -> bool:
    """Whether RL has used up its minutes, over all processes that worked on it."""
    minutes = setting.recipe.rl.minutes
    if minutes is None:
        return False
    return sum(values["seconds"] for _, values in setting.store.metrics("rl")) >= 60 * minutes


def _tokens(episodes: Sequence[Episode]) -> dict[str, int]:
    return {
        "sampled": sum(e.usage.sampled_tokens for e in episodes),
        "prompt": sum(e.usage.prompt_tokens for e in episodes),
    }
