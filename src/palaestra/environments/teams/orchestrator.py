"""The protocol of an orchestrator: one member keeps ledgers and gives the work to the others.

Source: Fourney et al. 2024 (Magentic-One), where a turn ends with an action of the environment. The
orchestrator writes the ledger of the task at the beginning, and again once `stalls` turns stalled:
it says so, or the last observation or reply repeated the one before. In each turn it writes a
ledger and names a worker, or says what has to be done: then the best match of the workers' skills
does it (BM25). A worker acts, or reports and the orchestrator goes on; after `rounds` workers, or
once it says that the task is done, the orchestrator acts itself. A worker that passes, as those do
that have forfeited, is out for the rest of the episode, and the worker whose skills match its work
and its own skills best goes on with it.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from typing import Any, Literal

from palaestra.core.bm25 import scores
from palaestra.core.team_words import (
    ASKED,
    HALT,
    PASS,
    REPORT,
    instruction,
    took_work,
    worker_line,
)
from palaestra.environments.teams.ledgers import TurnLedger, parse_turn, plan_problem
from palaestra.environments.teams.protocol import ONE_EACH, Protocol
from palaestra.environments.teams.team_file import Team
from palaestra.environments.teams.votes import plain

GO_ON = "go on with the plan"  # the work of a worker that was named without any


@dataclass(slots=True)
class Work:
    """Where the team is in its work."""

    phase: Literal["plan", "ledger", "work", "decide"] = "plan"
    turn: int = 1  # of the episode
    rounds: int = 0  # workers asked by a ledger of this turn
    replanned: bool = False  # in this turn
    stalls: int = 0  # turns that stalled, less those after them that did not
    planned: bool = False  # whether there is a plan
    repeats: bool = False  # whether something repeated since the last ledger
    worker: str = ""  # the last one
    task: str = ""  # what it shall do
    out: tuple[str, ...] = ()  # workers that passed
    spawned: tuple[str, ...] = ()  # workers of the reserve that were named
    news: tuple[str, ...] = ()  # lines for the orchestrator since its last reply
    reply: str = ""  # the last one of a worker
    observation: str | None = None  # the last one


class Orchestrator(Protocol):
    """The orchestration of one team in one episode."""

    watches = True

    def __init__(self, team: Team, seed: int) -> None:
        """Begin with the plan; nothing here is random."""
        assert team.orchestrator is not None
        self.team, self.seed, self.settings = team, seed, team.orchestrator
        self.lead = self.settings.member
        self.work = Work()
        self._said: list[tuple[str, str]] = []  # since the last call of `said`

    def next(self) -> list[str]:
        return [self.work.worker if self.work.phase == "work" else self.lead]

    def asked(self, player: str = "") -> str:
        work, members = self.work, self.team.members
        match work.phase:
            case "plan":
                why = ["The work has stalled; make a new plan."] if work.planned else []
                return "\n".join([*work.news, *why, ASKED["plan"]])
            case "ledger":
                lines = [worker_line(name, members[name].skills) for name in self._nameable()]
                return "\n".join([*work.news, "Workers:", *lines, ASKED["ledger"]])
            case "work":
                rights = members[work.worker].rights
                what = "work" if "send" in rights else "act"
                what = what if "act" in rights else "report"
                return f"{instruction(work.task)}\n{ASKED[what]}"
        return "\n".join([*work.news, ASKED["act"]])

    def refusal(self, text: str, player: str = "") -> str | None:
        if not text.strip():
            return "The reply is empty."
        if plain(text) == PASS:
            return None
        if self.work.phase == "plan":
            return plan_problem(text)
        if self.work.phase == "ledger":
            ledger = parse_turn(text)
            if isinstance(ledger, str):
                return ledger
            found = None if ledger.done else self._assigned(ledger.next)
            return found if isinstance(found, str) else None
        return None

    def kind(self, player: str, text: str) -> str:
        if plain(text) == PASS:
            return "pass"
        if self.work.phase in ("plan", "ledger"):
            return self.work.phase
        if self.work.phase == "decide":
            return "act"
        if self._halts(text):
            return "halt"
        return "talk" if self._reports(text) else "act"

    def take(self, player: str, text: str) -> str | None:
        work = self.work
        if work.phase == "work":
            return self._worked(text)
        work.news = ()
        if plain(text) == PASS:  # without an orchestrator nobody decides
            return PASS
        if work.phase == "decide":
            return text
        if work.phase == "plan":
            work.planned, work.stalls = True, 0
            self._said.append((player, f"{player} plans:\n{text.strip()}"))
            self._go_on()
            return None
        ledger = parse_turn(text)
        assert isinstance(ledger, TurnLedger)
        self._judged(ledger)
        return None

    def said(self) -> list[tuple[str, str]]:
        said, self._said = self._said, []
        return said

    def begin(self, observation: str, state: str | None = None) -> None:
        self.work.observation = observation

    def begin_turn(self, observation: str | None = None, state: str | None = None) -> None:
        work = self.work
        work.rounds, work.replanned = 0, False
        if observation is not None:
            work.turn += 1
            work.repeats |= observation == work.observation
            work.observation = observation
        if work.planned:
            self._go_on()

    def halt(self) -> str | None:
        self.work.phase = "decide"
        return None

    def sample(self, rng: random.Random, action: Callable[[], str]) -> str:
        match self.work.phase:
            case "plan":
                return "facts: none\nguesses: none\nplan: try"
            case "ledger":
                stalled = rng.choice(["yes", "no"])
                return f"done: no\nstalled: {stalled}\nnext: {rng.choice(self._nameable())}: try"
        return action()

    def ideal(self, action: str) -> str:
        match self.work.phase:
            case "plan":
                return f"facts: none\nguesses: none\nplan: {action}"
            case "ledger":
                able = [m for m in self._workers() if "act" in self.team.members[m].rights]
                if not able:
                    return "done: yes\nstalled: no"
                return f"done: no\nstalled: no\nnext: {able[0]}: {action}"
        return action

    def most_replies(self, each: Mapping[str, int] = ONE_EACH) -> int:
        lead = each.get(self.lead, 1)
        workers = [each.get(name, 1) for name in self._others()]
        rounds = self.settings.rounds
        # plans: the first and a new one; ledgers: one for each round and plan; the own decision;
        # workers: one for each round, and once each in the place of one that passed
        return lead * (2 + rounds + 1 + 1) + rounds * max(workers) + sum(workers)

    def key(self) -> tuple[object, ...]:
        return astuple(self.work)

    def saved(self) -> Any:
        return asdict(self.work)

    def restore(self, saved: Any) -> None:
        several = {name: tuple(saved[name]) for name in ("out", "spawned", "news")}
        self.work = Work(**{**saved, **several})

    # ── details ──────────────────────────────────────────────────────────────

    def _others(self) -> list[str]:
        """Return all who may ever work."""
        supervisor = self.team.supervisor
        apart = (self.lead, "" if supervisor is None else supervisor.member)
        able = {name for name, m in self.team.members.items() if {"act", "send"} & {*m.rights}}
        return [name for name in self.team.members if name in able and name not in apart]

    def _workers(self) -> list[str]:
        """Return who may be given work now."""
        there = self.team.there(self.work.turn, self.work.spawned)
        return [name for name in self._others() if name in there and name not in self.work.out]

    def _nameable(self) -> list[str]:
        """Return who may be named: workers, and those in reserve if they may be brought in."""
        reserve = self.team.reserve if "spawn" in self.team.members[self.lead].rights else []
        there = self.team.there(self.work.turn, reserve)
        return [name for name in self._others() if name in there and name not in self.work.out]

    def _go_on(self) -> None:
        """Ask for the next ledger of this turn, or for the decision if no worker can be asked."""
        more = self.work.rounds < self.settings.rounds and self._nameable()
        self.work.phase = "ledger" if more else "decide"

    def _assigned(self, entry: str) -> tuple[str, str] | str:
        """Return the worker and its work by the last entry of a ledger, or why there is none."""
        nameable, named = self._nameable(), self._named(entry)
        if named is not None:
            if named[0] in nameable:
                return named
            return f"{named[0]} cannot be given work; name one of {', '.join(nameable)}."
        worker = self._matching(entry, self._workers())
        if worker is None:
            return f"No worker's skills match '{entry}'; name one of {', '.join(nameable)}."
        return worker, " ".join(entry.split())

    def _named(self, entry: str) -> tuple[str, str] | None:
        """Return the member that the last entry of a ledger begins with, and its work."""
        for name in sorted(self.team.members, key=len, reverse=True):
            pattern = rf"[*_`\"']*{re.escape(name)}[*_`\"']*\s*(?:[:,-]\s*(.*))?"
            if match := re.fullmatch(pattern, entry, re.IGNORECASE | re.DOTALL):
                return name, " ".join((match[1] or "").split()).strip(" *") or GO_ON
        return None

    def _matching(self, work: str, workers: Sequence[str]) -> str | None:
        """Return the worker whose name and skills match some work best, the first of equals."""
        rated = scores(work, [f"{name} {self.team.members[name].skills}" for name in workers])
        best = max(rated, default=0.0)
        return workers[rated.index(best)] if best > 0 else None

    def _judged(self, ledger: TurnLedger) -> None:
        """Go on after the ledger of a turn."""
        work = self.work
        if ledger.done:
            work.phase = "decide"
            return
        stalled, work.repeats = ledger.stalled or work.repeats, False
        if not work.replanned:  # the new plan has not been tried yet
            work.stalls = work.stalls + 1 if stalled else max(0, work.stalls - 1)
        if work.stalls >= self.settings.stalls:
            work.phase, work.replanned = "plan", True
            return
        found = self._assigned(ledger.next)
        assert not isinstance(found, str)
        work.worker, work.task = found
        work.rounds, work.phase = work.rounds + 1, "work"
        if self._named(ledger.next) is None:
            work.news += (took_work(work.worker),)
        if work.worker in self.team.reserve and work.worker not in work.spawned:
            work.spawned += (work.worker,)

    def _worked(self, text: str) -> str | None:
        """Take a worker's reply; return it if it is the action."""
        work = self.work
        if plain(text) == PASS:
            self._replace()
            return None
        work.repeats |= plain(text) == work.reply
        work.reply = plain(text)
        if self._halts(text):
            return self.halt()
        if not self._reports(text):
            return text
        said = text.strip()
        if plain(text).startswith(REPORT):
            said = said[len(REPORT) :].strip()
        self._said.append((work.worker, f"{work.worker}: {said}"))
        self._go_on()
        return None

    def _halts(self, text: str) -> bool:
        return plain(text) == HALT and "halt" in self.team.members[self.work.worker].rights

    def _reports(self, text: str) -> bool:
        """Return whether a worker's reply is for the orchestrator, and no action."""
        rights = self.team.members[self.work.worker].rights
        reports = "act" not in rights or plain(text).startswith(REPORT)
        return reports and "send" in rights

    def _replace(self) -> None:
        """Give the work of a worker that passed to another one."""
        work, skills = self.work, self.team.members[self.work.worker].skills
        work.out += (work.worker,)
        work.news += (f"{work.worker} is out of the team's work.",)
        heir = self._matching(f"{work.task} {skills}", self._workers())
        if heir is None:
            self._go_on()
        else:
            work.worker = heir
            work.news += (took_work(heir),)
