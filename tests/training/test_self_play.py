"""A run in which one policy plays all seats: who is credited, and what reports show."""

from __future__ import annotations

import asyncio
import io
import time
from pathlib import Path

import pytest
from rich.console import Console

pytest.importorskip("pyspiel", reason="needs open-spiel")

from palaestra.cli.main import main
from palaestra.core.errors import RecipeError
from palaestra.evaluation.reports import report, report_files
from palaestra.evaluation.reports.learning_curves import curve_stage
from palaestra.learning.data.trajectory import Trajectory
from palaestra.learning.loop.batch import filtered, trajectories
from palaestra.learning.methods.algorithms import Method, algorithm
from palaestra.runtime.progress import Reporter
from palaestra.store.run_folder import RunFolder
from palaestra.training.loop_plan import shaping
from palaestra.training.recipe import Recipe, load
from palaestra.training.recipe_check import check_recipe
from palaestra.training.role_adapters import POLICY
from palaestra.training.run import execute
from tests.viewer.stores import client_of

RECIPE = """
concurrency = 64
[environment]
id = "openspiel/kuhn_poker:self"
workers = 0
[agent]
name = "players"
max_tokens = 6
[model]
name = "tiny"
[model.tiny]
layers = 2
width = 64
[imitation]
demonstrator = "random"
demonstrations = 96
epochs = 4
learning_rate = 3e-3
examples_options = { least = 0 }
[rl]
algorithm = "rloo"
steps = 2
tasks = 6
group = 6
learning_rate = 1e-4
[evaluation]
tasks = 32
"""


def recipe(folder: Path, *keys: str) -> Recipe:
    file = folder / "kuhn.toml"
    file.write_text(RECIPE)
    return load(str(file), keys)


@pytest.fixture(scope="module")
def games(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run whose only policy plays both seats of Kuhn poker, trained with `rloo`."""
    folder = tmp_path_factory.mktemp("games")
    chosen = recipe(folder)
    check_recipe(chosen)
    with RunFolder.create(folder / "run", chosen.model_dump(mode="json")) as run:
        asyncio.run(execute(chosen, run, Reporter(Console(file=io.StringIO()))))
    return RunFolder.read(folder / "run")


@pytest.mark.slow
def test_the_winner_of_a_game_is_credited_and_the_loser_blamed(
    games: RunFolder, tmp_path: Path
) -> None:
    """Of a group, which has one deal: the best result of a seat is credited, the worst blamed."""
    rewards = shaping(recipe(tmp_path, "rl.rewards.invalid=0").rl, turns=10, seed=1)
    method = Method(algorithm("rloo"))
    batch = filtered(trajectories(games.database.episodes("rl/1"), rewards, POLICY), method)
    credit = method.credit(batch, {})
    judged = {"last won": 0, "last lost": 0}
    for trajectory, advantages in zip(batch, credit.advantages, strict=True):
        rivals = [t for t in batch if t.group == trajectory.group]
        chunks = advantages.split([turn.tokens for turn in trajectory.turns])
        for turn, chunk in zip(trajectory.turns, chunks, strict=True):
            own = trajectory.outcomes[turn.role]
            others = [t.outcomes[turn.role] for t in rivals if any_turn(t, turn.role)]
            if own == max(others) > min(others):
                assert bool((chunk > 0).all())
                judged["last won" if turn is trajectory.turns[-1] else "last lost"] += 1
            if own == min(others) < max(others):
                assert bool((chunk < 0).all())
    assert all(judged.values())  # also of winners who were not the last to move


def any_turn(trajectory: Trajectory, role: str) -> bool:
    return any(turn.role == role for turn in trajectory.turns)


def test_success_is_the_first_player_s(games: RunFolder) -> None:
    finished = [
        e
        for phase in games.database.phases()
        for e in games.database.episodes(phase)
        if e.steps and e.steps[-1].transition.terminated
    ]
    for episode in finished:
        assert list(episode.results) == ["player0", "player1"]
        assert episode.outcome.solved == (episode.results["player0"] > 0)
        assert sum(episode.results.values()) == 0
    movers = {(e.steps[-1].before.turn, e.outcome.solved) for e in finished}
    assert {("player1", True), ("player1", False)} <= movers  # the last mover


def test_the_report_has_the_return_of_each_player_and_no_success(games: RunFolder) -> None:
    built = report.build(games.database, games.path)
    assert list(built.players) == ["player0", "player1"]
    assert sum(one.mean for one in built.players.values()) == pytest.approx(0)
    assert not built.success and not built.held_out.paired and built.held_out.counted[0] == 32
    printed = io.StringIO()
    report_files.render(built, Console(file=printed, width=400))
    for page in (report_files.markdown(built), printed.getvalue()):
        text = page[: page.find("## Recipe")] if "## Recipe" in page else page
        assert "Mean returns on 32 held-out tasks" in text and "player0" in text
        assert f"palaestra exploitability {games.path}" in text
        assert "success" not in text.lower()
    document = report.as_json(built)
    assert set(document["players"]["player0"]) >= {"mean", "interval", "forfeits", "invalid_rate"}
    assert all(document["success"][policy] is None for policy in built.policies)


def test_metrics_of_training_have_the_return_of_each_player(games: RunFolder) -> None:
    metrics = games.database.metrics("rl")
    assert metrics and curve_stage(games.database.metric_phases(), games.database.metrics) == "rl"
    for _, row in metrics:
        assert row["return/player0"] + row["return/player1"] == pytest.approx(0)
        assert "success" not in row
    assert (games.path / "learning_curve.png").read_bytes().startswith(b"\x89PNG")


def test_show_and_the_viewer_have_no_success_of_the_games(
    games: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", str(games.path)]) == 0
    shown = capsys.readouterr().out
    assert "mean returns player0" in shown and "return/" in shown
    assert "success" not in shown[: shown.index("recipe")]
    client, end = client_of(games.path.parent), time.monotonic() + 20
    while "data-pending" in (page := client.get("/run/run").text) and time.monotonic() < end:
        time.sleep(0.05)
    assert "mean return of player0" in page and "palaestra exploitability" in page


@pytest.mark.parametrize("rule", ["remax", "marft", "waltz", "rloo + 0.5*marft"])
def test_a_rule_that_reads_no_result_per_player_is_refused(rule: str, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"players player0, player1, each with .* choose spiral"):
        check_recipe(recipe(tmp_path, f"rl.credit={rule}", "rl.loss=pg"))


def test_it_is_refused_in_a_dry_run_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe(tmp_path)
    start = ["train", str(tmp_path / "kuhn.toml"), "--dry-run"]
    assert main([*start, "--set", "rl.credit=remax"]) == 2
    assert "'remax' does not read; choose spiral" in capsys.readouterr().err
    assert main(start) == 0


@pytest.mark.parametrize("rule", ["rloo", "grpo", "spiral", "reinforce", "gae", "gigpo"])
def test_other_rules_are_given_results_per_player(rule: str, tmp_path: Path) -> None:
    check_recipe(recipe(tmp_path, f"rl.credit={rule}"))


def test_rewards_of_several_players_count_once(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"rl\.rewards\.environment would count them twice"):
        check_recipe(recipe(tmp_path, "rl.rewards.environment=1.0"))
    check_recipe(recipe(tmp_path, "rl.rewards.environment=1.0", "rl.rewards.outcome=0"))
