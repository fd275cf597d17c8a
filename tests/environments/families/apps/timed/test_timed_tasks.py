"""Tasks in which time matters: the contract, references, what is too early or too late."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from palaestra.agents.direct import DirectAgent
from palaestra.core.environment import Action
from palaestra.core.episode import Key
from palaestra.core.errors import InputError
from palaestra.core.session import Session
from palaestra.core.task import Split, Task
from palaestra.environments import registry
from palaestra.environments.conformance.clauses import CLAUSES
from palaestra.environments.conformance.subject import Subject
from palaestra.environments.families.apps.composing.gate import judged, near_misses, rejection
from palaestra.environments.families.apps.composing.goal import MAIN
from palaestra.environments.families.apps.composing.verifier import run
from palaestra.environments.families.apps.composing.wrong_solutions import wrong_solutions
from palaestra.environments.families.apps.drawing import Drawn
from palaestra.environments.families.apps.environment import Apps
from palaestra.environments.families.apps.events import At
from palaestra.environments.families.apps.stock import CORE
from palaestra.environments.families.apps.timed.timed_atoms import TIMED
from palaestra.environments.families.apps.timed.timed_operators import IN_TIME
from palaestra.environments.families.apps.timed.timed_tasks import drawn_timed
from palaestra.environments.families.apps.world import World
from palaestra.models.scripted.expert import ExpertModel
from palaestra.rollout.guarded_environment import LocalEnvironment
from tests.core.small import renderer
from tests.environments.families.apps.small_world import mail

TASKS = Apps.tasks("apps/timed").take(Split.TEST, 24)


def one_of(kind: str) -> tuple[Task, Drawn]:
    """Return the first task of a kind."""
    for task in TASKS:
        made = drawn_timed(task.seed)
        if made.task.goals[0].atom.name == kind:
            return task, made
    raise AssertionError(kind)


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
@pytest.mark.parametrize(
    "id",
    [
        "apps/timed",
        "apps/timed-100:discover",
        pytest.param("apps/timed-new", marks=pytest.mark.slow),
    ],
)
def test_the_contract_holds(id: str, clause: Callable[[Subject], None]) -> None:
    clause(Subject.of(id))


def test_all_kinds_are_drawn_with_and_without_distraction() -> None:
    made = [drawn_timed(task.seed).task for task in TASKS]
    assert {one.goals[0].atom.name for one in made} == {atom.name for atom in TIMED}
    assert 4 < sum(bool(one.noise) for one in made) < 20


def test_references_solve_and_their_events_all_happen() -> None:
    for task in TASKS[:12]:
        made = drawn_timed(task.seed)
        world = made.open()
        ran = run(made.task.steps(), world, MAIN)
        assert judged(world, made.ways, ran.answer or "").success
        assert world.schedule.silent() == []
        idle = made.open()
        idle.advance(3600)
        assert not judged(idle, made.ways, "").success
        assert idle.state.changes() == []  # what events did is not the agent's


def test_near_misses_among_them_early_and_late_ones_are_rejected() -> None:
    early_or_late = 0
    for task in TASKS[:12]:
        made = drawn_timed(task.seed)
        for number, slots in near_misses(made.open(), made.task, random.Random(0)):
            world = made.open()
            ran = run(made.task.steps(number, slots), world, MAIN)
            verdict = judged(world, made.ways, ran.answer or "")
            assert not verdict.success
            early_or_late += verdict.effect and not verdict.timing
    assert early_or_late > 10


@pytest.mark.slow
def test_wrong_solutions_are_rejected() -> None:
    tried = Counter[str]()
    for task in TASKS[:20]:
        made = drawn_timed(task.seed)
        for wrong in wrong_solutions(made.open(), made.task, random.Random(task.seed)):
            world = made.open()
            for call in wrong.calls:
                world.call(call.api, call.arguments, MAIN)
            assert not judged(world, made.ways, wrong.answer or "").success, wrong.label
            tried[made.task.goals[0].atom.name] += 1
    assert len(tried) == len(TIMED) and min(tried.values()) >= 20, tried


def test_the_gate_refuses_a_task_one_of_whose_events_never_happens() -> None:
    _, made = one_of("pay_before")
    late = World(made.suite, made.template, made.open().start, [mail("late", At(9000))], MAIN)
    reason = rejection(late, made.task, random.Random(0))
    assert reason == "the event 'late' does not happen in the reference run"


@pytest.mark.parametrize("form", ["", ":discover"])
def test_the_oracle_goes_on_from_every_step(form: str) -> None:
    env, other = Apps(f"timed{form}"), Apps(f"timed{form}")
    for atom in TIMED:
        task, _ = one_of(atom.name)
        env.reset(task)
        plan = list(env.oracle())
        while plan:
            assert list(env.oracle()) == plan
            other.reset(TASKS[0])
            other.restore(env.snapshot())
            assert list(other.oracle()) == plan and other.state_key() == env.state_key()
            step = env.step(plan.pop(0))
        assert step.success and step.info["timing"] is True


def test_the_oracle_goes_on_after_a_detour_that_took_time() -> None:
    env = Apps("timed:all")
    task, _ = one_of("follow_move")
    env.reset(task)
    for words in ("now()", "wait(minutes=17)", "mail_list_messages()", "wait(minutes=1)"):
        assert env.step(Action(words)).valid
    for _ in range(20):
        step = env.step(env.oracle()[0])
        if step.terminated:
            break
    assert step.success


def test_too_late_is_reported_apart_and_leaves_no_plan() -> None:
    env = Apps("timed")
    task, made = one_of("pay_before")
    env.reset(task)
    plan = env.oracle()
    assert env.step(Action(f"wait(minutes={made.task.goals[0].slots['minutes']})")).valid
    assert not env.oracle()
    end = [env.step(action) for action in plan][-1]
    assert not end.success and env.progress() < 1
    assert end.info == {
        "effect": True, "wording": True, "reply": True, "timing": False, "collateral": [],
    }  # fmt: skip


@pytest.mark.parametrize(("spent", "success"), [(50, True), (10_000, False)])
def test_a_slow_thinker_misses_a_deadline_and_a_fast_one_does_not(
    spent: int, success: bool
) -> None:
    env = Apps("timed-10")
    task, _ = one_of("pay_before")
    env.reset(task)
    end = [env.step(replace(action, spent=spent)) for action in env.oracle()][-1]
    assert end.success is success
    assert end.info["timing"] is success and end.info["effect"] is True
    untimed = Apps("timed")
    untimed.reset(task)
    assert [untimed.step(replace(a, spent=spent)) for a in untimed.oracle()][-1].success


def test_sampled_tokens_take_time_at_the_declared_rate() -> None:
    env = Apps("timed-30:all")
    env.reset(TASKS[0])
    shown = env.step(Action("now()", spent=30 * 60 * 7 + 1)).observation.text
    assert shown.startswith('{"now": "2026-03-02 09:07"}')
    assert env._running().seconds == 7 * 60 + 1  # a part of a second counts as one
    assert "A second passes for 30 of your tokens" in env.instructions
    assert not env.step(Action("fly()", spent=10**6)).valid
    assert env._running().seconds == 7 * 60 + 1


def test_the_tokens_of_a_session_pass_as_seconds() -> None:
    task, _ = one_of("follow_move")
    seconds = {}
    for id in ("timed", "timed-100", "timed-3"):
        env, agent = Apps(id), DirectAgent()
        environment = LocalEnvironment(env)
        expert = ExpertModel(agent, renderer(), environment=environment)
        session = Session(Key("test", 0), task, environment, agent, {"agent": expert})
        episode = asyncio.run(session.run())
        spent = [step.action.spent for step in episode.steps]
        assert (sum(spent) > 0) is (id != "timed")
        assert id == "timed" or spent == [call.sampled for call in episode.calls]
        seconds[id] = env._running().seconds
        # Thinking before an event is not added to the wait for it, but what comes last is.
        last = sum(-(-tokens // 3) for tokens in spent[-2:])
        assert id != "timed-3" or seconds[id] >= seconds["timed"] + last
    assert seconds["timed"] <= seconds["timed-100"] < seconds["timed-3"]


def test_what_happens_between_calls_stands_below_the_next_result() -> None:
    env = Apps("timed")
    task, _ = one_of("forward_answer")
    env.reset(task)
    first = env.step(Action("now()")).observation.text
    assert first == '{"now": "2026-03-02 09:00"}'
    text = env.step(Action("wait(minutes=50)")).observation.text
    assert "mail, new message" in text and "Re: " in text


def test_episodes_of_equal_deeds_are_equal_to_the_byte() -> None:
    for task in TASKS[:6]:
        seen = []
        for env in (Apps("timed-3:all"), Apps("timed-3:all")):
            env.reset(task)
            steps = [env.step(replace(action, spent=17)) for action in env.oracle()]
            seen.append((steps, env.snapshot(), env.state_key()))
        assert seen[0] == seen[1]


def test_a_team_is_refused_where_tokens_take_time() -> None:
    with pytest.raises(InputError, match="sampled tokens take time, which is for a single agent"):
        registry.spec("apps/timed-30?team=majority")
    assert len(registry.spec("apps/timed?team=majority").players) > 1


# ── apps about which no other timed task asks ────────────────────────────────


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["challenge", "new"])
def test_goals_of_unseen_apps_are_done_in_time(kind: str) -> None:
    env, kinds = Apps(f"timed-{kind}:all"), Counter[str]()
    for task in Apps.tasks(f"apps/timed-{kind}:all").take(Split.TEST, 10):
        env.reset(task)
        (goal,) = env.goals
        assert goal.atom.apps - {*CORE, "clock"}
        kinds[goal.atom.name] += 1
        steps = [env.step(action) for action in env.oracle()]
        assert steps[-1].success and len(steps) <= env.spec.typical_turns
    assert set(kinds) == {atom.name for atom in IN_TIME}


@pytest.mark.parametrize("kind", ["challenge", "new"])
def test_too_early_and_too_late_are_rejected_for_any_goal(kind: str) -> None:
    untimely = 0
    for task in Apps.tasks(f"apps/timed-{kind}").take(Split.TEST, 4):
        made = drawn_timed(task.seed, kind)
        for number, slots in near_misses(made.open(), made.task, random.Random(0)):
            world = made.open()
            ran = run(made.task.steps(number, slots), world, MAIN)
            verdict = judged(world, made.ways, ran.answer or "")
            assert not verdict.success
            untimely += verdict.effect and not verdict.timing
    assert untimely >= 4
