"""Parquet files: episodes come back bit for bit, and plain columns can be queried."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra.core.episode import Episode, Key
from palaestra.core.errors import InputError, MissingPackage, RunVersionMismatch
from palaestra.core.outcome import Outcome, Owner
from palaestra.store import parquet
from palaestra.store.parquet import ParquetTrace, write_parquet
from tests.store import samples

pq = pytest.importorskip("pyarrow.parquet")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("parquet") / "trace.parquet"


@settings(deadline=None, max_examples=20)  # a schema is written each time
@given(st.lists(samples.episodes, max_size=4, unique_by=lambda episode: episode.key))
def test_episodes_come_back_equal_and_their_numbers_bit_for_bit(
    file: Path, episodes: list[Episode]
) -> None:
    assert write_parquet(file, episodes) == len(episodes)
    trace = ParquetTrace.open(file)
    back = [episode for phase in trace.phases() for episode in trace.episodes(phase)]
    assert sorted(map(repr, back)) == sorted(map(repr, episodes))  # tells -0.0 from 0.0


def test_episodes_of_a_phase_are_ordered_and_phases_are_in_the_order_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "ROWS", 3)  # so that a phase spans several row groups
    keys = [
        Key(phase, g, m) for phase in ("rl/2", "base", "rl/10") for g in (10, 2) for m in (1, 0)
    ]
    file = tmp_path / "trace.parquet"
    write_parquet(file, (samples.episode(key) for key in keys))
    assert pq.ParquetFile(file).num_row_groups == 4
    trace = ParquetTrace.open(file)
    assert trace.phases() == ["rl/2", "base", "rl/10"]
    found = [episode.key for episode in trace.episodes("rl/10")]
    assert found == [Key("rl/10", g, m) for g in (2, 10) for m in (0, 1)]
    assert trace.episodes("rl/10")[0] == samples.episode(Key("rl/10", 2, 0))
    assert trace.episodes("rl/1") == []


def test_plain_columns_serve_queries(tmp_path: Path) -> None:
    file = tmp_path / "trace.parquet"
    broken = replace(
        samples.episode(Key("rl/1", 0, 1)), outcome=Outcome.error("hang", Owner.ENVIRONMENT)
    )
    write_parquet(file, [samples.episode(Key("rl/1", 0)), broken])
    rows = pq.read_table(file).to_pylist()
    first, second = rows
    plain = {name: value for name, value in first.items() if not name.startswith("raw_")}
    assert plain == {
        "phase": "rl/1",
        "group": 0,
        "member": 0,
        "environment": "babyai/GoTo",
        "task": "train/1",
        "split": "train",
        "agent": "direct",
        "status": "success",
        "solved": True,
        "scored": True,
        "reward": 1.5,
        "progress": 1.0,
        "turns": 3,
        "invalid_turns": 0,
        "prompt_tokens": 9,
        "sampled_tokens": 6,
        "seconds": 0.1,
    }
    assert (second["status"], second["scored"]) == ("error(hang, environment)", False)


def test_documents_travel_along(tmp_path: Path) -> None:
    file = tmp_path / "trace.parquet"
    write_parquet(file, [samples.episode(Key("rl/1", 0))], {"recipe": {"rl": {"group": 4}}})
    trace = ParquetTrace.open(file)
    assert trace.get("recipe") == {"rl": {"group": 4}}
    assert trace.get("machine") is None


def test_what_cannot_be_stored_leaves_the_earlier_file_and_no_leftovers(tmp_path: Path) -> None:
    file = tmp_path / "trace.parquet"
    write_parquet(file, [samples.episode(Key("rl/1", 0))])

    def failing() -> list[Episode]:
        raise RuntimeError("the source broke")

    with pytest.raises(RuntimeError):
        write_parquet(file, (episode for _ in range(1) for episode in failing()))
    assert len(ParquetTrace.open(file).episodes("rl/1")) == 1
    assert [path.name for path in tmp_path.iterdir()] == [file.name]


def test_files_that_hold_no_episodes_are_bad_input(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    (tmp_path / "notes.parquet").write_text("not a table")
    pq.write_table(arrow.table({"x": [1]}), tmp_path / "other.parquet")
    for name in ("missing.parquet", "notes.parquet", "other.parquet"):
        with pytest.raises(InputError, match=name):
            ParquetTrace.open(tmp_path / name)
    with pytest.raises(InputError, match="no such folder"):
        write_parquet(tmp_path / "no such folder" / "trace.parquet", [])


def test_another_format_is_refused_with_the_remedy(tmp_path: Path) -> None:
    file = tmp_path / "trace.parquet"
    write_parquet(file, [samples.episode(Key("rl/1", 0))])
    table = pq.read_table(file)
    about = json.loads(table.schema.metadata[parquet.METADATA])
    about |= {"format": "99", "palaestra": "7.5.0"}
    pq.write_table(
        table.replace_schema_metadata({parquet.METADATA: json.dumps(about).encode()}), file
    )
    with pytest.raises(RunVersionMismatch, match=r"format 99.*palaestra==7\.5\.0"):
        ParquetTrace.open(file)


def test_without_pyarrow_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "pyarrow"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyarrow", None)  # as importing it fails where it is missing
    for use in (ParquetTrace.open, lambda file: write_parquet(file, [])):
        with pytest.raises(MissingPackage, match=r"palaestra\[analysis\]"):
            use(tmp_path / "trace.parquet")
