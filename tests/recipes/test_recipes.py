"""Recipes beside the package can be read, and what they bring along holds what it says."""

from __future__ import annotations

import asyncio
import random
import re
from pathlib import Path

import pytest

from palaestra.core.environment import Action
from palaestra.core.episode import Key
from palaestra.core.message import user
from palaestra.core.session import Session
from palaestra.core.task import Split
from palaestra.environments import registry
from palaestra.environments.conformance.clauses import CLAUSES
from palaestra.environments.conformance.subject import Subject
from palaestra.models.scripted.expert import ExpertModel
from palaestra.rollout.guarded_environment import LocalEnvironment
from palaestra.training.recipe import load
from palaestra.training.recipe_check import check_recipe
from palaestra.training.run import vocabulary_texts
from recipes.classical import waker
from recipes.classical.procedure_cloning import KINDS, Maze, Solver, beside

FOLDERS = ("agents", "classical", "web", "worlds")  # in `procedures` are states of an agent
ROOT = Path(__file__).parents[2] / "recipes"
RECIPES = [path for of in FOLDERS for path in sorted((ROOT / of).glob("*.toml"))]
PIPELINES = sorted((ROOT / "stages").glob("*.toml"))
MAZE = "recipes.classical.procedure_cloning:Maze"
GRID = "recipes.classical.waker:Grid"


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_recipe_can_be_read(path: Path) -> None:
    assert load(str(path)).summary


@pytest.mark.parametrize("path", PIPELINES, ids=lambda path: path.stem)
def test_every_pipeline_is_short_and_names_recipes_that_are_there(path: Path) -> None:
    text, known = path.read_text(), {one.stem for one in PIPELINES} | {"base"}
    check_recipe(load(str(path)))
    assert len(text.splitlines()) <= 40
    named = re.findall(r"^# (?:against|base): (\S+)(?: on transfer)?$", text, re.MULTILINE)
    assert set(named) <= known


def test_a_recipe_may_turn_the_knobs_of_its_world() -> None:
    words = vocabulary_texts(load("quick", ["environment.id=probe/sea-3?turns=2&profile=quick"]))
    assert any("The user wants" in text for text in words)


@pytest.mark.parametrize("id", [f"{MAZE}/hard", f"{GRID}/4-ice"])
def test_the_worlds_of_recipes_keep_the_contract(id: str) -> None:
    for clause in CLAUSES:
        clause(Subject.of(id, steps=6, per_split=1))


# ── procedure cloning ────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", KINDS)
def test_the_search_that_is_written_down_ends_with_the_action_that_it_finds(kind: str) -> None:
    maze = Maze(kind)
    for task in maze.tasks("maze").take(Split.TRAIN, 20):
        seen, plan = maze.reset(task), maze.oracle()
        work, _, action = Solver().answer([user(seen.text)], plan).rpartition(". ")
        last, _, looked = work.split(";")[-1].partition(":")
        assert looked.endswith(f" {maze.at}*")  # the search has come to where one is …
        assert beside(maze.at, action) == last.strip()  # … and one goes to where it came from
        assert len(plan) >= KINDS[kind][1]
        assert [maze.step(step) for step in plan][-1].success


@pytest.mark.parametrize("work", [True, False])
def test_an_expert_shows_the_way_with_its_work_and_without(work: bool) -> None:
    agent, world = Solver(work=work), LocalEnvironment(Maze("easy"))
    task = Maze.tasks("maze").task(Split.TRAIN, 0)
    model = ExpertModel(agent, environment=world)
    session = Session(Key("test", 0), task, world, agent, {"agent": model})
    episode = asyncio.run(session.run())
    assert episode.outcome.solved
    assert all((":" in call.reply.text) == work for call in episode.calls)


# ── WAKER ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("variant", ["6", "6-ice"])
def test_a_plan_with_the_true_moves_reaches_every_goal(variant: str) -> None:
    grid = waker.Grid(variant)
    for task in grid.tasks("grid").take(Split.TEST, 20):
        grid.reset(task)
        plan = waker.plan(grid.at, grid.after)[grid.goal]
        assert [grid.step(Action(word)) for word in plan][-1].success


def test_on_ice_one_slides_on_to_the_next_wall() -> None:
    grid = waker.Grid("2-ice")
    grid.walls = ("dw",)
    assert grid.after("aw", "right") == "cw" and grid.after("aw", "down") == "az"
    firm = waker.Grid("2")
    firm.walls = grid.walls
    assert firm.after("aw", "right") == "bw" and firm.after("cw", "right") == "cw"


def test_every_rule_shows_as_many_grids_and_the_model_learns_from_them() -> None:
    for rule in waker.RULES:
        model, shares = waker.learn(rule, seed=1, updates=2)
        assert sum(shares) == pytest.approx(1.0)
    grid = waker.Grid("4")
    grid.reset(grid.tasks("grid").task(Split.TEST, 0))
    shown = waker.predict(model, [waker.row(grid, grid.at, "up")]).detach().exp()
    assert shown.shape == (1, 16) and float(shown.sum()) == pytest.approx(1.0, abs=1e-5)


# ── search on Connect Four ───────────────────────────────────────────────────


@pytest.mark.parametrize("against", ["first", "random", "minimax", "bot"])
def test_each_opponent_plays_to_the_end(against: str) -> None:
    pytest.importorskip("pyspiel", reason="needs open-spiel")
    from recipes.classical import connect_four

    world = LocalEnvironment(registry.make(connect_four.ID))
    assert asyncio.run(connect_four.play(2, against, 1, world)) in (-1.0, 0.0, 1.0)


def test_minimax_sees_what_wins_at_once() -> None:
    pyspiel = pytest.importorskip("pyspiel", reason="needs open-spiel")
    from recipes.classical import connect_four

    state = pyspiel.load_game("connect_four").new_initial_state()
    for column in (2, 5, 2, 5, 2, 6):
        state.apply_action(column)
    assert connect_four.minimax(state, random.Random(0)) == 2
