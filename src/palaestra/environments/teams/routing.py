"""The protocol of decentralised routing: who holds a task does it, forwards it, or splits it.

Each turn's task, which is what the environment shows, begins with a random member. Its holder
replies with the action, with `forward NAME`, or with `split PART | PART`; then it holds each part
in turn, which it does or forwards, and at last joins what the parts gave. A task comes to nobody
twice, and a holder that passes is replaced by the next member of the file. Members see only what
they hold: the environment, their parts, and what the network has learned.

What it has learned is in the team's file: for each edge a weight, and for each member its past
tasks. A holder is shown the members to which it has an edge of at least `CUT` times the weight of
its best one (in a young network all edges are bad), each with how many of its past tasks are
similar, and how many of these were solved. A past task counts by its similarity (BM25): fully if it
is as similar as the third most similar one that the holder can see (the most similar one may only
share a rare word by chance), and less if it is not.

Nothing is learned during a run, so its episodes do not depend on their order; `learned_routes`
returns the team after it.

Source: AgentNet, Yang et al. 2025.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from palaestra.core.bm25 import scores
from palaestra.core.routing_words import (
    FORWARD,
    SPLIT,
    TOGETHER,
    Work,
    part,
    routing_asked,
    unnumbered,
    work,
)
from palaestra.core.team_words import PASS
from palaestra.environments.teams.protocol import ONE_EACH, Protocol
from palaestra.environments.teams.protocol_tables import RoutingTable
from palaestra.environments.teams.team_file import Team
from palaestra.environments.teams.votes import plain

CUT = 0.3  # the least weight of an edge that is used, as a share of its holder's best one
PARTS = 4  # at most, of a task
ALIKE = 3  # the rank of the past task whose similarity counts fully


@dataclass(slots=True)
class Job:
    """A task or a part of one, on its way."""

    text: str
    path: list[str]  # the members that held it; the last one does
    whole: bool = True  # no part
    parts: list[tuple[str, str]] = field(default_factory=list)  # with their answers

    @property
    def holder(self) -> str:
        return self.path[-1]


class Routing(Protocol):
    """The routing of one team in one episode."""

    def __init__(self, team: Team, table: RoutingTable, seed: int) -> None:
        """Begin the first turn."""
        self.team, self.table, self.seed = team, table, seed
        self.number, self.text = -1, ""
        self.begin_turn()

    def begin(self, observation: str, state: str | None = None) -> None:
        self.text = self.jobs[0].text = observation

    def begin_turn(self, observation: str | None = None, state: str | None = None) -> None:
        self.number += 1
        self.text = self.text if observation is None else observation
        entry = random.Random(f"entry {self.seed} {self.number}").choice([*self.team.members])
        self.jobs = [Job(self.text, [entry])]  # the last one is at hand
        self.routes: list[dict[str, Any]] = []  # of finished jobs

    def next(self) -> list[str]:
        return [self.jobs[-1].holder]

    def asked(self, player: str = "") -> str:
        """Return what the holder knows of itself and its neighbours, and what it may reply."""
        job = self.jobs[-1]
        if job.parts:
            return "\n".join([*(part(text, answer) for text, answer in job.parts), TOGETHER])
        lines = [] if job.whole else [part(job.text)]
        others = self._neighbours(job)
        if others:
            similar = self._similar(job.text, [job.holder, *others])
            lines.append(work(Work(None, *similar[job.holder])))
            lines += [work(Work(m, *similar[m]), self._weight(job.holder, m)) for m in others]
        return "\n".join([*lines, routing_asked(bool(others), job.whole)])

    def refusal(self, text: str, player: str = "") -> str | None:
        job = self.jobs[-1]
        if not text.strip():
            return "The reply is empty."
        if job.parts:
            return None
        to, parts = self._forwarded(text), _parts(text)
        if to is not None and to not in self._neighbours(job):
            return self.asked()
        if parts and (not job.whole or len(parts) > PARTS):
            return f"Only whole tasks are split, into at most {PARTS} parts.\n{self.asked()}"
        return None

    def kind(self, player: str, text: str) -> str:
        if plain(text) == PASS:
            return "pass"
        if self.jobs[-1].parts:
            return "act"
        return FORWARD if self._forwarded(text) else SPLIT if _parts(text) else "act"

    def take(self, player: str, text: str) -> str | None:
        """Take the holder's reply; return the action once it is known."""
        job = self.jobs[-1]
        if plain(text) == PASS:
            rest = [member for member in self.team.members if member not in job.path]
            if rest:
                job.path.append(rest[0])
                return None
            text = PASS
        elif not job.parts and (to := self._forwarded(text)) is not None:
            job.path.append(to)
            return None
        elif not job.parts and (parts := _parts(text)):
            self.jobs += [Job(one, [job.holder], whole=False) for one in reversed(parts)]
            return None
        return self._done(job, text)

    def halt(self) -> str | None:
        return None  # nobody talks

    def facts(self) -> dict[str, Any]:
        """Return the way of each task and part that was done in the turn that was decided."""
        return {"routes": self.routes}

    def sample(self, rng: random.Random, action: Callable[[], str], player: str = "") -> str:
        return action()

    def ideal(self, action: str, player: str = "") -> str:
        return action

    def most_replies(self, each: Mapping[str, int] = ONE_EACH) -> int:
        replies = [each.get(member, 1) for member in self.team.members]
        return (PARTS + 1) * sum(replies) + max(replies)  # who split a task is asked again

    def key(self) -> tuple[object, ...]:
        return self.number, self.text, [asdict(job) for job in self.jobs], self.routes

    def saved(self) -> Any:
        return [self.number, self.text, [asdict(job) for job in self.jobs], [*self.routes]]

    def restore(self, saved: Any) -> None:
        self.number, self.text, jobs, self.routes = saved
        self.jobs = [
            Job(**{**job, "parts": [(text, answer) for text, answer in job["parts"]]})
            for job in jobs
        ]

    # ── details ──────────────────────────────────────────────────────────────

    def _done(self, job: Job, answer: str) -> str | None:
        self.jobs.pop()
        if answer != PASS:
            self.routes.append({"task": job.text, "path": job.path, "split": bool(job.parts)})
        if job.whole:
            self.jobs = [job]
            return answer
        self.jobs[0].parts.append((job.text, answer))
        return None

    def _weight(self, source: str, target: str) -> float:
        return self.table.edges.get(source, {}).get(target, 1.0)

    def _neighbours(self, job: Job) -> list[str]:
        """Return the members to which the holder may forward a job."""
        if len(job.path) > self.table.hops:
            return []
        others = [member for member in self.team.members if member != job.holder]
        weights = {member: self._weight(job.holder, member) for member in others}
        least = CUT * max(weights.values())
        return [m for m, weight in weights.items() if weight >= least and m not in job.path]

    def _similar(self, text: str, members: Sequence[str]) -> dict[str, tuple[float, float]]:
        """Return how many past tasks of each member were solved and are similar, of how many."""
        past = [(m, task, solved) for m in members for task, solved in self.table.past.get(m, ())]
        rated = scores(unnumbered(text), [unnumbered(task) for _, task, _ in past])
        enough = sorted(rated, reverse=True)[:ALIKE]
        found = dict.fromkeys(members, (0.0, 0.0))
        for (member, _, solved), score in zip(past, rated, strict=True):
            weight = min(1.0, score / enough[-1]) if enough[-1] > 0 else float(score > 0)
            good, tried = found[member]
            found[member] = good + solved * weight, tried + weight
        return found

    def _forwarded(self, text: str) -> str | None:
        """Return the member that a reply names after `forward`; None: it does not."""
        found = re.fullmatch(rf"{FORWARD} (.+)", plain(text))
        names = {member.casefold(): member for member in self.team.members}
        return names.get(found[1]) if found else None


def _parts(text: str) -> list[str]:
    """Return the parts that a reply names after `split`; empty if it is no such reply."""
    found = re.fullmatch(rf"{SPLIT} (.+\|.+)", text.strip(), re.IGNORECASE | re.DOTALL)
    return [one for one in map(str.strip, found[1].split("|")) if one] if found else []
