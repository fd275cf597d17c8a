"""`palaestra agents compare`: agents on the same tasks at an equal budget."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from palaestra.cli import agents_command
from palaestra.cli.main import main
from palaestra.evaluation.statistics.overall import gap
from palaestra.store.run_folder import RunFolder
from tests.core.small import renderer

WORLD = "probe/umbrella-4"


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    monkeypatch.setenv("PALAESTRA_RUNS", str(tmp_path / "runs"))
    if "slow" not in request.keywords:  # a small vocabulary counts as well
        monkeypatch.setattr(agents_command, "counter", renderer)
    return tmp_path / "runs"


def compared(capsys: pytest.CaptureFixture[str], *arguments: str, env: str = WORLD) -> Any:
    assert main(["agents", "compare", env, *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_agents_are_put_beside_each_other_task_by_task(
    capsys: pytest.CaptureFixture[str], runs: Path
) -> None:
    options = ["--agents", "direct,constant", "--tasks", "5", "--run", str(runs / "a")]
    found = compared(capsys, *options, "--model", "expert?error=0.5", "--seeds", "1,2")
    direct, constant = found["environments"][WORLD]
    assert (direct["agent"], constant["agent"]) == ("direct", "constant")
    assert direct["difference"] is None and direct["success"]["n"] == 5
    scores: dict[str, dict[int, list[float]]] = {"direct": {}, "constant": {}}
    tokens: dict[str, list[int]] = {"direct": [], "constant": []}
    with RunFolder.read(runs / "a") as run:
        for phase in run.database.phases():
            for episode in run.database.episodes(phase):
                of = scores[episode.agent].setdefault(episode.key.group, [])
                of.append(float(episode.outcome.solved))
                usage = episode.usage
                tokens[episode.agent].append(usage.prompt_tokens + usage.sampled_tokens)
    means = {a: {t: sum(v) / len(v) for t, v in of.items()} for a, of in scores.items()}
    wanted = gap({WORLD: means["constant"]}, {WORLD: means["direct"]}, {WORLD: 1.0})
    assert constant["difference"]["mean"] == pytest.approx(wanted.mean)
    assert constant["difference"]["low"] == pytest.approx(wanted.low)
    for row in (direct, constant):
        mine = tokens[row["agent"]]
        assert row["tokens"] == pytest.approx(sum(mine) / len(mine))
        assert row["calls"] == row["turns"] == 4


def test_no_episode_exceeds_the_budget_and_a_run_is_gone_on_with(
    capsys: pytest.CaptureFixture[str], runs: Path
) -> None:
    options = ["--agents", "direct,constant", "--tasks", "3", "--model", "expert"]
    free, dear = (row["tokens"] for row in compared(capsys, *options)["environments"][WORLD])
    assert free < dear / 2  # each of its prompts is rendered again
    limit = int(free + (dear - free) / 4)
    options += ["--tokens", str(limit), "--run", str(runs / "b")]
    found = compared(capsys, *options)
    direct, constant = found["environments"][WORLD]
    assert direct["success"]["mean"] == 1.0 and constant["turns"] < direct["turns"]
    with RunFolder.read(runs / "b") as run:
        episodes = [e for phase in run.database.phases() for e in run.database.episodes(phase)]
    spent = [e.usage.prompt_tokens + e.usage.sampled_tokens for e in episodes]
    assert len(spent) == 6 and max(spent) <= limit
    assert {str(e.outcome) for e in episodes if not e.outcome.solved} == {"truncated(tokens)"}
    assert compared(capsys, *options) == found  # nothing runs again, and nothing changes
    assert main(["agents", "compare", WORLD, *options[:-4], "--run", str(runs / "b")]) == 2
    assert "holds another comparison" in capsys.readouterr().err


def test_the_table_says_its_terms(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["agents", "compare", WORLD, "--agents", "direct,react", "--tasks", "3"]
    assert main([*arguments, "--turns", "2", "--model", "random"]) == 0
    output = " ".join(capsys.readouterr().out.split())
    assert "at most 16384 tokens read and sampled and 2 turns" in output
    assert "counted by smollm2-135m" in output and "against the first" in output


@pytest.mark.slow
def test_words_of_an_expert_are_counted_as_a_real_model_would_count_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = compared(capsys, "--agents", "direct", "--tasks", "2", "--model", "expert")
    assert 60 < found["environments"][WORLD][0]["tokens"] < 120


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--tokens", "0"], "--tokens 0 leaves nothing to do"),
        (["--context", "4096"], "--context has no effect: none of the models runs in this process"),
        (["--model", "smollm2-135m", "--context", "9000"], "8192"),
        (["--seeds", "one"], "write e.g. 1,2,3"),
        (["--agents", "direct,raect"], "Did you mean 'react'"),
        (["--agents", "direct,direct"], "given twice"),
    ],
)
def test_a_mistake_is_reported_in_one_sentence(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["agents", "compare", WORLD, *arguments]) == 2
    assert words in capsys.readouterr().err


def test_all_agents_that_need_nothing_take_part_by_default() -> None:
    agents = agents_command.every_agent()
    assert agents[0] == "direct" and {"react", "summary", "constant", "rules"} <= set(agents)
    assert not {"players", "command", "outside", "procedure"} & set(agents)
