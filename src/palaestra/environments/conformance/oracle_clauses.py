"""Clauses for oracles and known answers: the reference solutions of an environment."""

from __future__ import annotations

import random

from palaestra.core.environment import Action, Capability, Environment
from palaestra.core.rare_capabilities import answer_of, sample_action, signals_of
from palaestra.environments.conformance.subject import Subject, ended, follow, require, walk

ASKED = 60  # the longest plan for which the oracle is asked at every step


def the_oracle_solves(subject: Subject) -> None:
    """Require that plans from the start solve the task, and plans after a short random walk do too.

    The oracle may return no plan (some packages' own solutions are faulty), but not for every task
    tried. A plan after a walk may be truncated by the environment's step limit.
    """
    env = subject.new()
    if Capability.ORACLE not in env.spec.capabilities:
        return
    known = 0
    for task in subject.some():
        env.reset(task)
        before = signals_of(env)
        plan = list(env.oracle())
        require(signals_of(env) == before, f"task {task.id}: asking the oracle changed the state")
        if plan:
            known += 1
            last = follow(env, plan)[-1][0]
            require(last.success, f"task {task.id}: the oracle's {len(plan)} actions did not solve")
        (_, history), _ = walk(env, task, min(6, subject.steps))
        if not any(ended(step) for step, _ in history) and (plan := list(env.oracle())):
            last = follow(env, plan)[-1][0]
            require(
                last.success or last.truncated,
                f"task {task.id}: after a short walk, the oracle's {len(plan)} actions failed",
            )
    require(known > 0, "the oracle returned no plan for any task that was tried")


def the_oracle_leads_on(subject: Subject) -> None:
    """Require that an oracle asked after each action, as the expert model asks it, also succeeds.

    It may take at most twice the actions of its first plan; tried on the first short plan.
    """
    env = subject.new()
    if Capability.ORACLE not in env.spec.capabilities:
        return
    for task in subject.some():
        subject.trace.clear()
        env.reset(task)
        plan = list(env.oracle())
        if not 1 < len(plan) <= ASKED:
            continue
        for taken in range(2 * len(plan)):
            ahead = list(env.oracle())
            require(bool(ahead), f"task {task.id}: after {taken} of its actions it has no plan")
            last = follow(env, ahead[:1])[-1][0]
            if ended(last):
                break
        require(
            last.success,
            f"task {task.id}: asked at every step, the oracle did not succeed in {2 * len(plan)} "
            f"actions; asked once, it returned {len(plan)}",
        )
        return


def _given_by_all(env: Environment, answer: Action) -> bool:
    """Give an answer, with several players until the task ends; return whether it is solved.

    A player that is asked for something else, as members of a team are, replies at random.
    """
    several, rng = len(env.spec.players) > 1, random.Random(0)
    for _ in range(env.spec.typical_turns if several else 1):
        transition = env.step(answer)
        if several and not transition.valid:
            transition = env.step(sample_action(env, rng))
        if ended(transition):
            return transition.success
    return False


def the_known_answer_solves(subject: Subject) -> None:
    """Require that the known answer is the same throughout a task, and solves it by itself.

    Some packages' own answers are faulty, so it need not solve every task that is tried.
    """
    env = subject.new()
    if Capability.ANSWER not in env.spec.capabilities:
        return
    solved = 0
    for task in subject.some():
        env.reset(task)
        before, first = signals_of(env), answer_of(env)
        require(
            signals_of(env) == before, f"task {task.id}: asking for the answer changed the state"
        )
        solved += _given_by_all(env, first)
        (_, history), _ = walk(env, task, min(3, subject.steps))
        later = answer_of(env)
        require(later == first, f"task {task.id}: the answer was {first}, then {later}")
        if not any(ended(step) for step, _ in history):
            solved += _given_by_all(env, later)
    require(solved > 0, "the known answer solved no task that was tried")
