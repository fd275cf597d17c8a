"""Every format gives back what it was given: token ids and log-probabilities bit for bit."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from palaestra.core.episode import Episode, Key
from palaestra.store.exchange.atif import write_atif
from palaestra.store.exchange.detect import detect, read_episodes
from palaestra.store.exchange.episode_schema import write_json
from palaestra.store.exchange.inspect_log import write_inspect
from palaestra.store.exchange.otel import write_otel
from tests.core import small
from tests.evaluation import made
from tests.store import samples

START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
WRITERS: dict[str, Callable[[Path, list[Episode]], int]] = {
    "inspect": lambda path, episodes: write_inspect(path, episodes, START),
    "otel": lambda path, episodes: write_otel(path, episodes, START),
    "atif": write_atif,
    "json": write_json,
}
NAMES = {"inspect": "x.json", "otel": "x.jsonl", "atif": "x.jsonl", "json": "x.jsonl"}
ANY = settings(deadline=None, max_examples=15, suppress_health_check=[HealthCheck.too_slow])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("exchange")


@pytest.mark.parametrize("format", WRITERS)
@ANY
@given(st.lists(samples.episodes, min_size=1, max_size=2, unique_by=lambda one: one.key))
def test_an_episode_of_any_shape_comes_back_bit_for_bit(
    folder: Path, format: str, episodes: list[Episode]
) -> None:
    file = folder / NAMES[format]
    assert WRITERS[format](file, episodes) == len(episodes)
    assert detect(file) == format
    back = list(read_episodes(file, format))
    assert list(map(repr, back)) == list(map(repr, episodes))  # tells -0.0 from 0.0


LIVED = [
    small.run_episode(
        small.Acting("up", "what", "up", "up"),
    ),
    *(made.evaluation("test/rl", 0.5, 4)),
    samples.episode(Key("rl/3", 1, 2), turns=4),
]


@pytest.mark.parametrize("name", ["x.eval", "x.json", "x.jsonl", "y.jsonl", "folder"])
def test_recorded_episodes_round_trip(name: str, tmp_path: Path) -> None:
    format = {"x.jsonl": "otel", "y.jsonl": "json", "folder": "atif"}.get(name, "inspect")
    file = tmp_path / name
    assert WRITERS[format](file, LIVED) == len(LIVED)
    assert detect(file) == format
    assert list(read_episodes(file, format)) == LIVED
    assert not list(tmp_path.glob(".*")), "leftovers"


def test_a_conversation_through_a_renderer_keeps_its_tokens(tmp_path: Path) -> None:
    renderer = small.renderer()
    episode = small.run_episode(
        small.Asking([samples.user("up")], [samples.user("down")]),
        small.Sampled([renderer.reply("up up"), renderer.reply("down")]),
    )
    assert all(call.prompt and call.completion and call.logprobs for call in episode.calls)
    for format, write in WRITERS.items():
        file = tmp_path / f"{format}-{NAMES[format]}"
        write(file, [episode])
        (back,) = read_episodes(file, format)
        for here, there in zip(episode.calls, back.calls, strict=True):
            assert there == here
        assert back == episode


def test_every_line_of_a_file_stands_alone(tmp_path: Path) -> None:
    for format in ("otel", "atif", "json"):
        file = tmp_path / f"{format}.jsonl"
        WRITERS[format](file, LIVED)
        lines = file.read_text().splitlines()
        assert len(lines) == len(LIVED)
        assert all(isinstance(json.loads(line), dict) for line in lines)
