"""The rollouts of one task, side by side: `/run/NAME/group/PHASE/GROUP`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from palaestra.core.episode import Episode, Key, PlayerResult, Step
from palaestra.evaluation.statistics.player_results import forfeit_reason, has_success
from palaestra.store.database import Database
from palaestra.store.queries import parse_key
from palaestra.store.ranges import headers_of, reward_of, span_of, turn_events
from palaestra.store.recorded_players import players_of
from palaestra.store.run_folder import RunFolder
from palaestra.viewer.advantages import Credits, cached_credits, credits_of
from palaestra.viewer.alignment import Move, aligned, divergences
from palaestra.viewer.site import Site, run_url
from palaestra.viewer.texts import cut, line
from palaestra.viewer.tokens import credit_step
from palaestra.viewer.turns import act_of

MEMBERS = 64  # compared at once
TURNS = 200  # of each, compared at once
ROWS = 300  # shown
DIVERGENCES = 8  # shown


def routes(site: Site) -> list[Route]:
    """Return the route of this page."""

    def page(request: Request) -> Response:
        name, words = request.path_params["name"], request.path_params["group"]
        key = parse_key(words)
        if key is None or "." in words.rpartition("/")[2]:
            raise HTTPException(404, f"'{words}' is not a group; write PHASE/GROUP.")
        with site.run(name) as run:
            members = headers_of(run.database, key.phase, key.group)
            if not members:
                raise HTTPException(404, f"The run '{name}' has no finished episode of {words}.")
            return site.page("group.html", **_page(run, key, members, request))

    return [Route("/run/{name}/group/{group:path}", page)]


def _page(run: RunFolder, key: Key, members: Sequence[Episode], request: Request) -> dict[str, Any]:
    start = _number(request, "turn", 1) - 1
    shown = members[:MEMBERS]
    credits = _credits(run, key, request)
    known = credits or Credits()
    players = {e.key.member: players_of(run.database, e) for e in shown}
    seats = list(dict.fromkeys(player for of in players.values() for player in of))
    one = has_success(members[0].task.environment, seats)
    returns = _returns(run.database, shown, known, players)
    moves = [move for episode in shown for move in _moves(run.database, episode, known, start)]
    keyed = any(move.state is not None for move in moves)
    by_state = keyed and request.query_params.get("by") != "turn"
    rows = aligned(moves, returns, by_state=by_state)
    every = request.query_params.get("all", "") not in ("", "0") or not by_state
    chosen = [row for row in rows if every or len(row.cells) > 1]
    return {
        "title": f"{key.phase}/{key.group} · {run.record.name}",
        "run": run.record.name,
        "base": run_url(run.record.name),
        "key": key,
        "environment": line(members[0].task.environment),
        "task": line(members[0].task.id),
        "instruction": cut(members[0].task.instruction),
        "observation": cut(members[0].observation.text) if members[0].observation else None,
        "members": shown,
        "left": len(members) - len(shown),
        "solved": sum(episode.outcome.solved for episode in members),
        "scored": sum(episode.outcome.scored for episode in members),
        "players": players,
        "seats": seats,
        "has_success": one,
        "returns": returns,
        "shaped": bool(known.returns),
        "advantages": {e.key.member: _advantage(known, e.key) for e in shown},
        "credits": credits,
        "step": lambda advantage: credit_step(advantage, known.scale),
        "keyed": keyed,
        "by_state": by_state,
        "every": every,
        "rows": chosen[:ROWS],
        "rows_left": max(0, len(chosen) - ROWS),
        "alone": len(rows) - len(chosen),
        "divergences": divergences(rows)[:DIVERGENCES],
        "start": start,
        "turns": TURNS,
        "longest": max(episode.usage.turns for episode in shown),
    }


def _moves(database: Database, episode: Episode, credits: Credits, start: int) -> list[Move]:
    span = span_of(database, episode.key)
    if span is None:
        return []
    seen = episode.observation.text if episode.observation and not start else ""
    found: list[Move] = []
    for event in turn_events(database, span, start, min(start + TURNS, span.steps)):
        if isinstance(event, Step):
            advantage = None if event.call is None else credits.mean(episode.key, event.call)
            found.append(
                Move(
                    member=episode.key.member,
                    turn=event.index + 1,
                    seen=line(seen, 160),
                    action=_action(event),
                    state=event.before.state_key,
                    valid=event.transition.valid,
                    reward=event.transition.reward,
                    advantage=advantage,
                )
            )
            seen = event.transition.observation.text
    return found


def _action(step: Step) -> str:
    """Return an action as text, with the player that acts or forfeits if there are several."""
    player = f"{line(step.before.turn, 20)}: " if step.before.turn else ""
    if step.forfeit is not None:
        return f"{player}forfeits ({forfeit_reason(step.forfeit.outcome)})"
    return player + (line(act_of(step), 60) or "(empty reply)")


def _credits(run: RunFolder, key: Key, request: Request) -> Credits | None:
    if request.query_params.get("credit", "") not in ("", "0"):
        return credits_of(run, key.phase, key.group)
    return cached_credits(run, key.phase, key.group)


def _returns(
    database: Database,
    members: Sequence[Episode],
    credits: Credits,
    players: Mapping[int, Mapping[str, PlayerResult]],
) -> dict[int, float]:
    """Return training's returns if known, else the sums of the environment's rewards.

    Of several players, they are the first player's.
    """
    found: dict[int, float] = {}
    for episode in members:
        if not episode.outcome.scored:
            continue
        if own := players[episode.key.member]:
            found[episode.key.member] = next(iter(own.values())).total
            continue
        value = credits.returns.get(episode.key) if credits.returns else None
        value = reward_of(database, episode.key) if value is None else value
        if value is not None:
            found[episode.key.member] = value
    return found


def _advantage(credits: Credits, key: Key) -> float | None:
    """Return the mean over all sampled tokens of a rollout; None without any."""
    values = [a for call, of in credits.tokens.items() if call[0] == key for a in of]
    return sum(values) / len(values) if values else None


def _number(request: Request, name: str, default: int) -> int:
    digits = request.query_params.get(name, "")
    known = digits.isascii() and digits.isdigit() and 0 < len(digits) < 12
    return max(1, int(digits)) if known else default
