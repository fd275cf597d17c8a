"""The command line, end to end: what it prints, and with which code it ends."""

import json
import re
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
import torch

from palaestra.cli.main import COMMANDS, main
from palaestra.core.task import ListedTasks, Split, TaskSet
from palaestra.environments.families.probe.environment import Probe
from palaestra.models.local.packed_weights import packs
from palaestra.training.recipe import check, load, recipe_names
from tests.browser.needed import without_miniwob
from tests.cli.conftest import Palaestra

LEVEL = "babyai/GoToLocalS5N2"


def test_the_help_needs_no_torch() -> None:
    program = (
        "import sys\n"
        "from palaestra.cli.main import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert all(command in done.stdout for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_shows_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    assert f"Example: palaestra {command}" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("arguments", "near"),
    [
        (["list", "environmets"], "environments"),
        (["eval", "--env", "babyai/GoToLocalS5M2", "--model", "random"], "GoToLocalS5N2"),
        (["eval", "--env", LEVEL, "--model", "expret"], "expert"),
        (["eval", "--env", LEVEL, "--model", "random", "--agent", "direkt"], "direct"),
        (["eval", "--env", LEVEL, "--model", "random", "--split", "tset"], "test"),
        (["play", "--env", "babyia/GoToLocal"], "babyai"),
        (["train", "quik", "--dry-run"], "quick"),
        (["train", "quick", "--dry-run", "--algorithm", "lop"], "loop"),
    ],
)
def test_an_unknown_name_exits_2_with_the_nearest_one(
    arguments: list[str], near: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert f"Did you mean '{near}'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("-n", "0"),
        ("--turns", "0"),
        ("--repeats", "-1"),
        ("--temperature", "-1"),
        ("--max-tokens", "9999"),
    ],
)
def test_a_number_that_cannot_work_exits_2_before_anything_starts(
    option: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PALAESTRA_RUNS", str(tmp_path / "runs"))
    assert main(["eval", "--env", LEVEL, "--model", "random", option, value]) == 2
    assert not (tmp_path / "runs").exists()


def test_a_world_without_an_expert_is_refused_before_anything_starts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["eval", "--env", "minigrid/Empty-5x5", "--model", "expert"]) == 2
    assert "has no expert" in capsys.readouterr().err


@pytest.mark.parametrize(
    "kind",
    "environments models agents algorithms credit losses curricula recipes runs".split(),
)
def test_every_kind_can_be_listed(
    kind: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PALAESTRA_RUNS", str(tmp_path))
    assert main(["list", kind, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert all(row["name"] and row["source"] for row in rows)
    assert bool(rows) == (kind != "runs")
    assert main(["list", kind]) == 0
    shown = capsys.readouterr().out
    names = {row["family"] if kind == "environments" else row["name"] for row in rows}
    assert all(name[:20] in shown for name in names)


def test_the_ids_of_a_family_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "environments", "probe"]) == 0
    shown = capsys.readouterr().out
    assert "probe/umbrella-4" in shown and "babyai" not in shown
    assert main(["list", "environments", "prob"]) == 2
    assert "Did you mean 'probe'?" in capsys.readouterr().err
    assert main(["list", "agents", "probe"]) == 2
    assert "only environments have families" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["algorithms", "credit", "rewards", "losses", "curricula"])
