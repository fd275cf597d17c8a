"""The settings of apps: those trained on stay as they are, further ones, and one's own."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Sequence

import pytest

import palaestra as pa
from examples.own_apps import Lend, Library
from palaestra.core.environment import Action
from palaestra.core.errors import InputError, UnknownName
from palaestra.core.task import Split
from palaestra.environments.conformance.clauses import CLAUSES
from palaestra.environments.conformance.subject import Subject
from palaestra.environments.families.apps.composing.composition import Composition
from palaestra.environments.families.apps.composing.goal import MAIN, Slots, Steps, call
from palaestra.environments.families.apps.environment import Apps
from palaestra.environments.families.apps.setting import Setting, brand, core, life, office
from palaestra.environments.families.apps.stock import (
    CORE,
    DOCUMENTS,
    LIFE,
    OFFICE,
    VERBS,
    stock_app,
)
from palaestra.environments.families.apps.world import World
from tests.chosen import mostly_slow

FIRST_TASKS = {
    "easy": "f86f1f6aa624f6f5",
    "easy-challenge": "0576dba89e702368",
    "easy-new": "e4f6939da1650373",
    "medium": "807e3b53c524bd72",
    "medium-challenge": "da632b5251790622",
    "medium-new": "bac3444c826d3143",
    "hard": "1d6e2d27ca8f8c0c",
    "hard-challenge": "1ffc9e100d34902b",
    "hard-new": "4aa0c9395d34165e",
}
"""Of each level: what the first observations and reference plans of its first five test tasks hash
to. Models were trained on these tasks; if they change on purpose, `Apps`' version rises."""


@pytest.mark.parametrize("name", mostly_slow(FIRST_TASKS, "easy", "medium", "hard", "easy-new"))
def test_the_tasks_of_the_core_apps_stay_the_same(name: str) -> None:
    env, seen = Apps(name), hashlib.sha256()
    for task in Apps.tasks(f"apps/{name}").take(Split.TEST, 5):
        first = env.reset(task).text
        seen.update("\n".join([first, *(action.text for action in env.oracle())]).encode())
    assert seen.hexdigest()[:16] == FIRST_TASKS[name]


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
@pytest.mark.parametrize(
    "id",
    mostly_slow(
        [
            "apps/life-easy",
            "apps/office-medium:all",
            "apps/life-hard:discover",
            "apps/office-hard",
            "apps/office-easy-challenge",
            "apps/life-easy-new",
        ],
        "apps/life-easy",
    ),
)
def test_the_contract_holds(id: str, clause: Callable[[Subject], None]) -> None:
    clause(Subject.of(id))


@pytest.mark.parametrize("name", ["life-easy:discover", "life-hard", "office-medium:all"])
def test_a_reference_solves_tasks_about_many_apps(name: str) -> None:
    env, apps = Apps(name), set()
    for task in Apps.tasks(f"apps/{name}").take(Split.TEST, 6):
        env.reset(task)
        steps = [env.step(action) for action in env.oracle()]
        assert steps[-1].success
        assert len(steps) <= env.spec.typical_turns
        apps |= env._drawn.task.apps
    assert len(apps) > 3
    assert apps <= set(LIFE if name.startswith("life") else OFFICE)


@pytest.mark.parametrize(
    ("which", "own", "others"), [("life", LIFE, OFFICE), ("office", OFFICE, LIFE)]
)
def test_challenges_are_about_apps_that_the_setting_lacks(
    which: str, own: tuple[str, ...], others: tuple[str, ...]
) -> None:
    env, asked = Apps(f"{which}-medium-challenge:all"), set[str]()
    for task in Apps.tasks(f"apps/{which}-medium-challenge:all").take(Split.TEST, 6):
        env.reset(task)
        assert all(goal.atom.apps - {*own} for goal in env.goals)
        asked |= env._drawn.task.apps - {*own}
        assert [env.step(action) for action in env.oracle()][-1].success
    assert len(asked) >= 2
    assert asked <= {*others}
    assert {*own, *others} == {*env._drawn.suite.apps}


