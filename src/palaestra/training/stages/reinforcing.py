"""The stage of reinforcement learning: from rollouts to the next version of the policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial

from palaestra.core.episode import ADVISOR, Episode
from palaestra.core.errors import InputError
from palaestra.learning.loop.reinforce import StepResult, reinforce
from palaestra.learning.loop.rollout_source import SourceState
from palaestra.learning.loop.trainer_step import TrainerStep
from palaestra.learning.methods.component import Need
from palaestra.models.scripted.expert import ExpertModel
from palaestra.rollout.advised_session import Advice, Mixture, Takeover
from palaestra.rollout.runner import Job, Rollout
from palaestra.training.actor import Actor
from palaestra.training.loop_plan import advice_plan, past_attempts, plan_of
from palaestra.training.policy_building import Valued
from palaestra.training.reinforcement_section import Advisor
from palaestra.training.rollout_trees import run_tree, tree_of
from palaestra.training.run_context import RunContext, Stateful
from palaestra.training.stage_counters import StepCounter
from palaestra.training.stage_sections import Reinforce
from palaestra.training.stages.assigning import check_speakers
from palaestra.training.time_limit import used_up


async def reinforcement(context: RunContext, whole: Reinforce) -> Valued | None:
    """Learn from rollouts, starting at the last checkpoint; return the critic, if any.

    Args:
        context: of the stage.
        whole: its table.

    Raises:
        InputError: a role that the stage trains did not speak in its first step.
    """
    part, own = context.recipe.rl, context.record
    if Need.BELIEF in context.method.needs and not context.policy.scores_answers:
        raise InputError(
            f"rl.credit needs {Need.BELIEF}, and '{context.recipe.model.name}' keeps a cache of "
            "its own, which cannot be forked to measure them; choose another rule or model."
        )
    learner, critic = context.learner(part.learning_rate, for_rl=True), context.critic()
    progress = context.progress_model()
    beside: dict[str, Stateful] = {}
    if critic is not None:
        beside["critic_"] = critic
    if progress is not None:
        beside["progress_"] = progress
    state = context.resume(learner, beside) or {"step": 0, "memory": {}, "flow": {}}
    first = state["step"] + 1
    if first == 1 and context.store.metrics(own):
        context.reporter.say("no checkpoint of RL is left: training again on its recorded rollouts")
    ended = used_up(context, first - 1)
    if first == 1 and ended:
        context.reporter.say(
            f"minutes = {context.recipe.minutes:g} leaves no time for RL beside the tests; raise "
            "it, or set evaluation.tasks lower"
        )
    if first <= part.steps and not ended:
        shown_as = "reinforcement" if own == "rl" else own
        with context.reporter.stage(shown_as, part.steps, "steps") as shown:
            counter = StepCounter(context, shown)

            def after(result: StepResult) -> bool:
                if result.step == 1:
                    spoken = {context.policy.name: list(result.episodes)}
                    check_speakers(whole, spoken, f"the first rollouts of '{own}'")
                counter.add(result)
                last = result.step == part.steps or used_up(context, result.step)
                if result.step % context.recipe.checkpoint_every == 0 or last:
                    memory = dict(result.memory)
                    now = {
                        "step": result.step,
                        "memory": memory,
                        "flow": asdict(result.source_state),
                    }
                    context.save(f"{own}-{result.step:06d}", learner, now, beside)
                return not last

            plan = plan_of(context)
            async with Actor(context) as actor:
                await reinforce(
                    TrainerStep(
                        learner,
                        context.method,
                        plan.trainer_step,
                        context.stage_seed,
                        critic,
                        progress,
                        context.reward_model,
                    ),
                    partial(_roll_out, context, actor),
                    plan,
                    first=first,
                    past=past_attempts(context, first),
                    history=[v for step, v in context.store.metrics(own) if step < first],
                    recall=context.store.episode,
                    memory=state["memory"],
                    after=after,
                    source_state=SourceState(**state["flow"]),
                    publish=actor.publish if actor.is_external else None,
                )
    learner.close()
    if not context.accounts.is_done(own):
        rows = [values for _, values in context.store.metrics(own)]
        context.accounts.finish_stage(
            own,
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
        probes=Need.BELIEF in context.method.needs and not greedy,
    )
    if context.recipe.rl.advisor is not None and not greedy and jobs:
        step = int(jobs[0].key.phase.rpartition("/")[2])
        rollout = _advised(context, rollout, context.recipe.rl.advisor, step)
    tree = tree_of(context.recipe.rl, context.method)
    if tree is None:
        return await context.run_jobs(rollout, jobs)
    return await run_tree(tree, rollout, jobs, context.run_jobs)


def _advised(context: RunContext, rollout: Rollout, part: Advisor, step: int) -> Rollout:
    """Return the rollout of a step in which the environment's expert acts in some turns."""
    plan = advice_plan(part)
    assert plan is not None  # there is an advisor
    probability = plan.at(step)
    if probability == 0:
        return rollout  # annealed
    advice: Advice = Takeover(part.after or 1, part.turns)
    if probability is not None:
        advice = Mixture(probability)
    expert = ExpertModel(context.agent, context.policy.renderer, error=part.error)
    return replace(rollout, advice=advice, models={**rollout.models, ADVISOR: expert})
