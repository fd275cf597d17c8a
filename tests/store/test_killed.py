"""A killed process loses nothing that it had written."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path

import pytest

from palaestra.core.episode import Key
from palaestra.store.run_folder import RunFolder
from tests.store import samples

WRITER = """
import sys
from pathlib import Path
from palaestra.core.episode import Key
from palaestra.store.run_folder import RunFolder
from tests.store import samples

run = RunFolder.open(Path(sys.argv[1]))
group = int(sys.argv[2])
while True:  # whole episodes: three calls, three steps, then the header
    key = Key("rl", group)
    run.database.forget(key)
    for index in range(3):
        run.database.append(key, samples.call(index, index - 1 if index else None))
        print("event", group, flush=True)
        run.database.append(key, samples.step(index))
        print("event", group, flush=True)
    run.database.finish(samples.episode(key))
    print("finish", group, flush=True)
    group += 1
"""


def written_before_the_kill(run: Path, group: int, lines: int) -> list[tuple[str, int]]:
    """Start a writer at `group`, kill it after it reported `lines` writes, and return them all."""
    writer = samples.python(WRITER, str(run), str(group))
    assert writer.stdout is not None
    seen = [writer.stdout.readline() for _ in range(lines)]
    os.kill(writer.pid, signal.SIGKILL)
    seen += [line for line in writer.stdout if line.endswith("\n")]
    assert writer.wait() == -signal.SIGKILL
    return [(line.split()[0], int(line.split()[1])) for line in seen]


def test_everything_written_before_a_kill_is_there_after_it(tmp_path: Path) -> None:
    path = tmp_path / "run"
    RunFolder.create(path, {}).close()
    group = 0
    for seed in range(4):
        reports = written_before_the_kill(path, group, random.Random(seed).randrange(1, 3000))
        run = RunFolder.open(path)
        last = reports[-1][1]
        finished = [number for kind, number in reports if kind == "finish"]
        for number in finished:
            assert run.database.episode(Key("rl", number)) == samples.episode(Key("rl", number))
        reported = sum(report == ("event", last) for report in reports)
        events = run.database.past(Key("rl", last))
        assert len(events) - reported in (0, 1)  # one more may be written and not yet reported
        assert len(events) in (reported, reported + 1)
        assert events == run.database.past(Key("rl", last))
        run.close()
        group = last


@pytest.mark.parametrize("seed", range(3))
def test_a_reader_opens_what_a_killed_writer_left(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "run"
    RunFolder.create(path, {}).close()
    reports = written_before_the_kill(path, 0, random.Random(seed).randrange(1, 200))
    run = RunFolder.read(path)
    assert len(run.database.past(Key("rl", 0))) >= min(6, sum(r[1] == 0 for r in reports) - 1)
    run.close()


def test_a_kill_while_a_run_is_made_leaves_nothing_in_the_way(tmp_path: Path) -> None:
    run = tmp_path / "run"
    RunFolder.create(run, {"seed": 1}).close()
    (run / "run.json").unlink()  # as before the last write
    (run / ".run.sqlite-99").touch()  # as in the first one
    with RunFolder.create(run, {"seed": 2}) as made:
        assert made.database.get("recipe") == {"seed": 2}
    assert {path.name for path in run.iterdir()} == {
        "run.json",
        "run.lock",
        "run.sqlite",
        "checkpoints",
    }
