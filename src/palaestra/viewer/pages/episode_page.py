"""One episode as a conversation, one chunk of turns at a time.

    /run/NAME/episode/KEY   the page around one turn (`?turn=7`), also without JavaScript
    /run/NAME/turns/KEY     other turns of it, as a fragment for the page's script
    /run/NAME/call/KEY      one model call: the new messages of its prompt, and its tokens
    /run/NAME/text/KEY      one text of a turn in full
    /run/NAME/lost/KEY      redirects to the turn that lost it

KEY is the printed key, e.g. test/rl/17.0.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Thread
from typing import Any
from urllib.parse import urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from palaestra.core.budget import Usage
from palaestra.core.episode import Episode, Key, PlayerResult, Step
from palaestra.core.graph import Call
from palaestra.core.outcome import Outcome
from palaestra.core.task import Task
from palaestra.evaluation.attribution.base import stored_attributions
from palaestra.evaluation.judges.stored_verdicts import verdicts_on
from palaestra.evaluation.judges.verdict import PASS
from palaestra.evaluation.statistics.conversation import Conversation, conversation
from palaestra.evaluation.statistics.costs import known_money
from palaestra.evaluation.statistics.player_results import forfeit_reason, has_success, returns_line
from palaestra.runtime.visible_text import visible
from palaestra.store.notes import Notes
from palaestra.store.queries import parse_key
from palaestra.store.ranges import (
    Span,
    call_facts,
    events_between,
    header_of,
    headers_of,
    reward_of,
    span_of,
    step_facts,
    turn_events,
    warm,
    with_events,
)
from palaestra.store.recorded_players import has_several_players, players_of
from palaestra.store.run_folder import RunFolder
from palaestra.viewer.advantages import Credits, cached_credits, credits_of
from palaestra.viewer.branch_tree import MOST as MOST_STRANDS
from palaestra.viewer.branch_tree import strands
from palaestra.viewer.conversation_view import conversation_view
from palaestra.viewer.facts import plan_of
from palaestra.viewer.losing_turn import GROUNDS, explained_turn, losing_turn, reason_of
from palaestra.viewer.message_views import part_views
from palaestra.viewer.site import Site, episode_url, run_url
from palaestra.viewer.texts import cut, line
from palaestra.viewer.tokens import token_texts, tokens_of
from palaestra.viewer.turns import (
    CHUNK,
    TurnOptions,
    TurnView,
    act_of,
    count_of_turns,
    turn_of_call,
    turns_between,
)

COLOURS = {
    "off": "no tokens",
    "logprob": "log-probability",
    "entropy": "entropy",
    "advantage": "advantage",
    "version": "version of the weights",
}
FEW_TOKENS = 4000  # sampled tokens of an episode up to which they are shown by default
FEW_EVENTS = 4000
"""Events of an episode up to which its tree of calls and its conversation are read by default."""


def routes(site: Site) -> list[Route]:
    """Return the routes of this page."""

    def page(request: Request) -> Response:
        with open_episode(site, request) as opened:
            return site.page("episode.html", **_page(site, opened, request))

    def fragment(request: Request) -> Response:
        with open_episode(site, request) as opened:
            start = number_in(request, "from", 0) // CHUNK * CHUNK
            values = _shared(opened, request, _colour(request, opened))
            return site.page("turns.html", **values, **_chunk(opened, start, request))

    def call(request: Request) -> Response:
        with open_episode(site, request) as opened:
            return site.page("call.html", **_call(opened, request))

    def text(request: Request) -> Response:
        with open_episode(site, request) as opened:
            words = visible(_text(opened, request))
            return PlainTextResponse(words)

    def lost(request: Request) -> Response:
        with open_episode(site, request) as opened:
            database = opened.run.database
            found = explained_turn(stored_attributions(database, opened.header.key)) or losing_turn(
                step_facts(database, opened.span), opened.header.progress
            )
            here = episode_url(opened.run.record.name, opened.header.key)
            if found is None or (opened.finished and opened.header.outcome.solved):
                return RedirectResponse(here)
            same = {k: v for k, v in request.query_params.items() if k in ("colour", "diff")}
            query = urlencode({**same, "turn": found.turn, "lost": found.ground})
            return RedirectResponse(f"{here}?{query}#turn-{found.turn}")

    Thread(target=warm, daemon=True).start()
    return [
        Route("/run/{name}/episode/{key:path}", page),
        Route("/run/{name}/turns/{key:path}", fragment),
        Route("/run/{name}/call/{key:path}", call),
        Route("/run/{name}/text/{key:path}", text),
        Route("/run/{name}/lost/{key:path}", lost),
    ]


# ── the requested episode ────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Opened:
    """The episode of a request."""

    run: RunFolder
    header: Episode  # without its calls and steps
    finished: bool
    span: Span
    turns: int


@contextmanager
def open_episode(site: Site, request: Request) -> Iterator[Opened]:
    """Open the episode that the URL names; raise HTTPException if there is none."""
    name, words = request.path_params["name"], request.path_params["key"]
    key = parse_key(words)
    if key is None:
        raise HTTPException(404, f"'{words}' is not an episode's key; write PHASE/GROUP.MEMBER.")
    with site.run(name) as run:
        header = header_of(run.database, key)
        span = site.cached(run.path, ("span", key), lambda: span_of(run.database, key))
        if header is None and span is None:
            raise HTTPException(404, f"The run '{name}' has no episode {key}.")
        span = span or Span((), 0, 0)
        shown = header or _unfinished(key, span)
        yield Opened(run, shown, header is not None, span, count_of_turns(run.database, span))


def _unfinished(key: Key, span: Span) -> Episode:
    """Return the header of an episode in progress: only its key and its turns are known."""
    return Episode(
        key=key,
        task=Task("", "", 0),
        agent="",
        observation=None,
        calls=(),
        steps=(),
        outcome=Outcome.failure(),
        usage=Usage(turns=span.steps),
    )


# ── the page ─────────────────────────────────────────────────────────────────


def _ground(opened: Opened, name: str, turn: int) -> str | None:
    """Return why the URL calls that turn the losing one; None if it does not."""
    if name == "explained":
        found = stored_attributions(opened.run.database, opened.header.key)
        reason = reason_of(found, turn)
        return f"{GROUNDS[name]} ({line(reason)})" if reason else None
    return GROUNDS.get(name)


def _page(site: Site, opened: Opened, request: Request) -> dict[str, Any]:
    key, database = opened.header.key, opened.run.database
    turn = min(max(1, number_in(request, "turn", 1)), max(1, opened.turns))
    colour = _colour(request, opened)
    tree = len(opened.span.ids) <= FEW_EVENTS or "tree" in request.query_params
    strand = strands(call_facts(database, opened.span)) if tree else []
    members = headers_of(database, key.phase, key.group)
    numbers = [member.key.member for member in members]
    at = numbers.index(key.member) if key.member in numbers else -1
    players = players_of(database, opened.header) if opened.finished else {}
    game = bool(players) and not has_success(opened.header.task.environment, players)
    return {
        **_shared(opened, request, colour),
        **_chunk(opened, (turn - 1) // CHUNK * CHUNK, request),
        "title": f"{key} · {opened.run.record.name}",
        "turn": turn,
        "colours": COLOURS,
        "lost": _ground(opened, request.query_params.get("lost", ""), turn),
        "instruction": cut(opened.header.task.instruction),
        "detail": cut(opened.header.outcome.detail, 1000),
        "task": line(opened.header.task.id),
        "environment": line(opened.header.task.environment),
        "agent": line(opened.header.agent),
        "labels": [(line(k), line(v)) for k, v in opened.header.labels.items()],
        "tree": tree,
        "strands": [
            (s, 1 + turn_of_call(database, opened.span, s.first)) for s in strand[:MOST_STRANDS]
        ],
        "strands_left": max(0, len(strand) - MOST_STRANDS),
        "reward": reward_of(database, key) if not players else None,
        "money": _money(opened) if tree else None,
        "members": members,
        "has_success": not game,
        "players": [_player(name, result) for name, result in players.items()],
        "talk": _talk(site, opened, request, turn),
        "ending": line(returns_line(players)) if game else str(opened.header.outcome),
        "before": members[at - 1] if at > 0 else None,
        "after": members[at + 1] if 0 <= at < len(members) - 1 else None,
        "notes": [
            (note, visible(note.text), [(line(k), line(v)) for k, v in note.labels.items()])
            for note in Notes.open(opened.run.path).of(key)
        ],
        "verdicts": [
            (line(one["judge"]), _verdict(one["value"]), line(one["reason"], 400))
            for one in verdicts_on(database, key)
        ],
    }


def _player(name: str, result: PlayerResult) -> dict[str, Any]:
    """Return the result of one of several players in the form that the page uses."""
    return {
        "name": line(name, 80),
        "total": result.total,
        "turns": result.turns,
        "invalid": result.invalid_actions,
        "forfeit": line(forfeit_reason(result.outcome)) if result.forfeited else "",
        "detail": cut(result.outcome.detail, 400).shown if result.forfeited else "",
    }


def _talk(site: Site, opened: Opened, request: Request, turn: int) -> dict[str, Any] | None:
    """Return what several players said and did; None for a single player."""
    database, span = opened.run.database, opened.span
    if not span.ids or not has_several_players(database, span):
        return None
    if len(span.ids) > FEW_EVENTS and "talk" not in request.query_params:
        return {"found": None}

    def read() -> Conversation:
        events = events_between(database, span, 0, len(span.ids))
        return conversation(with_events(opened.header, events))

    found = site.cached(opened.run.path, ("talk", opened.header.key), read)
    here = episode_url(opened.run.record.name, opened.header.key)
    return conversation_view(found, here, number_in(request, "steps", turn))


def _money(opened: Opened) -> float | None:
    """Return the episode's cost in money; None if a part of it is unknown."""
    prices = plan_of(opened.run.database).prices
    if not prices:
        return None
    events = events_between(opened.run.database, opened.span, 0, len(opened.span.ids))
    return known_money((event for event in events if isinstance(event, Call)), prices)


