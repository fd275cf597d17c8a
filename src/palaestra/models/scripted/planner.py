"""The planner: a simulated planner for `boxes`, of known competence, that really reads its prompt.

It is no language model. All that it knows of the grid it reads in its prompt (`box_reading.py`), so
what others showed, said, proposed or objected to changes what it does. It errs at stated rates: a
move that it plans for itself is its best one with probability `own`, a move that it plans for
another robot with probability `others`, else another possible move at random; a player moves at
all with probability `active`. A move that a robot has said in this turn, or that a proposal has for
it, is taken unless it collides with another one.

Asked to say something, a robot accepts a proposal whose move for it is as good as the one it would
make, and says its own move otherwise; it neither votes, bids nor moderates. Where robots have a
channel, its name says what they send: `states` their whole observation in every round, `facts` once
which goals are in their cells, and `plan` or `plan_each_round` the moves of all robots, by the
first robot: at the beginning and when boxes have come home, or in every round.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from palaestra.core.agent import Agent
from palaestra.core.environment import Action
from palaestra.core.errors import InputError
from palaestra.core.message import ToolCall
from palaestra.core.model import Generation, Model, Prompt, Renderer
from palaestra.core.team_words import ACCEPT, ASKED, CHECK, LAST, NEXT, PASS, joint_plan
from palaestra.models.scripted.box_reading import WAIT, Reading
from palaestra.models.scripted.scripted_model import given_generation

SILENT = [text for do, text in ASKED.items() if do not in ("talk", "propose", "act")]
AHEAD = 12  # rounds of a plan for all robots
BACK_OFF = 0.5  # the probability that a player waits after its arm collided, without a plan
CHANNELS = re.compile(r"channels: ([\w, ]+)")


@dataclass(frozen=True, slots=True)
class PlannerCompetence:
    """Probabilities: that a planned move is the best one by what is known, and that it is made.

    Raises:
        InputError: a number is no probability.
    """

    own: float = 1.0  # a robot's own move
    others: float = 1.0  # a move planned for another robot
    active: float = 1.0  # that a player moves at all, where it does not just wait

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not 0 <= value <= 1:
                raise InputError(f"The planner's {name}={value} is no probability; give 0 to 1.")


class PlannerModel(Model):
    """A planner of known competence; its replies follow from the prompt and its seed."""

    name = "planner"

    def __init__(
        self,
        agent: Agent,
        renderer: Renderer | None = None,
        *,
        competence: PlannerCompetence = PlannerCompetence(),
    ) -> None:
        """`agent` phrases its actions as replies."""
        self.agent, self.renderer, self.competence = agent, renderer, competence

    def for_agent(self, agent: Agent) -> PlannerModel:
        return PlannerModel(agent, self.renderer, competence=self.competence)

    async def generate(self, prompt: Prompt) -> Generation:
        """Return the reply to the last line of the prompt.

        Raises:
            InputError: the prompt has no grid of boxes.
        """
        reading, rng = Reading(prompt.messages), random.Random(prompt.seed)
        if not reading.robots:
            raise InputError("The planner finds no grid in its prompt; use it with 'boxes' only.")
        asked = (prompt.messages[-1].text.splitlines() or [""])[-1]
        if (about := _asked_about(asked)) is not None:
            reply = self._of_partner(reading, *about, rng)
        elif asked == ASKED["talk"]:
            reply = self._say(reading, rng) if reading.me in reading.beside else ACCEPT
        elif asked in SILENT:
            reply = PASS
        elif reading.joint:
            reply = joint_plan(self._plan(reading, reading.parts, rng))
        else:
            message = self._message(reading, rng)
            reply = str(message) if message else self._move(reading, rng)
        return given_generation(self.agent.phrase(Action(reply)), prompt, self)

    def _part(
        self, reading: Reading, robot: str, others: Mapping[str, str], rng: random.Random
    ) -> str:
        """Return a move for a robot, given moves of others; see the competence."""
        best = reading.best(robot, others)
        right = self.competence.own if robot == reading.me else self.competence.others
        if rng.random() < right:
            return rng.choice(best)
        wrong = [part for part in (*reading.legal(robot), WAIT) if part not in best]
        return rng.choice(wrong or best)

    def _plan(
        self, reading: Reading, given: Mapping[str, str], rng: random.Random
    ) -> dict[str, str]:
        """Return a move for each robot: the given ones that do not collide, and planned ones."""
        chosen: dict[str, str] = {}
        for robot, part in given.items():
            if reading.fits(robot, part, chosen):
                chosen[robot] = part
        missing = [robot for robot in reading.robots if robot not in chosen]
        for robot in missing:
            chosen[robot] = self._part(reading, robot, chosen, rng)
        if all(part == WAIT for part in chosen.values()):  # boxes block each other: one gives way
            ways = [
                (robot, part)
                for robot in missing
                for part in reading.legal(robot)
                if reading.fits(robot, part, {})
            ]
            chosen |= dict([rng.choice(ways)]) if ways else {}
        return {robot: chosen[robot] for robot in reading.robots}

    def _say(self, reading: Reading, rng: random.Random) -> str:
        """Return what a robot says about its own move: that it accepts it, or a better one."""
        me = reading.me
        others = {robot: part for robot, part in reading.parts.items() if robot != me}
        own, given = self._part(reading, me, others, rng), reading.parts.get(me)
        if given is None or not reading.fits(me, given, others):
            return own
        as_good = reading.value(me, given) >= reading.value(me, own) >= 0
        return ACCEPT if given == own or as_good else own

    def _move(self, reading: Reading, rng: random.Random) -> str:
        """Return a player's own move: that of a plan of all, if it is possible, else its best."""
        me, planned = reading.me, reading.plan.get(reading.round)
        if self.competence.active < 1 and rng.random() >= self.competence.active:
            return WAIT
        if planned is None and self._plans(reading) and reading.round == 1:
            return WAIT  # for the plan
        if planned is None or not reading.fits(me, planned.get(me, WAIT), planned):
            if me in reading.failed and rng.random() < BACK_OFF:
                return WAIT
            return self._part(reading, me, reading.parts, rng)
        part = planned.get(me, WAIT)
        wrong = [other for other in (*reading.legal(me), WAIT) if other != part]
        return part if rng.random() < self.competence.own or not wrong else rng.choice(wrong)

    def _of_partner(self, reading: Reading, question: str, about: str, rng: random.Random) -> str:
        """Return what another robot did or will do, or whether an own move is possible."""
        if question == CHECK:
            return "yes" if reading.fits(reading.me, about, reading.parts) else "no"
        if about not in reading.beside:
            return WAIT
        if question == LAST:
            return reading.did.get(about, WAIT)
        return self._part(reading, about, {}, rng)

    def _message(self, reading: Reading, rng: random.Random) -> ToolCall | None:
        """Return what a player sends before its move, by the name of its channel."""
        found = CHANNELS.search(reading.system)
        channel = found[1] if found else ""
        if channel == "states" and not reading.replies:
            return _sent("\n".join(reading.observed))
        if channel == "facts" and not reading.sent:
            goals = {b: where for b, where in reading.goals.items() if where == reading.me}
            return _sent(json.dumps({"goals": goals})) if goals else None
        if self._plans(reading) and reading.me == reading.robots[0] and not reading.replies:
            news = len(reading.home) > reading.planned_at or not reading.plan
            if news or channel == "plan_each_round":
                return self._plan_ahead(reading, rng)
        return None

    def _plans(self, reading: Reading) -> bool:
        found = CHANNELS.search(reading.system)
        return found is not None and found[1].startswith("plan")

    def _plan_ahead(self, reading: Reading, rng: random.Random) -> ToolCall | None:
        """Return the message with the moves of all robots from the next round on."""
        now = reading.round
        reading.after(reading.plan.get(now, {}))
        rounds: list[str] = []
        while reading.boxes and len(rounds) < AHEAD:
            plan = self._plan(reading, {}, rng)
            rounds.append(joint_plan({r: part for r, part in plan.items() if part != WAIT}))
            reading.after(plan)
        return _sent(json.dumps({"from": now + 1, "rounds": rounds})) if rounds else None


def _asked_about(asked: str) -> tuple[str, str] | None:
    """Return which question about a partner or a move is asked, and its subject."""
    for question in (NEXT, LAST, CHECK):
        before, _, after = question.partition("{}")
        if asked.startswith(before) and asked.endswith(after):
            return question, asked[len(before) : len(asked) - len(after)]
    return None


def _sent(text: str) -> ToolCall:
    """Return the call that sends a message to all."""
    return ToolCall("send_message", {"to": "all", "text": text})
