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
from palaestra.environments.registry import spec, tasks
from palaestra.learning.loop.imitation import ImitationPlan, imitate
from palaestra.learning.loop.reinforce import StepResult, reinforce
from palaestra.learning.loop.rollout_source import SourceState
from palaestra.learning.loop.trainer_step import TrainerStep
from palaestra.learning.methods.component import Kind, find
from palaestra.models.scripted.expert import ExpertModel
from palaestra.models.scripted.random_choice import RandomModel
from palaestra.rollout.runner import Job
from palaestra.runtime.machine import release_memory
from palaestra.runtime.progress import percent
from palaestra.training.actor import Actor
from palaestra.training.demonstrations import RECORDED, longest, recorded_demonstrations
from palaestra.training.loop_plan import past_attempts, plan_of
from palaestra.training.policy_building import Valued
from palaestra.training.run_context import RunContext, typical_turns
from palaestra.training.stage_counters import EpisodeCounter, StepCounter
from palaestra.training.time_limit import used_up

FIRST_DEMONSTRATION = 1_000_000_000  # training tasks from this number on are for demonstrations


async def test(context: RunContext, policy: str) -> None:
    """Test the policy on held-out tasks and, if trained, on the transfer environment."""
    part, environment = context.recipe.evaluation, context.recipe.environment
    await _evaluate(context, f"test/{policy}", context.tasks, context.turns, part.tasks)
    if environment.transfer is not None and policy != "base":
        turns = typical_turns(environment.transfer)
        others = tasks(environment.transfer)
        await _evaluate(context, f"transfer/{policy}", others, turns, part.transfer_tasks)


async def _evaluate(
    context: RunContext, phase: str, tasks: TaskSet, turns: int, count: int
) -> None:
    jobs = [Job(Key(phase, i), task) for i, task in enumerate(tasks.take(Split.TEST, count))]
    if context.is_done(phase) and not context.lacks(phase, len(jobs)):
        return
    started = time.monotonic()
    with context.reporter.stage(phase.replace("/", " "), count, "tasks") as shown:
        counter = EpisodeCounter(context, shown)
        rollout = context.rollout(context.roles(context.policy), turns, counter.add)
        episodes = await context.run_jobs(rollout, jobs)
    scored = [e.outcome.solved for e in episodes if e.outcome.scored]
    where = "" if phase.startswith("test/") else f" on {tasks.environment}, never trained on"
    context.reporter.say(f"{phase}: success {percent(fmean(scored))} of {len(scored)}{where}")
    context.finish_stage(phase, time.monotonic() - started, **_tokens(episodes), trained=0)
    context.tracking.log_success(phase)


async def imitation(context: RunContext) -> None:
    """Record demonstrations and train on them.

    If this stage is done, load its checkpoint; without a valid one, train again on the recorded
    demonstrations.

    Raises:
        InputError: the environment declares no expert.
    """
    plan, environment = context.recipe.imitation, context.recipe.environment.id
    learner = context.learner(plan.learning_rate)
    done = context.is_done("imitation")
    if done and context.resume(learner, "imitation") is not None:
        learner.close()
        return
    if done:
        context.reporter.say(
            "no valid checkpoint after imitation is left: training again on the recorded "
            "demonstrations"
        )
    expert = plan.demonstrator == "expert"
    if expert and Capability.ORACLE not in spec(environment).capabilities:
        raise InputError(f"'{environment}' has no expert to imitate; use --no-imitation.")
    started = time.monotonic()
    if plan.demonstrator == RECORDED:
        demonstrations = recorded_demonstrations(context)
    else:
        demonstrations = await record_demonstrations(context, plan.demonstrations)
    demonstrator = context.policy.name if plan.demonstrator == "policy" else plan.demonstrator
    choose = find(Kind.EXAMPLES, plan.examples).configured(plan.examples_options)
    updates = imitate(
        learner,
        choose(demonstrations, demonstrator),
        ImitationPlan(plan.epochs, plan.batch, plan.learning_rate),
        context.recipe.seed,
    )
    trained = 0
    expected = plan.epochs * math.ceil(len(demonstrations) / plan.batch)
    with context.reporter.stage("imitation", expected, "updates") as shown:
        for step, steps, update in updates:
            trained += update.processed
            context.add_metrics("imitation", step, update.figures())
            rate = trained / (time.monotonic() - started)
            figures = {"loss": f"{update.loss:.2f}", "entropy": f"{update.entropy:.2f}"}
            shown.show(step, {**figures, "tokens/s": f"{rate:.0f}"}, total=steps)
            release_memory(step)
            await asyncio.sleep(0)  # lets Ctrl-C through
    context.save("imitation", learner, {})
    learner.close()
    if not done:
        seconds = time.monotonic() - started
        context.finish_stage("imitation", seconds, **_tokens(demonstrations), trained=trained)


