"""Clauses for several players: who acts, what each of them sees, and what each gets.

Players that act at the same time give their moves one after another: each move stays pending until
the round is complete, and nothing that another player sees may depend on it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from palaestra.core.environment import Action, Capability, Environment, Observation, Transition
from palaestra.core.rare_capabilities import acting_in, observed_by, sample_action, signals_of
from palaestra.core.task import Task
from palaestra.environments.conformance.subject import (
    History,
    Subject,
    ended,
    fail,
    follow,
    go_on,
    require,
    require_equal,
    roll_out,
    shortened,
    walk,
)
from palaestra.environments.simultaneous import Simultaneous

TO_THE_END = 10  # times the steps of a walk: how long a game may take
POINTS = 3  # pending moves of a task that are looked at
AHEAD = 5  # actions after a pending move
TRIED = 20  # samples until one is another move
TOLERANCE = 1e-6  # of sums of returns


def players_take_turns(subject: Subject) -> None:
    """Require that declared players act, each once in a round, and that rewards are of all."""
    env = subject.new()
    players = env.spec.players
    require(len(set(players)) == len(players) > 0, f"players are {players}")
    for task in subject.some()[:2]:
        env.reset(task)
        rng = random.Random(task.seed)
        for _ in range(subject.steps):
            acting = acting_in(env)
            require(len(acting) > 0, "nobody acts, and the episode is not over")
            require(len(set(acting)) == len(acting), f"players that act are {acting}")
            for player in acting:
                require(player in players, f"it is the turn of '{player}', who does not play")
            transition = env.step(sample_action(env, rng))
            strangers = set(transition.rewards) - set(players)
            require(not strangers, f"rewards of {strangers}, who do not play")
            if len(players) > 1 and transition.rewards:
                missing = set(players) - set(transition.rewards)
                require(not missing, f"some players have a reward and {missing} have none")
                own = transition.rewards[acting[0]]
                require(
                    own == transition.reward,
                    f"the reward is {transition.reward}, and among those of all, "
                    f"{acting[0]}, who acted, has {own}",
                )
            if ended(transition):
                break


def no_player_acts_after_the_end(subject: Subject) -> None:
    """Require that it is no player's turn once the episode has ended, whatever is tried then."""
    for env, _, actions, history in _played_out(subject):
        for what in ("at the end", "after an action at the end"):
            acting = acting_in(env)
            require(not acting, f"{what}, after {len(history)} actions, {acting} act")
            env.step(actions[-1])


def each_player_can_look_at_any_time(subject: Subject) -> None:
    """Require that `observe` works for all players at any time, repeats itself, changes nothing."""
    if _alone(subject):
        return
    for task in subject.some()[:2]:
        env, rng = subject.new(), random.Random(task.seed)
        env.reset(task)
        _require_views(env)
        for _ in range(subject.steps):
            transition = env.step(sample_action(env, rng))
            _require_views(env)
            if ended(transition):
                break
    for env, _, _, _ in _played_out(subject):
        _require_views(env)


def pending_moves_are_hidden(subject: Subject) -> None:
    """Require that nothing that others see depends on a move before its round is complete."""
    for point in _pending_moves(subject):
        seen, others = views(point.env), [p for p in point.seen if p != point.mover]
        for player in others:
            require(
                seen[player] == point.seen[player],
                f"{player} saw {shortened(point.seen[player])} and, after the pending move of "
                f"{point.mover}, {shortened(seen[player])}",
            )
        if (other := _another_move(subject, point)) is None:
            continue
        env, transition = other
        first = _for_others(point.transition, others), [seen[p] for p in others]
        second = _for_others(transition, others), [views(env)[p] for p in others]
        require_equal(first, second, f"two pending moves of {point.mover}, as others see them")


def pending_moves_are_saved(subject: Subject) -> None:
    """Require that state keys and snapshots have the pending moves of a round."""
    for point in _pending_moves(subject):
        signals, seen = signals_of(point.env), views(point.env)
        require(
            signals.state_key is None or signals.state_key != point.key,
            f"the pending move of {point.mover} did not change the state key",
        )
        saved = None
        if Capability.SNAPSHOT in point.env.spec.capabilities:
            saved = point.env.snapshot()
        future, actions = go_on(point.env, random.Random(point.task.seed), AHEAD)
        other = _another_move(subject, point)
        if other is not None and (key := signals_of(other[0]).state_key) is not None:
            same = key != signals.state_key or follow(other[0], actions) == future
            require(same, f"two pending moves of {point.mover} have one state key and two futures")
        if saved is not None:
            restored = subject.new()
            restored.restore(saved)
            require_equal(signals, signals_of(restored), "the signals of a round, restored")
            require_equal(list(seen.items()), list(views(restored).items()), "restored views")
            require_equal(future, follow(restored, actions), "a round restored in its middle")


def simultaneous_moves_commute(subject: Subject) -> None:
    """Require of a `Simultaneous` environment that a round depends on no order of its moves."""
    if not isinstance(subject.new(), Simultaneous):
        return
    for task in subject.some()[:2]:
        env, other = subject.new(), subject.new()
        _play_backwards(other)
        (_, history), actions = walk(env, task, subject.steps)
        first = _seen_along(env, task, actions)
        require_equal(
            first, _seen_along(other, task, actions), "rounds whose moves come in another order"
        )
        require(len(first) == len(history) + 1, "a walk, repeated, ended elsewhere")