def _verdict(value: float | None) -> str:
    """Return a judge's verdict as text."""
    if value is None:
        return "no verdict"
    return f"{'solved' if value >= PASS else 'not solved'} ({value:.2g})"


def _shared(opened: Opened, request: Request, colour: str) -> dict[str, Any]:
    """Return the values that the page and its fragments share."""
    name, key = opened.run.record.name, opened.header.key
    return {
        "run": name,
        "base": run_url(name),
        "episode": opened.header,
        "finished": opened.finished,
        "turns": opened.turns,
        "calls": opened.span.calls,
        "chunk": CHUNK,
        "colour": colour,
        "diff": _on(request, "diff"),
        "key": key,
        "here": episode_url(name, key),
        "credits": _credits(opened, request),
    }


def _chunk(opened: Opened, start: int, request: Request) -> dict[str, Any]:
    views: list[TurnView] = turns_between(
        opened.run.database,
        opened.header,
        opened.span,
        start,
        start + CHUNK,
        options=TurnOptions(
            tokens=_colour(request, opened) != "off",
            changed=_on(request, "diff"),
            prices=plan_of(opened.run.database).prices,
        ),
        credits=_credits(opened, request),
        texts=token_texts(opened.run) if _colour(request, opened) != "off" else None,
    )
    return {"views": views, "start": start, "stop": start + len(views)}


