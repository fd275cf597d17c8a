"""Groups that form at run time: a host finds members, discusses, assigns tasks, waits, concludes.

The outermost host begins each turn alone in its group, or with those that joined in turns before.
Its reply says in which state the conversation goes on (`core/formation_words.py`):

- `find`: the members whose skills match best (BM25), and who are free, join the group;
- `ask`, the discussion: a member says something to the group;
- `assign`, a synchronous task: the group waits for the result of a member;
- `start`, an asynchronous task: the member works while the host goes on;
- `wait`, the pause: until the results of all tasks are there;
- `conclude`, or any other text: the result, in the outermost group the action.

A worker replies with its result, or with `find`: then its task is the purpose of a group of its
own, whose conclusion is the result. What is said in a group is heard there only. A member does one
thing at a time, so who works or hosts is not found. One that passes on a task, as those do that
have forfeited, is out for the rest of the episode, and the best match of its task and its skills
takes the task. After `steps` replies a host can only wait and conclude.

The directory of members is the team's file, and its members of the reserve are free places. Before
a search each free place is asked who is there, and what it replies, `register` with skills or
nothing, is a step of the record like any other reply. Or hosts fill places themselves (`places`):

- `make`: somebody new with these skills joins the group.

Source: Internet of Agents, Chen et al. 2024, where the directory is a server and each client
chooses the next state and speaker; here hosts do. `make` is the role design of HALO, Hou et al.
2025.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from palaestra.core.bm25 import scores
from palaestra.core.formation_words import (
    ASK,
    ASSIGN,
    CONCLUDE,
    FIND,
    FREE,
    MAKE,
    PLACE,
    REGISTER,
    START,
    WAIT,
    Move,
    host_asked,
    parse_move,
    registered_skills,
    unmatched,
    worker_asked,
)
from palaestra.core.routing_words import part
from palaestra.core.team_words import (
    ASKED,
    PASS,
    instruction,
    skilled,
    took_work,
    worker_line,
)
from palaestra.environments.teams.free_places import Places
from palaestra.environments.teams.protocol import ONE_EACH, Protocol
from palaestra.environments.teams.protocol_tables import Formation
from palaestra.environments.teams.team_file import Team
from palaestra.environments.teams.votes import plain


@dataclass(slots=True)
class Group:
    """A conversation of a host and those that it found."""

    host: str
    under: str = ""  # the host of the group in which its task was assigned; "": the outermost
    members: list[str] = field(default_factory=list)  # without the host, as they joined
    speaker: str = ""  # who says something now: the host or a member; "": it waits
    tasks: dict[str, str] = field(default_factory=dict)  # by worker, in the order of assignment
    awaited: list[str] = field(default_factory=list)  # workers for whom it waits
    news: list[str] = field(default_factory=list)  # lines for the host since its last reply
    steps: int = 0  # replies of the host


class Groups(Protocol):
    """The groups of one team in one episode."""

    def __init__(self, team: Team, settings: Formation, seed: int) -> None:
        """Begin the first turn; nothing here is random."""
        self.team, self.settings, self.seed = team, settings, seed
        self.lead = settings.member
        self.turn = 1  # of the episode
        self.out: list[str] = []  # members that passed on a task
        self.groups = {self.lead: Group(self.lead, speaker=self.lead)}  # by host
        self.formed: list[dict[str, Any]] = []  # groups that ended in this turn
        self.owing: list[str] = []  # members whose groups ended while they were to reply
        self.places = Places(team, settings)
        self._said: list[tuple[str, str]] = []  # since the last call of `said`
        self._audience: tuple[str, ...] = ()

    def begin_turn(self, observation: str | None = None, state: str | None = None) -> None:
        self.turn += observation is not None
        self.formed, self.owing = [], []
        self.places.begin_turn()
        there = self._there()
        joined = [name for name in self.groups[self.lead].members if name in there]
        self.groups = {self.lead: Group(self.lead, members=joined, speaker=self.lead)}

    def next(self) -> list[str]:
        found: list[str] = []
        for group in self.groups.values():
            found += [group.speaker] if group.speaker else []
            found += [name for name in group.tasks if name not in self.groups]
        return found + self.owing + self.places.invited

    def asked(self, player: str = "") -> str:
        group = self.groups.get(player)
        if group is not None:
            lines = [*group.news, instruction(self._task(group))] if group.under else group.news
            free = [worker_line(name, self._skills(name)) for name in self._free_in(group)]
            result = "RESULT" if group.under else "ACTION"
            return "\n".join(
                [*lines, *([FREE] if free else []), *free, host_asked(self._moves(group), result)]
            )
        if player in self.places.invited:
            return PLACE
        within = self._assigned_in(player)
        skills = self.places.joined.get(player)
        lines = [] if skills is None else [skilled(skills)]
        if within is None:
            return "\n".join([*lines, ASKED["talk"]])
        forming = self._filling() if self._may_form(within) else []
        return "\n".join([*lines, instruction(within.tasks[player]), worker_asked(forming)])

    def refusal(self, text: str, player: str = "") -> str | None:
        if not text.strip():
            return "The reply is empty."
        group = self.groups.get(player)
        if player in self.places.invited:
            here = plain(text) == PASS or registered_skills(text) is not None
            return None if here else PLACE
        if group is None or plain(text) == PASS:
            return None
        move = parse_move(text)
        if not self._allowed(group, move.do):
            return self.asked(player)
        if move.name and self._named(move, group) is None:
            known = ", ".join(group.members)
            return f"'{move.name}' is not in your group; name one of {known}."
        return None

    def kind(self, player: str, text: str) -> str:
        if plain(text) == PASS:
            return "pass"
        group, move = self.groups.get(player), parse_move(text)
        if player in self.places.invited:
            return REGISTER
        if group is not None:
            outermost = not group.under
            return {ASK: "talk", CONCLUDE: "act" if outermost else "talk"}.get(move.do, move.do)
        return move.do if self._forms(player, move) else "talk"

    def take(self, player: str, text: str) -> str | None:
        if player in self.owing:
            self.owing.remove(player)
            return None
        if player in self.places.invited:
            for host, skills in self.places.register(player, registered_skills(text)):
                self.groups[host].speaker = host
                self._find(self.groups[host], skills)
            return None
        passes, move = plain(text) == PASS, parse_move(text)
        group = self.groups.get(player)
        if group is not None:
            return self._hosted(group, None if passes else move)
        within = self._assigned_in(player)
        if within is not None and passes:
            self._leave(player)
        elif within is not None and self._forms(player, move):
            self.groups[player] = Group(player, under=within.host, speaker=player)
            self._hosted(self.groups[player], move)
        elif within is not None:
            self._finish(within, player, move.text if move.do == CONCLUDE else text.strip())
        else:
            self._discussed(player, "" if passes else text.strip())
        return None

    def said(self) -> list[tuple[str, str]]:
        said, self._said = self._said, []
        return said

    def audience(self) -> Sequence[str] | None:
        return self._audience

    def halt(self) -> str | None:
        return None  # these teams have no supervisor

    def facts(self) -> dict[str, Any]:
        """Return the groups of the turn that was decided: host, task, members, and under whom."""
        joined = {"joined": {**self.places.joined}} if self.places.joined else {}
        return {"groups": self.formed, **joined}

    def sample(self, rng: random.Random, action: Callable[[], str], player: str = "") -> str:
        group = self.groups.get(player)
        if player in self.places.invited:
            return rng.choice((PASS, f"{REGISTER}: {action()}"))
        if group is None:
            return action()
        do = rng.choice(self._moves(group))
        if do == WAIT:
            return do
        if do in (FIND, MAKE):
            skills = [one.skills for one in self.team.members.values() if one.skills]
            return f"{do}: {rng.choice([*skills, action()])}"
        if do == CONCLUDE:
            return f"{do}: {action()}"
        return f"{do} {rng.choice(group.members)}: {action()}"

    def ideal(self, action: str, player: str = "") -> str:
        group = self.groups.get(player)
        if player in self.places.invited:
            return PASS
        if group is None:
            return action
        return f"{CONCLUDE}: {action}" if CONCLUDE in self._moves(group) else WAIT

    def most_replies(self, each: Mapping[str, int] = ONE_EACH) -> int:
        steps, members = self.settings.steps, self.team.members
        groups = sum(steps**depth for depth in range(self.settings.depth))
        # of each host `steps`, then it waits and concludes; of those whom it asks or assigns, of
        # free places at each search, and of those that take the task of a member that passed
        replies = groups * (steps + 2 + steps + steps * len(self.team.reserve)) + len(members)
        return replies * max(each.get(name, 1) for name in members)

    def key(self) -> tuple[object, ...]:
        groups = [asdict(group) for group in self.groups.values()]
        return self.turn, self.out, groups, self.formed, self.owing, self.places.saved()

    def saved(self) -> Any:
        groups = [asdict(group) for group in self.groups.values()]
        lists = [[*self.out], groups, [*self.formed], [*self.owing]]
        return [self.turn, *lists, self.places.saved()]

    def restore(self, saved: Any) -> None:
        self.turn, self.out, groups, self.formed, self.owing, places = saved
        self.places.restore(places)
        self.groups = {group["host"]: Group(**group) for group in groups}

    # ── the states of a group ────────────────────────────────────────────────

    def _hosted(self, group: Group, move: Move | None) -> str | None:
        """Go on after the reply of a host; None: it passes. Return the action once it is known."""
        group.steps += 1
        group.news = []
        name = "" if move is None else self._named(move, group) or ""
        if move is None:
            if not group.under:
                return PASS
            self._leave(group.host)
            return None
        if move.do == CONCLUDE:
            return self._conclude(group, move.text)
        if move.do == FIND:
            if self.places.wait(group.host, move.text, self._places()):
                group.speaker = ""
            else:
                self._find(group, move.text)
        elif move.do == MAKE:
            self._make(group, move.text)
        elif move.do == WAIT:
            self._await(group, [*group.tasks])
        elif name not in self._free_in(group):  # another group was faster in this round
            group.news.append(f"{name} is not free.")
        elif move.do == ASK:
            self._say(group.host, f"{group.host} to {name}: {move.text}", group)
            group.speaker = name
        else:
            group.tasks[name] = move.text
            self._await(group, [name] if move.do == ASSIGN else [])
        return None

    def _make(self, group: Group, skills: str) -> None:
        """Let somebody new with these skills join."""
        free = self._places()
        if not free:  # another group was faster in this round
            group.news.append("There is no place for another one.")
            return
        self.places.joined[free[0]] = skills
        group.members.append(free[0])

    def _find(self, group: Group, skills: str) -> None:
        """Let those join whose skills match best, the best first."""
        others = [name for name in self._free() if name not in group.members]
        rated = self._matching(skills, others)[: self.settings.invited]
        group.members += rated
        if not rated:
            group.news.append(unmatched(skills))

    def _discussed(self, player: str, text: str) -> None:
        """Go on after a member said something."""
        for group in self.groups.values():
            if group.speaker == player:
                group.speaker = group.host
                if text:
                    self._say(player, f"{player}: {text}", group)

    def _await(self, group: Group, workers: list[str]) -> None:
        group.awaited = workers
        group.speaker = "" if workers else group.host

    def _finish(self, group: Group, worker: str, result: str) -> None:
        """Take the result of a task."""
        task = group.tasks.pop(worker)
        self._say(worker, f"{worker}: {part(task, result)}", group)
        self._ended(group, worker)

    def _ended(self, group: Group, worker: str) -> None:
        """Let the host go on if it waited for this worker last."""
        if worker in group.awaited:
            group.awaited.remove(worker)
            group.speaker = group.speaker or ("" if group.awaited else group.host)

    def _conclude(self, group: Group, result: str) -> str | None:
        self._close(group)
        if not group.under:
            self.groups[group.host] = group  # for what is asked before the turn ends
            return result
        self._finish(self.groups[group.under], group.host, result)
        return None

    def _close(self, group: Group) -> None:
        """End a group and those of its workers."""
        for worker in group.tasks:
            if worker in self.groups:
                self._close(self.groups[worker])
        self.places.forget(group.host)
        known = {"host": group.host, "under": group.under, "members": [*group.members]}
        self.formed.append({**known, "task": self._task(group) if group.under else ""})
        del self.groups[group.host]

    def _leave(self, worker: str) -> None:
        """Give the task of a worker that passed to the best match of it and of its skills."""
        if worker in self.groups:
            before = self.next()
            self._close(self.groups[worker])
            after = [worker, *self.next()]
            self.owing += [name for name in before if name not in after]
        group = self._assigned_in(worker)
        assert group is not None
        self.out.append(worker)
        task = group.tasks.pop(worker)
        group.news.append(f"{worker} is out of the team's work.")
        heirs = self._matching(f"{task} {self._skills(worker)}", self._free())
        if not heirs:
            group.news.append(unmatched(task))
            self._ended(group, worker)
            return
        heir = heirs[0]
        group.news.append(took_work(heir))
        group.members += [] if heir in group.members else [heir]
        group.tasks[heir] = task
        group.awaited = [heir if name == worker else name for name in group.awaited]

    # ── details ──────────────────────────────────────────────────────────────

    def _allowed(self, group: Group, do: str) -> bool:
        """Return whether a host may reply so, even if nobody is free or at work any more.

        That may change while it thinks, in its own group or in others.
        """
        if do == CONCLUDE:
            return not group.tasks
        if do == MAKE and not self.places.made:
            return False
        return self._more(group) or (do == WAIT and bool(group.tasks))

    def _more(self, group: Group) -> bool:
        """Return whether a host may do more than wait and conclude."""
        return group.steps < self.settings.steps

    def _moves(self, group: Group) -> list[str]:
        """Return what a host may reply, by the keys of FORMS."""
        named = [ASK, ASSIGN, START] if self._free_in(group) else []
        return [
            *([*self._filling(), *named] if self._more(group) else []),
            *([WAIT] if group.tasks else [CONCLUDE]),
        ]

    def _filling(self) -> list[str]:
        """Return by which replies members join a group now."""
        makes = self.places.made and self._places()
        return [FIND, *([MAKE] if makes else [])]

    def _places(self) -> list[str]:
        return self.places.free(self.turn, self.out)

    def _there(self) -> list[str]:
        return self.team.there(self.turn, [*self.places.joined])

    def _skills(self, name: str) -> str:
        return self.places.joined.get(name) or self.team.members[name].skills

    def _task(self, group: Group) -> str:
        return self.groups[group.under].tasks[group.host]

    def _assigned_in(self, worker: str) -> Group | None:
        """Return the group in which a member has a task; None: it has none."""
        return next((group for group in self.groups.values() if worker in group.tasks), None)

    def _may_form(self, group: Group) -> bool:
        """Return whether workers of a group may form groups of their own."""
        depth = 1
        while group.under:
            group, depth = self.groups[group.under], depth + 1
        return depth < self.settings.depth

    def _forms(self, player: str, move: Move) -> bool:
        """Return whether the reply of a worker forms a group."""
        within = self._assigned_in(player)
        may = within is not None and self._may_form(within)
        return may and (move.do == FIND or (move.do == MAKE and self.places.made))

    def _free(self) -> list[str]:
        """Return the members that are there and do nothing."""
        busy = {*self.groups, *self.owing, *(group.speaker for group in self.groups.values())}
        busy.update(name for group in self.groups.values() for name in group.tasks)
        return [name for name in self._there() if name not in busy and name not in self.out]

    def _free_in(self, group: Group) -> list[str]:
        free = self._free()
        return [name for name in group.members if name in free]

    def _named(self, move: Move, group: Group) -> str | None:
        """Return the member that a move names; None: nobody in the group."""
        return {plain(name): name for name in group.members}.get(plain(move.name))

    def _matching(self, text: str, names: Sequence[str]) -> list[str]:
        """Return those whose names and skills match a text, the best first."""
        rated = scores(text, [f"{name} {self._skills(name)}" for name in names])
        found = [at for at, score in enumerate(rated) if score > 0]
        return [names[at] for at in sorted(found, key=lambda at: -rated[at])]

    def _say(self, speaker: str, line: str, group: Group) -> None:
        """Let the members of a group hear a line."""
        self._said.append((speaker, line))
        self._audience = (group.host, *group.members)
