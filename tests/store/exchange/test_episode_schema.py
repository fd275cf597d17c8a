"""The published schema of an episode is that of the types, and real episodes keep to it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from palaestra.core.episode import Episode, Key
from palaestra.store.exchange.episode_schema import NAME, episode_document, episode_of, schema_text
from tests.core import small
from tests.evaluation import made
from tests.store import samples

PUBLISHED = Path(__file__).parents[3] / "docs" / "schema" / NAME
REAL = [
    small.run_episode(small.Acting("up", "fall")),
    made.episode("test/rl", 0, made.CRASH),
    made.episode("test/rl", 1, made.OUT_OF_TURNS, invalid=[1]),
    samples.episode(Key("rl/1", 0)),
]


def test_the_published_schema_is_up_to_date() -> None:
    assert PUBLISHED.read_text() == schema_text(), (
        f"run: python -m palaestra.store.exchange.episode_schema > docs/schema/{NAME}"
    )


@pytest.mark.parametrize("episode", REAL, ids=lambda episode: str(episode.outcome))
def test_real_episodes_keep_to_the_published_schema(episode: Episode) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="the dev extra does not have it")
    document = json.loads(json.dumps(episode_document(episode)))
    validator = jsonschema.Draft202012Validator(json.loads(PUBLISHED.read_text()))
    validator.check_schema(validator.schema)
    assert not list(validator.iter_errors(document))
    assert list(validator.iter_errors(document | {"format": 1}))
    assert list(validator.iter_errors(document | {"steps": [{"index": 0}]}))


@pytest.mark.parametrize("episode", REAL, ids=lambda episode: str(episode.outcome))
def test_every_field_of_a_real_episode_is_in_the_published_schema(episode: Episode) -> None:
    schema = json.loads(PUBLISHED.read_text())
    document = json.loads(json.dumps(episode_document(episode)))
    assert set(schema["required"]) <= set(document) <= set(schema["properties"])
    for name, kind in (("calls", "Call"), ("steps", "Step")):
        fields: dict[str, Any] = schema["$defs"][kind]
        for event in document[name]:
            assert set(fields["required"]) <= set(event) <= set(fields["properties"])


def test_what_show_prints_is_read_as_well() -> None:
    bare = {name: value for name, value in episode_document(REAL[-1]).items() if name != "format"}
    assert episode_of(bare, "here") == REAL[-1]
