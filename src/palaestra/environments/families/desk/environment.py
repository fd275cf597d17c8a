"""Service desks: an agent with a written policy, a user with goals of their own, and a company.

Ids: `desk/orders`, `desk/telephone`, `desk/hotel`, `desk/services` and `desk/support`, with a user
who is a program (`user.py`), and `desk/orders:users` … with two players, "agent" and "user", where
any model can be the user and is audited (`audit.py`). In `desk/telephone:solo` nobody talks: the
agent has a ticket, and the tools of the user as well as its own.

A turn is a tool call or a message, never both. A message passes the turn to the other side. The
conversation ends when the user hangs up, when the agent hands it over to a colleague, or after its
fortieth message. Then effect, other changes, what had to be said, and policy are judged
(`composing/verifier.py`); the last step's `info` has them apart. The policy's rules about the order
of calls are formulas of temporal logic (`composing/policy.py`); what it permits depends on the
rows, and tasks come as twins, where it permits one and forbids the other (`drawing.py`).

After τ²-bench (Yao et al. 2024, Barres et al. 2025); ours: the companies, people and tasks, which
are all generated, the users, and verdicts, which are derived.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable
from dataclasses import replace

from palaestra.core.environment import Action, Observation, Spec, Stakes, Transition
from palaestra.core.errors import EnvironmentFault
from palaestra.core.message import ToolCall
from palaestra.core.rare_capabilities import Multiplayer, Sampling
from palaestra.core.task import Task
from palaestra.core.tool import NotACall, Tool, random_call
from palaestra.environments.base import Replayed, hashed, refused, without_parameters
from palaestra.environments.families.apps.composing.goal import Call
from palaestra.environments.families.apps.composing.policy import Trace
from palaestra.environments.families.apps.composing.verifier import Judge, Verdict, same_answer
from palaestra.environments.families.apps.surfaces import FINISH
from palaestra.environments.families.apps.world import Reply, World
from palaestra.environments.families.desk import audit, expert
from palaestra.environments.families.desk.drawing import DESKS, Drawn, drawn
from palaestra.environments.families.desk.scenario import Wish
from palaestra.environments.families.desk.sides import (
    AGENT,
    BOTH,
    HANG_UP,
    SOLO,
    USER,
    USERS,
    briefing,
    listing,
    parse_action,
    tools_of,
)
from palaestra.environments.families.desk.user import (
    CONFIRMS,
    Act,
    Intent,
    Memory,
    Program,
    confirms,
)
from palaestra.environments.shared.seats import NOT_YOUR_TURN

ROUNDS = 40  # messages of the agent
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
HAND_OVER = "hand_over"
MESSAGES = (
    "How can I help you?",
    "Could you tell me more?",
    "Shall I go ahead?",
    "I am sorry, I cannot do that.",
    "That is done. Is there anything else?",
)
"""What a random agent says."""


class Desk(
    Replayed,
    Multiplayer,
    Sampling,
    id="desk",
    capabilities={"state_key", "snapshot", "oracle", "progress"},
    free_text=True,
):
    """A conversation at a service desk."""

    OVER = "The conversation is over."

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        desk, _, self._form = name.partition(":")
        self._desk = DESKS[desk]
        self.tools = tuple(tool for who in self.spec.players for tool in self._tools(who))
        self._world: World | None = None

    @classmethod
    def names(cls) -> list[str]:
        forms = [f"{desk}:{USERS}" for desk in DESKS]
        return [*DESKS, *forms, f"telephone:{SOLO}"]

    @classmethod
    def spec_of(cls, name: str = "") -> Spec:
        spec, form = super().spec_of(name), name.partition(":")[2]
        players = (AGENT, USER) if form == USERS else (AGENT,)
        turns = 30 * len(players)
        stakes = Stakes("common", forfeit=0.0)
        free = form != SOLO
        return replace(
            spec, players=players, stakes=stakes, tools=True, free_text=free, typical_turns=turns
        )

    @property
    def instructions(self) -> str:
        return BOTH if self._form == USERS else self._briefing()

    # what the expert (`expert.py`) looks at

    @property
    def alone_with_tools(self) -> bool:
        """Whether nobody talks, and the agent has the user's tools, too."""
        return self._form == SOLO

    @property
    def world(self) -> World:
        self._current()
        assert self._world is not None
        return self._world

    @property
    def turns(self) -> int:
        """The number of messages of the user so far."""
        return len(self._said)

    def present_wish(self) -> Wish:
        """Return what the user wants now."""
        return self.user.wish(self.memory)

    # the contract

    def _begin(self, task: Task) -> Observation:
        """Begin with the user's first message; raises InputError for a task with parameters."""
        without_parameters(task)
        self.close()
        self.drawn: Drawn = drawn(self._desk.name, task.seed)
        self._world = self.drawn.open()
        desk, scenario = self._desk, self.drawn.scenario
        self.user = Program(scenario, desk.slots, desk.gestures, self.drawn.wording)
        self.memory, self.intent = Memory(), Intent(Act.OPEN)
        self.trace = Trace([r for r in desk.rules if not (r.talk and self.alone_with_tools)])
        self._heard: list[str] = []  # what the user has read, and said
        self._said: list[str] = []  # messages of the user
        self._last = ""  # the last message of the agent
        self._asked: set[str] = set()  # slots that the agent asked for
        self._turn, self._rounds = USER, 0
        self._untold = list(scenario.answers)  # what the user has asked, and was not told yet
        if self.alone_with_tools:
            self._turn = AGENT
            self._seen = Observation(self._ticket())
        elif self._form == USERS:
            tools = listing(self._tools(USER))
            self._seen = Observation(f"{audit.briefing(self.user)}{tools}")
        else:
            self._seen = Observation(self._user_turn())
        return self._seen

    def _act(self, action: Action) -> Transition:
        who = self._turn
        try:
            move = parse_action(action, self._tools(who))
        except NotACall as problem:
            return refused(str(problem))
        if isinstance(move, ToolCall):
            text = self._call(who, move)
        elif self.alone_with_tools:
            return refused("Nobody hears you. Call one tool, or finish().")
        elif who == AGENT:
            text = self._agent_says(move)
        else:
            text = self._user_says(move)
        self._seen = Observation(text)
        return self._transition()

    def close(self) -> None:
        if self._world is not None:
            self._world.close()
        self._world = None

    def acting(self) -> tuple[str, ...]:
        return () if self._over else (self._turn,)

    def observe(self, player: str) -> Observation:
        """Return what came last from the other side or a tool; at the end, the last message."""
        self._current()
        return self._seen if self._over or player == self._turn else Observation(NOT_YOUR_TURN)

    def state_key(self) -> str:
        """Hash the rows, what is left of the policy, and the parts of the talk that matter."""
        heard = (self._last, sorted(self._heard)) if self._form == USERS else ()
        return hashed(
            (self._current().seed, self.world.key(), self.trace.key(), self._over, self._untold),
            (self._turn, self._rounds, self.turns, self.memory, self.intent),
            (sorted(self._asked), heard),
        )

    def progress(self) -> float:
        """Return the share of the wanted changes and of the end, less other changes."""
        return self._verdict().progress

    def oracle(self) -> list[Action]:
        """Return the rest of a right conversation; empty if it no longer leads to success."""
        self._current()
        if self._over:
            return []
        other = type(self)(self.spec.name)
        other.restore(self.snapshot())
        plan: list[Action] = []
        try:
            for _ in range(2 * ROUNDS):
                agents = other._turn == AGENT
                plan.append((expert.agent_action if agents else expert.user_action)(other))
                step = other.step(plan[-1])
                if step.terminated or not step.valid:
                    return plan if step.success else []
        except EnvironmentFault:  # the user held something back, and cannot make good for it
            return []
        finally:
            other.close()
        return []

    def sample_action(self, rng: random.Random) -> Action:
        """Sample a tool call, or a common message; for the user, what its part says now."""
        if self._turn == USER:
            return expert.user_action(self)
        if self.alone_with_tools or rng.random() < 0.7:
            call = random_call(self._tools(AGENT), rng)
            return Action(str(call), call)
        theirs = self._tools(USER)[1:]
        if theirs and rng.random() < 0.5:
            return Action(f"Please use {random_call(theirs, rng)}.")
        return Action(rng.choice(MESSAGES))

    # ── details ──────────────────────────────────────────────────────────────

    def _tools(self, who: str) -> tuple[Tool, ...]:
        return tools_of(self._desk, who, self._form)

    def _call(self, who: str, call: ToolCall) -> str:
        """Make a call; return what it answered."""
        if call.name == FINISH.name:
            self._tell([str(call.arguments.get("answer", ""))])
            self._end()
            return self.OVER
        if call.name == HANG_UP.name:
            self._blame(audit.fault_of_stop(self.intent))
            self._end()
            return str(call.arguments.get("message") or "The user hung up.")
        app, _, api = call.name.partition("_")
        made = Call(f"{app}.{api}", call.arguments)
        if who == USER:
            changes = self._desk.suite.apis[made.api].changes
            self._blame(audit.fault_of_call(self.user, self._last, made) if changes else None)
        reply = self._answered(made)
        if who == USER:
            self._shown(str(reply))
        return str(reply)

    def _answered(self, call: Call) -> Reply:
        """Let a service answer; what it answered is a moment of the trace."""
        person = self._desk.caller(self.drawn.scenario, call.api)
        reply = self.world.call(call.api, call.arguments, person)
        if reply.ok:
            self.trace.add(call.api)
            if call.api == f"{self._desk.name}.{HAND_OVER}":
                self._end()
        return reply

    def _shown(self, output: str) -> None:
        """Let the user see what a tool of theirs has shown."""
        self._heard.append(output)
        self.intent = Intent(Act.REPORT, output=output)

    def _agent_says(self, text: str) -> str:
        """Pass a message to the user; return what the next player sees."""
        self._rounds += 1
        self._tell(NUMBER.findall(text))
        self.intent = self.user.intent(self.memory, text)
        self._asked |= set(self.intent.slots)
        self._heard.append(text)
        self._last, self._turn = text, USER
        if self._rounds == ROUNDS:
            self._end()
            return self.OVER
        return text if self._form == USERS else self._user_turn()

    def _tell(self, given: Iterable[str]) -> None:
        """Take note of what the agent tells: what was asked, if it is among it."""
        said = list(given)
        self._untold = [a for a in self._untold if not any(same_answer(one, a) for one in said)]

    def _user_turn(self) -> str:
        """Let the program of the user act and speak."""
        if self.intent.act is Act.DO and self.intent.call is not None:
            self._shown(str(self._answered(self.intent.call)))
        said = self.user.words(self.memory, self.intent, self.turns)
        if self.intent.act is Act.STOP:
            self._end()
            return said
        self._heed(said)
        return said

    def _user_says(self, text: str) -> str:
        """Pass a message of a player to the agent; return what the agent sees."""
        found = audit.fault_of_message(
            self.user, self.memory, self.intent, text, self._last, self._heard
        )
        self._blame(found)
        opening = self.intent.act is Act.OPEN
        self._heed(text)
        return f"{self._briefing()}\n\n{text}" if opening else text

    def _heed(self, said: str) -> None:
        """Take note of a message of the user."""
        if confirms(self._last, said):
            self.trace.add(CONFIRMS)
        self.memory = self.user.after(self.memory, self.intent, said)
        self._heard.append(said)
        self._said.append(said)
        self._turn = AGENT

    def _blame(self, fault: str | None) -> None:
        """Raise EnvironmentFault of the kind "user" if a player of the user did not do its part."""
        if fault is not None:
            raise EnvironmentFault(USER, fault)

    def _end(self) -> None:
        """End the conversation; a player of the user must have told by now what was due."""
        self._over = True
        if self._form == USERS:
            said = self._said
            self._blame(audit.fault_at_the_end(self.user, self.memory, self._asked, said))

    def _verdict(self) -> Verdict:
        wanted = self.drawn.wanted
        answer = ("" if self._untold else str(wanted.answer)) if self._over else None
        broken = self.trace.broken() if self._over else ()
        judge = Judge(self.world.state.columns)
        return judge.verdict(self.world.state.changes(), answer, [wanted], broken=broken)

    def _transition(self) -> Transition:
        if not self._over:
            rewards = {} if self._form != USERS else dict.fromkeys(self.spec.players, 0.0)
            return Transition(self._seen, rewards=rewards)
        verdict = self._verdict()
        reward = float(verdict.success)
        found = {"effect": verdict.effect, "reply": verdict.answer, "policy": list(verdict.policy)}
        return Transition(
            self._seen,
            reward=reward,
            terminated=True,
            success=verdict.success,
            rewards={} if self._form != USERS else dict.fromkeys(self.spec.players, reward),
            info={**found, "collateral": list(verdict.collateral)},
        )

    def _briefing(self) -> str:
        return briefing(self._desk, self._form)

    def _ticket(self) -> str:
        """Return what the agent knows where nobody talks: the user, and what they want."""
        scenario = self.drawn.scenario
        known = ", ".join(f"{name}: {value}" for name, value in scenario.known.items())
        wants = " Then: ".join(wish.words[0] for wish in scenario.final)
        return f"Ticket of {scenario.name} ({known}), who agrees to what it costs: {wants}"
