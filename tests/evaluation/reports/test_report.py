"""The report: everything the issue asks for, whichever stages have run."""

from __future__ import annotations

import io
import json
import resource
from pathlib import Path

import pytest
from rich.console import Console

from palaestra.core.errors import StorageFull
from palaestra.evaluation.reports import report as reports
from palaestra.evaluation.reports.report import as_json, build, summary
from palaestra.evaluation.reports.report_files import headline, markdown, render, write
from palaestra.evaluation.statistics.intervals import (
    paired_difference,
    paired_scores,
    task_scores,
    wilson,
)
from tests.evaluation.made import (
    CRASH,
    LOST,
    SUCCESS,
    MemoryStore,
    curve,
    episode,
    evaluation,
    full_run,
)

RUN = Path("runs/one")


def printed(report: reports.Report, width: int = 100) -> str:
    buffer = io.StringIO()
    render(report, Console(file=buffer, width=width, color_system=None))
    return buffer.getvalue()


def interrupted(*phases: str) -> MemoryStore:
    """A full run reduced to these phases."""
    store = full_run(32)
    store.recorded = {name: of for name, of in store.recorded.items() if name in phases}
    store.values = {}
    if "test/rl" not in phases:
        store.curves = {}
    return store


def test_the_summary_is_the_object_that_others_rely_on() -> None:
    store = full_run()
    result = summary(build(store, RUN))
    assert list(result) == ["run", "seconds", "peak_memory_bytes", "success", "paired"]
    assert (result["run"], result["seconds"]) == (str(RUN), 492.4)
    assert result["peak_memory_bytes"] == 5_120_000_000
    assert set(result["success"]) == {"base", "imitation", "rl"}
    assert {"rl_minus_imitation", "rl_minus_base"} <= set(result["paired"])
    for interval in (*result["success"].values(), *result["paired"].values()):
        assert set(interval) == {"mean", "low", "high", "n"}
    json.dumps(result, allow_nan=False)


def test_the_numbers_are_those_of_the_episodes() -> None:
    store = full_run()
    report = build(store, RUN)
    solved = sum(e.outcome.solved for e in store.recorded["test/rl"])
    assert report.success["rl"] == wilson(solved, 256)
    both = paired_scores(
        task_scores(store.recorded["test/rl"]), task_scores(store.recorded["test/imitation"])
    )
    assert report.held_out.paired["rl_minus_imitation"] == paired_difference(*both)


def test_equal_stores_give_equal_reports() -> None:
    assert as_json(build(full_run(32), RUN)) == as_json(build(full_run(32), RUN))


def test_three_files_are_written_and_nothing_else(tmp_path: Path) -> None:
    report = build(full_run(32), tmp_path)
    written = write(report, tmp_path)
    assert sorted(path.name for path in written) == [
        "learning_curve.png",
        "report.json",
        "report.md",
    ]
    assert sorted(tmp_path.iterdir()) == sorted(written)
    stored = json.loads((tmp_path / "report.json").read_text())
    assert summary(report).items() <= stored.items()
    assert "![Learning curve](learning_curve.png)" in (tmp_path / "report.md").read_text()
    assert (tmp_path / "learning_curve.png").read_bytes().startswith(b"\x89PNG")


def test_writing_again_replaces_the_files(tmp_path: Path) -> None:
    write(build(full_run(32), tmp_path), tmp_path)
    write(build(full_run(16), tmp_path), tmp_path)
    assert json.loads((tmp_path / "report.json").read_text())["success"]["rl"]["n"] == 16
    assert len(list(tmp_path.iterdir())) == 3


