"""A policy imitates what stands in another run, in its own tokens."""

from __future__ import annotations

from pathlib import Path

import pytest

from palaestra.core.errors import InputError
from palaestra.evaluation.judges.stored_verdicts import store_verdicts
from palaestra.evaluation.judges.verdict import Verdict
from palaestra.learning.data.examples.retokenizing import retokenized
from palaestra.models.registry import renderer_of
from palaestra.store.notes import Notes
from palaestra.store.run_folder import RunFolder
from palaestra.training.demonstrations import longest
from tests.training.learning import train, weights


@pytest.fixture(scope="module")
def recorded(start: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose expert has shown eight tasks."""
    folder = tmp_path_factory.mktemp("recorded")
    with train(start, folder, "imitation.demonstrations=8", "rl.steps=0") as run:
        return run.path


def imitate(recorded: Path, *keys: str) -> list[str]:
    overrides = ["imitation.demonstrator=recorded", f"imitation.run={recorded}", "rl.steps=0"]
    return [*overrides, "imitation.demonstrations=8", "imitation.examples_options.least=0", *keys]


def test_what_another_run_recorded_is_imitated(
    recorded: Path,
    start: Path,
    tmp_path: Path,
) -> None:
    with train(start, tmp_path, *imitate(recorded)) as run:
        assert weights(run.path / "final") != weights(start)
        assert len(run.database.metrics("imitation")) == 4  # one batch of all, four epochs


def test_demonstrations_longer_than_the_context_are_left_out(
    recorded: Path, start: Path, tmp_path: Path
) -> None:
    with RunFolder.read(recorded) as run:
        lengths = sorted(longest(episode) for episode in run.database.episodes("demonstrations"))
    shown = ["imitation.demonstrations=8", "rl.steps=0", "agent.max_tokens=8"]
    fits = lengths[len(lengths) // 2]
    with train(start, tmp_path, *shown, f"model.context={fits}") as run:
        assert lengths[-1] > fits
        assert weights(run.path / "final") != weights(start)
    (tmp_path / "none").mkdir()
    least = f"the shortest has {lengths[0]} tokens"
    with pytest.raises(InputError, match=rf"None of the 8 demonstrations .* {least}"):
        train(start, tmp_path / "none", *shown, f"model.context={lengths[0] - 1}")


def test_only_labelled_episodes_are_imitated(
    recorded: Path,
    start: Path,
    tmp_path: Path,
) -> None:
    with pytest.raises(InputError, match=r"no episode of .* has that label"):
        train(start, tmp_path, *imitate(recorded, "imitation.label=good"))
    with RunFolder.read(recorded) as run:
        key = run.database.episodes("demonstrations")[0].key
    Notes.open(recorded).add(key, "", {"good": "yes"})
    with train(start, tmp_path, *imitate(recorded, "imitation.label=good")) as run:
        assert len(run.database.metrics("imitation")) == 4  # an update per epoch, of one episode


def test_only_what_a_judge_holds_for_solved_is_imitated(
    recorded: Path, start: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=r"judges of that run: none"):
        train(start, tmp_path, *imitate(recorded, "imitation.judge=seen:done"))
    with RunFolder.open(recorded) as run:
        keys = [episode.key for episode in run.database.episodes("demonstrations")]
        values = [1.0, 0.0, None, *[0.4] * (len(keys) - 3)]
        for key, value in zip(keys, values, strict=True):
            verdict = Verdict("seen:done", "x", value, "as it looked")
            store_verdicts(run.database, "seen:done", {key: verdict})
    Notes.open(recorded).add(keys[0], "", {"first": "yes"})
    for name in "abc":
        (tmp_path / name).mkdir()
    with train(start, tmp_path / "a", *imitate(recorded, "imitation.judge=seen:done")) as run:
        judged = weights(run.path / "final")
    with train(start, tmp_path / "b", *imitate(recorded, "imitation.label=first")) as run:
        assert weights(run.path / "final") == judged  # that one episode, and no other
    with train(start, tmp_path / "c", *imitate(recorded)) as run:
        assert weights(run.path / "final") != judged


def test_nothing_to_imitate_is_reported(recorded: Path, start: Path, tmp_path: Path) -> None:
    keys = imitate(recorded, "environment.id=babyai/GoToObjS6")
    with pytest.raises(InputError, match=r"No episode of .* can be imitated on 'babyai/GoToObjS6'"):
        train(start, tmp_path, *keys)


def test_retold_in_the_same_tokens_an_episode_is_what_it_was(recorded: Path, start: Path) -> None:
    renderer = renderer_of(start)
    with RunFolder.read(recorded) as run:
        episodes = run.database.episodes("demonstrations")
    assert len(episodes) == 8
    for episode in episodes:
        rendered = retokenized(episode, "expert", renderer)
        assert [call.prompt for call in rendered.calls] == [call.prompt for call in episode.calls]
        assert [call.completion for call in rendered.calls] == [c.completion for c in episode.calls]
        assert [step.call for step in rendered.steps] == [step.call for step in episode.steps]
        assert rendered.outcome == episode.outcome
