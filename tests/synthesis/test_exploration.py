"""What a model did by itself becomes tasks, worded afterwards, behind the same gate."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from palaestra.core.errors import InputError
from palaestra.core.message import Message
from palaestra.environments.families.apps.composing.gate import near_misses, rejection
from palaestra.environments.families.synthesised.lines import suite_of, task_of, world_of
from palaestra.models.scripted.scripted_model import ScriptedModel
from palaestra.synthesis.domain_file import Explore
from palaestra.synthesis.exploration import EXPLORER
from tests.synthesis.made import COUNTY, county_reply, lines, made

EXPLORED = COUNTY.model_copy(
    update={"tasks": 1, "worlds": 1, "explore": Explore(explorations=1, calls=5)}
)


def explorer(calls: int) -> ScriptedModel:
    """A model that says nonsense once, lists a kind of rows, and deletes the first two of them."""

    def reply(messages: Sequence[Message]) -> str:
        if messages[0].text != EXPLORER:
            return county_reply(messages)
        tools, _, so_far = messages[-1].text.partition("So far:")
        done = len(re.findall(r"^  ", so_far, re.MULTILINE))
        app, noun = re.findall(r"(\w+)_delete_(\w+)\(", tools)[-1]  # to which nothing refers
        listing = f"{app}_list_{noun}s()"
        ids = [int(found) for found in re.findall(r'"id": (\d+)', so_far)]
        script = ["Let us see.", listing, *(f"{app}_delete_{noun}({noun}_id={{}})",) * 2]
        return script[done].format(*ids[done - 2 :]) if done < min(calls, 4) else "DONE"

    return ScriptedModel(reply, name="explorer")


def test_each_beginning_that_changes_something_is_a_task(tmp_path: Path) -> None:
    found = {one.stage: one for one in made(tmp_path / "made", EXPLORED, explorer(4))}
    assert found["explorations"].made == 2
    assert found["explorations"].reasons == {"exploration: no call of a tool": 1}
    assert found["dialogues"].made == found["rows"].made == 3
    explored = [one for one in lines(tmp_path / "made", "explorations") if one["goals"]]
    world = lines(tmp_path / "made", "worlds")[0]
    for number, line in enumerate(explored, 1):
        suite = suite_of(world)
        place, task = world_of(world, suite), task_of(line, suite)
        assert str(line["instruction"]).startswith("Hello! delete ")
        assert rejection(place, task, random.Random(0)) is None
        assert len(list(near_misses(place, task, random.Random(0)))) == number


def test_an_exploration_that_changes_nothing_makes_no_task(tmp_path: Path) -> None:
    found = {one.stage: one for one in made(tmp_path / "made", EXPLORED, explorer(2))}
    assert found["explorations"].made == 0
    assert found["dialogues"].made == 1


def test_nobody_explores_without_a_model(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"has \[explore\], and nobody does that without a model"):
        made(tmp_path / "made", EXPLORED)


def test_explorations_are_the_same_to_the_byte(tmp_path: Path) -> None:
    for name in ("one", "other"):
        made(tmp_path / name, EXPLORED, explorer(4))
    first, second = (lines(tmp_path / name, "explorations") for name in ("one", "other"))
    assert json.dumps(first) == json.dumps(second)
