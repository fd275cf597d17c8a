"""Budgets of teams as a whole."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from palaestra.agents.players import PlayersAgent
from palaestra.core.budget import Budget
from palaestra.core.episode import Episode
from palaestra.core.errors import InputError
from palaestra.core.outcome import Limit
from palaestra.environments.conformance.checking import check_environment
from palaestra.environments.registry import make, spec
from palaestra.environments.teams.team_file import load
from tests.core.test_game import Delayed, Kept, Killed, play, same

FOUR, THREE = "turns = 4\n", "tokens = 3\n"
TEAM = '[members.one]\n[members.two]\n[[stage]]\ndo = "propose"\n[[stage]]\ndo = "count"\n'
GAME = "tests.core.games:Tally"  # a move of each player in each round


def file(folder: Path, limits: str) -> Path:
    path = folder / "team.toml"
    path.write_text(limits + TEAM)
    return path


def lived(
    id: str, seed: int | None, journal: Kept | None = None, past: Kept | None = None
) -> Episode:
    rng = random.Random(seed)
    model = Delayed(lambda: 0 if seed is None else rng.randrange(5))
    events = () if past is None else past.events
    return play(make(id), PlayersAgent(), {"agent": model}, journal=journal, past=events)


def replies(episode: Episode) -> int:
    own = ("ann.one", "ann.two")
    return sum(
        s.before.turn in own and s.forfeit is None and s.call is not None for s in episode.steps
    )


@pytest.mark.parametrize(
    ("limits", "limit"), [("turns = 3\n", Limit.TURNS), ("tokens = 2\n", Limit.TOKENS)]
)
def test_a_team_that_has_spent_its_budget_forfeits(
    tmp_path: Path, limits: str, limit: Limit
) -> None:
    id = f"{GAME}?team=ann:{file(tmp_path, limits)}"
    episode, free = lived(id, None), lived(f"{GAME}?team=ann:{file(tmp_path, '')}", None)
    assert replies(episode) < replies(free)
    assert replies(episode) == (4 if limit is Limit.TURNS else 2)  # seen when a turn begins
    found = episode.players
    assert {found[name].outcome.limit for name in ("ann.one", "ann.two")} == {limit}
    assert found["ann.one"].total == found["ann.two"].total
    assert not found["bob"].forfeited


def test_the_budget_is_used_up_at_the_same_reply_whoever_was_faster(tmp_path: Path) -> None:
    id = f"{GAME}?team=ann:{file(tmp_path, FOUR)}"
    for seed in range(20):
        assert same(lived(id, seed)) == same(lived(id, None))


def test_an_episode_that_is_killed_spends_no_more(tmp_path: Path) -> None:
    id = f"{GAME}?team=ann:{file(tmp_path, THREE)}"
    whole = lived(id, None, kept := Kept())
    for most in range(len(kept.events)):
        journal = Kept(most)
        with pytest.raises(Killed):
            lived(id, most, journal)
        assert same(lived(id, most + 1, Kept(), journal)) == same(whole)


def test_where_limits_of_teams_stand(tmp_path: Path) -> None:
    path = file(tmp_path, "turns = 3\ntokens = 9\n")
    assert spec(f"questions/things-2?team={path}").stakes.team_limits == {"agent": Budget(3, 9)}
    assert [f for f in check_environment(f"questions/things-2?team={path}") if not f.holds] == []
    outer = tmp_path / "outer.toml"
    outer.write_text(TEAM.replace("[members.two]", f'[members.two]\nteam = "{path}"'))
    with pytest.raises(InputError, match="has limits, which only a team that acts"):
        load(str(outer))