def returns_are_as_declared(subject: Subject) -> None:
    """Require that the players' returns sum to 0, or are equal, where `stakes` says so."""
    env = subject.new()
    stakes = env.spec.stakes
    require(math.isfinite(stakes.forfeit), f"the return of a forfeit is {stakes.forfeit}")
    for env, task, _, history in _played_out(subject):
        if not history[-1][0].terminated:
            continue
        total = dict.fromkeys(env.spec.players, 0.0)
        for transition, _ in history:
            for player, reward in transition.rewards.items():
                total[player] += reward
        broken = {
            "general": False,
            "zero-sum": abs(sum(total.values())) > TOLERANCE,
            "common": max(total.values()) - min(total.values()) > TOLERANCE,
        }
        require(
            not broken[stakes.returns],
            f"task {task.id}: returns are {total}, which are not {stakes.returns}",
        )


def the_idle_action_is_a_move(subject: Subject) -> None:
    """Require that the idle action is valid at any time; it is what a forfeit leaves to do."""
    idle = subject.new().spec.stakes.idle
    if idle is None:
        return
    for task in subject.some()[:2]:
        env, rng = subject.new(), random.Random(task.seed)
        env.reset(task)
        for _ in range(subject.steps):
            mover = acting_in(env)[0]
            rests = rng.random() < 0.5
            transition = env.step(Action(idle) if rests else sample_action(env, rng))
            require(transition.valid or not rests, f"{idle!r} is idle, and no move of {mover}")
            if ended(transition):
                break


PLAYERS: tuple[Callable[[Subject], None], ...] = (
    players_take_turns,
    no_player_acts_after_the_end,
    each_player_can_look_at_any_time,
    pending_moves_are_hidden,
    pending_moves_are_saved,
    simultaneous_moves_commute,
    returns_are_as_declared,
    the_idle_action_is_a_move,
)


# ── details ──────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class PendingMove:
    """A state in which a player has moved and the round is not complete."""

    env: Environment  # in that state
    task: Task
    mover: str
    actions: list[Action]  # that lead there; the last one is pending
    transition: Transition  # of the last one
    seen: dict[str, Observation]  # before it, by all players
    key: str | None  # before it


def views(env: Environment) -> dict[str, Observation]:
    """Return what each player sees now."""
    seen = {}
    for player in env.spec.players:
        try:
            seen[player] = observed_by(env, player)
        except Exception as error:
            fail(f"observe({player!r}) raised {type(error).__name__}: {error}")
    return seen


def _alone(subject: Subject) -> bool:
    return len(subject.new().spec.players) == 1


def _require_views(env: Environment) -> None:
    before, seen = signals_of(env), views(env)
    again = views(env)
    for player, view in seen.items():
        require(bool(view.text.strip()), f"{player} sees nothing")
        require(
            again[player] == view,
            f"{player} saw {shortened(view)} and, looking again, {shortened(again[player])}",
        )
    require(signals_of(env) == before, "looking at it changed the state")


def _played_out(
    subject: Subject,
) -> Iterator[tuple[Environment, Task, list[Action], History]]:
    """Yield random episodes of several players that have come to their end."""
    if _alone(subject):
        return
    for task in subject.some()[:2]:
        env = subject.new()
        (_, history), actions = walk(env, task, TO_THE_END * subject.steps)
        if history and ended(history[-1][0]):
            yield env, task, actions, history


def _pending_moves(subject: Subject) -> Iterator[PendingMove]:
    """Yield some states of random walks in which a move is pending."""
    if _alone(subject) or not subject.new().spec.deterministic:
        return
    for task in subject.some()[:2]:
        rng = random.Random(task.seed)
        found: list[list[Action]] = []
        env, actions = subject.new(), list[Action]()
        env.reset(task)
        for _ in range(subject.steps):
            before = acting_in(env)
            actions.append(sample_action(env, rng))
            transition = env.step(actions[-1])
            if ended(transition):
                break
            if transition.valid and len(before) > 1:
                after = acting_in(env)
                require(
                    after in (before, before[1:]),
                    f"{before} act at the same time; after the move of {before[0]}, {after} do",
                )
                if after != before:
                    found.append(list(actions))
        for led in found if len(found) <= POINTS else rng.sample(found, POINTS):
            yield _pending_move(subject, task, led)


def _pending_move(subject: Subject, task: Task, actions: list[Action]) -> PendingMove:
    env = subject.new()
    roll_out(env, task, actions[:-1])
    seen, key, mover = views(env), signals_of(env).state_key, acting_in(env)[0]
    return PendingMove(env, task, mover, actions, env.step(actions[-1]), seen, key)


def _another_move(subject: Subject, point: PendingMove) -> tuple[Environment, Transition] | None:
    """Return an environment in which another move is pending; None if no other one is found."""
    env, rng = subject.new(), random.Random(point.task.seed)
    roll_out(env, point.task, point.actions[:-1])
    for _ in range(TRIED):
        action = sample_action(env, rng)
        if action != point.actions[-1]:
            transition = env.step(action)
            return (env, transition) if transition.valid else None
    return None


def _for_others(transition: Transition, others: list[str]) -> list[object]:
    """Return what other players than the mover get to know by a transition."""
    rewards = [transition.rewards.get(player, 0.0) for player in others]
    return [transition.observation, rewards, ended(transition)]


def _play_backwards(env: Any) -> None:
    """Let an environment play its rounds with their moves in the reverse order."""
    play = env.play
    env.play = lambda moves: play(dict(reversed(list(moves.items()))))


def _seen_along(env: Environment, task: Task, actions: list[Action]) -> list[object]:
    """Return transitions, signals, views and saved rounds along some actions."""
    saves = {Capability.STATE_KEY, Capability.SNAPSHOT} & env.spec.capabilities
    assert isinstance(env, Simultaneous)
    env.reset(task)
    found: list[object] = [list(views(env).items())]
    for action in actions:
        transition = env.step(action)
        state = env.save_round() if saves else None
        found.append([transition, signals_of(env), list(views(env).items()), state])
    return found
