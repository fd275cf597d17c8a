"""Work outlives who reads what it prints: a pager that has left, a terminal that was closed."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from palaestra.store.run_folder import RunFolder
from tests.training.runs import command, environment, write_recipe

SMALLER = "imitation.demonstrations=16 rl.steps=2 evaluation.tasks=2 evaluation.transfer_tasks=2"


def unread() -> int:
    """The writing end of a pipe without a reader."""
    reading, writing = os.pipe()
    os.close(reading)
    return writing


@pytest.mark.parametrize("asked", [["show", "RUN"], ["list", "environments"], ["--help"]])
def test_a_reader_that_has_left_changes_no_exit_code(asked: list[str], recorded: Path) -> None:
    words = command(*(str(recorded) if word == "RUN" else word for word in asked))
    output = unread()
    done = subprocess.run(words, stdout=output, stderr=subprocess.PIPE, text=True, timeout=120)
    os.close(output)
    assert (done.returncode, done.stderr) == (0, "")


def test_no_file_gets_the_number_of_a_stream_that_was_closed_from_the_start(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from palaestra.cli.streams import lasting_streams\n"
        "with lasting_streams(), open(sys.argv[1], 'w') as file:\n"
        "    print('said'); print('said', file=sys.stderr)\n"
        "    sys.exit(0 if file.fileno() > 2 else 'it did')\n"
    )
    words = ["sh", "-c", 'exec "$@" >&- 2>&-', "sh", sys.executable, "-c", program]
    file = tmp_path / "file"
    assert subprocess.run([*words, file], timeout=120).returncode == 0
    assert file.read_text() == ""


def test_a_command_that_fails_reports_it_without_a_reader() -> None:
    output = unread()
    words = command("list", "environmets")
    done = subprocess.run(words, stdout=output, stderr=subprocess.PIPE, text=True, timeout=120)
    os.close(output)
    assert done.returncode == 2 and "environments" in done.stderr


def test_work_goes_on_where_no_one_reads_its_progress(tmp_path: Path) -> None:
    output = unread()
    asked = ["--env", "probe/umbrella-4", "--model", "random", "-n", "12"]
    words = command("eval", *asked, "--run", tmp_path / "run")
    done = subprocess.run(words, stdout=output, stderr=output, env=environment(), timeout=400)
    os.close(output)
    assert done.returncode == 0
    with RunFolder.read(tmp_path / "run") as run:
        assert run.database.get("evaluation") is not None


@pytest.mark.slow
def test_training_outlives_its_terminal(tmp_path: Path) -> None:
    words = command("train", write_recipe(tmp_path), "--run", tmp_path / "run")
    words += ["--set", *SMALLER.split()]
    child, terminal = pty.fork()
    if child == 0:
        os.execvpe(sys.executable, words, environment())
    received = b""
    while b"demonstrations" not in received:
        received += os.read(terminal, 1024)
    os.close(terminal)  # the kernel sends SIGHUP, and every write fails
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert (tmp_path / "run" / "final" / "model.safetensors").exists()
