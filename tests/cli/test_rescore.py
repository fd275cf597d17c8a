"""`palaestra rescore`: recorded episodes are judged again, and versions are not mixed up."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from palaestra.cli.main import main
from palaestra.core.environment import Observation
from palaestra.core.errors import InputError
from palaestra.environments.families.apps import environment as apps
from palaestra.environments.families.apps.composing.gate import judged
from palaestra.environments.registry import make, without_version
from palaestra.evaluation.running.environment_versions import DOCUMENT
from palaestra.evaluation.running.rescoring import rescore
from palaestra.store.run_folder import RunFolder
from tests.evaluation.attribution.worlds import Lottery

ID = "apps/easy"


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that an older version of its environment judged."""
    folder = tmp_path_factory.mktemp("runs") / "old"
    asked = ["eval", "--env", ID, "--model", "expert", "-n", "4", "--run", str(folder)]
    assert main(asked) == 0
    with RunFolder.open(folder) as run:
        assert run.database.get(DOCUMENT) == {ID: apps.Apps.spec_of("easy").version}
        run.database.put(DOCUMENT, {ID: "1"})
    return folder


def stricter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the environment accept no task that changes rows, as if its verdicts were others."""

    def verdict(world: Any, ways: Any, answer: Any) -> Any:
        found = judged(world, ways, answer)
        return replace(found, effect=False, progress=0.0) if ways[0].rows else found

    monkeypatch.setattr(apps, "judged", verdict)


def test_changed_verdicts_are_reported_and_make_a_run_of_their_own(
    old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stricter(monkeypatch)
    new = tmp_path / "new"
    assert main(["rescore", str(old), "--run", str(new), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["versions"] == {ID: ["1", apps.Apps.spec_of("easy").version]}
    assert (found["episodes"], found["gained"], found["left_out"]) == (4, [], [])
    lost = {row["episode"] for row in found["lost"]}
    assert lost
    with RunFolder.read(old) as one, RunFolder.read(new) as other:
        (phase,) = one.database.phases()
        before, after = one.database.episodes(phase), other.database.episodes(phase)
    assert all(episode.outcome.solved for episode in before)
    assert {str(episode.key) for episode in after if not episode.outcome.solved} == lost
    assert [(e.calls, [s.action for s in e.steps]) for e in before] == [
        (e.calls, [s.action for s in e.steps]) for e in after
    ]
    assert main(["diff", str(old), str(new)]) == 2
    assert "palaestra rescore" in capsys.readouterr().err
    assert main(["aggregate", str(old), str(new)]) == 2
    again = tmp_path / "again"
    assert main(["rescore", str(old), "--run", str(again)]) == 0
    assert main(["diff", str(new), str(again), "--json"]) == 0
    assert main(["rescore", str(old), "--run", str(new)]) == 2


def test_the_same_verdicts_change_nothing(old: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rescore", str(old)]) == 0
    assert "0 are judged differently" in capsys.readouterr().out
    with RunFolder.read(old) as run:
        for episode in run.database.episodes(run.database.phases()[0]):
            found = asyncio.run(rescore(episode, make))
            assert found.judged == episode
            assert not found.changed


def test_an_episode_that_went_another_way_is_not_judged(old: Path) -> None:
    with RunFolder.read(old) as run:
        episode = run.database.episodes(run.database.phases()[0])[0]
    step = episode.steps[0]
    saw = replace(step, transition=replace(step.transition, observation=Observation("Hello.")))
    other = replace(episode, steps=(saw, *episode.steps[1:]))
    found = asyncio.run(rescore(other, make))
    assert (found.judged, found.reason) == (None, "turn 1 leads somewhere else")


def test_an_environment_with_its_own_chance_is_refused(old: Path) -> None:
    with RunFolder.read(old) as run:
        episode = run.database.episodes(run.database.phases()[0])[0]
    with pytest.raises(InputError, match="is not deterministic"):
        asyncio.run(rescore(episode, lambda id: Lottery()))


def test_a_required_version_is_left_out_of_an_id() -> None:
    assert without_version("apps/easy@1?errors=0.2") == "apps/easy?errors=0.2"
    assert without_version("apps/easy") == "apps/easy"
