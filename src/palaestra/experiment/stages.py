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
from palaestra.core.model import Finish, Model
from palaestra.core.task import Split, TaskSet
from palaestra.environments.registry import make, tasks
from palaestra.experiment.acting import Actor
from palaestra.experiment.counters import EpisodeCounter, StepCounter
from palaestra.experiment.machine import release_memory
from palaestra.experiment.plan import past_of, plan_of
from palaestra.experiment.policy import Valued
from palaestra.experiment.progress import percent
from palaestra.experiment.recorded import SPEAKER, longest, recorded_demonstrations
from palaestra.experiment.setting import Setting, typical_turns
from palaestra.learning.component import Kind, find
from palaestra.learning.flow import FlowState
from palaestra.learning.imitation import ImitationPlan, imitate
from palaestra.learning.reinforce import StepResult, reinforce
from palaestra.learning.study import Study
from palaestra.models.expert import ExpertModel
from palaestra.models.random_choice import RandomModel
from palaestra.rollout.runner import Job

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
    jobs = [Job(Key(phase, i), task) for i, task in enumerate(tasks.take(Split.TEST, count))]
    if setting.is_done(phase) and not setting.lacks(phase, len(jobs)):
        return
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

    Where that is done, its checkpoint is loaded; without one, what was recorded is studied again.

    Raises:
        InputError: the environment declares no expert.
    """
    plan, environment = setting.recipe.imitation, setting.recipe.environment.id
    learner = setting.learner(plan.learning_rate)
    done = setting.is_done("imitation")
    if done and setting.resume(learner, "imitation") is not None:
        learner.close()
        return
    if done:
        setting.reporter.say(
            "no sound checkpoint after imitation is left: the recorded demonstrations are studied "
            "again"
        )
    expert = plan.speaker == "expert"
    if expert and Capability.ORACLE not in make(environment).capabilities:
        raise InputError(f"'{environment}' has no expert to imitate; use --no-imitation.")
    started = time.monotonic()
    if plan.speaker == SPEAKER:
        demonstrations = recorded_demonstrations(setting)
    else:
        demonstrations = await record_demonstrations(setting, plan.demonstrations)
    speaker = setting.policy.name if plan.speaker == "policy" else plan.speaker
    choose = find(Kind.EXAMPLES, plan.examples).configured(plan.examples_options)
    study = imitate(
        learner,
        choose(demonstrations, speaker),
        ImitationPlan(plan.epochs, plan.batch, plan.learning_rate),
        setting.recipe.seed,
    )
    trained = 0
    expected = plan.epochs * math.ceil(len(demonstrations) / plan.batch)
    with setting.reporter.stage("imitation", expected, "updates") as shown:
        for step, steps, update in study:
            trained += update.processed
            setting.store.add_metrics("imitation", step, asdict(update))
            rate = trained / (time.monotonic() - started)
            figures = {"loss": f"{update.loss:.2f}", "entropy": f"{update.entropy:.2f}"}
            shown.show(step, {**figures, "tokens/s": f"{rate:.0f}"}, total=steps)
            release_memory(step)
            await asyncio.sleep(0)  # lets a Ctrl-C in
    setting.save("imitation", learner, {})
    learner.close()
    if not done:
        seconds = time.monotonic() - started
        setting.finish_stage("imitation", seconds, **_tokens(demonstrations), trained=trained)


async def record_demonstrations(setting: Setting, count: int) -> list[Episode]:
    """What the speaker (said as the agent would) does in `count` training tasks."""
    start = DEMONSTRATED_FROM + setting.recipe.seed * 1_000_000
    drawn = setting.tasks.take(Split.TRAIN, count, start)
    jobs = [Job(Key("demonstrations", i), task) for i, task in enumerate(drawn)]
    with setting.reporter.stage("demonstrations", count, "episodes") as shown:
        counter = EpisodeCounter(setting, shown)
        speaker: Model = setting.policy
        match setting.recipe.imitation.speaker:
            case "expert":
                speaker = ExpertModel(setting.agent, setting.policy.renderer)
            case "random":
                speaker = RandomModel(setting.agent, setting.policy.renderer)
        rollout = setting.rollout({"agent": speaker}, setting.turns, counter.add)
        shown_by = await setting.live(rollout, jobs)
    if isinstance(speaker, ExpertModel):
        _check_expert(shown_by, setting)
    return _fitting(shown_by, setting)


def _fitting(shown: Sequence[Episode], setting: Setting) -> list[Episode]:
    """Those that the policy could have had: a speaker without a context may talk past it."""
    context = setting.recipe.model.context
    fitting = [episode for episode in shown if longest(episode) <= context]
    if not fitting:
        raise InputError(
            f"None of the {len(shown)} demonstrations on '{setting.recipe.environment.id}' fits "
            f"into model.context = {context}; the shortest has {min(map(longest, shown))} tokens: "
            "raise it, or let the agent keep less of its history."
        )
    if left := len(shown) - len(fitting):
        setting.reporter.say(
            f"{left} of {len(shown)} demonstrations left out: longer than model.context = {context}"
        )
    return fitting


def _check_expert(shown: Sequence[Episode], setting: Setting) -> None:
    """An expert who never succeeds shows nothing: mostly, its replies are cut short."""
    if any(episode.outcome.solved for episode in shown):
        return
    calls = [call for episode in shown for call in episode.calls]
    cut = sum(call.finish is Finish.LENGTH for call in calls)
    raise InputError(
        f"The expert solved none of {len(shown)} tasks of '{setting.recipe.environment.id}', so "
        f"there is nothing to imitate; {cut} of its {len(calls)} replies were cut at "
        f"agent.max_tokens={setting.recipe.agent.max_tokens} and episodes end after "
        f"{setting.turns} turns: raise either, or set imitation.demonstrations=0."
    )


async def reinforcement(setting: Setting) -> Valued | None:
    """Learn from rollouts, from the last checkpoint on; returns the critic, if there is one."""
    part = setting.recipe.rl
    learner, critic = setting.learner(part.learning_rate, for_rl=True), setting.critic()
    state = setting.resume(learner, "rl-", critic) or {"step": 0, "memory": {}, "flow": {}}
    first = state["step"] + 1
    if first == 1 and setting.store.metrics("rl"):
        setting.reporter.say("no checkpoint of RL is left: its recorded rollouts are studied again")
    if first <= part.steps and not _used_up(setting, first - 1):
        with setting.reporter.stage("reinforcement", part.steps, "steps") as shown:
            counter = StepCounter(setting, shown)

            def after(result: StepResult) -> bool:
                counter.add(result)
                last = result.step == part.steps or _used_up(setting, result.step)
                if result.step % setting.recipe.checkpoint_every == 0 or last:
                    memory = dict(result.memory)
                    now = {"step": result.step, "memory": memory, "flow": asdict(result.flow)}
                    setting.save(f"rl-{result.step:06d}", learner, now, critic)
                return not last

            plan = plan_of(setting)
            async with Actor(setting) as actor:
                await reinforce(
                    Study(learner, setting.method, plan.study, setting.recipe.seed, critic),
                    partial(_live, setting, actor),
                    plan,
                    first=first,
                    past=past_of(setting, first),
                    history=[v for step, v in setting.store.metrics("rl") if step < first],
                    recall=setting.store.episode,
                    memory=state["memory"],
                    after=after,
                    flow=FlowState(**state["flow"]),
                    publish=actor.publish if actor.elsewhere else None,
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
    if critic is not None:
        return critic.network, critic.head
    head = learner.value_head
    return None if head is None else (setting.policy.network, head)


async def _live(
    setting: Setting, actor: Actor, jobs: Sequence[Job], *, turns: int | None, greedy: bool
) -> list[Episode]:
    rollout = setting.rollout(
        {"agent": actor.model},
        turns or setting.turns,
        lambda episode: None,
        greedy=greedy,
        needed=None if greedy else setting.recipe.rl.enough,
    )
    return await setting.live(rollout, jobs)


def _used_up(setting: Setting, step: int) -> bool:
    """Whether RL has used up its minutes or tokens by that step, over all processes."""
    part = setting.recipe.rl
    spent = [values for number, values in setting.store.metrics("rl") if number <= step]
    if part.minutes is not None and sum(v["seconds"] for v in spent) >= 60 * part.minutes:
        return True
    tokens = sum(v["sampled_tokens"] + v["prompt_tokens"] for v in spent)
    return part.tokens is not None and tokens >= part.tokens


def _tokens(episodes: Sequence[Episode]) -> dict[str, int]:
    return {
        "sampled": sum(e.usage.sampled_tokens for e in episodes),
        "prompt": sum(e.usage.prompt_tokens for e in episodes),
    }
