"""Every kind of stage that is killed at random moments ends as if it had not been."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.training.runs import palaestra, recorded_episodes, weights_hash
from tests.training.stages.interrupted import killed
from tests.training.stages.made import HEAD, IMITATE, written
from tests.training.stages.test_models_beside import ARCHER, STEERED, VALUED
from tests.training.stages.test_offline import EXPLORE, GOALS, LABELLED, PASTA, RELABELLED
from tests.training.stages.test_pipeline import JUDGED, PREDICTED, PROGRESS, REWARDED
from tests.training.stages.test_role_stages import ROUTED, TWO
from tests.training.stages.test_teachers import SEARCHED

STAGES = {
    "roles": TWO,
    "clusters": ROUTED,
    "labels": GOALS + EXPLORE + LABELLED.format(updates=20),
    "goals": GOALS + EXPLORE + RELABELLED.replace("{0}", "hindsight-goals"),
    "components": GOALS + EXPLORE + PASTA,
    "judges": HEAD + IMITATE + JUDGED,
    "predictors": HEAD + IMITATE + PREDICTED,
    "preference models": REWARDED.replace("{kind}", "preference"),
    "success models": REWARDED.replace("{kind}", "success"),
    "progress models": PROGRESS,
    "critics of replies": ARCHER,
    "values of tokens": VALUED,
    "steered replies": STEERED,
    "searches": HEAD + IMITATE + SEARCHED,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", STAGES)
def test_stages_killed_at_random_moments_end_the_same(name: str, tmp_path: Path) -> None:
    text = STAGES[name]
    (tmp_path / "whole").mkdir()
    (tmp_path / "killed").mkdir()
    whole = tmp_path / "whole" / "run"
    palaestra("train", written(tmp_path / "whole", text), "--run", whole, "--json")
    run = killed(tmp_path / "killed", text, seed=sum(map(ord, name)))
    assert weights_hash(run) == weights_hash(whole)
    assert recorded_episodes(run) == recorded_episodes(whole)
