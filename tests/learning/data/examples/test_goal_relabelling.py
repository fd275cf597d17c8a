"""Hindsight relabelling: what an episode reached becomes its goal, in the policy's prompt."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra.core.environment import Observation, Transition
from palaestra.core.errors import InputError, RecipeError
from palaestra.core.goals import ACHIEVED, with_goal
from palaestra.core.message import user
from palaestra.learning.data.examples.goal_relabelling import (
    hindsight_goals,
    moves_of,
    reached,
    weighted_goals,
)
from palaestra.learning.data.rows import rows_of
from palaestra.learning.methods.component import Kind, find
from tests.learning.data.examples.stories import BROKEN, Turn, story
from tests.learning.made import Words

CELLS = [f"s{n}" for n in range(5)]
RENDERER = Words([*CELLS, "Goal:", *(f"c{n}." for n in range(9)), *(f"a{n}" for n in range(30))])
WALKS = st.lists(st.sampled_from(CELLS), min_size=2, max_size=9)


def walk(cells, *, goal="c8", member=0, silent=(), invalid=(), **more):
    """An episode that is in these cells one after the other; cell s1 achieves the goal c1.

    Args:
        silent: cells that achieve no goal.
        invalid: turns whose action is not understood, so that they stay.
    """
    texts = [with_goal(cells[0], goal), *cells[1:]]
    turns = [
        Turn(cells[n], f"a{n}", valid=n not in invalid, prompt=(user(texts[n]),))
        for n in range(len(cells) - 1)
    ]
    told = story(turns, member=member, renderer=RENDERER, **more)
    steps = []
    for step, cell in zip(told.steps, cells[1:], strict=True):
        info = {} if cell in silent or not step.transition.valid else {ACHIEVED: f"c{cell[1:]}"}
        seen = Observation(cell if step.transition.valid else "What?")
        steps.append(
            replace(step, transition=Transition(seen, valid=step.transition.valid, info=info))
        )
    return replace(told, observation=Observation(texts[0]), steps=tuple(steps))


def shown(row) -> str:
    return RENDERER.text(row.tokens)


def trained(row) -> list[str]:
    tokens = [t for t, on in zip(row.tokens, row.mask, strict=True) if on]
    return RENDERER.text(tokens).replace("<end>", "").split()


def test_an_episode_is_relabelled_with_each_goal_that_it_reached() -> None:
    found = hindsight_goals([walk(["s0", "s1", "s2", "s1"])], "policy", RENDERER)
    assert [shown(e.row) for e in found] == ["Goal: c1. s0 a0", "Goal: c2. s0 a0 s1 a1"]
    assert [trained(e.row) for e in found] == [["a0"], ["a0", "a1"]]
    assert all(set(e.advantage) <= {0.0, 1.0} for e in found)


def test_where_it_began_and_what_achieves_nothing_is_no_goal() -> None:
    back = walk(["s0", "s1", "s0"], silent=["s1"])
    assert hindsight_goals([back], "policy", RENDERER) == []
    other = walk(["s1", "s2", "s0"], member=1, silent=["s1"])  # s0 is reached from elsewhere
    found = hindsight_goals([back, other], "policy", RENDERER)
    assert [shown(e.row).split()[1] for e in found] == ["c2.", "c0."]


def test_what_was_not_understood_is_context_only() -> None:
    found = hindsight_goals([walk(["s0", "s1", "s2"], invalid=[0])], "policy", RENDERER)
    assert [trained(e.row) for e in found] == [["a1"]]


def test_episodes_without_a_valid_result_and_other_speakers_teach_nothing() -> None:
    for rule in (hindsight_goals, weighted_goals):
        assert rule([walk(["s0", "s1"], outcome=BROKEN)], "policy", RENDERER) == []
        assert rule([walk(["s0", "s1"])], "expert", RENDERER) == []
        assert rule([], "policy", RENDERER) == []


def test_prompts_without_a_goal_cannot_be_relabelled() -> None:
    told = walk(["s0", "s1"])
    call = replace(told.calls[0], messages=(user("s0"),))
    with pytest.raises(InputError, match=r"No prompt of episode rl/1/0\.0 states its goal"):
        hindsight_goals([replace(told, calls=(call,))], "policy", RENDERER)


@given(WALKS, st.integers(1, 4))
def test_goals_were_reached_in_the_very_episode_and_first_by_the_last_trained_reply(
    cells, most
) -> None:
    episode = walk(cells)
    moves = moves_of(episode, "policy")
    goals = reached(moves, f"c{cells[0][1:]}")
    found = hindsight_goals([episode], "policy", RENDERER, goals=most)
    assert len(found) == min(most, len(goals))
    assert found == hindsight_goals([episode], "policy", RENDERER, goals=most)
    for example in found:
        goal = shown(example.row).split()[1].rstrip(".")
        last = len(trained(example.row))
        arrivals = [f"c{cell[1:]}" for cell in cells[1:]]
        assert arrivals.index(goal) == last - 1 and goal != f"c{cells[0][1:]}"


@given(WALKS)
def test_relabelled_rows_keep_the_replies_token_for_token(cells) -> None:
    (whole,) = rows_of(walk(cells), "policy")
    for example in hindsight_goals([walk(cells)], "policy", RENDERER, goals=9):
        row, n = example.row, len(example.row.tokens)
        assert row.tokens[:2] == whole.tokens[:2] and row.tokens[3:] == whole.tokens[3:n]
        for name in ("mask", "logprobs", "calls"):
            assert getattr(row, name) == getattr(whole, name)[:n]


# ── weights ──────────────────────────────────────────────────────────────────

RECORDS = st.lists(WALKS, min_size=1, max_size=5)


def record(walks):
    return [walk(cells, member=n) for n, cells in enumerate(walks)]


@settings(deadline=None)
@given(RECORDS, st.booleans(), st.sampled_from([1, 3]))
def test_weights_are_in_range_and_only_on_what_hindsight_trains(walks, discounted, ensemble):
    plain = hindsight_goals(record(walks), "policy", RENDERER)
    weighed = weighted_goals(
        record(walks), "policy", RENDERER, discounted=discounted, ensemble=ensemble
    )
    assert [e.row for e in weighed] == [e.row for e in plain]
    most = 10.0 * (1.5 if ensemble > 1 else 1.0)
    for example in weighed:
        weights = [w for w, on in zip(example.advantage, example.row.mask, strict=True) if on]
        assert all(0 < weight <= most + 1e-9 for weight in weights)
        assert not any(
            w for w, on in zip(example.advantage, example.row.mask, strict=True) if not on
        )


def test_a_detour_weighs_less_than_the_direct_way() -> None:
    direct, detour = walk(["s0", "s1", "s2"]), walk(["s0", "s3", "s0", "s1", "s2"], member=1)
    found = weighted_goals(
        [direct, detour], "policy", RENDERER, goals=9, discount=0.5, ensemble=1, best=1.0
    )
    to_s2 = {e.row.key.member: e.by_call for e in found if shown(e.row).startswith("Goal: c2.")}
    start = 8 / 11  # V(s1) = 2, V(s3) = V(s0) / 2, V(s0) = (2 V(s1) + V(s3)) / 2 / 3
    assert to_s2[0][0] == pytest.approx(math.exp(1 - start), rel=1e-4)
    assert to_s2[1][0] == pytest.approx(math.exp(start / 4 - start), rel=1e-4)
    assert to_s2[0][1] == pytest.approx(1.0)  # the only action that is known there


def test_the_worse_replies_count_little_and_far_ones_less_if_discounted() -> None:
    walks = record([["s0", "s1", "s2"], ["s0", "s3", "s0", "s1", "s2"]])
    options = {"goals": 9, "discount": 0.5, "ensemble": 1}
    every, half, near = (
        weighted_goals(walks, "policy", RENDERER, **options, **more)
        for more in ({"best": 1.0}, {"best": 0.5}, {"best": 1.0, "discounted": True})
    )
    ratios = [
        half[n].by_call[call] / weight
        for n, one in enumerate(every)
        for call, weight in one.by_call.items()
    ]
    assert {round(ratio, 6) for ratio in ratios} == {0.05, 1.0}
    assert ratios.count(1.0) >= len(ratios) / 2
    for far, close in zip(every, near, strict=True):
        calls = list(far.by_call)
        for left, call in enumerate(reversed(calls)):
            assert close.by_call[call] == pytest.approx(far.by_call[call] * 0.5**left)


def test_uncertain_states_weigh_more_or_as_a_pessimist_has_it_less() -> None:
    walks = record([["s0", "s1", "s2"], ["s0", "s3", "s0", "s1"], ["s0", "s2", "s3"]])
    certain, more, less = (
        weighted_goals(walks, "policy", RENDERER, ensemble=ensemble, uncertain=uncertain)
        for ensemble, uncertain in ((1, "more"), (5, "more"), (5, "less"))
    )
    pairs = [
        (one.by_call[call], other.by_call[call])
        for one, other in zip(more, less, strict=True)
        for call in one.by_call
    ]
    assert any(a > b for a, b in pairs) and any(a < b for a, b in pairs)
    assert [e.row for e in certain] == [e.row for e in more] == [e.row for e in less]
    with pytest.raises(RecipeError, match="uncertain = 'less' has no effect with ensemble = 1"):
        find(Kind.EXAMPLES, "weighted-goals").configured({"ensemble": 1, "uncertain": "less"})