def _credits(opened: Opened, request: Request) -> Credits | None:
    """Return the advantages if they are cached or requested; computing them takes a moment."""
    key = opened.header.key
    if not opened.finished:
        return None
    if _on(request, "credit") or request.query_params.get("colour") == "advantage":
        return credits_of(opened.run, key.phase, key.group)
    return cached_credits(opened.run, key.phase, key.group)


def _colour(request: Request, opened: Opened) -> str:
    few = opened.header.usage.sampled_tokens <= FEW_TOKENS and opened.span.calls
    chosen = request.query_params.get("colour", "logprob" if few and opened.finished else "off")
    return chosen if chosen in COLOURS else "off"


# ── the parts ────────────────────────────────────────────────────────────────


def _call(opened: Opened, request: Request) -> dict[str, Any]:
    number = number_in(request, "call", 0)
    found, turn = _find_call(opened, number)
    texts = token_texts(opened.run)
    credits = _credits(opened, request) or Credits()
    advantages = credits.of_call(opened.header.key, number)
    return {
        **_shared(opened, request, _colour(request, opened)),
        "title": f"call {number} · {opened.header.key}",
        "call": found,
        "turn": turn + 1,
        "messages": [(message.role, part_views(message)) for message in found.messages],
        "read": [visible(text) for text in texts(found.prompt)],
        "tokens": tokens_of(found, texts(found.completion), advantages, credits.scale),
        "reply": part_views(found.reply),
        "parent_turn": None
        if found.parent is None
        else 1 + turn_of_call(opened.run.database, opened.span, found.parent),
    }


def _text(opened: Opened, request: Request) -> str:
    part = request.query_params.get("part", "observation")
    if part == "reply":
        reply = _find_call(opened, number_in(request, "call", 0))[0].reply
        calls = [str(call) for call in reply.tool_calls]
        return "\n\n".join(filter(None, [reply.reasoning, reply.text, *calls]))
    if part == "instruction":
        return opened.header.task.instruction
    turn = number_in(request, "turn", 1)
    if part == "observation" and turn == 1:
        return opened.header.observation.text if opened.header.observation else ""
    after = part == "observation"  # the observation before a turn is the result of the last one
    steps = turn_events(opened.run.database, opened.span, turn - 1 - after, turn - after)
    for event in steps:
        if isinstance(event, Step):
            return act_of(event) if part == "action" else event.transition.observation.text
    raise HTTPException(404, f"There is no {part} of turn {turn}.")


def _find_call(opened: Opened, number: int) -> tuple[Call, int]:
    if 0 <= number < opened.span.calls:
        turn = turn_of_call(opened.run.database, opened.span, number)
        for event in turn_events(opened.run.database, opened.span, turn, turn + 1):
            if isinstance(event, Call) and event.index == number:
                return event, turn
    raise HTTPException(404, f"{opened.header.key} has no call {number}.")


def number_in(request: Request, name: str, default: int) -> int:
    """Return a number of the URL's query; the default if it is none."""
    digits = request.query_params.get(name, "")
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 12 else default


def _on(request: Request, name: str) -> bool:
    return request.query_params.get(name, "") not in ("", "0")
