"""What is known of an environment before it is made, and how little an author must know."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest

from palaestra.cli.main import main
from palaestra.core.environment import (
    Action,
    Capability,
    Environment,
    Observation,
    Spec,
    Transition,
    declared,
)
from palaestra.core.errors import CapabilityMissing, UnknownName
from palaestra.core.rare_capabilities import acting_in, names_actions
from palaestra.core.task import Split, Task
from palaestra.environments import registry
from palaestra.environments.environment_listing import entries
from palaestra.evaluation.running.matrix import MatrixRequest, plan
from palaestra.evaluation.running.suite import Entry
from palaestra.runtime.concurrency import most
from palaestra.training.recipe import load
from palaestra.training.recipe_check import check_recipe
from palaestra.training.run_context import typical_turns


class Plain(Environment, id="plain", capabilities={"progress"}, typical_turns=7):
    """Says yes."""

    instructions = "Say yes."

    def reset(self, task: Task) -> Observation:
        return Observation("Well?")

    def step(self, action: Action) -> Transition:
        return Transition(Observation("Good."), 1.0, terminated=True, success=True)

    def progress(self) -> float:
        return 0.0


class Knowing(Plain, capabilities={"oracle"}):
    pass


class Several(Plain, players=("white", "black")):
    @classmethod
    def names(cls) -> list[str]:
        return ["long", "short"]

    @classmethod
    def spec_of(cls, name: str = "") -> Spec:
        return replace(super().spec_of(name), typical_turns=len(name))

    def acting(self) -> tuple[str, ...]:
        return ("black",)

    def observe(self, player: str) -> Observation:
        return Observation("Well?")


class Silent(Plain, players=("white", "black")):
    pass


def test_authors_see_at_most_fifteen_members() -> None:
    members = {name for name in dir(Environment) if not name.startswith("_")}
    annotated = {name for name in Environment.__annotations__ if not name.startswith("_")}
    assert len(members | annotated) <= 15, sorted(members | annotated)


def test_a_spec_is_frozen_and_the_same_before_and_after_making() -> None:
    spec = Plain.spec_of()
    assert (spec.id, spec.name, spec.typical_turns, spec.players) == ("plain", "", 7, ("agent",))
    assert Plain().spec == spec
    with pytest.raises(FrozenInstanceError):
        spec.version = "2"  # type: ignore[misc]


def test_keywords_are_inherited_and_capabilities_add_up() -> None:
    assert declared(Knowing).capabilities == {Capability.PROGRESS, Capability.ORACLE}
    assert declared(Plain).capabilities == {Capability.PROGRESS}
    assert Knowing.spec_of().typical_turns == 7
    assert Knowing.spec_of().id == f"{__name__}:Knowing"


def test_facts_follow_the_name_and_an_unknown_name_is_refused() -> None:
    assert Several.spec_of("long").typical_turns == 4
    assert Several("short").spec.name == "short"
    with pytest.raises(UnknownName, match="Did you mean 'long'"):
        Several.spec_of("lung")


def test_an_environment_says_who_acts_next() -> None:
    assert acting_in(Several("long")) == ("black",)
    assert acting_in(Plain()) == ("agent",)
    with pytest.raises(CapabilityMissing, match="Silent has several players, and lacks the method"):
        acting_in(Silent())


def test_a_fact_as_a_class_variable_is_an_error_that_says_where_it_belongs() -> None:
    with pytest.raises(TypeError, match=r"declare it after the bases: class Old\(…, free_text=…"):

        class Old(Plain):
            free_text = True


def test_a_capability_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match="'orakel' is not a valid Capability"):

        class Odd(Plain, capabilities={"orakel"}):
            pass


def test_tasks_are_endless_unless_an_author_says_otherwise() -> None:
    assert Plain.tasks("plain").count(Split.TRAIN) is None


def test_whether_chance_can_act_is_known_from_the_class() -> None:
    assert not names_actions(Plain, Plain.spec_of())  # "Say yes." lists nothing

    class Listing(Plain):
        instructions = "Say one word: yes, no."

    assert names_actions(Listing, Listing.spec_of())


# ── nothing is made for a check ──────────────────────────────────────────────


@pytest.fixture
def nothing_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("an environment was made for a check")

    monkeypatch.setattr(Environment, "__init__", refuse)
    monkeypatch.setattr(registry, "make", refuse)
    monkeypatch.setattr("subprocess.Popen.__init__", refuse)
    for maker in ("gymnasium.make", "crafter.Env.__init__", "textworld.start"):
        try:
            monkeypatch.setattr(maker, refuse)
        except (ImportError, AttributeError):
            continue  # not installed


@pytest.mark.usefixtures("nothing_is_made")
def test_checking_a_recipe_makes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("quick", "default", "hard"):
        check_recipe(load(name))
    assert main(["train", "quick", "--dry-run", "--json"]) == 0
    capsys.readouterr()


@pytest.mark.usefixtures("nothing_is_made")
def test_planning_an_evaluation_and_counting_sessions_make_nothing() -> None:
    tested = Entry(environment="babyai/GoToLocalS5N2?turns=3", tasks=2)
    made, _ = plan(MatrixRequest(entries=[tested], agents=["direct"], models=["random", "expert"]))
    assert [cell.turns for cell in made.cells] == [3, 3]
    assert most("crafter/collect_wood") is None and typical_turns("crafter/collect_wood") == 20


@pytest.mark.usefixtures("nothing_is_made")
def test_listing_makes_nothing() -> None:
    for family in ("babyai", "minigrid", "crafter", "openspiel", "pettingzoo", "probe", "terminal"):
        found = entries(family)
        assert found and all(entry.capabilities for entry in found if entry.installed)


@pytest.mark.parametrize(
    "query",
    ["?actions=tool", "?turns=2", "?budget=3&actions=listed", "?observation=image", "?coins=9"],
)
def test_knobs_change_the_spec_as_they_change_the_environment(query: str) -> None:
    id = f"babyai/GoToObjS4{query}"
    made = registry.make(id)
    try:
        assert registry.spec(id) == made.spec
    finally:
        made.close()
