"""What a commit waits for: the system, or the disk. Seen from outside, as system calls."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from palaestra.cli.main import main
from palaestra.core.episode import Key
from palaestra.store.run_folder import RunFolder
from palaestra.store.schema import Durability
from tests.store import samples

TURNS = 20
LIVE = f"""
import sys
from pathlib import Path
from palaestra.core.episode import Key
from palaestra.store.run_folder import RunFolder
from palaestra.store.schema import Durability
from tests.store import samples

folder, durability = Path(sys.argv[1]), Durability(sys.argv[2])
run = RunFolder.create(folder / "a" / "run", {{}}, durability=durability)
with open(folder / "begins", "w"): pass
for number in range({TURNS}):
    run.database.append(Key("rl", 0), samples.step(number))
with open(folder / "ends", "w"): pass
run.database.sync()
run.close()
"""


def calls(folder: Path, durability: str) -> list[str]:
    """What the process above opened and waited for, in order: "open PATH" or "sync PATH"."""
    folder.mkdir()
    trace = folder / "trace"
    command = ["strace", "-f", "-y", "-e", "trace=openat,fsync,fdatasync", "-o", str(trace)]
    code = [sys.executable, "-c", textwrap.dedent(LIVE), str(folder), durability]
    root = Path(__file__).parents[2]
    done = subprocess.run([*command, *code], cwd=root, capture_output=True, text=True)
    if done.returncode and "ptrace" in done.stderr:
        pytest.skip("this system lets no process be traced")
    assert done.returncode == 0, done.stderr
    found = []
    for line in trace.read_text(errors="replace").splitlines():
        if match := re.search(r"(?:fsync|fdatasync)\(\d+<([^>]*)>", line):
            found.append(f"sync {match[1]}")
        elif match := re.search(r'openat\([^"]*"([^"]*)"', line):
            found.append(f"open {match[1]}")
    return found


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
@pytest.mark.parametrize("durability", list(Durability))
def test_a_commit_waits_for_the_disk_where_that_is_asked(
    tmp_path: Path, durability: Durability
) -> None:
    folder = tmp_path / "traced"
    found = calls(folder, durability)
    begins, ends = (found.index(f"open {folder / name}") for name in ("begins", "ends"))
    run = folder / "a" / "run"
    log = f"sync {run / 'run.sqlite-wal'}"
    waited = found[begins:ends].count(log)
    assert waited >= TURNS if durability is Durability.FULL else waited == 0
    made = found[:begins]  # names are on the disk, too: of the files, of the run, of its parent
    for place in (run, run.parent, folder):
        assert f"sync {place}" in made
    assert any(call.startswith(f"sync {run / '.run.json'}") for call in made)
    assert found[ends:].count(log) >= 1


def level(run: RunFolder) -> int:
    """SQLite's level of synchronisation: 1 normal, 2 full."""
    (found,) = run.database._connection.execute("PRAGMA synchronous").fetchone()
    return int(found)


def test_a_run_keeps_its_durability_when_it_is_gone_on_with(tmp_path: Path) -> None:
    for durability, expected in ((Durability.NORMAL, 1), (Durability.FULL, 2)):
        path = tmp_path / durability
        with RunFolder.create(path, {}, durability=durability) as run:
            assert level(run) == expected
        with RunFolder.open(path) as run:
            assert level(run) == expected
            run.database.finish(samples.episode(Key("rl", 0)))


def test_an_evaluation_takes_it_as_an_option(tmp_path: Path) -> None:
    asked = ["eval", "--env", "probe/umbrella-4", "--model", "random", "-n", "2", "--run"]
    assert main([*asked, str(tmp_path / "a"), "--durability", "full"]) == 0
    assert main([*asked, str(tmp_path / "b")]) == 0
    found = []
    for name in ("a", "b"):
        with RunFolder.read(tmp_path / name) as run:
            found.append(run.database.durability)
    assert found == [Durability.FULL, Durability.NORMAL]


def test_a_recipe_takes_it_as_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Durability] = []

    def looked(recipe: object, run: RunFolder, *rest: object) -> object:
        found.append(run.database.durability)
        raise KeyboardInterrupt

    monkeypatch.setattr("palaestra.api.train_run.execute", looked)
    for number, words in enumerate(([], ["--set", "durability=full"])):
        assert main(["train", "quick", "--run", str(tmp_path / str(number)), *words]) == 130
    assert found == [Durability.NORMAL, Durability.FULL]
    assert main(["train", "quick", "--dry-run", "--set", "durability=sometimes"]) == 2
