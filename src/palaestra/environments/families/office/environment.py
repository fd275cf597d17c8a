"""Office: an assistant with a company's apps, who must ask colleagues for what no app has.

Ids: `office/easy`, `office/medium` and `office/hard`, with one, two or four goals, and
`office/permission`, whose tasks are twins. Something is known to a colleague alone, who may want a
proof first or know who knows; or only a colleague may do it: approve a change, set a priority, add
somebody to a room; or a colleague must agree, or tells something only to the assignee of a ticket.
`:all`, `:discover` and `:code` choose the tools, as for `apps`.

Colleagues are programs (`colleague.py`), which are asked by the tool `colleagues_ask`. In
`office/easy:colleagues` and the others, the second player "colleague" is whoever is asked: any
model can play them, and is audited against the program (`colleague_audit.py`).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from palaestra.core.environment import Action, Observation, Spec, Stakes, Transition
from palaestra.core.errors import EnvironmentFault
from palaestra.core.message import ToolCall
from palaestra.core.rare_capabilities import Multiplayer, Sampling
from palaestra.core.task import Task, TaskSet
from palaestra.core.tool import NotACall, checked, parse_call, random_call
from palaestra.environments.base import refused, without_parameters
from palaestra.environments.families.apps.compiler.api import ApiError, Caller
from palaestra.environments.families.apps.composing.composition import LEVELS
from palaestra.environments.families.apps.composing.forbidden import DONE, REFUSED
from palaestra.environments.families.apps.composing.goal import MAIN, Call
from palaestra.environments.families.apps.drawing import Drawn, drawn
from palaestra.environments.families.apps.environment import RULES, Apps
from palaestra.environments.families.apps.state import Row
from palaestra.environments.families.apps.surfaces import FINISH, SURFACES, tool_name, tool_of
from palaestra.environments.families.apps.world import OK, Called, Reply
from palaestra.environments.families.desk.sides import listing, parse_action
from palaestra.environments.families.desk.user import Act, Intent, Memory
from palaestra.environments.families.office import colleague_audit
from palaestra.environments.families.office.colleague import Colleague
from palaestra.environments.families.office.colleagues_app import (
    ASK,
    addressed,
    close_exchange,
    exchanges,
    note_output,
    open_exchange,
    present_part,
)
from palaestra.environments.families.office.tasks import office, twin
from palaestra.environments.shared.seats import NOT_YOUR_TURN

AGENT, COLLEAGUE, COLLEAGUES = "agent", "colleague", "colleagues"
PERMISSION = "permission"
LEVEL_NAMES = (*LEVELS, PERMISSION)
ASK_TOOL = tool_name(ASK)
FAULT = "user"  # the kind of fault of a player who does not keep to their part
COLLEAGUE_APIS = (
    "repository.search_changes", "repository.show_change", "repository.review_change",
    "tracker.search_tickets", "tracker.show_ticket", "tracker.update_ticket",
    "chat.search_rooms", "chat.add_member",
)  # fmt: skip
"""What a model that plays a colleague can call, in their name."""
ASKING_RULES = (
    "Some things only your colleagues know, or may do: ask them with "
    'colleagues_ask(email="…", message="…").'
)
PERMISSION_RULES = (
    "A colleague may refuse. If they do, change nothing and call "
    f'finish(answer="{REFUSED}"). Otherwise do the task, and call finish(answer="{DONE}").'
)
BOTH = (
    "One player does a task with a company's apps and asks colleagues, who are the other player. "
    "The first thing that you see says who you are, and which tools you have."
)


def name_parts(name: str) -> tuple[str, str]:
    """Return the level and the form (what follows ":") that a name says."""
    level, _, form = name.partition(":")
    return level or "easy", form


class Office(Apps, Multiplayer, Sampling, id="office"):
    """A company's apps, colleagues, and one task."""

    def __init__(self, name: str = "") -> None:
        self._name, form = name_parts(name)
        self._played = form == COLLEAGUES
        super().__init__(name or "easy")
        suite = office().suite
        surface = self._surface.tools(suite, (), random.Random(0)) if form in SURFACES else ()
        self.tools = (*(surface or map(tool_of, suite.apis.values())), FINISH)
        self._theirs = tuple(tool_of(suite.apis[api]) for api in COLLEAGUE_APIS)
        self._by_tool = {tool_name(api): api for api in COLLEAGUE_APIS}
        self._seen = ""

    @classmethod
    def names(cls) -> list[str]:
        forms = ("", *(f":{form}" for form in (*SURFACES, COLLEAGUES) if form != "task"))
        return [f"{level}{form}" for level in LEVEL_NAMES for form in forms]

    @classmethod
    def tasks(cls, environment: str) -> TaskSet:
        return TaskSet(environment)

    @classmethod
    def spec_of(cls, name: str = "") -> Spec:
        spec, (level, form) = super(Apps, cls).spec_of(name), name_parts(name)
        each = 20 if form in ("discover", "code") else 12
        spec = replace(spec, typical_turns=6 + each * LEVELS.get(level, 1))
        if form != COLLEAGUES:
            return spec
        return replace(
            spec,
            players=(AGENT, COLLEAGUE),
            stakes=Stakes("common", forfeit=0.0),
            free_text=True,
            typical_turns=2 * spec.typical_turns,
        )

    @property
    def instructions(self) -> str:
        rules = f"{RULES.format(example=self._surface.example)}\n{ASKING_RULES}"
        if self._played:
            return BOTH
        return f"{rules}\n{PERMISSION_RULES}" if self._has_rules else rules

    def draw(self, task: Task) -> Drawn:
        """Draw what a task consists of; raises InputError for one with parameters."""
        without_parameters(task)
        if self._has_rules:
            return twin(task.seed)
        return drawn(self._name, "", task.seed, office())

    def acting(self) -> tuple[str, ...]:
        return () if self._over else (self._turn,)

    def observe(self, player: str) -> Observation:
        """Return what a player was told or a call of theirs answered; at the end, the last."""
        self._current()
        return Observation(self._seen if self._over or player == self._turn else NOT_YOUR_TURN)

    def oracle(self) -> Sequence[Action]:
        """Return the rest of the reference, with the replies of the programs; empty if lost."""
        if not self._played:
            return super().oracle()
        self._running()
        other = type(self)(self.spec.name)
        other.restore(self.snapshot())
        plan: list[Action] = []
        step = Transition(Observation(""))
        while not step.terminated and (action := other._next()) is not None:
            plan.append(action)
            step = other.step(action)
        other.close()
        return plan if step.success else []

    def sample_action(self, rng: random.Random) -> Action:
        """Sample a call of a tool; of a colleague, what the program does."""
        if self._turn == COLLEAGUE:
            return self._programmed()
        call = random_call(self.tools, rng)
        return Action(str(call), call)

    # ── details ──────────────────────────────────────────────────────────────

    @property
    def _has_rules(self) -> bool:
        return self._name == PERMISSION

    @property
    def _turn(self) -> str:
        """Who acts now: a colleague while a message to them waits for a reply."""
        return COLLEAGUE if colleague_audit.pending(self._running().state) else AGENT

    def _beside_the_world(self) -> list[str | None]:
        return [*super()._beside_the_world(), self._seen]

    def _take_beside(self, saved: list[str | None]) -> None:
        super()._take_beside(saved[:1])
        self._seen = saved[1] or ""

    def _begin(self, task: Task) -> Observation:
        first = super()._begin(task)
        if self._played:
            rules = f"{ASKING_RULES}\n{PERMISSION_RULES}" if self._has_rules else ASKING_RULES
            first = Observation(f"You do the task. {rules}\n{first.text}")
        self._seen = first.text
        return first

    def _act(self, action: Action) -> Transition:
        if self._played and self._turn == COLLEAGUE:
            return self._shared(self._colleague_acts(action))
        if self._played and (call := self._call_of(action)) is not None:
            if call.name == ASK_TOOL and (opened := self._ask(call)) is not None:
                return self._shared(opened)
            if call.name == FINISH.name:
                self._blame(colleague_audit.fault_at_the_end(self._running().state, MAIN))
        return self._shared(super()._act(action))

    def _shared(self, step: Transition) -> Transition:
        """Note what is seen; of several players, give each the same reward."""
        if not step.valid:
            return step
        self._seen = step.observation.text
        if not self._played:
            return step
        return replace(step, rewards=dict.fromkeys(self.spec.players, step.reward))

    def _call_of(self, action: Action) -> ToolCall | None:
        """Return the call of an action; None if it is none of the tools'."""
        try:
            if action.call is None:
                return parse_call(action.text, self.tools)
            return checked(action.call, self.tools)
        except NotACall:
            return None

    def _ask(self, call: ToolCall) -> Transition | None:
        """Pass a message to the player of a colleague; None: it is answered by an error."""
        world, me = self._running(), self._caller(MAIN)
        email, message = str(call.arguments["email"]), str(call.arguments["message"])
        try:
            who = addressed(me, email, message)
        except ApiError:
            return None
        open_exchange(me, who, message)
        colleague, _, _ = self._part()
        lines = [colleague_audit.briefing(world.state, MAIN, colleague), listing(self._theirs)]
        for one in exchanges(world.state, MAIN, who["owner"])[:-1]:
            lines.append(f"Before: {one['message']}\nYou: {one['reply']}")
        return Transition(Observation("\n".join([*lines, f"Message: {message}"])))

    def _colleague_acts(self, action: Action) -> Transition:
        try:
            move = parse_action(action, self._theirs)
        except NotACall as problem:
            return refused(str(problem))
        if isinstance(move, ToolCall):
            return self._colleague_calls(move)
        return self._colleague_replies(move)

    def _colleague_calls(self, call: ToolCall) -> Transition:
        """Make a call in the name of the colleague."""
        world, row = self._running(), self._pending()
        api, given = world.suite.apis[self._by_tool[call.name]], dict(call.arguments)
        if api.changes:
            _, _, intent = self._part()
            self._blame(colleague_audit.fault_of_change(intent, Call(api.full_name, given)))
        reply = world.reply_to(api.full_name, given, row["owner"])
        note_output(world.state, row["id"], str(reply), acted=api.changes and reply.ok)
        return Transition(Observation(str(reply)))

    def _colleague_replies(self, said: str) -> Transition:
        """Pass a reply to the player of the agent, as the answer to its call."""
        world, row = self._running(), self._pending()
        colleague, memory, intent = self._part()
        before = exchanges(world.state, MAIN, row["owner"])
        heard = [text for one in before for text in (one["message"], one["output"], one["reply"])]
        heard += [world.now]
        message = row["message"]
        self._blame(
            colleague_audit.fault_of_reply(
                world.state, colleague, memory, intent, said, message, heard
            )
        )
        close_exchange(world.state, row["id"], said)
        email = (world.state.get("supervisor.person", row["owner"]) or {})["email"]
        given, body = {"email": email, "message": message}, {"reply": said}
        world.note(Called(ASK, given, OK, body, world.seconds))
        world.advance(world.suite.blueprints[COLLEAGUES].seconds["ask"])
        return Transition(Observation(str(Reply(OK, body))))

    def _pending(self) -> Row:
        """Return the message that waits for a reply."""
        row = colleague_audit.pending(self._running().state)
        assert row is not None
        return row

    def _part(self) -> tuple[Colleague, Memory, Intent]:
        """Return the program of the colleague who is asked, what it said, and what it would do."""
        row = self._pending()
        colleague, memory = present_part(self._running().state, MAIN, row["owner"], row["message"])
        if row["acted"]:
            return colleague, memory, Intent(Act.REPORT)
        return colleague, memory, colleague.intent(memory, row["message"])

    def _programmed(self) -> Action:
        """Return what the program of the colleague who is asked does."""
        colleague, memory, intent = self._part()
        if intent.act is Act.DO and intent.call is not None:
            call = ToolCall(tool_name(intent.call.api), intent.call.arguments)
            return Action(str(call), call)
        row = self._pending()
        turn = len(exchanges(self._running().state, MAIN, row["owner"]))
        return Action(colleague.words(memory, intent, turn))

    def _next(self) -> Action | None:
        """Return the next action of the expert, whose turn it is; None: the task is lost."""
        if self._turn == COLLEAGUE:
            return self._programmed()
        return next(iter(super().oracle()), None)

    def _caller(self, person: int) -> Caller:
        world = self._running()
        return Caller(world.state, world.suite.blueprints, person, world.now, world.advance)

    def _blame(self, fault: str | None) -> None:
        """Raise EnvironmentFault of the kind "user" for a colleague who left their part."""
        if fault is not None:
            raise EnvironmentFault(FAULT, fault)
