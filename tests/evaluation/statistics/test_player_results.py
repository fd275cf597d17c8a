"""Results of several players, as reports show them: by their own returns, never one success."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.budget import Usage
from palaestra.core.environment import Action, Observation, Signals, Transition
from palaestra.core.episode import Episode, Forfeit, Key, Step
from palaestra.core.outcome import Limit, Outcome, Owner
from palaestra.core.task import Split, TaskSet
from palaestra.evaluation.statistics.intervals import compare, score
from palaestra.evaluation.statistics.player_results import (
    as_json,
    ending,
    from_json,
    has_success,
    returns_line,
    rows,
    scores_of,
    strength_commands,
)
from tests.core.games import Tally
from tests.evaluation.statistics.shared_game import Lift

GAME = f"{Tally.__module__}:Tally"
SHARED = f"{Lift.__module__}:Lift"


def game(
    returns: Mapping[str, float],
    *,
    task: int = 0,
    member: int = 0,
    forfeit: Forfeit | None = None,
    environment: str = GAME,
    invalid: int = 0,
    outcome: Outcome | None = None,
) -> Episode:
    """A game in which each player makes one valid move, and the first `invalid` others before."""
    movers = [*[next(iter(returns))] * invalid, *returns]
    steps = [
        Step(
            index=k,
            call=None,
            action=Action("1"),
            transition=Transition(
                Observation("…"),
                valid=k >= invalid,
                rewards=dict(returns) if k == len(movers) - 1 and forfeit is None else {},
                terminated=k == len(movers) - 1 and forfeit is None,
            ),
            before=Signals(turn=player),
        )
        for k, player in enumerate(movers)
    ]
    if forfeit is not None:
        over = Transition(Observation("over"), terminated=True, valid=False)
        before = Signals(turn=forfeit.player)
        steps.append(Step(len(steps), None, Action(""), over, before, forfeit=forfeit))
    ended = Outcome.success() if next(iter(returns.values())) > 0 else Outcome.failure()
    return Episode(
        Key("test/rl", task, member),
        TaskSet(environment).task(Split.TEST, task),
        "players",
        Observation("go"),
        (),
        tuple(steps),
        outcome or ended,
        Usage(turns=len(steps)),
    )


def gave_up(player: str, returns: Mapping[str, float], why: Outcome) -> Episode:
    return game(returns, forfeit=Forfeit(player, why, returns))


def test_each_player_has_its_own_mean_signs_and_forfeits() -> None:
    unparsed = Outcome.error("unparsed", Owner.AGENT, "3 actions in a row")
    late = Outcome.truncated(Limit.SECONDS)
    episodes = [
        game({"ann": 1.0, "bob": -1.0}, invalid=1),
        game({"ann": 0.0, "bob": 0.0}, task=1),
        gave_up("bob", {"ann": 1.0, "bob": -1.0}, unparsed),
        gave_up("bob", {"ann": 1.0, "bob": -1.0}, late),
        game({"ann": 9.0, "bob": 9.0}, outcome=Outcome.error("hang", Owner.ENVIRONMENT)),
    ]
    found = scores_of(episodes)
    ann, bob = found["ann"], found["bob"]
    assert (ann.mean, bob.mean) == (0.5, -0.5)  # over two tasks
    assert (ann.positive, ann.zero, ann.negative, ann.episodes) == (3, 1, 0, 4)
    assert (bob.positive, bob.zero, bob.negative) == (0, 1, 3)
    assert ann.invalid_rate == pytest.approx(1 / 5) and bob.invalid_rate == 0.0
    assert ann.forfeits == {} and bob.forfeits == {"unparsed": 1, "out of seconds": 1}
    assert rows(found)[1][0] == "bob" and rows(found)[1][-1] == "1 × unparsed, 1 × out of seconds"


def test_repeats_of_a_task_are_averaged_first() -> None:
    episodes = [game({"ann": 3.0, "bob": 0.0}, member=m) for m in range(3)]
    episodes.append(game({"ann": 0.0, "bob": 0.0}, task=1))
    found = scores_of(episodes)["ann"]
    assert found.mean == 1.5 and found.interval == (0.0, 3.0)
    assert scores_of(episodes[:3])["ann"].interval is None


@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3)), min_size=1, max_size=6))
def test_returns_and_signs_add_up(results: list[tuple[int, int]]) -> None:
    episodes = [
        game({"ann": float(a), "bob": float(b)}, task=k) for k, (a, b) in enumerate(results)
    ]
    found = scores_of(episodes)
    for k, player in enumerate(("ann", "bob")):
        one = found[player]
        assert one.mean == pytest.approx(sum(of[k] for of in results) / len(results))
        assert one.positive + one.zero + one.negative == one.episodes == len(results)
    assert from_json(json.loads(json.dumps(as_json(found)))) == found


def test_a_game_between_players_has_no_success_and_a_shared_one_has() -> None:
    assert not has_success(GAME) and has_success(SHARED) and has_success("probe/umbrella-4")
    assert has_success("no_such_module:Game") and not has_success("no_such_module:Game", ["a"])
    own = score([game({"ann": 1.0, "bob": -1.0}, task=k) for k in range(2)])
    assert own.success is None and set(own.players) == {"ann", "bob"}
    assert own.outcomes == {"ended": 2}
    shared = score([game({"l": 1.0, "r": 1.0}, task=k, environment=SHARED) for k in range(2)])
    assert shared.success is not None and shared.success.mean == 1.0 and shared.players


def test_code_that_only_a_record_names_is_not_loaded(tmp_path: Path) -> None:
    import sys

    (tmp_path / "planted.py").write_text("raise SystemExit('ran')")
    sys.path.insert(0, str(tmp_path))
    try:
        assert has_success("planted:Game")
    finally:
        sys.path.remove(str(tmp_path))


def test_policies_that_play_games_are_not_compared_by_success() -> None:
    episodes = [game({"ann": 1.0, "bob": -1.0}, task=k) for k in range(4)]
    found = compare({"base": episodes, "imitation": [], "rl": episodes})
    assert not found.success and not found.paired and found.counted == (4, 4)


def test_the_end_of_a_game_is_the_return_of_each() -> None:
    lost = gave_up("bob", {"ann": 1.0, "bob": -1.0}, Outcome.failure())
    assert ending(lost) == returns_line(lost.players) == "ann +1, bob -1 (forfeit)"
    shared = game({"l": 1.0, "r": 1.0}, environment=SHARED)
    assert ending(shared) == "success (l +1, r +1)"


def test_a_limit_of_the_whole_episode_is_no_forfeit() -> None:
    cut = game({"ann": 1.0, "bob": 0.0}, outcome=Outcome.truncated(Limit.TURNS))
    assert not any(player.forfeited for player in cut.players.values())
    assert scores_of([cut])["ann"].forfeits == {}


def test_commands_that_say_who_plays_best_fit_the_game() -> None:
    both = ["palaestra ratings RUN", "palaestra exploitability RUN"]
    assert strength_commands("openspiel/kuhn_poker:self", "RUN", policies=2) == both
    assert strength_commands("openspiel/kuhn_poker:self", "RUN", policies=1) == both[1:]
    assert strength_commands("pettingzoo/rps:self", "RUN", policies=2) == both[:1]
    assert strength_commands("pettingzoo/rps:self", "RUN", policies=1) == []