def test_a_full_disk_leaves_the_earlier_report_intact(tmp_path: Path) -> None:
    write(build(full_run(16), tmp_path), tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (512, limits[1]))
    try:
        with pytest.raises(StorageFull, match=r"report\.md"):
            write(build(full_run(32), tmp_path), tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("width", [80, 120])
def test_the_terminal_shows_all_that_the_issue_asks_for(width: int) -> None:
    text = printed(build(full_run(), RUN, model=RUN / "model"), width)
    for part in (
        "success on 256 held-out tasks of babyai/GoToLocal",
        "invalid actions",
        "RL − imitation",
        "imitation − base",
        "RL − base",
        "above zero",
        "RL step",
        "transfer to 128 held-out tasks of babyai/GoToObj",
        "before (base)",
        "after (rl)",
        "tokens/s",
        "5.12 GB",
        "8 min 12 s",
        str(RUN / "model"),
        str(RUN / "report.json"),
    ):
        assert part in text, part
    assert all(len(line) <= width for line in text.splitlines())


def test_markdown_shows_the_same_and_the_recipe() -> None:
    page = markdown(build(full_run(), RUN))
    for part in ("| RL − imitation |", "## Cost", "## Recipe", '"algorithm": "loop"', "two cores"):
        assert part in page, part


def test_a_run_without_imitation_is_compared_with_the_base() -> None:
    report = build(interrupted("test/base", "test/rl"), RUN)
    result = summary(report)
    assert result["success"]["imitation"] is None
    assert result["paired"]["rl_minus_imitation"] is None
    assert result["paired"]["rl_minus_base"]["n"] == 32
    assert "not run" in printed(report)
    assert "over base" in headline(report)


def test_a_run_interrupted_before_rl_is_reported_as_far_as_it_came(tmp_path: Path) -> None:
    report = build(interrupted("test/base", "test/imitation"), tmp_path)
    assert [path.name for path in write(report, tmp_path)] == ["report.md", "report.json"]
    assert summary(report)["success"]["rl"] is None
    assert report.example is not None
    assert "after (imitation)" in printed(report)
    assert "learning_curve" not in printed(report) + markdown(report)


def test_rl_in_progress_has_a_curve_before_it_has_a_score(tmp_path: Path) -> None:
    store = interrupted("test/base", "test/imitation")
    store.curves["rl"] = curve(5)
    report = build(store, tmp_path)
    write(report, tmp_path)
    assert "RL step" in printed(report)


def test_an_empty_run_has_a_report(tmp_path: Path) -> None:
    report = build(MemoryStore(), tmp_path)
    write(report, tmp_path)
    assert "No evaluation has finished yet." in printed(report)
    assert summary(report)["seconds"] == 0


def test_without_totals_the_stages_are_summed() -> None:
    store = full_run(16)
    del store.values["totals"]
    for place, stage in enumerate(store.values["stages"]):
        stage["peak_memory_bytes"] = 10**9 * (place + 1)
    report = build(store, RUN)
    assert report.seconds == sum(stage["seconds"] for stage in store.values["stages"])
    assert report.peak_memory_bytes == 6 * 10**9


def test_errors_are_shown_and_not_scored() -> None:
    store = full_run(32)
    store.recorded["test/rl"][3] = episode("test/rl", 3, CRASH)
    report = build(store, RUN)
    assert report.success["rl"].n == 31
    assert report.held_out.paired["rl_minus_base"].n == 31
    assert "are not scored" in printed(report)


def test_the_headline_counts_what_has_a_result_and_states_what_has_none() -> None:
    store = full_run(32)
    assert "held-out tasks" in headline(build(store, RUN)) and "--resume" not in headline(
        build(store, RUN)
    )
    store.recorded["test/rl"][3] = episode("test/rl", 3, CRASH)
    output = headline(build(store, RUN))
    assert output.startswith("Success on 31 to 32 held-out tasks")
    assert "1 of 32 tasks under RL (environment)" in output and "--resume" not in output
    for number in (4, 5):
        store.recorded["test/rl"][number] = episode("test/rl", number, LOST)
    store.recorded["transfer/rl"][0] = episode("transfer/rl", 0, LOST)
    report = build(store, RUN)
    output = headline(report)
    assert output.startswith("Success on 29 to 32 held-out tasks")
    assert "1 of 32 tasks under RL (environment), 2 of 32 tasks under RL (infrastructure)" in output
    assert "1 of 16 transfer tasks under RL (infrastructure)" in output
    assert output.endswith(f"palaestra train --resume {RUN}")
    assert output in markdown(report)


def test_a_task_of_which_one_repeat_has_a_result_is_not_missing() -> None:
    repeats = [episode("test/rl", 0, LOST), episode("test/rl", 0, SUCCESS, member=1)]
    assert "Without a result" not in headline(build(MemoryStore({"test/rl": repeats}), RUN))


def test_a_policy_without_any_result_is_no_zero() -> None:
    store = full_run(4)
    store.recorded["test/rl"] = [episode("test/rl", group, CRASH) for group in range(4)]
    report = build(store, RUN)
    assert summary(report)["success"]["rl"] is None
    assert "no result" in printed(report)


def test_a_single_task_has_a_rate_but_no_difference() -> None:
    store = MemoryStore(
        {"test/base": evaluation("test/base", 0.0, 1), "test/rl": [episode("test/rl", 0, SUCCESS)]}
    )
    report = build(store, RUN)
    assert report.success["rl"] == wilson(1, 1)
    assert summary(report)["paired"]["rl_minus_base"] is None
    printed(report)


def test_a_diverged_run_still_writes_json(tmp_path: Path) -> None:
    store = full_run(16)
    store.curves["rl"] = [*curve(5), (6, {"success": float("nan"), "entropy": float("inf")})]
    write(build(store, tmp_path), tmp_path)
    stored = json.loads((tmp_path / "report.json").read_text())
    assert stored["curve"][-1] == {"step": 6, "success": None, "entropy": None}


def test_a_worse_policy_is_called_worse() -> None:
    store = MemoryStore(
        {
            "test/imitation": evaluation("test/imitation", 0.8, 64),
            "test/rl": evaluation("test/rl", 0.2, 64),
        }
    )
    assert "below zero" in headline(build(store, RUN))