async def record_demonstrations(context: RunContext, count: int) -> list[Episode]:
    """Run the demonstrator, in the agent's format, on `count` training tasks."""
    start = FIRST_DEMONSTRATION + context.recipe.seed * 1_000_000
    chosen = context.tasks.take(Split.TRAIN, count, start)
    jobs = [Job(Key("demonstrations", i), task) for i, task in enumerate(chosen)]
    with context.reporter.stage("demonstrations", count, "episodes") as shown:
        counter = EpisodeCounter(context, shown)
        demonstrator: Model = context.policy
        match context.recipe.imitation.demonstrator:
            case "expert":
                demonstrator = ExpertModel(context.agent, context.policy.renderer)
            case "random":
                demonstrator = RandomModel(context.agent, context.policy.renderer)
        rollout = context.rollout(context.roles(demonstrator), context.turns, counter.add)
        demonstrations = await context.run_jobs(rollout, jobs)
    if isinstance(demonstrator, ExpertModel):
        _check_expert(demonstrations, context)
    return _fitting(demonstrations, context)


def _fitting(shown: Sequence[Episode], context: RunContext) -> list[Episode]:
    """Return the episodes that fit into the policy's context."""
    limit = context.recipe.model.context
    fitting = [episode for episode in shown if longest(episode) <= limit]
    if not fitting:
        raise InputError(
            f"None of the {len(shown)} demonstrations on '{context.recipe.environment.id}' fits "
            f"into model.context = {limit}; the shortest has {min(map(longest, shown))} tokens: "
            "raise model.context, or let the agent keep less of its history."
        )
    if left := len(shown) - len(fitting):
        context.reporter.say(
            f"{left} of {len(shown)} demonstrations left out: longer than model.context = {limit}"
        )
    return fitting


def _check_expert(shown: Sequence[Episode], context: RunContext) -> None:
    """Raise InputError if the expert solved nothing; mostly its replies are cut short."""
    if any(episode.outcome.solved for episode in shown):
        return
    calls = [call for episode in shown for call in episode.calls]
    cut = sum(call.finish is Finish.LENGTH for call in calls)
    raise InputError(
        f"The expert solved none of {len(shown)} tasks of '{context.recipe.environment.id}', so "
        f"there is nothing to imitate; {cut} of its {len(calls)} replies were cut at "
        f"agent.max_tokens={context.recipe.agent.max_tokens} and episodes end after "
        f"{context.turns} turns: raise either, or set imitation.demonstrations=0."
    )


async def reinforcement(context: RunContext) -> Valued | None:
    """Learn from rollouts, starting at the last checkpoint; return the critic, if any."""
    part = context.recipe.rl
    learner, critic = context.learner(part.learning_rate, for_rl=True), context.critic()
    state = context.resume(learner, "rl-", critic) or {"step": 0, "memory": {}, "flow": {}}
    first = state["step"] + 1
    if first == 1 and context.store.metrics("rl"):
        context.reporter.say("no checkpoint of RL is left: training again on its recorded rollouts")
    ended = used_up(context, first - 1)
    if first == 1 and ended:
        context.reporter.say(
            f"minutes = {context.recipe.minutes:g} leaves no time for RL beside the tests; raise "
            "it, or set evaluation.tasks lower"
        )
    if first <= part.steps and not ended:
        with context.reporter.stage("reinforcement", part.steps, "steps") as shown:
            counter = StepCounter(context, shown)

            def after(result: StepResult) -> bool:
                counter.add(result)
                last = result.step == part.steps or used_up(context, result.step)
                if result.step % context.recipe.checkpoint_every == 0 or last:
                    memory = dict(result.memory)
                    now = {
                        "step": result.step,
                        "memory": memory,
                        "flow": asdict(result.source_state),
                    }
                    context.save(f"rl-{result.step:06d}", learner, now, critic)
                return not last

            plan = plan_of(context)
            async with Actor(context) as actor:
                await reinforce(
                    TrainerStep(
                        learner, context.method, plan.trainer_step, context.recipe.seed, critic
                    ),
                    partial(_roll_out, context, actor),
                    plan,
                    first=first,
                    past=past_attempts(context, first),
                    history=[v for step, v in context.store.metrics("rl") if step < first],
                    recall=context.store.episode,
                    memory=state["memory"],
                    after=after,
                    source_state=SourceState(**state["flow"]),
                    publish=actor.publish if actor.is_external else None,
                )
    learner.close()
    if not context.is_done("rl"):
        rows = [values for _, values in context.store.metrics("rl")]
        context.finish_stage(
            "rl",
            sum(row["seconds"] for row in rows),
            sampled=int(sum(row["sampled_tokens"] for row in rows)),
            prompt=int(sum(row["prompt_tokens"] for row in rows)),
            trained=int(sum(row.get("processed", 0) for row in rows)),
        )
    if critic is not None:
        return critic.network, critic.head
    head = learner.value_head
    return None if head is None else (context.policy.network, head)


async def _roll_out(
    context: RunContext, actor: Actor, jobs: Sequence[Job], *, turns: int | None, greedy: bool
) -> list[Episode]:
    rollout = context.rollout(
        context.roles(actor.model),
        turns or context.turns,
        lambda episode: None,
        greedy=greedy,
        needed=None if greedy else context.recipe.rl.quorum,
    )
    return await context.run_jobs(rollout, jobs)


def _tokens(episodes: Sequence[Episode]) -> dict[str, int]:
    return {
        "sampled": sum(e.usage.sampled_tokens for e in episodes),
        "prompt": sum(e.usage.prompt_tokens for e in episodes),
    }
