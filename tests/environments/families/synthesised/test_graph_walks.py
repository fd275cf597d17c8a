"""Walks follow the edges of the graph, and each passes the gate."""

from __future__ import annotations

import random
from pathlib import Path

from palaestra.environments.families.apps.composing.composition import Composition
from palaestra.environments.families.apps.composing.gate import rejection
from palaestra.environments.families.apps.composing.goal import Goal
from palaestra.environments.families.synthesised.graph_walks import walks
from palaestra.environments.families.synthesised.lines import suite_of, world_of
from palaestra.environments.families.synthesised.linked_goals import LONGEST_WALK
from tests.synthesis.made import COUNTY, lines, made


def test_walks_over_three_apps_are_found_and_pass_the_gate(tmp_path: Path) -> None:
    domain = COUNTY.model_copy(update={"apps": 3, "worlds": 1, "tasks": 1})
    made(tmp_path / "made", domain)
    line, rng = lines(tmp_path / "made", "worlds")[0], random.Random(0)
    suite = suite_of(line)
    world = world_of(line, suite)
    found = list(walks(suite, LONGEST_WALK))
    assert max(len(walk.hops) for walk in found) >= 2
    assert {3} <= {len(walk.apps) for walk in found}
    assert len({walk.table for walk in found}) == len(found)
    for walk in found:
        slots = next(slots for _ in range(20) if (slots := walk.draw(world, rng)) is not None)
        task = Composition((Goal(walk, slots),))
        assert rejection(world, task, rng) is None
        ran, wanted = task.reference(world)
        assert len(ran.calls) == 1 + len(walk.hops)
        assert slots["title"] in task.instruction
        assert wanted.answer not in (None, "")


def test_a_walk_is_no_longer_than_it_may_be(tmp_path: Path) -> None:
    made(tmp_path / "made", COUNTY.model_copy(update={"apps": 3, "worlds": 1, "tasks": 1}))
    suite = suite_of(lines(tmp_path / "made", "worlds")[0])
    assert {len(walk.hops) for walk in walks(suite, 1)} == {1}