def test_parts_of_the_learning_library_say_what_they_are_and_need(
    kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["list", kind, "--all", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len({(row.get("kind"), row["name"]) for row in rows}) == len(rows) > 5
    for row in rows:
        assert row["summary"].strip() and row["source"].strip(), row
        assert isinstance(row["needs"], list)
    assert any(row["needs"] for row in rows)


def test_environments_are_listed_by_the_ids_that_make_them(palaestra: Palaestra) -> None:
    rows = json.loads(palaestra("list", "environments", "--json").stdout)
    row = next(row for row in rows if row["name"] == LEVEL)
    assert (row["family"], row["extra"], row["installed"]) == ("babyai", "babyai", True)
    assert row["players"] == ["agent"] and "oracle" in row["capabilities"]
    assert row["tasks"] == {"train": None, "validation": None, "test": None}
    assert row["licence"] == "Apache-2.0"


def test_the_expert_solves_what_chance_does_not_and_the_episodes_are_kept(
    palaestra: Palaestra, tmp_path: Path
) -> None:
    found = {}
    for model in ("expert", "random"):
        done = palaestra(
            "eval", "--env", LEVEL, "--agent", "direct", "--model", model, "-n", "8", "--json",
            "--run", str(tmp_path / "runs" / model),
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        found[model] = json.loads(done.stdout)
    assert found["expert"]["success"] == 1.0
    assert found["expert"]["interval"] == [pytest.approx(0.676, abs=0.001), 1.0]
    assert found["random"]["success"] < 1.0
    assert found["random"]["episodes"] == found["random"]["tasks"] == 8
    assert found["random"]["invalid_rate"] == 0.0
    assert set(found["random"]["faults"]) == {"agent", "environment", "infrastructure"}

    listed = json.loads(palaestra("list", "runs", "--json").stdout)
    assert {row["name"] for row in listed} == {"expert", "random"}
    shown = palaestra("show", "expert")
    assert shown.returncode == 0, shown.stderr
    assert "eval/test" in shown.stdout
    episode = palaestra("show", "expert", "eval/test/3.0", "--tokens")
    assert "Mission:" in episode.stdout
    assert "end: success" in episode.stdout
    record = json.loads(palaestra("show", "expert", "eval/test/3.0", "--json").stdout)
    assert record["outcome"]["status"] == "success"
    unknown = palaestra("show", "expert", "eval/test/33.0")
    assert unknown.returncode == 2
    assert "Did you mean 'eval/test/3.0'?" in unknown.stderr


def test_an_interrupted_evaluation_keeps_its_episodes_and_exits_130(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    arguments = ["eval", "--env", LEVEL, "--model", "expert", "-n", "5000", "--run", str(folder)]
    with subprocess.Popen(
        [sys.executable, "-m", "palaestra", *arguments],
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "5000 episodes" in line:
                break
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        errors = process.stderr.read()
        assert process.wait(60) == 130
    assert "finished episodes are kept" in errors
    assert "Traceback" not in errors


def test_a_person_plays_through_a_pipe(palaestra: Palaestra) -> None:
    done = palaestra("play", "--env", LEVEL, input=":actions\n:hint\nfly\nleft\n:quit\n")
    assert done.returncode == 0, done.stderr
    assert "Mission:" in done.stdout
    assert "Actions: left, right, forward, pickup, drop, toggle" in done.stdout
    assert "The expert's next action:" in done.stdout
    assert "(invalid action)" in done.stdout
    assert "You left after 2 action(s)" in done.stdout


def test_help_and_quit_are_known_as_one_says_them(palaestra: Palaestra) -> None:
    done = palaestra("play", "--env", LEVEL, input="help\nhint\nactions\nleft\nquit\n")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("quit ends") == 2  # at the start, and when asked
    assert "The expert's next action:" in done.stdout and "Actions: left" in done.stdout
    assert "(invalid action)" not in done.stdout
    assert "You left after 1 action(s)" in done.stdout


class Polite(Probe):
    """A world in which "help" is something to do."""

    def admissible(self) -> tuple[str, ...]:
        return (*super().admissible(), "help")


def test_a_world_s_own_word_is_an_action(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = iter(["help\n", ":help\n", ":quit\n"])
    monkeypatch.setattr("sys.stdin.readline", lambda: next(lines), raising=False)
    assert main(["play", "--env", f"{__name__}:Polite/umbrella-4"]) == 0
    shown = capsys.readouterr().out
    assert "You left after 1 action(s)" in shown and shown.count("quit ends") == 2


def test_knobs_tools_and_several_players_can_be_played(palaestra: Palaestra) -> None:
    knobs = palaestra("play", "--env", f"{LEVEL}?budget=1", input="left\n")
    assert "Budget left: 1" in knobs.stdout and "Not solved: the task ended" in knobs.stdout
    tools = palaestra("play", "--env", f"{LEVEL}?actions=tool", input=":actions\n")
    assert "act(action: string)" in tools.stdout
    game = "pettingzoo/tictactoe:self"
    both = palaestra("play", "--env", game, input="0\n3\n1\n4\n2\n")
    assert len(re.findall(r"It is \w+'s turn", both.stdout)) == 5
    assert re.search(r"with rewards of 1 \(\w+\), -1 \(\w+\)", both.stdout)


def test_following_the_hints_solves_the_task(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from palaestra.cli import play_command
    from palaestra.environments.registry import make

    world = make(LEVEL)
    world.reset(world.tasks(LEVEL).task(play_command.parse_split("test"), 5))
    plan = iter([action.text for action in world.oracle()])
    monkeypatch.setattr("sys.stdin.readline", lambda: f"{next(plan)}\n", raising=False)
    assert main(["play", "--env", LEVEL, "--split", "test", "--seed", "5"]) == 0
    assert "Solved after" in capsys.readouterr().out


class Published(Probe):
    """A benchmark: it has nothing to practise on."""

    @classmethod
    def tasks(cls, environment: str) -> TaskSet:
        return ListedTasks(environment, rows={Split.TEST: [{}]})


def test_a_world_without_tasks_to_train_is_played_on_those_it_has(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin.readline", lambda: ":quit\n", raising=False)
    world = f"{__name__}:Published/umbrella-4"
    assert main(["play", "--env", world]) == 0
    assert "task test/0" in capsys.readouterr().out
    assert main(["play", "--env", world, "--split", "train"]) == 2
    assert "has no train tasks; it has test" in capsys.readouterr().err


def test_the_end_of_the_input_ends_the_play_cleanly(palaestra: Palaestra) -> None:
    done = palaestra("play", "--env", LEVEL)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", recipe_names())
def test_a_dry_run_prints_a_recipe_that_reads_back_as_itself(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if load(name).environment.id.startswith("miniwob/") and (why := without_miniwob()):
        pytest.skip(why)
    assert main(["train", name, "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert check(tomllib.loads(shown)) == load(name)
    time, memory, written = shown.splitlines()[:3]  # before a hundred lines of recipe
    assert time.startswith("# time: about ")
    assert memory.startswith("# memory: about ")
    assert written.startswith("# writes: about ") and f"/{name}-" in written
    assert main(["train", name, "--dry-run", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["memory_bytes"]["total"] > 0
    assert document["seconds"]["total"] > 0
    assert document["disk_bytes"]["total"] > 0


def test_the_time_of_a_recipe_is_computed_from_its_keys(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["list", "recipes", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert not [row for row in rows.values() if "minute" in row["summary"]]
    assert main(["train", "quick", "--dry-run"]) == 0
    assert rows["quick"]["time"] in capsys.readouterr().out.splitlines()[0]
    assert main(["train", "quick", "--dry-run", "--set", "rl.steps=5000"]) == 0
    assert rows["quick"]["time"] not in capsys.readouterr().out.splitlines()[0]


def test_a_dry_run_counts_what_a_run_writes(capsys: pytest.CaptureFixture[str]) -> None:
    def bytes_of(*keys: str) -> dict[str, float]:
        assert main(["train", "quick", "--dry-run", "--json", "--set", *keys]) == 0
        found: dict[str, float] = json.loads(capsys.readouterr().out)["disk_bytes"]
        return found

    whole, none = bytes_of("rl.steps=50"), bytes_of("rl.steps=0")
    assert whole["checkpoints"] == 3 * none["checkpoints"] > 0  # two of RL besides imitation's
    assert whole["episodes"] > none["episodes"] > 0
    assert whole["trained model"] == none["trained model"] > 0


def test_a_dry_run_expects_sentences_where_any_text_is_an_action(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def rollouts(environment: str, tokens: int) -> float:
        keys = [f"environment.id={environment}", "environment.transfer=", "environment.turns=8"]
        keys += [f"agent.max_tokens={tokens}"]
        assert main(["train", "quick", "--dry-run", "--json", "--set", *keys]) == 0
        seconds: float = json.loads(capsys.readouterr().out)["seconds"]["rl rollouts"]
        return seconds

    assert rollouts("babyai/GoToObjS6", 128) == pytest.approx(rollouts("babyai/GoToObjS6", 8))
    assert rollouts("terminal/count", 128) > 2 * rollouts("terminal/count", 8)


def test_a_dry_run_counts_the_copy_with_which_the_engine_acts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def bytes_of(precision: str) -> dict[str, float]:
        keys = [f"model.precision={precision}", "model.device=cpu"]
        assert main(["train", "default", "--dry-run", "--json", "--set", *keys]) == 0
        found: dict[str, float] = json.loads(capsys.readouterr().out)["memory_bytes"]
        return found

    half, full = bytes_of("bf16"), bytes_of("fp32")
    assert half["packed"] == half["weights"] > 0
    assert full["packed"] == (full["weights"] if packs(torch.float32) else 0)


def test_the_doctor_says_whether_training_can_run(palaestra: Palaestra) -> None:
    done = palaestra("doctor", "--json")
    found = json.loads(done.stdout)
    assert done.returncode == (0 if found["healthy"] else 1)
    assert all(check["ok"] or check["remedy"] for check in found["checks"])


def test_the_doctor_fails_where_nothing_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setenv("PALAESTRA_RUNS", str(file / "runs"))
    assert main(["doctor"]) == 1
    assert "Set PALAESTRA_RUNS to a folder that you can write to." in capsys.readouterr().out
