"""A full disk: really refused writes, by the kernel's limit on the size of a file."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.store import samples

LIMIT = """
import json, resource, signal, sys
from pathlib import Path
from palaestra.core.errors import StorageFull

folder = Path(sys.argv[1])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
"""


def outcome(code: str, folder: Path) -> Any:
    """What a process reports that runs `code` after LIMIT."""
    process = samples.python(LIMIT + code, str(folder))
    answer, _ = process.communicate()
    assert process.returncode == 0
    return json.loads(answer)


def test_a_full_disk_stops_the_journal_and_loses_nothing_before(tmp_path: Path) -> None:
    report = outcome(
        """
from palaestra.core.episode import Key
from palaestra.store.database import Database
import pytest

from tests.store import samples

key = Key("rl", 0)
database = Database.open(folder / "run.sqlite")
limit(300_000)
count, messages = 0, []
try:
    while True:
        database.append(key, samples.step(count))
        count += 1
except StorageFull as error:
    messages.append(str(error))
try:
    database.finish(samples.episode(Key("rl", 1), turns=200))
except StorageFull as error:
    messages.append(str(error))
try:
    database.put("report", "x" * 300_000)
except StorageFull as error:
    messages.append(str(error))
while_full = database.past(key) == [samples.step(i) for i in range(count)]
limit(resource.RLIM_INFINITY)
database.append(key, samples.step(count))
database.close()
database = Database.open(folder / "run.sqlite")
after = database.past(key) == [samples.step(i) for i in range(count + 1)]
print(json.dumps([count, messages, while_full, after, database.phases()]))
""",
        tmp_path,
    )
    count, messages, while_full, after, phases = report
    assert count > 10
    assert len(messages) == 3
    for message in messages:
        assert str(tmp_path) in message
        assert "are free there" in message
        assert "resume the run" in message
    assert while_full
    assert after
    assert phases == []
    assert [path.name for path in tmp_path.iterdir()] == ["run.sqlite"]


def test_a_full_disk_while_a_checkpoint_is_written_leaves_the_earlier_one(tmp_path: Path) -> None:
    message, names, intact, files = outcome(
        """
import torch
from palaestra.store import checkpoint

old = {"model": {"w": torch.arange(1000.0)}}
checkpoint.save(folder, "last", old, {"step": 1})
limit(1_000_000)
try:
    checkpoint.save(folder, "last", {"model": {"w": torch.zeros(1_000_000)}}, {"step": 2})
except StorageFull as error:
    message = str(error)
back = checkpoint.load(folder, "last")
intact = torch.equal(back.tensors["model"]["w"], old["model"]["w"]) and back.state == {"step": 1}
print(json.dumps([message, checkpoint.names(folder), intact, [p.name for p in folder.iterdir()]]))
""",
        tmp_path,
    )
    assert "The checkpoint 'last'" in message
    assert "It needs 4.0 MB" in message
    assert "are free there" in message
    assert names == ["last"]
    assert intact
    assert files == ["last"]


@pytest.mark.slow
def test_a_checkpoint_state_that_does_not_fit_is_a_full_disk_too(tmp_path: Path) -> None:
    kind, files = outcome(
        """
from palaestra.store import checkpoint

limit(100_000)
try:
    checkpoint.save(folder, "last", {}, {"notes": "x" * 200_000})
except StorageFull as error:
    kind = type(error).__name__
print(json.dumps([kind, [p.name for p in folder.iterdir()]]))
""",
        tmp_path,
    )
    assert kind == "StorageFull"
    assert files == []


def test_a_run_cannot_start_on_a_full_disk(tmp_path: Path) -> None:
    kinds, runs = outcome(
        """
from palaestra.store.run_folder import RunFolder, list_runs

kinds = []
for size in (0, 2, 1000, 40_000):
    limit(size)
    try:
        RunFolder.create(folder / str(size), {"notes": "x" * 50_000})
        kinds.append("made")
    except StorageFull as error:
        kinds.append("StorageFull")
limit(resource.RLIM_INFINITY)
RunFolder.create(folder / "0", {}).close()  # the remains do not prevent a new run
print(json.dumps([kinds, [run.name for run in list_runs(folder)]]))
""",
        tmp_path,
    )
    assert kinds == ["StorageFull"] * 4
    assert runs == ["0"]


@pytest.mark.parametrize("size", [0, 2, 1000, 40_000, 70_000])
def test_nothing_is_left_of_a_run_that_found_no_space(tmp_path: Path, size: int) -> None:
    """Whichever write is refused: the lock's, the database's, a document's, run.json's."""
    (tmp_path / "there").mkdir()
    report = outcome(
        f"""
from palaestra.store.run_folder import RunFolder

