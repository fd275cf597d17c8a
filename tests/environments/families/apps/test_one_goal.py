"""One goal alone and through each operator: what is wanted, and the world, are the same."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pytest

from palaestra.core.environment import Action
from palaestra.core.task import Split
from palaestra.environments import registry
from palaestra.environments.conformance.clauses import CLAUSES
from palaestra.environments.conformance.subject import Subject
from palaestra.environments.families.apps.composing.forbidden import REFUSED
from palaestra.environments.families.apps.environment import SPEEDS, Apps
from palaestra.environments.families.apps.one_goal import GOAL, THROUGH, every_way

SEEDS = range(4)
PLANTED = ("mail.message", "user.fact")  # where operators write what their goals need


@pytest.mark.slow
@pytest.mark.parametrize("id", ["apps/goal-forbidden", "apps/goal-wait:discover"])
@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
def test_the_contract_holds(id: str, clause: Callable[[Subject], None]) -> None:
    clause(Subject.of(id))


@pytest.mark.parametrize("seed", SEEDS)
def test_only_the_operator_differs(seed: int) -> None:
    made = every_way(seed)
    assert set(made) == {GOAL, *THROUGH}
    forbidden = made["forbidden"].task.goals[0].slots
    doing = {name: one for name, one in made.items() if name != "forbidden"}
    if forbidden["permitted"]:
        doing["forbidden"] = made["forbidden"]
    else:
        assert not made["forbidden"].ways[0].rows
    assert len({frozenset(one.ways[0].rows.items()) for one in doing.values()}) == 1
    assert len({one.task.mentions for one in doing.values()}) == 1
    assert made["forbidden"].task.instruction == made[GOAL].task.instruction
    assert made[GOAL].task.instruction in made["branch"].task.instruction
    rows = []
    for one in made.values():
        with closing(one.open()) as world:
            tables = [table for table in world.state.columns if table not in PLANTED]
            rows.append([world.state.rows(table) for table in tables])
    assert all(of == rows[0] for of in rows)


def test_both_permitted_and_forbidden_goals_are_drawn() -> None:
    slots = [every_way(seed)["forbidden"].task.goals[0].slots for seed in SEEDS]
    assert {each["permitted"] for each in slots} == {True, False}


@pytest.mark.parametrize("name", [GOAL, *(f"{GOAL}-{way}" for way in THROUGH)])
def test_references_solve_and_constant_answers_do_not(name: str) -> None:
    env = Apps(f"{name}:all")
    for task in Apps.tasks(f"apps/{name}:all").take(Split.TEST, 2):
        env.reset(task)
        assert [env.step(action) for action in env.oracle()][-1].success
        env.reset(task)
        refused = env.step(Action(f'finish(answer="{REFUSED}")')).success
        policy = env._drawn.task.policy
        assert refused == (bool(policy) and not env.goals[0].slots["permitted"])


# ── factors ──────────────────────────────────────────────────────────────────


def test_factors_name_ids_that_exist() -> None:
    names = set(Apps.names())
    for name in names:
        for others in Apps.factors(name).values():
            assert name not in others
            assert {*others} <= names
    assert Apps.factors("goal:all")["operator"] == [f"goal-{way}:all" for way in THROUGH]
    assert Apps.factors("timed")["speed"] == [f"timed-{speed}" for speed in SPEEDS]
    assert set(Apps.factors("medium")) == {"tools"}


def test_factors_keep_version_and_knobs_of_the_id() -> None:
    version = Apps.spec_of("easy").version
    found = registry.factors(f"apps/easy@{version}?team=majority")
    assert found["tools"][0] == f"apps/easy:all@{version}?team=majority"
    assert registry.factors("probe/umbrella-4") == {}
    own = registry.factors("examples.own_apps:Library")
    assert own["tools"][0] == "examples.own_apps:Library/easy:all"
