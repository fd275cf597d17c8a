"""Wrapped environments satisfy the contract in every combination, and the knobs have effect."""

from __future__ import annotations

import itertools
import random
import re
import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra.core.environment import Action, Environment
from palaestra.core.errors import InputError, UnknownName
from palaestra.core.rare_capabilities import sample_action
from palaestra.core.task import Split
from palaestra.environments import registry
from palaestra.environments.conformance.clauses import CLAUSES
from palaestra.environments.conformance.subject import Subject
from palaestra.environments.wrappers.fault_injection import AGAIN
from palaestra.environments.wrappers.knobs import KNOBS, split
from palaestra.environments.wrappers.preference_wrappers import DISPLEASED

VALUES = {
    "errors": "0.3",
    "stale": "0.4",
    "partial": "0.5",
    "observation": "diff",
    "reward": "progress",
    "latency": "0.0001",
    "turns": "9",
    "budget": "9",
    "actions": "tool",
    "profile": "any",
    "coins": "14",
}


def world(id: str, index: int = 0) -> tuple[Environment, str]:
    made = registry.make(id)
    return made, made.reset(registry.tasks(id).task(Split.TRAIN, index)).text


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
@pytest.mark.parametrize("knob", [*VALUES, "reward2"])
def test_each_knob_keeps_the_contract(knob: str, clause: Callable[[Subject], None]) -> None:
    query = "reward=intrinsic" if knob == "reward2" else f"{knob}={VALUES[knob]}"
    clause(Subject.of(f"probe/memory-4?{query}", steps=8))


@settings(max_examples=12, deadline=None)
@given(st.sets(st.sampled_from(sorted(VALUES)), min_size=2))
def test_any_combination_keeps_the_contract(knobs: set[str]) -> None:
    query = "&".join(f"{knob}={VALUES[knob]}" for knob in sorted(knobs))
    for clause in CLAUSES:
        clause(Subject.of(f"babyai/GoToLocalS5N2?{query}", steps=6, per_split=1))


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
@pytest.mark.parametrize("query", ["errors=0.3", "partial=0.5", "turns=4", "budget=5", "turns=20"])
def test_knobs_keep_the_contract_with_several_players(
    query: str, clause: Callable[[Subject], None]
) -> None:
    clause(Subject.of(f"tests.core.games:Tally?{query}", steps=8))


@pytest.mark.parametrize(
    "query", ["observation=diff", "stale=0.4", "reward=sparse", "profile=any", "coins=9", "calls=9"]
)
def test_knobs_that_mix_up_players_are_refused(query: str) -> None:
    """They would show a player what another one saw, or change rewards of one and not of all."""
    with pytest.raises(InputError, match=f"{query} is for a single player, and .*Tally' has sev"):
        registry.make(f"tests.core.games:Tally?{query}")


@pytest.mark.slow
def test_a_budget_of_calls_keeps_the_contract() -> None:
    for clause in CLAUSES:
        clause(Subject.of("probe/memory-4?actions=tool&calls=9", steps=8))


@pytest.mark.parametrize("kind", ["listed", "numbered"])
def test_listed_actions_keep_the_contract(kind: str) -> None:
    for clause in CLAUSES:
        clause(Subject.of(f"textworld/coin-easy?actions={kind}", steps=6, per_split=1))


@pytest.mark.parametrize("id", ["CartPole-v1?context=gravity:5~15,length:0.3~0.9",
                                "Pendulum-v1?context=g:2~20,hidden",
                                "Acrobot-v1?context=LINK_LENGTH_1:0.5~2"])  # fmt: skip
def test_contexts_keep_the_contract(id: str) -> None:
    for clause in CLAUSES:
        clause(Subject.of(f"gymnasium/{id}", steps=8, per_split=2))


def test_a_context_is_drawn_for_each_task_told_and_obeyed() -> None:
    made, first = world("gymnasium/CartPole-v1?context=gravity:5~15")
    _, other = world("gymnasium/CartPole-v1?context=gravity:5~15", 1)
    _, hidden = world("gymnasium/CartPole-v1?context=gravity:5~15,hidden")
    plain, usual = world("gymnasium/CartPole-v1")
    shown = re.match(r"Here, gravity ([\d.]+)\.\n(.*)", first, re.DOTALL)
    assert shown is not None and 5 <= float(shown[1]) <= 15
    assert shown[2] == usual == hidden
    assert other.split("\n")[0] != first.split("\n")[0]
    after = [made.step(Action("left")).observation.text for _ in range(3)]
    without = [plain.step(Action("left")).observation.text for _ in range(3)]
    assert after != without


