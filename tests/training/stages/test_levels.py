"""Speakers that record in several environments, in stated parts, for one policy to learn from."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.cli.dry_run import toml
from palaestra.cli.main import main
from palaestra.store.run_folder import RunFolder
from palaestra.training.recipe import load
from palaestra.training.run import vocabulary_texts
from palaestra.training.stage_sources import FromSpeaker
from tests.training.runs import recorded_episodes, weights_hash
from tests.training.stages.interrupted import stopped
from tests.training.stages.made import HEAD, recipe_of, resumed, run_stages, written
from tests.training.stages.test_stage_sections import refusal, stage

OWN, OTHER = "babyai/GoToObjS4", "babyai/GoToLocalS5N2"


def cloning(levels: str, demonstrations: int = 6, more: str = "") -> str:
    source = f"{{speaker = 'expert', demonstrations = {demonstrations}{levels}}}"
    return HEAD + stage(f"do = 'imitate'\nfrom = {source}\nlearning_rate = 3e-3\n{more}")


TWO = cloning(f", levels = {{'{OWN}' = 2, '{OTHER}' = 1}}")


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_stages(tmp_path_factory.mktemp("two"), TWO)[0]


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=5), st.integers(500, 999))
def test_counts_add_up_and_are_the_stated_parts_to_less_than_one(
    parts: list[float], count: int
) -> None:
    levels = {f"level-{n}": part for n, part in enumerate(parts)}
    counts = FromSpeaker(speaker="expert", demonstrations=count, levels=levels).counts("own")
    assert list(counts) == list(levels) and sum(counts.values()) == count
    for level, part in levels.items():
        assert abs(counts[level] - count * part / sum(parts)) < 1


def test_a_list_has_equal_parts_and_without_levels_all_episodes_are_of_the_recipes() -> None:
    listed = FromSpeaker(speaker="expert", demonstrations=7, levels=["a", "b"])  # type: ignore[arg-type]
    assert listed.counts("own") == {"a": 4, "b": 3}
    assert FromSpeaker(speaker="expert", demonstrations=7).counts("own") == {"own": 7}


def test_each_environment_has_its_part_of_the_episodes_and_of_the_rows(
    two: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with RunFolder.read(two) as opened:
        episodes = opened.database.episodes("demonstrations")
        learned = opened.database.get("rows/imitation")["demonstrations"]
        tested = opened.database.episodes("test/imitation")
    assert Counter(e.task.environment for e in episodes) == {OWN: 4, OTHER: 2}
    assert learned["environments"] == {OWN: 4, OTHER: 2}
    assert {e.task.environment for e in tested} == {OWN}
    assert main(["show", str(two)]) == 0
    assert f"{OWN}, Apache-2.0; {OTHER}, Apache-2.0" in capsys.readouterr().out


def test_a_run_stopped_before_its_checkpoint_ends_the_same(
    two: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped(tmp_path, TWO, 2, monkeypatch)
    resumed(tmp_path / "run")
    assert weights_hash(tmp_path / "run") == weights_hash(two)
    assert recorded_episodes(tmp_path / "run") == recorded_episodes(two)


def test_the_recipes_environment_alone_is_the_stage_without_levels(tmp_path: Path) -> None:
    named, _ = run_stages(tmp_path / "a", cloning(f", levels = ['{OWN}']"))
    plain, _ = run_stages(tmp_path / "b", cloning(""))
    assert weights_hash(named) == weights_hash(plain)


def test_the_vocabulary_covers_all_levels(tmp_path: Path) -> None:
    told = set(vocabulary_texts(recipe_of(tmp_path, TWO)))
    plain = set(vocabulary_texts(recipe_of(tmp_path, cloning(""))))
    other = set(vocabulary_texts(recipe_of(tmp_path, cloning("").replace(OWN, OTHER))))
    assert other - plain and told == plain | other


def test_a_dry_runs_recipe_with_levels_can_be_read_again(tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path, TWO)
    assert load(str(written(tmp_path / "again", toml(recipe)))) == recipe


@pytest.mark.parametrize(
    ("levels", "demonstrations", "words"),
    [
        (f", levels = ['{OWN}', '{OWN}']", 6, "an environment is named twice"),
        (f", levels = {{'{OWN}' = 1, '{OTHER}' = 0}}", 6, "each part of levels is above 0"),
        (f", levels = ['{OWN}', '{OTHER}']", 1, f"leaves none for '{OTHER}'"),
        (", levels = ['babyai/GoToNowhere']", 6, "no BabyAI environment 'GoToNowhere'"),
        (f", levels = ['{OWN}', 'minigrid/Empty-5x5']", 6, "the expert of 'minigrid/Empty-5x5'"),
        (f", levels = ['{OWN}', '{OTHER}?observation=pixels']", 6, "which shows images"),
    ],
)
def test_levels_that_cannot_be_recorded_are_refused(
    levels: str, demonstrations: int, words: str, tmp_path: Path
) -> None:
    assert words in refusal(tmp_path, cloning(levels, demonstrations))


def test_a_game_for_several_needs_an_agent_that_plays_it(tmp_path: Path) -> None:
    text = cloning(", levels = ['openspiel/kuhn_poker:self']").replace("'expert'", "'random'")
    assert "and the agent 'direct' plays one" in refusal(tmp_path, text)


def test_a_rule_that_speaks_of_one_environment_reads_no_other(tmp_path: Path) -> None:
    rule = "examples = 'flattened'"
    text = cloning(f", levels = ['{OTHER}']", more=rule) + "[agent]\nname = 'chain'\n"
    assert "speaks of the instructions or tools" in refusal(tmp_path, text)
