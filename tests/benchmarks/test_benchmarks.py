"""Every benchmark explains itself, limits are what the arithmetic says, results are collected."""

import json
import runpy
import subprocess
import sys
from dataclasses import replace

import collect
import pytest
from limits import SMOLLM2, Limits, decode_limit, step_seconds

from tests.benchmarks.conftest import BENCHMARKS
from tests.benchmarks.test_measuring import KEYS, result

FAST = Limits(fp32_flops=1e12, bf16_flops=1e12, bytes_per_second=1e12)


@pytest.mark.parametrize("name", [*collect.benchmarks(), "collect"])
def test_every_benchmark_has_a_help_text(name, capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", [f"{name}.py", "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(BENCHMARKS / f"{name}.py"), run_name="__main__")
    assert ended.value.code == 0
    output = capsys.readouterr().out
    assert f"python benchmarks/{name}.py" in output
    assert name == "collect" or "--json" in output


@pytest.mark.slow
def test_the_limits_of_this_machine_are_printed_as_a_result():
    small = "--seconds 0 --square 64 --rows 8 --mebibytes 1 --json".split()
    command = [sys.executable, str(BENCHMARKS / "limits.py"), *small]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    row = json.loads(done.stdout)
    assert row.keys() == KEYS
    assert row["low"] <= row["high"] and row["ratio"] > 0
    for figure in ("fp32 GFLOP/s", "bf16 GFLOP/s", "memory GB/s"):
        assert row["figures"][figure] > 0


def test_the_parameters_of_a_decode_step_are_those_of_the_model():
    # 134.5 million, of which norms (35 thousand) are no product
    one_byte = replace(FAST, bytes_per_second=1.0, bf16_flops=1e30)
    weights = step_seconds(SMOLLM2, 1, 1, 1, 0, one_byte) / 2
    assert weights == 134_515_008 - 61 * 576
    one_flop = replace(FAST, bytes_per_second=1e30, bf16_flops=1.0)
    assert step_seconds(SMOLLM2, 1, 1, 1, 0, one_flop) == 2 * weights


def test_the_slower_of_bytes_and_flops_limits_decoding():
    by_bytes = replace(FAST, bytes_per_second=1e9)
    by_flops = replace(FAST, bf16_flops=1e9)
    assert decode_limit(SMOLLM2, 32, 256, by_bytes) < decode_limit(SMOLLM2, 32, 256, FAST)
    assert decode_limit(SMOLLM2, 32, 256, by_flops) < decode_limit(SMOLLM2, 32, 256, FAST)
    # bytes are shared by the batch, FLOPs are not
    assert decode_limit(SMOLLM2, 64, 0, by_bytes) == 2 * decode_limit(SMOLLM2, 32, 0, by_bytes)
    assert decode_limit(SMOLLM2, 64, 0, by_flops) == decode_limit(SMOLLM2, 32, 0, by_flops)


# ── collecting ───────────────────────────────────────────────────────────────


def row(benchmark: str, **changes) -> dict:
    names = ("name", "ratio", "goal", "low", "high", "limit_fraction", "machine", "commit")
    made = result(name=f"{benchmark}, measured", **changes)
    return {
        "benchmark": benchmark,
        **{name: getattr(made, name) for name in names},
        "figures": made.figures,
    }


def test_rows_of_benchmarks_that_did_not_run_again_stay_and_the_order_is_kept():
    old = [row("a"), row("b"), row("b"), row("gone")]
    new = [row("b", ratio=9.0)]
    found = collect.merged(old, new, ["a", "b", "c"])
    assert [(r["benchmark"], r["ratio"]) for r in found] == [("a", 2.0), ("b", 9.0)]


def test_the_page_keeps_what_stands_around_the_markers():
    page = f"# Title\n{collect.BEGIN}\nold figures\n{collect.END}\n\nThe end.\n"
    once = collect.rewritten(page, "new figures\n")
    assert once == f"# Title\n{collect.BEGIN}\nnew figures\n{collect.END}\n\nThe end.\n"
    assert collect.rewritten(once, "new figures\n") == once


def test_a_page_without_its_markers_is_refused():
    with pytest.raises(ValueError, match="put them back"):
        collect.rewritten("# Title\n", "figures")


def test_the_table_tells_goals_limits_and_what_was_not_measured():
    reached, missed = row("a", limit_fraction=0.5), row("b", ratio=1.0)
    absent = collect.missing("c", "no such peer")
    text = collect.table([reached, missed, absent])
    lines = {line.split(" | ")[0]: line for line in text.splitlines()}
    assert "1.5, reached | 50%" in lines["| a, measured"]
    assert "1.5, **missed** |" in lines["| b, measured"]
    assert "- `c`: no such peer" in text
    assert absent.keys() - {"not_measured"} == reached.keys()


def test_a_benchmark_that_fails_becomes_a_row_with_its_reason(tmp_path, monkeypatch):
    monkeypatch.setattr(collect, "FOLDER", tmp_path)
    (tmp_path / "a.py").write_text(
        "import sys; print('not measured: there is no peer', file=sys.stderr); sys.exit(2)"
    )
    (tmp_path / "b.py").write_text("raise RuntimeError('it broke')")
    (tmp_path / "c.py").write_text('print(\'{"name": "one"}\')')
    (tmp_path / "d.py").write_text('print(\'[{"name": "one"}, {"name": "two"}]\')')
    (a,), (b,) = collect.rows_of("a"), collect.rows_of("b")
    assert (a["ratio"], a["not_measured"]) == (None, "there is no peer")
    assert (b["ratio"], b["not_measured"]) == (None, "RuntimeError: it broke")
    assert collect.rows_of("c") == [{"benchmark": "c", "name": "one"}]
    assert [r["name"] for r in collect.rows_of("d")] == ["one", "two"]