@pytest.mark.parametrize(("which", "own"), [("life", LIFE), ("office", OFFICE)])
def test_new_apps_stand_beside_those_of_the_setting(which: str, own: tuple[str, ...]) -> None:
    env, new = Apps(f"{which}-easy-new:discover"), set[str]()
    for task in Apps.tasks(f"apps/{which}-easy-new:discover").take(Split.TEST, 3):
        env.reset(task)
        apps = {*env._drawn.suite.apps}
        assert apps > {*own} and len(apps) == len(own) + 2
        assert env._drawn.task.apps <= apps - {*own}
        new |= apps - {*own}
        assert [env.step(action) for action in env.oracle()][-1].success
    assert len(new) > 3


def test_every_stock_app_is_in_a_setting_and_the_core_is_the_first() -> None:
    named = {*LIFE, *OFFICE, *DOCUMENTS, *brand().suite.apps}
    named.add("user")  # who is asked in `apps/ask`
    assert named == set(VERBS)
    assert tuple(core().suite.apps) == CORE
    assert {*core().suite.apps} < {*life().suite.apps}
    kinds = {atom.name for setting in (life(), office()) for atom in setting.atoms}
    assert len(kinds) >= 20 + 9
    with pytest.raises(UnknownName, match="life-easy"):
        Apps.spec_of("live-easy")


@pytest.mark.parametrize("number", [0, 1])
def test_either_of_two_cards_pays_where_none_is_named(number: int) -> None:
    """A plan goes on with the card that was taken, and each is right."""
    env = Apps("life-easy")
    for task in Apps.tasks("apps/life-easy").take(Split.TRAIN, 400):
        env.reset(task)
        [goal] = env._drawn.task.goals
        if goal.atom.name == "order a product" and len(env._drawn.ways) == 2:
            break
    *before, pay, end = env.oracle()
    assert pay.text.startswith("shop_checkout")
    for action in before:
        env.step(action)
    cards = env._running().state.find("bank.card", owner=MAIN, status="active")
    env.step(Action(f"shop_checkout(card_id={cards[number]['id']})"))
    assert [action.text for action in env.oracle()] == [end.text]
    assert env.step(end).success


# ── one's own ────────────────────────────────────────────────────────────────


@pytest.mark.slow
@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
def test_apps_of_ones_own_keep_the_contract(clause: Callable[[Subject], None]) -> None:
    clause(Subject.of("examples.own_apps:Library/medium"))


def test_apps_of_ones_own_are_evaluated_by_class_and_by_id() -> None:
    by_class = pa.evaluate(Library, model="expert", n=4, progress=False)
    assert by_class.success == 1
    hard = pa.evaluate(
        "examples.own_apps:Library/hard:discover", model="expert", n=4, progress=False, workers=0
    )
    assert hard.success == 1
    goals = {goal.atom.name for seed in range(12) for goal in _task(seed).goals}
    assert {"lend a book", "add", "look up"} <= goals
    assert set(Apps.names()).isdisjoint({"", "library"})


def _task(seed: int) -> Composition:
    env = Library("hard")
    env.reset(Library.tasks("examples.own_apps:Library/hard").task(Split.TEST, seed))
    return env._drawn.task


def test_a_setting_without_what_an_app_refers_to_is_refused() -> None:
    with pytest.raises(InputError, match=r"bank\.card"):
        Setting.of([stock_app("shop")])


class LendVaguely(Lend):
    """A goal that takes what is right for a near miss."""

    def near_misses(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        return [slots]


class LendNothing(Lend):
    """A goal whose reference is always refused."""

    def steps(self, slots: Slots) -> Steps:
        yield call("library.show_book", book_id=0)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [(LendVaguely, "a near miss of 'lend a book' passes"), (LendNothing, "library.show_book")],
)
def test_a_goal_of_which_no_draw_passes_the_gate_is_refused(kind: type[Lend], reason: str) -> None:
    assert Library.setting is not None
    books = Library.setting.suite.apps["library"]

    class Vague(Apps):
        setting = Setting.of([books], atoms=[kind])

    with pytest.raises(InputError, match=rf"'lend a book' .* none of \d+ draws, .*{reason}"):
        Vague("easy")
