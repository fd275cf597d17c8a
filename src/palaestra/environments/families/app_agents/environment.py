"""Apps that are agents: whoever has the task cannot call an API, and asks each app in words.

Ids: `app_agents/easy`, `medium` and `hard`, and `life-…` and `office-…`: the tasks and worlds of
`apps`. The player "agent" reads the task; its tools are `ask(app, message)` and `finish(answer)`.
Every app is a player of its own, with the APIs of that app alone: it reads a message, makes calls,
and answers in words, which passes the turn back. No app sees the task, or what others were asked.
The verdict is that of `apps`, on the rows; success and failure are common to all players.

After ARE (Andrews et al. 2025), where Gaia2's tasks run with apps replaced by agents; ours: the
worlds, and verdicts that are derived.
"""

from __future__ import annotations

import random
from dataclasses import replace

from palaestra.core.environment import Action, Observation, Spec, Stakes, Transition
from palaestra.core.message import ToolCall
from palaestra.core.rare_capabilities import Multiplayer, Sampling
from palaestra.core.task import Task
from palaestra.core.tool import NotACall, Tool, parse_call, random_call
from palaestra.environments.base import (
    Replayed,
    hashed,
    plan_in_copy,
    refused,
    without_parameters,
)
from palaestra.environments.families.apps.composing.composition import LEVELS
from palaestra.environments.families.apps.environment import Apps
from palaestra.environments.families.apps.setting import SETTINGS, Setting, parts
from palaestra.environments.families.apps.surfaces import FINISH, tool_name, tool_of
from palaestra.environments.families.desk.sides import LONGEST, listing, parse_action
from palaestra.environments.shared.seats import NOT_YOUR_TURN

AGENT, ASK = "agent", "ask"
PLACES = ("", "life", "office")  # settings of `apps`
PLEASE = "Please call "  # how the expert asks for a call
ANSWERED = "The call answered: "
WHICH = "What should I call?"
RULES = (
    "Somebody's apps are agents. One player has a task and asks them, each in a message of its "
    "own; an app makes calls for it and answers in words. The first thing that you see says who "
    "you are and which tools you have."
)
APP_RULES = (
    "You are the agent of the app '{app}': {about} Do what the message asks, with one tool call at "
    "a time, and then answer it in words, with all that was asked for."
)


