"""One episode as a conversation, a stretch of turns at a time.

    /run/NAME/episode/KEY   the page around one turn (`?turn=7`), also without JavaScript
    /run/NAME/turns/KEY     other turns of it, as a fragment for the page's script
    /run/NAME/call/KEY      one model call: all that is new in its prompt, and its tokens
    /run/NAME/text/KEY      one text of a turn in full
    /run/NAME/lost/KEY      leads to the turn that lost it

KEY is written as it prints, e.g. test/rl/17.0.
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
from palaestra.core.episode import Episode, Key, Step
from palaestra.core.graph import Call
from palaestra.core.outcome import Outcome
from palaestra.core.task import Task
from palaestra.core.visible import visible
from palaestra.evaluation.attribution.attribution import kept as kept_attributions
from palaestra.evaluation.costs import known_money
from palaestra.evaluation.judges.records import verdicts_on
from palaestra.evaluation.judges.verdict import PASS
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
)
from palaestra.store.run import RunFolder
from palaestra.viewer.branches import MOST as MOST_STRANDS
from palaestra.viewer.branches import strands
from palaestra.viewer.credit import Credits, credits_of, remembered
from palaestra.viewer.facts import plan_of
from palaestra.viewer.losing import GROUNDS, explained_turn, losing_turn, reason_of
from palaestra.viewer.site import Site, episode_url, run_url
from palaestra.viewer.texts import cut, line
from palaestra.viewer.tokens import pieces_of, tokens_of
from palaestra.viewer.turns import (
    CHUNK,
    Look,
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
FEW_TOKENS = 4000  # sampled tokens of an episode up to which they are shown at once
FEW_EVENTS = 4000  # events of an episode up to which its tree of calls is looked for at once


def routes(site: Site) -> list[Route]:
    """The routes of this page."""

    def page(request: Request) -> Response:
        with _opened(site, request) as seen:
            return site.page("episode.html", **_page(seen, request))

    def fragment(request: Request) -> Response:
        with _opened(site, request) as seen:
            start = _number(request, "from", 0) // CHUNK * CHUNK
            values = _shared(seen, request, _colour(request, seen))
            return site.page("turns.html", **values, **_chunk(seen, start, request))

    def call(request: Request) -> Response:
        with _opened(site, request) as seen:
            return site.page("call.html", **_call(seen, request))

    def text(request: Request) -> Response:
        with _opened(site, request) as seen:
            words = visible(_text(seen, request))
            return PlainTextResponse(words)

    def lost(request: Request) -> Response:
        with _opened(site, request) as seen:
            database = seen.run.database
            found = explained_turn(kept_attributions(database, seen.header.key)) or losing_turn(
                step_facts(database, seen.span), seen.header.progress
            )
            here = episode_url(seen.run.record.name, seen.header.key)
            if found is None or (seen.finished and seen.header.outcome.solved):
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


# ── what is looked at ────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class _Seen:
    """The episode of a request."""

    run: RunFolder
    header: Episode  # without its calls and steps
    finished: bool
    span: Span
    turns: int


@contextmanager
def _opened(site: Site, request: Request) -> Iterator[_Seen]:
    """The episode that the address names; raises HTTPException where there is none."""
    name, words = request.path_params["name"], request.path_params["key"]
    key = parse_key(words)
    if key is None:
        raise HTTPException(404, f"'{words}' names no episode; write PHASE/GROUP.MEMBER.")
    with site.run(name) as run:
        header = header_of(run.database, key)
        span = site.remembered(run.path, ("span", key), lambda: span_of(run.database, key))
        if header is None and span is None:
            raise HTTPException(404, f"The run '{name}' has no episode {key}.")
        span = span or Span((), 0, 0)
        shown = header or _unfinished(key, span)
        yield _Seen(run, shown, header is not None, span, count_of_turns(run.database, span))


def _unfinished(key: Key, span: Span) -> Episode:
    """What is known of an episode that is being lived."""
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


def _ground(seen: _Seen, name: str, turn: int) -> str | None:
    """Why that turn is said to have lost the episode, where the address says that it has."""
    if name == "explained":
        found = kept_attributions(seen.run.database, seen.header.key)
        reason = reason_of(found, turn)
        return f"{GROUNDS[name]} ({line(reason)})" if reason else None
    return GROUNDS.get(name)


def _page(seen: _Seen, request: Request) -> dict[str, Any]:
    key, database = seen.header.key, seen.run.database
    turn = min(max(1, _number(request, "turn", 1)), max(1, seen.turns))
    colour = _colour(request, seen)
    tree = len(seen.span.ids) <= FEW_EVENTS or "tree" in request.query_params
    strand = strands(call_facts(database, seen.span)) if tree else []
    members = headers_of(database, key.phase, key.group)
    numbers = [member.key.member for member in members]
    at = numbers.index(key.member) if key.member in numbers else -1
    return {
        **_shared(seen, request, colour),
        **_chunk(seen, (turn - 1) // CHUNK * CHUNK, request),
        "title": f"{key} · {seen.run.record.name}",
        "turn": turn,
        "colours": COLOURS,
        "lost": _ground(seen, request.query_params.get("lost", ""), turn),
        "instruction": cut(seen.header.task.instruction),
        "detail": cut(seen.header.outcome.detail, 1000),
        "task": line(seen.header.task.id),
        "environment": line(seen.header.task.environment),
        "agent": line(seen.header.agent),
        "labels": [(line(k), line(v)) for k, v in seen.header.labels.items()],
        "tree": tree,
        "strands": [
            (s, 1 + turn_of_call(database, seen.span, s.first)) for s in strand[:MOST_STRANDS]
        ],
        "strands_left": max(0, len(strand) - MOST_STRANDS),
        "reward": reward_of(database, key),
        "money": _money(seen) if tree else None,
        "members": members,
        "before": members[at - 1] if at > 0 else None,
        "after": members[at + 1] if 0 <= at < len(members) - 1 else None,
        "notes": [
            (note, visible(note.text), [(line(k), line(v)) for k, v in note.labels.items()])
            for note in Notes.open(seen.run.path).of(key)
        ],
        "verdicts": [
            (line(one["judge"]), _said(one["value"]), line(one["reason"], 400))
            for one in verdicts_on(database, key)
        ],
    }


def _money(seen: _Seen) -> float | None:
    """What the episode has cost in money; None where not all of it is known."""
    prices = plan_of(seen.run.database).prices
    if not prices:
        return None
    events = events_between(seen.run.database, seen.span, 0, len(seen.span.ids))
    return known_money((event for event in events if isinstance(event, Call)), prices)


def _said(value: float | None) -> str:
    """A judge's verdict in words."""
    if value is None:
        return "no verdict"
    return f"{'solved' if value >= PASS else 'not solved'} ({value:.2g})"


