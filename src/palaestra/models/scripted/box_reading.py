"""What a prompt says about a grid of boxes: the text that `boxes` environments and teams write.

For the model `planner`, which has no other source: it knows neither the environment's state nor its
reference solution. Later lines of a prompt correct earlier ones; what was never said is unknown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence

from palaestra.core.message import Message
from palaestra.core.team_words import parts_of, proposed

WAIT = "wait"
ROUND = re.compile(r"Round (\d+) of \d+\.")
REFUSED = "That was no valid action."
CELL = re.compile(r"(robot\d+): boxes ([\w, ]+); goals ([\w, ]+)")
BESIDE = re.compile(r"(robot\d+): ((?:(?:north|east|south|west) robot\d+(?:, )?)+)")
MOVE = re.compile(r"box (\w) (north|east|south|west|goal)")
SAID = re.compile(r"(robot\d+): (box \w \w+|wait)")
MOVED = re.compile(r"(robot\d+) moved box (\w) (\w+)\.")
FAILED = re.compile(r"(robot\d+) did not move box (\w) (\w+):")
HOME = re.compile(r"(robot\d+) brought box (\w) home\.")
ROOM = re.compile(r"A cell holds (\d+) boxes")
YOU = re.compile(r"You are (\w+)\.")
MAIL = re.compile(r"\[\w+\] \w+ to you(?: \(and \d+ more\))?: (.*)")
SENT = re.compile(r"send_message\(.*text='(\{.*\})'\)")
BACK = {"north": "south", "south": "north", "east": "west", "west": "east"}


class Reading:
    """The facts in the messages of one prompt."""

    def __init__(self, messages: Sequence[Message]) -> None:
        """Read the messages in their order."""
        self.system = messages[0].text if messages and messages[0].role == "system" else ""
        you = YOU.findall(self.system)
        self.me = you[-1] if you else ""
        self.joint = "joint plan" in self.system
        found = ROOM.search(self.system)
        self.room = int(found[1]) if found else 1
        self.beside = {
            name: dict(pair.split() for pair in pairs.split(", "))
            for name, pairs in BESIDE.findall(self.system)
        }
        self.round = 0
        self.boxes: dict[str, str] = {}  # the cell of each box, by its robot
        self.goals: dict[str, str] = {}
        self.came_from: dict[str, str] = {}  # the direction back to where a box was before
        self.failed: list[str] = []  # robots whose arms collided in the last round
        self.did: dict[str, str] = {}  # moves of the last round, by robot
        self.home: list[str] = []
        self.parts: dict[str, str] = {}  # moves proposed or said in this turn, by robot
        self._proposal = ""  # the last one of this turn
        self.replies: list[str] = []  # own replies in this turn
        self.plan: dict[int, dict[str, str]] = {}  # moves that a message planned, by round
        self.planned_at = 0  # how many boxes were home when the last plan was made
        self.sent = 0  # own messages so far that are JSON
        self.observed: list[str] = []  # the lines of the last observation
        for message in messages[1:] if self.system else messages:
            if message.role == "assistant":
                self._own(message.text)
            else:
                self._read(message.text.splitlines())

    @property
    def robots(self) -> list[str]:
        """All robots, in the order of the instructions."""
        return list(self.beside)

    def legal(self, robot: str) -> list[str]:
        """Return the moves of a robot that are possible by what is known, without `wait`."""
        found = []
        for box in self._within(robot):
            if self.goals.get(box) == robot:
                found.append(f"box {box} goal")
            found += [f"box {box} {to}" for to in self.beside[robot]]
        return found

    def fits(self, robot: str, part: str, others: Mapping[str, str]) -> bool:
        """Return whether a move is possible and collides with none of the others' moves."""
        if part == WAIT:
            return True
        if part not in self.legal(robot):
            return False
        target = self._target(robot, part)
        if target is None:
            return True
        targets = {
            one: self._target(one, move)
            for one, move in others.items()
            if one != robot and move != WAIT
        }
        arriving = sum(where == target for where in targets.values())
        leaving = target in targets
        inside = len(self._within(target)) - leaving + arriving
        return targets.get(target) != robot and inside < self.room

    def value(self, robot: str, part: str) -> int:
        """Return 2 for a box brought home, 1 for one moved nearer, 0 for `wait`, else -1."""
        move = MOVE.fullmatch(part)
        if move is None:
            return 0
        box, target = move[1], self._target(robot, part)
        if target is None:
            return 2
        goal = self.goals.get(box)
        if goal is None:
            return -1
        return 1 if self._distance(target, goal) < self._distance(robot, goal) else -1

    def best(self, robot: str, others: Mapping[str, str]) -> list[str]:
        """Return the best moves of a robot, given moves of others, all equally good.

        Boxes go home, else nearer to their goals, the farthest first; else a box whose goal is
        unknown goes anywhere, but not back; else the robot waits.
        """
        fitting = [part for part in self.legal(robot) if self.fits(robot, part, others)]
        good = [part for part in fitting if self.value(robot, part) > 0]
        if good:

            def worth(part: str) -> tuple[int, int]:
                return self.value(robot, part), self._distance(robot, self.goals[part.split()[1]])

            return [max(good, key=worth)]
        lost = [part for part in fitting if part.split()[1] not in self.goals]
        ahead = [part for part in lost if self.came_from.get(part.split()[1]) != part.split()[2]]
        return ahead or lost or [WAIT]

    def after(self, plan: Mapping[str, str]) -> None:
        """Change what is known as if a plan had been carried out."""
        for robot, part in plan.items():
            move = MOVE.fullmatch(part)
            if move is None:
                continue
            target = self._target(robot, part)
            if target is None:
                self._is_home(move[1])
            else:
                self.boxes[move[1]] = target

    # ── details ──────────────────────────────────────────────────────────────

    def _begin_turn(self) -> None:
        self.parts, self.replies, self._proposal = {}, [], ""

    def _own(self, text: str) -> None:
        """Note an own reply: a plan proposed, or a move said."""
        self.replies.append(text)
        if (sent := SENT.fullmatch(text)) is not None:
            self.sent += 1
            self._message(sent[1])
        elif self.joint and ":" in text:
            self.parts = self._plan_in(text)
        elif self.joint and self.me in self.beside and (MOVE.fullmatch(text) or text == WAIT):
            self.parts[self.me] = text

    def _read(self, lines: Iterable[str]) -> None:
        for line in lines:
            if (mail := MAIL.match(line)) is not None:
                self._message(mail[1])
            elif (found := ROUND.match(line)) is not None:
                self.round, self.observed = int(found[1]), [line]
                self.failed, self.did = [], {}
                self._begin_turn()
            elif line.startswith(REFUSED):
                self._begin_turn()
            elif (one := proposed(line)) is not None:
                if one[1] != self._proposal:  # who decides sees the same proposals again
                    self._proposal, self.parts = one[1], self._plan_in(one[1])
            elif (found := CELL.fullmatch(line)) is not None and found[1] in self.beside:
                self._cell(found[1], found[2], found[3])
                self.observed.append(line)
            elif (found := MOVED.fullmatch(line)) is not None:
                self.came_from[found[2]] = BACK[found[3]]
                self.did[found[1]] = f"box {found[2]} {found[3]}"
            elif (found := FAILED.match(line)) is not None:
                self.failed.append(found[1])
                self.did[found[1]] = f"box {found[2]} {found[3]}"
            elif (found := HOME.fullmatch(line)) is not None:
                self._is_home(found[2])
                self.did[found[1]] = f"box {found[2]} goal"
            elif (found := SAID.fullmatch(line)) is not None and found[1] in self.beside:
                self.parts[found[1]] = found[2]

    def _cell(self, robot: str, boxes: str, goals: str) -> None:
        self.boxes = {box: where for box, where in self.boxes.items() if where != robot}
        for box in _names(boxes):
            if box not in self.home:
                self.boxes[box] = robot
        for box in _names(goals):
            if box not in self.home:
                self.goals[box] = robot

    def _message(self, text: str) -> None:
        """Read a message of a robot; texts that are no JSON are read as lines."""
        try:
            content = json.loads(text)
        except ValueError:
            return  # a state text, whose other lines follow
        match content:
            case {"goals": dict(goals)}:
                for box, where in goals.items():
                    if str(where) in self.beside and box not in self.home:
                        self.goals[box] = str(where)
            case {"from": int(first), "rounds": list(rounds)}:
                plans = enumerate(map(str, rounds), first)
                self.plan |= {number: self._plan_in(plan) for number, plan in plans}
                self.planned_at = len(self.home)

    def _plan_in(self, text: str) -> dict[str, str]:
        """Return the moves of known robots in a joint plan."""
        return {robot: part for robot, part in parts_of(text) if robot in self.beside}

    def _is_home(self, box: str) -> None:
        if box not in self.home:
            self.home.append(box)
        self.boxes.pop(box, None)
        self.goals.pop(box, None)

    def _within(self, robot: str) -> list[str]:
        return sorted(box for box, where in self.boxes.items() if where == robot)

    def _target(self, robot: str, part: str) -> str | None:
        """Return the cell into which a move puts a box; None for its goal."""
        move = MOVE.fullmatch(part)
        return None if move is None or move[2] == "goal" else self.beside[robot].get(move[2])

    def _distance(self, one: str, other: str) -> int:
        distances, queue = {one: 0}, [one]
        for here in queue:
            for cell in self.beside[here].values():
                if cell not in distances:
                    distances[cell] = distances[here] + 1
                    queue.append(cell)
        return distances[other]


def _names(text: str) -> list[str]:
    return [] if text == "none" else text.split(", ")
