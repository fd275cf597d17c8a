"""Options that cannot work are refused when the recipe is read, before anything starts."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from palaestra.cli.main import main
from palaestra.training.recipe import check, load

CREDIT, LOSS, FIX = "rl.credit_options", "rl.loss_options", "rl.correction_options"
FILTER, STUDY = "rl.filter_options", "imitation.examples_options"
LEVELS = 'rl.curriculum={levels=["babyai/GoToObjS4", "babyai/GoToObjS6"], rule="%s"}'

# keys beside the bad one, the bad one, its value as errors name it, and what the option takes
BAD: list[tuple[Sequence[str], str, str, str]] = [
    (["rl.credit=grpo"], f"{CREDIT}.eps=-1", "eps = -1", "a finite number above 0"),
    (["rl.credit=grpo"], f"{CREDIT}.eps=0", "eps = 0", "a finite number above 0"),
    (["rl.credit=grpo"], f"{CREDIT}.ddof=2", "ddof = 2", "0 or 1"),
    (["rl.credit=grpo"], f"{CREDIT}.scale=task", "scale = 'task'", "one of group, batch, none"),
    (["rl.credit=gae"], f"{CREDIT}.gamma=7", "gamma = 7", "a number in [0, 1]"),
    (["rl.credit=gae"], f"{CREDIT}.gamma=nan", "gamma = nan", "a number in [0, 1]"),
    (["rl.credit=gae"], f"{CREDIT}.lam=-0.1", "lam = -0.1", "a number in [0, 1]"),
    (["rl.credit=reinforce"], f"{CREDIT}.axis=step", "axis = 'step'", "token or turn"),
    (["rl.credit=running"], f"{CREDIT}.decay=1", "decay = 1", "a number in [0, 1)"),
    (["rl.credit=running"], f"{CREDIT}.state=1", "state = 1", "left out, as the run fills it in"),
    (["rl.credit=anchor"], f"{CREDIT}.similarity=2", "similarity = 2", "a number in [0, 1]"),
    (["rl.credit=gigpo"], f"{CREDIT}.omega=inf", "omega = inf", "a finite number of at least 0"),
    (
        ["rl.credit=rloo + 0.5*anchor"],
        f"{CREDIT}.anchor.gamma=1.5",
        "gamma = 1.5",
        "a number in [0, 1]",
    ),
    (["rl.credit=turn_gae"], f"{CREDIT}.value_at=mid", "value_at = 'mid'", "first or last"),
    (["rl.loss=ppo"], f"{LOSS}.low=-1", "low = -1", "a number in [0, 1]"),
    (["rl.loss=ppo"], f"{LOSS}.high=-0.1", "high = -0.1", "a finite number of at least 0"),
    (["rl.loss=ppo"], f"{LOSS}.dual=1", "dual = 1", "a number above 1, or inf"),
    (["rl.loss=loop"], f"{LOSS}.unit=word", "unit = 'word'", "one of token, turn, rollout"),
    (["rl.loss=gspo"], f"{LOSS}.unit=token", "unit = 'token'", "turn or rollout"),
    (["rl.loss=grpo"], f"{LOSS}.kl=k4", "kl = 'k4'", "one of k1, k2, k3, k3+, k3-weighted"),
    (["rl.loss=grpo"], f"{LOSS}.beta=-0.1", "beta = -0.1", "a finite number of at least 0"),
    (["rl.loss=cispo"], f"{LOSS}.cap=0.5", "cap = 0.5", "a finite number of at least 1"),
    (["rl.loss=decoupled"], f"{LOSS}.mode=drop", "mode = 'drop'", "mask or truncate"),
    (["rl.correction=tis"], f"{FIX}.cap=0.5", "cap = 0.5", "a finite number of at least 1"),
    (["rl.correction=tis"], f"{FIX}.level=word", "level = 'word'", "one of token, turn, rollout"),
    (["rl.correction=mis"], f"{FIX}.low=1.5", "low = 1.5", "a number in [0, 1]"),
    (["rl.correction=mis"], f"{FIX}.high=0.9", "high = 0.9", "a finite number of at least 1"),
    (["rl.correction=veto"], f"{FIX}.threshold=2", "threshold = 2", "a number in [0, 1]"),
    (["rl.correction=rejection"], f"{FIX}.estimator=k9", "estimator = 'k9'", "one of k1, k2, k3"),
    (["rl.filter=starpo"], f"{FILTER}.share=0", "share = 0", "a number in (0, 1]"),
    (["rl.filter=dapo"], f"{FILTER}.metric=turns", "metric = 'turns'", "success or total"),
    ([], f"{STUDY}.share=0", "share = 0", "a number in (0, 1]"),
    ([], f"{STUDY}.score=luck", "score = 'luck'", "one of success, reward, progress"),
    (["imitation.examples=rejection"], f"{STUDY}.cap=0", "cap = 0", "a whole number of at least 1"),
    (
        ["imitation.examples=step-masks"],
        f"{STUDY}.mistakes=typos",
        "mistakes = 'typos'",
        "misunderstood or futile",
    ),
    (
        [LEVELS % "learnability"],
        "rl.curriculum.options.window=0",
        "window = 0",
        "a whole number of at least 1",
    ),
    ([LEVELS % "dart"], "rl.curriculum.options.floor=2", "floor = 2", "a number in [0, 1]"),
]


def refused(capsys: pytest.CaptureFixture[str], keys: Sequence[str]) -> str:
    assert main(["train", "quick", "--dry-run", "--set", *keys]) == 2
    message = capsys.readouterr()
    assert message.out == ""
    (line,) = message.err.splitlines()
    return line


@pytest.mark.parametrize(("beside", "key", "value", "takes"), BAD, ids=[row[1] for row in BAD])
def test_a_bad_value_is_refused_in_a_sentence(
    beside: Sequence[str],
    key: str,
    value: str,
    takes: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PALAESTRA_RUNS", str(tmp_path / "runs"))
    message = refused(capsys, [*beside, key])
    assert f"cannot take {value}: it must be {takes} (by default" in message
    assert list(tmp_path.iterdir()) == []


TOGETHER = {
    "two rules set a critic's targets": (
        ["rl.credit=gae + turn_gae"],
        "'gae' and 'turn_gae' both set targets for the critic",
    ),
    "bounds that reject what is on policy": (
        ["rl.correction=rejection", f"{FIX}.estimator=k1"],
        "The bounds of 'rejection' break 0.0 <= 1 <= 0.01",
    ),
    "a weight without end": (["rl.credit=rloo + 1e999*anchor"], "too large a number"),
    "no others in the group": (
        ["rl.credit=reinforce", f"{CREDIT}.baseline=group", "rl.group=1"],
        "rl.group = 1, but rl.credit = 'reinforce' compares the rollouts of a group",
    ),
    "no others in the batch": (
        ["rl.algorithm=reinforce", "rl.group=1", "rl.tasks=1"],
        "a batch has only one",
    ),
    "one rollout of a group is enough": (
        ["rl.quorum=1"],
        "rl.quorum = 1, but rl.credit = 'rloo' compares the rollouts of a group",
    ),
    "a filter that compares": (
        ["rl.credit=running", "rl.filter=dapo", "rl.group=1"],
        "rl.group = 1, but rl.filter = 'dapo' compares the rollouts of a group",
    ),
    "examples by a progress that is not declared": (
        ["environment.id=gymnasium/Blackjack-v1", "environment.transfer=",
         "imitation.demonstrator=random", f"{STUDY}.score=progress"],
        "does not declare 'progress'",
    ),
    "a stage without turns": (["rl.horizon={turns=[4, 0], every=1}"], "greater than or equal to 1"),
    "an endless learning rate": (["rl.learning_rate=inf"], "finite number"),
    "options of a part when no RL is asked for": (
        ["rl.steps=0", "rl.loss=ppo", f"{LOSS}.low=-1"],
        "cannot take low = -1",
    ),
    "an agent's endless temperature": (["agent.name=vote?temperature=inf"], "finite number"),
    "more seconds than there are": (
        [f"environment.id=babyai/GoToObjS6?latency={'9' * 400}"],
        "give seconds",
    ),
    "more turns than can be read": (
        [f"environment.id=babyai/GoToObjS6?turns={'9' * 5000}"],
        "give a number of actions",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("keys", "message"), TOGETHER.values(), ids=TOGETHER)
def test_parts_that_do_not_go_together_are_refused(
    keys: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in refused(capsys, keys)


def test_an_infinite_option_is_stored_and_shown_as_it_is(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    keys = ["rl.loss=ppo", f"{LOSS}.dual=inf"]
    recipe = load("quick", keys)
    stored = json.loads(json.dumps(recipe.model_dump(mode="json")))
    assert check(stored).rl.loss_options == {"dual": math.inf}
    assert main(["train", "quick", "--dry-run", "--set", *keys]) == 0
    path = tmp_path / "again.toml"
    path.write_text(capsys.readouterr().out)
    assert load(str(path)).rl.loss_options == {"dual": math.inf}
