"""A team learns: the members' roles are trained by the same recipe as any other agent."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path

import pytest
from rich.console import Console

from palaestra.core.errors import InputError
from palaestra.core.model import adapted
from palaestra.runtime.progress import Reporter
from palaestra.store.run_folder import RunFolder
from palaestra.training.recipe import load
from palaestra.training.recipe_check import check_recipe
from palaestra.training.run import execute

RECIPE = """
concurrency = 16
[environment]
id = "questions/things-2?team=review"
workers = 0
[agent]
name = "players"
max_tokens = 8
[model]
name = "tiny"
[model.tiny]
layers = 1
width = 32
[imitation]
demonstrations = 16
epochs = 2
[rl]
algorithm = "rloo"
steps = 1
tasks = 2
group = 2
[evaluation]
tasks = 4
"""


@pytest.mark.slow
def test_a_team_is_demonstrated_imitated_and_reinforced(tmp_path: Path) -> None:
    file = tmp_path / "team.toml"
    file.write_text(RECIPE)
    recipe = load(str(file), [])
    check_recipe(recipe)
    with RunFolder.create(tmp_path / "run", recipe.model_dump(mode="json")) as run:
        asyncio.run(execute(recipe, run, Reporter(Console(file=io.StringIO()))))
    database = RunFolder.read(tmp_path / "run").database
    shown = database.episodes("demonstrations")
    assert all(episode.outcome.solved for episode in shown)
    for phase in ("demonstrations", "rl/1"):
        for episode in database.episodes(phase):
            assert {call.role for call in episode.calls} == {"author", "reviewer"}
            assert set(episode.results) == {"author", "reviewer"}
            assert len(set(episode.results.values())) == 1  # they share the rewards


GAME = """
concurrency = 8
[environment]
id = "{}"
workers = 0
[agent]
name = "{}"
max_tokens = 4
[model]
name = "tiny"
[model.tiny]
layers = 1
width = 32
[training]
weights = "lora"
lora_rank = 2
adapters = ["{}"]
[imitation]
demonstrations = 0
[rl]
algorithm = "rloo"
steps = 1
tasks = 2
group = 2
[evaluation]
tasks = 2
"""


@pytest.mark.parametrize(
    ("environment", "agent", "role", "others"),
    [
        ("kuhn_poker:self?team=player0:review", "players", "player0.author", "player0.reviewer"),
        ("kuhn_poker:self", "players?player0=meta", "player0/planner", "player0"),
    ],
)
def test_a_member_in_a_game_and_a_role_of_a_player_have_adapters_of_their_own(
    tmp_path: Path, environment: str, agent: str, role: str, others: str
) -> None:
    file = tmp_path / "game.toml"
    file.write_text(GAME.format(f"openspiel/{environment}", agent, role))
    recipe = load(str(file), [])
    check_recipe(recipe)
    with RunFolder.create(tmp_path / "run", recipe.model_dump(mode="json")) as run:
        asyncio.run(execute(recipe, run, Reporter(Console(file=io.StringIO()))))
    database = RunFolder.read(tmp_path / "run").database
    policies = {
        call.role: call.policy for episode in database.episodes("rl/1") for call in episode.calls
    }
    assert policies[role] == adapted("policy", role) and policies[others] == "policy"
    with pytest.raises(InputError, match="no role or player 'player1/critic'"):
        check_recipe(load(str(file), ["training.adapters=['player1/critic']"]))
