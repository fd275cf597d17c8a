"""`pa.reward_term`: a plain function of an episode's record becomes a term that recipes weight."""

from __future__ import annotations

from pathlib import Path

import pytest

import palaestra as pa
from palaestra.learning.data.rewards import Shaping
from palaestra.learning.methods import component
from palaestra.learning.methods.component import Kind, Need, find

SMALL = {
    "environment": {"id": "babyai/GoToObjS4", "transfer": None, "workers": 0},
    "model": {"context": 512, "tiny": {"layers": 1, "width": 32}},
    "imitation": {"demonstrations": 0},
    "evaluation": {"tasks": 2},
}


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Terms of these tests are known to no other test."""
    component.components(Kind.REWARD)  # ours are there
    monkeypatch.setattr(component, "_registered", dict(component._registered))


def brevity(episode: pa.Episode, *, per: float = 1.0) -> float:
    """Return minus the number of actions."""
    return -len(episode.steps) / per


def test_a_term_is_found_by_its_name_with_its_source_needs_and_options() -> None:
    assert pa.reward_term(source="a test", needs=["progress"])(brevity) is brevity
    part = find(Kind.REWARD, "brevity")
    assert (part.source, part.needs) == ("a test", frozenset({Need.PROGRESS}))
    assert part.options == {"per": 1.0}
    assert [term.name for term in Shaping(5, {"brevity": 0.5}).terms] == ["brevity"]


def test_a_term_may_be_defined_again_but_not_instead_of_another() -> None:
    pa.reward_term(brevity)
    pa.reward_term(brevity)  # as a notebook's cell that is run again

    def outcome(episode: pa.Episode) -> float:
        """Not the one."""
        return 0.0

    with pytest.raises(pa.PalaestraError, match="The reward term 'outcome' exists already"):
        pa.reward_term(outcome)
    with pytest.raises(pa.PalaestraError, match="'speed' is not a need of a reward term"):
        pa.reward_term(needs=["speed"])(brevity)


@pytest.mark.slow
def test_training_weights_it_and_logs_every_term(tmp_path: Path) -> None:
    pa.reward_term(brevity)
    run = pa.train(
        "quick",
        run=tmp_path / "run",
        progress=False,
        concurrency=8,
        rl={
            "steps": 1,
            "tasks": 2,
            "group": 2,
            "rewards": {"brevity": 0.1, "format": 0},
            "reward_options": {"brevity": {"per": 2.0}},
        },
        **SMALL,
    )
    (step,) = run.metrics
    assert {name for name in step if name.startswith("reward/")} == {
        "reward/brevity",
        "reward/format",
        "reward/invalid",
        "reward/outcome",
    }
    expected = step["reward/outcome"] - 0.05 * step["reward/invalid"] + 0.1 * step["reward/brevity"]
    assert step["reward"] == pytest.approx(expected)
    assert step["reward/brevity"] == pytest.approx(-step["turns"] / 2)