def _shared(seen: _Seen, request: Request, colour: str) -> dict[str, Any]:
    """What the page and its fragments both show."""
    name, key = seen.run.record.name, seen.header.key
    return {
        "run": name,
        "base": run_url(name),
        "episode": seen.header,
        "finished": seen.finished,
        "turns": seen.turns,
        "calls": seen.span.calls,
        "chunk": CHUNK,
        "colour": colour,
        "diff": _on(request, "diff"),
        "key": key,
        "here": episode_url(name, key),
        "credits": _credits(seen, request),
    }


def _chunk(seen: _Seen, start: int, request: Request) -> dict[str, Any]:
    views: list[TurnView] = turns_between(
        seen.run.database,
        seen.header,
        seen.span,
        start,
        start + CHUNK,
        look=Look(
            tokens=_colour(request, seen) != "off",
            changed=_on(request, "diff"),
            prices=plan_of(seen.run.database).prices,
        ),
        credits=_credits(seen, request),
        pieces=pieces_of(seen.run) if _colour(request, seen) != "off" else None,
    )
    return {"views": views, "start": start, "stop": start + len(views)}


def _credits(seen: _Seen, request: Request) -> Credits | None:
    """The advantages, where they are known or wanted; computing them takes a moment."""
    key = seen.header.key
    if not seen.finished:
        return None
    if _on(request, "credit") or request.query_params.get("colour") == "advantage":
        return credits_of(seen.run, key.phase, key.group)
    return remembered(seen.run, key.phase, key.group)


def _colour(request: Request, seen: _Seen) -> str:
    few = seen.header.usage.sampled_tokens <= FEW_TOKENS and seen.span.calls
    asked = request.query_params.get("colour", "logprob" if few and seen.finished else "off")
    return asked if asked in COLOURS else "off"


# ── the parts ────────────────────────────────────────────────────────────────


def _call(seen: _Seen, request: Request) -> dict[str, Any]:
    number = _number(request, "call", 0)
    found, turn = _find_call(seen, number)
    pieces = pieces_of(seen.run)
    credits = _credits(seen, request) or Credits()
    advantages = credits.of_call(seen.header.key, number)
    return {
        **_shared(seen, request, _colour(request, seen)),
        "title": f"call {number} · {seen.header.key}",
        "call": found,
        "turn": turn + 1,
        "messages": [(message.role, cut(message.content, 200_000)) for message in found.messages],
        "read": [visible(piece) for piece in pieces(found.prompt)],
        "tokens": tokens_of(found, pieces(found.completion), advantages, credits.scale),
        "reply": cut(found.reply.content, 200_000),
        "parent_turn": None
        if found.parent is None
        else 1 + turn_of_call(seen.run.database, seen.span, found.parent),
    }


def _text(seen: _Seen, request: Request) -> str:
    part = request.query_params.get("part", "observation")
    if part == "reply":
        return _find_call(seen, _number(request, "call", 0))[0].reply.content
    if part == "instruction":
        return seen.header.task.instruction
    turn = _number(request, "turn", 1)
    if part == "observation" and turn == 1:
        return seen.header.observation.text if seen.header.observation else ""
    after = part == "observation"  # the observation before a turn is the result of the last one
    steps = turn_events(seen.run.database, seen.span, turn - 1 - after, turn - after)
    for event in steps:
        if isinstance(event, Step):
            return act_of(event) if part == "action" else event.transition.observation.text
    raise HTTPException(404, f"There is no {part} of turn {turn}.")


def _find_call(seen: _Seen, number: int) -> tuple[Call, int]:
    if 0 <= number < seen.span.calls:
        turn = turn_of_call(seen.run.database, seen.span, number)
        for event in turn_events(seen.run.database, seen.span, turn, turn + 1):
            if isinstance(event, Call) and event.index == number:
                return event, turn
    raise HTTPException(404, f"{seen.header.key} has no call {number}.")


def _number(request: Request, name: str, default: int) -> int:
    digits = request.query_params.get(name, "")
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 12 else default


def _on(request: Request, name: str) -> bool:
    return request.query_params.get(name, "") not in ("", "0")
