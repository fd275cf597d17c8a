"""What holds for all challenges without a browser: equal tasks, honest proofs, fair turns."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.browser.sites import Request
from palaestra.core.errors import InputError, UnknownName
from palaestra.core.gestures.gesture_line import read_line
from palaestra.core.task import Split, Task
from palaestra.environments.families.challenges.challenge import code_of
from palaestra.environments.families.challenges.challenge_registry import (
    CATEGORIES,
    CHALLENGES,
    ChallengeTasks,
    challenge_of,
    made,
)
from palaestra.environments.families.challenges.challenge_site import HOME, TRIES, ChallengeSite

SEEDS = range(12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)


def posted(site: ChallengeSite, path: str, value: Any) -> Any:
    response = site(Request("POST", f"{HOME}{path}", {}, json.dumps(value).encode()))
    return json.loads(response.body) if response.status == 200 else None


def test_there_are_forty_in_five_categories() -> None:
    assert len(CHALLENGES) == 40
    assert {len(makers) for makers in CATEGORIES.values()} == {8} and len(CATEGORIES) == 5


def test_knobs_and_a_version_do_not_change_the_challenge() -> None:
    plain = ChallengeTasks("challenges/basics").task(Split.TEST, 3)
    for id in ("challenges/basics?observation=text", "challenges/basics@1?clock=real"):
        task = ChallengeTasks(id).task(Split.TEST, 3)
        assert task.parameters == plain.parameters
        assert challenge_of(task) == challenge_of(plain)


@pytest.mark.parametrize("name", CHALLENGES)
def test_a_task_is_a_function_of_its_seed_and_others_differ(name: str) -> None:
    told = set()
    for seed in SEEDS:
        one, other = (CHALLENGES[name](random.Random(f"{name} {seed}")) for _ in range(2))
        assert (one.goal, one.plan, one.files) == (other.goal, other.plan, other.files)
        assert json.loads(json.dumps(dict(one.shown))) == json.loads(json.dumps(dict(other.shown)))
        for line in one.plan:
            read_line(line)  # raises for none
        told.add(one.plan)
    assert len(told) > len(SEEDS) / 2  # by chance, some may ask for the same


@given(st.sampled_from(SEEDS), VALUES)
def test_nothing_that_a_page_may_send_breaks_its_site_or_is_a_proof(seed: int, value: Any) -> None:
    for name in CHALLENGES:
        site = ChallengeSite(name, seed, made(name, seed))
        posted(site, "ask", value)
        assert "not it" in posted(site, "check", value)["said"]
        assert not site.solved


def test_codes_of_all_tasks_differ() -> None:
    codes = {code_of(name, seed) for name in CHALLENGES for seed in range(300)}
    assert len(codes) == 40 * 300 and {len(code) for code in codes} == {8}


def test_after_too_many_wrong_proofs_the_right_one_gives_no_code() -> None:
    def site() -> ChallengeSite:
        return ChallengeSite("clock", 3, made("clock", 3))

    shown = posted(site(), "shown", None)
    right = f"{shown['hour']}:{shown['minute']:02}"
    good, bad = site(), site()
    assert posted(good, "check", right)["said"] == f"Completion code: {code_of('clock', 3)}"
    for _ in range(TRIES):
        posted(bad, "check", "0:00")
    assert posted(bad, "check", right)["said"] == "There are no tries left."
    assert good.solved and not bad.solved


def test_what_the_page_knows_is_asked_for_by_post_alone() -> None:
    for name in CHALLENGES:
        site = ChallengeSite(name, 1, made(name, 1))
        for path in ("shown", "ask", "check", "pages/challenge.js", "../challenge.js"):
            assert site(Request("GET", f"{HOME}{path}")).status == 404
        assert site.code not in site(Request("GET", HOME)).body.decode()


def test_pages_of_a_mixture_take_turns_in_each_split() -> None:
    for split in Split:
        found = [task.parameters for task in ChallengeTasks("challenges/all").take(split, 40)]
        assert [one["challenge"] for one in found] == [*CHALLENGES]
        assert [one["category"] for one in found[::8]] == [*CATEGORIES]
    task = ChallengeTasks("challenges/play").task(Split.TEST, 9)
    assert task.parameters == {"challenge": "memory-pairs", "category": "play"}
    assert challenge_of(task) == challenge_of(Task("by hand", "challenges/play", task.seed))


def test_a_task_of_another_challenge_is_refused() -> None:
    with pytest.raises(InputError, match=r"'maze'.* choose a challenge by its name"):
        challenge_of(Task("x", "challenges/clock", 1, parameters={"challenge": "maze"}))
    with pytest.raises(UnknownName, match="clocks"):
        challenge_of(Task("x", "challenges/clocks", 1))
