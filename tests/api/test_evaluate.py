"""`pa.evaluate`: its results, wherever it is called, and what it refuses."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import palaestra as pa
from palaestra.cli.main import main
from tests.api.worlds import Careful, Door

WORLD = "probe/umbrella-4"


def evaluated(**options: Any) -> pa.Results:
    return pa.evaluate(Door, **{"model": "random", "n": 8, "progress": False, **options})


def test_printed_results_say_the_success_its_interval_the_cost_and_what_is_left_out() -> None:
    results = evaluated()
    assert results.success is not None and results.interval is not None
    low, high = results.interval
    assert low <= results.success <= high
    text = str(results)
    assert f"{100 * results.success:.1f} %" in text and "95 % interval" in text
    assert "tokens" in text and "money" in text and "faults" in text
    assert (results.excluded, results.complete, results.money) == (0, True, None)


def test_episodes_that_infrastructure_broke_are_excluded_and_reported() -> None:
    results = evaluated(model="openai:m@http://127.0.0.1:9/v1?attempts=1", n=2)
    assert results.success is None and results.excluded == 2
    assert "2 of 2 episodes excluded" in str(results)


def test_results_are_those_of_the_command_line(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--model", "random", "-n", "6", "--workers", "0", "--json"]
    assert main(["eval", "--env", WORLD, *asked, "--run", str(runs / "cli")]) == 0
    theirs = json.loads(capsys.readouterr().out)
    ours = pa.evaluate(WORLD, model="random", n=6, workers=0, run=runs / "pa", progress=False)
    apart = {"run", "seconds"}
    assert {name for name in ours.data if ours.data[name] != theirs[name]} <= apart
    assert ours.data.keys() == theirs.keys()
    assert pa.Run(runs / "cli").results.success == ours.success


def test_three_lines_and_one_import_evaluate_16_tasks(tmp_path: Path) -> None:
    script = tmp_path / "first.py"
    lines = [
        "import palaestra as pa",
        f'results = pa.evaluate("{WORLD}", model="random", n=16)',
        "print(results)",
    ]
    script.write_text("\n".join(lines))
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "16 tasks" in done.stdout
    assert "episodes" in done.stderr  # progress is no result


def test_a_synchronous_call_works_inside_a_running_event_loop() -> None:
    async def cell() -> pa.Results:
        return evaluated()  # as a notebook does

    assert asyncio.run(cell()).data["episodes"] == 8


def test_the_asynchronous_form_is_awaited_beside_other_work() -> None:
    async def both() -> tuple[pa.Results, pa.Results]:
        asked = {"model": "random", "n": 4, "progress": False}
        first = pa.aevaluate(Door, seed=1, **asked)
        second = pa.aevaluate(Door, seed=2, **asked)
        one, other = await asyncio.gather(first, second)
        return one, other

    one, other = asyncio.run(both())
    assert one.folder != other.folder
    assert (one.data["episodes"], other.data["episodes"]) == (4, 4)


def test_an_episode_can_be_shown(capsys: pytest.CaptureFixture[str]) -> None:
    results = evaluated(agent=Careful, n=1)
    episode = results.episodes[0]
    assert isinstance(episode, pa.Episode) and episode.outcome.solved
    episode.show()
    shown = capsys.readouterr().out
    assert '"unlock"' in shown and "It opens." in shown and "end: success" in shown


def test_agents_and_environments_of_ones_own_are_classes() -> None:
    results = evaluated(agent=[Careful, "direct"])
    assert [cell["agent"] for cell in results.cells] == ["tests.api.worlds:Careful", "direct"]
    assert results.cells[0]["success"] == 1.0
    assert "tests.api.worlds:Careful" in str(results)
    with pytest.raises(pa.PalaestraError, match="with 2 cells"):
        _ = results.success


def test_two_results_are_compared_task_by_task() -> None:
    chance, careful = evaluated(), evaluated(agent=Careful)
    found = chance.compare(careful)
    assert found.difference == pytest.approx(1.0 - (chance.success or 0))
    assert found.interval is not None and found.interval[0] <= found.difference
    assert "B - A" in str(found) and "8 tasks" in str(found)
    with pytest.raises(pa.PalaestraError, match="compare"):
        chance.compare(pa.evaluate(WORLD, model="random", n=2, workers=0, progress=False))


def test_notebooks_get_a_table_in_which_nothing_is_taken_for_html() -> None:
    html = evaluated(agent=[Careful, "direct"])._repr_html_()
    assert html.count("<tr>") == 3 and "<th>success %</th>" in html
    one = evaluated(agent=Careful)
    one.data["summary"] = "<script>"
    assert "<script>" not in one._repr_html_() and "&lt;script&gt;" in one._repr_html_()


def test_a_data_frame_has_a_row_for_each_episode() -> None:
    pandas = pytest.importorskip("pandas")
    results = evaluated(agent=[Careful, "direct"], repeats=2, n=3)
    frame = results.to_pandas()
    assert isinstance(frame, pandas.DataFrame) and len(frame) == 12
    assert frame.groupby("agent").solved.mean()["tests.api.worlds:Careful"] == 1.0


def test_without_pandas_one_sentence_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)  # as where it is not installed
    with pytest.raises(pa.PalaestraError, match=r"pip install 'palaestra\[pandas\]'"):
        evaluated(n=1).to_pandas()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"n": 0}, "n of 0 leaves nothing to do; give 1 or more."),
        ({"n": "16"}, "n must be a whole number, not '16'."),
        ({"deadline": 0.0}, "deadline of 0.0 leaves nothing to do; give more than 0."),
        ({"model": None}, "model is missing"),
        ({"model": "smollm"}, "There is no model 'smollm'. Did you mean 'smollm2-135m'"),
        ({"agent": "drect"}, "There is no agent 'drect'. Did you mean 'direct'?"),
        ({"agent": 3}, "3 is neither a name nor a class"),
        ({"models": "random"}, "There is no option of pa.evaluate 'models'. Did you mean 'model'?"),
        ({"split": "tets"}, "There is no split 'tets'. Did you mean 'test'?"),
        ({"temperature": -1.0}, "The temperature -1.0 is invalid"),
        ({"seed": [1, 1]}, "The seed 1 is given twice"),
        ({"concurrency": 0}, "concurrency of 0 is too small"),
        ({"concurrency": {"gpt": 2}}, "names no model of this evaluation; choose from: "),
        ({"workers": -1}, "workers of -1 is negative"),
        ({"budget_tokens": 0}, "budget_tokens of 0 leaves nothing to do"),
        ({"budget_money": 1.0}, "needs prices"),
        ({"suite": "none.toml"}, "Set either env"),
        ({"context": 0}, "context of 0 leaves nothing to do"),
        ({"context": 4096}, "context has no effect: none of the models runs in this process"),
        ({"keep_thoughts": True}, "keep_thoughts has no effect: none of the models"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence_before_anything_starts(
    options: dict[str, Any], reason: str, runs: Path
) -> None:
    with pytest.raises(pa.PalaestraError) as refused:
        evaluated(**options)
    assert reason in str(refused.value) and "--" not in str(refused.value)
    assert not runs.exists()


def test_a_class_that_no_name_leads_to_is_refused() -> None:
    class Hidden(Door):
        """Inside a function."""

    with pytest.raises(pa.PalaestraError, match="inside another definition"):
        pa.evaluate(Hidden, model="random")


def test_a_price_makes_the_cost_known() -> None:
    results = evaluated(model="random", prices={"random": (1.0, 2.0)})
    assert results.money == 0.0


def test_a_budget_ends_the_work_and_reports_it(capsys: pytest.CaptureFixture[str]) -> None:
    results = evaluated(budget_seconds=1e-6, progress=True)
    assert not results.complete
    shown = capsys.readouterr().err.replace("\n", " ")
    assert "stopped because" in shown and "pa.Run(" in shown
    whole = pa.Run(results.folder).resume(progress=False).results
    assert whole.complete and whole.data["episodes"] == 8