(folder / "there" / "mine").touch()
limit({size})
kinds = []
for name in ("new/deep", "there"):
    try:
        RunFolder.create(
            folder / name, {{"notes": "x" * 50_000}}, documents={{"plan": "x" * 50_000}}
        )
    except StorageFull as error:
        kinds.append(str(folder / name) in str(error))
print(json.dumps([kinds, sorted(str(p.relative_to(folder)) for p in folder.rglob("*"))]))
""",
        tmp_path,
    )
    assert report == [[True, True], ["there", "there/mine"]]


def test_a_folder_is_replaced_whole_or_stays(tmp_path: Path) -> None:
    report = outcome(
        """
from palaestra.store.disk import replacing

def fill(size):
    with replacing(folder / "final", "The policy") as fresh:
        (fresh / "part").mkdir()
        (fresh / "part" / "a").write_text("new")
        (fresh / "b").write_bytes(bytes(size))

limit(50_000)
said = []
for before in (False, True):
    try:
        fill(100_000)
    except StorageFull as error:
        said.append("The policy could not be written" in str(error))
    said.append(sorted(str(p.relative_to(folder)) for p in folder.rglob("*")))
    if not before:
        fill(10)
print(json.dumps(said))
""",
        tmp_path,
    )
    assert report == [True, [], True, ["final", "final/b", "final/part", "final/part/a"]]
    assert (tmp_path / "final" / "b").stat().st_size == 10


def test_on_a_disk_of_any_small_size_a_run_is_whole_or_not_there() -> None:
    """Real disks in memory, in a mount namespace of the process, where the system allows one."""
    code = """
import gc, json, subprocess, sys
from pathlib import Path
from palaestra.core.errors import StorageFull
from palaestra.store.run_folder import RunFolder

found = []
for kilobytes in range(8, 160, 8):
    mount = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "none", sys.argv[1]]
    subprocess.run(mount, check=True)
    folder = Path(sys.argv[1])
    try:
        RunFolder.create(folder / "run", {"notes": "x" * 9000}).close()
        found.append("made" if (folder / "run" / "run.json").stat().st_size else "torn")
    except StorageFull as error:
        left = [path.name for path in folder.iterdir()]
        found.append("full" if not left and "nothing of it is left" in str(error) else str(left))
    except Exception as error:
        found.append(repr(error))
    gc.collect()  # what errors hold, files among it
    subprocess.run(["umount", sys.argv[1]], check=True)
print(json.dumps(found))
"""
    found = json.loads(with_small_disks(code))
    assert set(found) == {"full", "made"}, found
    assert found == sorted(found)


@pytest.mark.slow
def test_training_on_a_disk_of_any_size_ends_with_a_sentence_and_nothing_torn() -> None:
    code = """
import json, subprocess, sys
from pathlib import Path

small = ["imitation.demonstrations=4", "imitation.epochs=1", "rl.steps=1", "rl.tasks=2",
         "rl.group=2", "evaluation.tasks=4", "evaluation.transfer_tasks=2"]
found = []
for kilobytes in (112, 116, 120, 124, 140, 15_000, 16_000, 18_000, 20_000, 40_000):
    mount = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "none", sys.argv[1]]
    subprocess.run(mount, check=True)
    run = Path(sys.argv[1]) / "run"
    train = [sys.executable, "-m", "palaestra", "train", "quick", "--set", *small]
    done = subprocess.run([*train, "--run", str(run)], capture_output=True, text=True)
    torn = [name for name in ("final", "vocabulary") if (run / name).exists()
            and not (run / name / "tokenizer_config.json").stat().st_size]
    found.append([done.returncode, done.stderr[-600:] if "Traceback" in done.stderr else "", torn])
    subprocess.run(["umount", sys.argv[1]], check=True)
print(json.dumps(found))
"""
    found = json.loads(with_small_disks(code))
    assert [[code, "", []] for code, _, _ in found] == found
    assert {code for code, _, _ in found[:5]} == {1} and found[-1][0] == 0


def with_small_disks(code: str) -> str:
    """What a process prints that may mount disks on the folder of its argument."""
    with tempfile.TemporaryDirectory() as folder:
        inside = ["unshare", "--user", "--map-root-user", "--mount"]
        mount = [*inside, "mount", "-t", "tmpfs", "none", folder]
        if not shutil.which("unshare") or subprocess.run(mount, capture_output=True).returncode:
            pytest.skip("this system lets no process mount a disk of its own")
        done = subprocess.run(
            [*inside, sys.executable, "-c", code, folder],
            capture_output=True,
            text=True,
            cwd=Path(__file__).parents[2],
        )
    assert done.returncode == 0, done.stderr
    return done.stdout