class AppAgents(
    Replayed,
    Multiplayer,
    Sampling,
    id="app_agents",
    capabilities={"state_key", "snapshot", "oracle", "progress"},
    free_text=True,
):
    """A task that is done by asking the agents of apps."""

    OVER = "The task is over."

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self._apps = Apps(f"{name or 'easy'}:all")
        suite = _setting_of(name).suite
        self._tools: dict[str, tuple[Tool, ...]] = {
            app.name: tuple(tool_of(api) for api in app.apis.values() if api.name != "login")
            for app in suite.apps.values()
        }
        self._about = {app: suite.blueprints[app].about for app in self._tools}
        self._app_of = {
            tool_name(api.full_name): api.app for api in suite.apis.values() if api.name != "login"
        }
        self._tools[AGENT] = (_ask_tool(list(self._about)), FINISH)
        self.tools = tuple(tool for who in self.spec.players for tool in self._tools[who])

    @classmethod
    def names(cls) -> list[str]:
        return [f"{place}-{level}" if place else level for place in PLACES for level in LEVELS]

    @classmethod
    def spec_of(cls, name: str = "") -> Spec:
        spec, turns = super().spec_of(name), Apps.spec_of(f"{name or 'easy'}:all").typical_turns
        return replace(
            spec,
            players=(AGENT, *_setting_of(name).suite.apps),
            stakes=Stakes("common", forfeit=0.0),
            tools=True,
            typical_turns=3 * turns,
        )

    @property
    def instructions(self) -> str:
        return RULES

    def _begin(self, task: Task) -> Observation:
        """Begin with the task, which the player "agent" reads; raises InputError for parameters."""
        without_parameters(task)
        self._apps.reset(replace(task, environment=self._apps.spec.id))
        self._turn, self._message = AGENT, ""
        self._results: list[str] = []  # of the calls that an app made for the present message
        self._begun: set[str] = set()  # apps that were asked before
        named = "\n".join(f"- {app}: {about}" for app, about in self._about.items())
        listed = "\n".join(tool.signature for tool in self._tools[AGENT])
        self._seen = Observation(
            f"{self._apps.heading}\nThe agents of the apps do what you ask them:\n{named}\n"
            f"Tools:\n{listed}\nTask: {self._apps.instruction}"
        )
        return self._seen

    def _act(self, action: Action) -> Transition:
        who = self._turn
        try:
            move = parse_action(action, self._tools[who])
        except NotACall as problem:
            return refused(str(problem))
        if isinstance(move, ToolCall):
            return self._ask(move) if who == AGENT and move.name == ASK else self._call(move)
        if who == AGENT:
            return refused("Nobody hears you. Call ask(app=…, message=…), or finish().")
        return self._pass(AGENT, f"{who}: {move}")

    def close(self) -> None:
        self._apps.close()

    def acting(self) -> tuple[str, ...]:
        return () if self._over else (self._turn,)

    def observe(self, player: str) -> Observation:
        """Return what a player was told or a call of theirs answered; at the end, the last."""
        self._current()
        return self._seen if self._over or player == self._turn else Observation(NOT_YOUR_TURN)

    def state_key(self) -> str:
        self._current()
        talk = (self._turn, self._message, self._seen.text, self._results, sorted(self._begun))
        return hashed(self._apps.state_key(), talk)

    def progress(self) -> float:
        """Return the share of the wanted changes, and of the answer, less other changes."""
        return self._apps.progress()

    def oracle(self) -> list[Action]:
        """Return the rest of the reference, asked for call by call; empty if it is lost."""
        self._current()
        return [] if self._over else plan_in_copy(self, AppAgents._next)

    def sample_action(self, rng: random.Random) -> Action:
        """Sample a call of one's own tools, or now and then an answer of an app."""
        if self._turn != AGENT and rng.random() < 0.3:
            return Action("That is done.")
        return _action(random_call(self._tools[self._turn], rng))

    # ── details ──────────────────────────────────────────────────────────────

    def _ask(self, call: ToolCall) -> Transition:
        """Pass a message to the agent of an app."""
        app, message = str(call.arguments["app"]), str(call.arguments["message"])
        if len(message) > LONGEST:
            return refused(f"Ask in at most {LONGEST} characters.")
        self._message = message
        head = ""
        if app not in self._begun:
            head = APP_RULES.format(app=app, about=self._about[app]) + listing(self._tools[app])
        self._begun.add(app)
        return self._pass(app, f"{head}Message: {message}")

    def _pass(self, player: str, text: str) -> Transition:
        """Let another player see something and go on."""
        self._turn, self._results = player, []
        return self._told(text)

    def _call(self, call: ToolCall) -> Transition:
        """Make a call in the world; `finish` ends the task."""
        step = self._apps.step(_action(call))
        if not step.valid:
            return step
        if step.terminated:
            self._seen = step.observation
            return replace(step, rewards=dict.fromkeys(self.spec.players, step.reward))
        self._results.append(step.observation.text)
        return self._told(step.observation.text, step)

    def _told(self, text: str, step: Transition | None = None) -> Transition:
        self._seen = Observation(text)
        return Transition(
            self._seen,
            rewards=dict.fromkeys(self.spec.players, 0.0),
            info={} if step is None else step.info,
        )

    def _next(self) -> Action | None:
        """Return the next action of the expert, whose turn it is; None: the task is lost."""
        if self._turn == AGENT:
            rest = self._apps.oracle()
            if not rest or (call := rest[0].call) is None:
                return None
            if call.name == FINISH.name:
                return rest[0]
            asked = {"app": self._app_of[call.name], "message": f"{PLEASE}{call}"}
            return _action(ToolCall(ASK, asked))
        if self._results:
            return Action(f"{ANSWERED}{self._results[-1]}"[:LONGEST])
        try:
            text = self._message.removeprefix(PLEASE)
            return _action(parse_call(text, self._tools[self._turn]))
        except NotACall:
            return Action(WHICH)


def _setting_of(name: str) -> Setting:
    """Return the apps of an id's tasks."""
    return SETTINGS[parts(name)[0]]()


def _ask_tool(apps: list[str]) -> Tool:
    properties = {
        "app": {"type": "string", "enum": apps},
        "message": {"type": "string", "description": "all that the app's agent has to know"},
    }
    schema = {"type": "object", "properties": properties, "required": ["app", "message"]}
    return Tool(ASK, "Ask the agent of an app to do or to find out something.", schema)


def _action(call: ToolCall) -> Action:
    return Action(str(call), call)