def test_a_context_equals_the_package_with_its_attributes_set() -> None:
    gymnasium = pytest.importorskip("gymnasium")
    made, _ = world("gymnasium/CartPole-v1?context=length:1.5,masspole:0.4")
    direct = gymnasium.make("CartPole-v1")
    inner = direct.unwrapped
    inner.length, inner.masspole = 1.5, 0.4
    inner.total_mass, inner.polemass_length = inner.masscart + 0.4, 0.4 * 1.5
    direct.reset(seed=registry.tasks("gymnasium/CartPole-v1").task(Split.TRAIN, 0).seed)
    for word in ("left", "right", "right", "left", "left"):
        seen, *_ = direct.step(("left", "right").index(word))
        numbers = re.findall(r"-?\d+\.?\d*", made.step(Action(word)).observation.text)
        assert [float(n) for n in numbers] == pytest.approx([float(x) for x in seen], abs=0.006)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("CartPole-v1?context=gravty:3", "Did you mean 'gravity'"),
        ("CartPole-v1?context=gravity:many", "give NAME:NUMBER or NAME:LOW~HIGH"),
        ("CartPole-v1?context=gravity:9~3", "9 is larger"),
        ("CartPole-v1?context=", "is not valid"),
        ("Taxi-v4?context=gravity:3", "context of 'Taxi-v4'"),
    ],
)
def test_a_wrong_context_is_reported_in_one_sentence(query: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        registry.make(f"gymnasium/{query}")


def test_a_number_stands_for_the_action_beside_it() -> None:
    plain, first = world("textworld/coin-easy")
    numbered, listed = world("textworld/coin-easy?actions=numbered")
    known = list(plain.admissible())
    assert listed.startswith(first) and f"{len(known)}: {known[-1]}" in listed
    text = numbered.step(Action("1")).observation.text
    assert text.startswith(plain.step(Action(known[0])).observation.text)
    assert not numbered.step(Action("99")).valid


def test_a_budget_is_reported_and_its_end_is_a_failure() -> None:
    made, first = world("minigrid/Empty-5x5?budget=2")
    assert first.endswith("Budget left: 2")
    ends = [made.step(Action("left")) for _ in range(2)]
    assert ends[0].observation.text.endswith("Budget left: 1")
    assert [end.terminated for end in ends] == [False, True]
    assert not any(end.truncated or end.success for end in ends)


def test_a_spending_budget_is_reported_paid_from_and_its_end_is_a_failure() -> None:
    made, first = world("minigrid/Empty-5x5?coins=5")
    assert first.endswith("Coins left: 5")
    dear, cheap = (made.step(Action("left")) for _ in range(2))
    price = dear.info["paid"]
    assert price == cheap.info["paid"] and 1 <= price <= 3  # one word, one price
    assert dear.observation.text.endswith(f"Coins left: {5 - price}")
    assert not made.step(Action("sing")).valid  # an invalid action costs nothing
    paid = [cheap]
    while not paid[-1].terminated:
        paid.append(made.step(Action("left")))
    assert paid[-1].observation.text.endswith("Coins left: 0") and not paid[-1].success
    assert sum(end.info["paid"] for end in [dear, *paid]) >= 5
    prices = {world("minigrid/Empty-5x5?coins=5", n)[0].step(Action("left")).info["paid"]
              for n in range(20)}  # fmt: skip
    assert prices == {1, 2, 3}  # and another one in another task


def test_an_oracle_knows_what_its_way_will_cost() -> None:
    plain, _ = world("probe/sea-4")
    rich, _ = world("probe/sea-4?coins=12")
    poor, _ = world("probe/sea-4?coins=3")
    assert rich.oracle() == plain.oracle() and not poor.oracle()


def test_only_calls_are_counted_as_calls() -> None:
    made, first = world("probe/sea-4?actions=tool&calls=2")
    assert first.endswith("Calls of tools left: 2")
    with pytest.raises(InputError, match="needs tools"):
        registry.make("probe/sea-4?calls=2")
    ends = [made.step(sample_action(made, random.Random(0))) for _ in range(2)]
    assert [end.terminated for end in ends] == [False, True]


def test_a_user_says_what_he_wants_and_is_not_pleased_where_he_does_not_get_it() -> None:
    made, first = world("minigrid/Empty-5x5?profile=steady,quick")
    assert first.endswith("The user wants: at most 10 actions in all; never back to where you "
                          "were before.")  # fmt: skip
    there, back = made.step(Action("left")), made.step(Action("right"))
    assert there.reward == 0 and "displeased" not in there.info
    assert back.info["displeased"] == ["steady"] and back.reward == -DISPLEASED
    assert back.observation.text.endswith("not pleased: never back to where you were before.")
    while made.turn < 10:
        made.step(Action("pickup"))  # changes nothing, so it is not a return
    assert made.step(Action("pickup")).info["displeased"] == ["quick"]


def test_a_hidden_user_shows_displeasure_only() -> None:
    made, first = world("minigrid/Empty-5x5?profile=steady,hidden")
    assert "wants" not in first
    made.step(Action("left"))
    assert made.step(Action("right")).observation.text.endswith("The user is not pleased.")


def test_each_task_has_its_user_and_always_the_same() -> None:
    shown = [world("minigrid/Empty-5x5?profile=any", n)[1].split("\n")[-1] for n in range(30)]
    again = [world("minigrid/Empty-5x5?profile=any", n)[1].split("\n")[-1] for n in range(30)]
    assert shown == again and len(set(shown)) > 4  # of seven sets of wishes


def test_diff_says_what_is_new_and_what_is_gone() -> None:
    plain, first = world("babyai/GoToLocalS5N2")
    changed, same = world("babyai/GoToLocalS5N2?observation=diff")
    assert same == first
    before = first.replace("\n", ", ").split(", ")
    after = plain.step(Action("left")).observation.text.split(", ")
    shown = changed.step(Action("left")).observation.text.split("\n")
    assert {line[2:] for line in shown if line[0] == "+"} == set(after) - set(before)
    assert {line[2:] for line in shown if line[0] == "-"} == set(before) - set(after)


def test_progress_rewards_sum_to_the_progress_made() -> None:
    made, _ = world("textworld/coin-easy?reward=progress")
    start = made.progress()
    rewards = [made.step(action).reward for action in made.oracle()]
    assert sum(rewards) == pytest.approx(1.0 - start)


def test_intrinsic_rewards_shrink_where_one_was_before() -> None:
    made, _ = world("minigrid/Empty-5x5?reward=intrinsic")
    turned = [made.step(Action("left")).reward for _ in range(5)]
    assert turned == pytest.approx([1, 1, 1, 2**-0.5, 2**-0.5])


def test_errors_happen_as_often_as_asked_and_change_nothing() -> None:
    made, _ = world("minigrid/Empty-5x5?errors=0.25")
    errors = 0
    for index in range(40):
        made.reset(registry.tasks("minigrid/Empty-5x5").task(Split.TRAIN, index))
        for _ in range(10):
            plain = made.state_key().partition("/")[0]
            if made.step(Action("left")).observation.text == AGAIN:
                errors += 1
                assert made.state_key().partition("/")[0] == plain
    assert 70 < errors < 130


def test_the_turn_limit_truncates_and_does_not_terminate() -> None:
    made, _ = world("minigrid/Empty-5x5?turns=3")
    ends = [made.step(Action("left")) for _ in range(3)]
    assert [end.truncated for end in ends] == [False, False, True]
    assert not any(end.terminated for end in ends)


def test_latency_is_waited_for() -> None:
    made, _ = world("probe/sea-3?latency=0.02")
    began = time.perf_counter()
    made.step(Action("ping"))
    assert time.perf_counter() - began >= 0.02


def test_a_stale_observation_is_the_one_before() -> None:
    plain, _ = world("probe/sea-8")
    stale, _ = world("probe/sea-8?stale=1")
    texts = [plain.step(Action("ping")).observation.text for _ in range(3)]
    old = [stale.step(Action("ping")).observation.text for _ in range(3)]
    assert old[1:] == texts[:-1]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("errors=2", "'errors=2' in 'probe/sea-3?errors=2' is not valid; give a share from 0 to 1"),
        ("errors=", "is not valid"),
        ("turns=0", "give a number of actions"),
        ("observation=short", "give diff"),
        ("actions=code", "give listed, numbered, tool"),
        ("errors=0.1&errors=0.2", "sets 'errors' twice"),
    ],
)
def test_a_wrong_value_is_reported_in_one_sentence(query: str, words: str) -> None:
    with pytest.raises(InputError, match=words.replace("?", r"\?")):
        registry.make(f"probe/sea-3?{query}")


def test_an_unknown_knob_is_reported_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'errors'"):
        registry.tasks("probe/sea-3?error=0.1")


def test_a_knob_that_needs_what_a_world_lacks_is_refused() -> None:
    with pytest.raises(InputError, match="reward=progress needs 'progress'"):
        registry.make("minigrid/Empty-5x5?reward=progress")


def test_the_order_of_writing_does_not_matter() -> None:
    rollouts = []
    for pair in itertools.permutations(["errors=0.3", "observation=diff"]):
        made, first = world("minigrid/Empty-5x5?" + "&".join(pair))
        rollouts.append([first, *(made.step(Action("left")).observation.text for _ in range(6))])
    assert rollouts[0] == rollouts[1]


def test_a_query_is_read() -> None:
    assert split("a/b") == ("a/b", {})
    assert split("a/b?turns=3&reward=sparse") == ("a/b", {"turns": "3", "reward": "sparse"})
    own_tests = {
        "context", "calls", "clock", "dialect", "gestures", "library", "messages",
        "targets", "team",
    }  # fmt: skip
    assert set(KNOBS) == {*VALUES, *own_tests}
