"""Environments with pictures, and the knob that shows them."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest
from PIL import Image

from palaestra.core.environment import Action
from palaestra.core.errors import InputError
from palaestra.core.rare_capabilities import picture_of
from palaestra.core.task import Split
from palaestra.environments import registry
from palaestra.environments.conformance.clauses import CLAUSES
from palaestra.environments.conformance.subject import Subject
from palaestra.environments.shared.png_images import SIGNATURE

WORLDS = {
    "babyai/GoToLocalS5N2": (112, 112),
    "crafter/collect_wood": (64, 64),
    "arcade/Pong": (160, 210),
}


@pytest.mark.parametrize(("id", "size"), WORLDS.items(), ids=WORLDS)
def test_each_observation_comes_with_the_picture_of_its_state(
    id: str, size: tuple[int, int]
) -> None:
    seen = []
    for query in ("?observation=image", ""):
        world = registry.make(id + query)
        first = world.reset(registry.tasks(id).task(Split.TRAIN, 0))
        step = world.step(Action(world.admissible()[0]))
        seen.append((first, step.observation, picture_of(world)))
        world.close()
    (first, second, picture), (plain, plain_second, plain_picture) = seen
    assert (first.text, second.text) == (plain.text, plain_second.text)
    assert picture == plain_picture  # equal states, equal pictures
    assert second.images[0].data == picture
    assert not plain.images
    assert first.images[0].data.startswith(SIGNATURE)
    assert Image.open(io.BytesIO(picture)).size == size


@pytest.mark.parametrize("id", WORLDS)
def test_pixels_take_the_place_of_text_and_blanks_that_of_pixels(id: str) -> None:
    seen = []
    for look in ("image", "pixels", "blank"):
        world = registry.make(f"{id}?observation={look}")
        first = world.reset(registry.tasks(id).task(Split.TRAIN, 0))
        step = world.step(Action(world.admissible()[0]))
        seen.append((first, step.observation))
        world.close()
    (whole, _), (first, second), (blank, other) = seen
    assert first.text in whole.text
    assert first.text.startswith("Mission: go to") == id.startswith("babyai")
    assert second.text == ""
    assert first.images == whole.images
    assert blank.text == first.text
    assert blank.images == other.images  # which show nothing
    size = Image.open(io.BytesIO(first.images[0].data)).size
    assert Image.open(io.BytesIO(blank.images[0].data)).size == size


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
def test_pictures_keep_the_contract(clause: Callable[[Subject], None]) -> None:
    knobs = "observation=image&errors=0.3&actions=listed&budget=9"
    clause(Subject.of(f"babyai/GoToLocalS5N2?{knobs}", steps=5, per_split=1))


def test_what_has_no_picture_shows_none() -> None:
    with pytest.raises(InputError, match="needs 'picture', which 'memory-4' does not declare"):
        registry.make("probe/memory-4?observation=image")
    for look in ("image", "pixels"):
        with pytest.raises(InputError, match=f"observation={look} shows what stale and partial"):
            registry.make(f"babyai/GoToLocalS5N2?observation={look}&stale=0.1")
