"""The expert at a desk: the next action that leads on from any state of a conversation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from palaestra.core.environment import Action
from palaestra.core.message import ToolCall
from palaestra.environments.families.apps.composing.goal import Call
from palaestra.environments.families.apps.surfaces import FINISH
from palaestra.environments.families.apps.world import OK
from palaestra.environments.families.desk.scenario import Wish
from palaestra.environments.families.desk.user import Act

if TYPE_CHECKING:
    from palaestra.environments.families.desk.environment import Desk

REFUSAL = "I am sorry, I cannot do that; our policy does not allow it."
ELSE = "Is there anything else?"


def agent_action(env: Desk) -> Action:
    """Return the agent's next action.

    It identifies the user first; then it does what the present wish needs, asking for a yes where
    the policy forbids a call without one, and asking the user for what only their own tools can do.
    """
    made = Counter(_mark(Call(c.api, c.arguments)) for c in env.world.calls if c.status == OK)
    desk = env.drawn.desk
    identity = desk.identify(env.drawn.scenario.known) if desk.identify else None
    if identity is not None and not made[_mark(identity)]:
        missing = [] if env.alone_with_tools else _untold(env, desk.identity)
        if missing:
            return Action(f"Hello. Please tell me {' and '.join(missing)}.")
        return called(identity)
    wishes = env.drawn.scenario.final if env.alone_with_tools else [env.present_wish()]
    left = _left(wishes, made)
    if left is None:
        if env.alone_with_tools:
            wanted = env.drawn.scenario.answer
            given = {} if wanted is None else {"answer": str(wanted)}
            return called(Call(FINISH.name, given))
        return Action(_closing(wishes[0]))
    missing = [] if env.alone_with_tools else _untold(env, wishes[0].needs)
    if missing:
        return Action(f"Please tell me {' and '.join(missing)}.")
    if desk.of_user(left.api) and not env.alone_with_tools:
        return Action(f"Please use {tool_call(left)} on your phone.")
    if env.trace.forbids(left.api):
        return Action(f"I am going to {_words(left, wishes[0])}. Shall I go ahead?")
    return called(left)


def user_action(env: Desk) -> Action:
    """Return what the program of the user does now, where the user is a player."""
    intent = env.intent
    if intent.act is Act.DO and intent.call is not None:
        return called(intent.call)
    said = env.user.words(env.memory, intent, env.turns)
    if intent.act is Act.STOP:
        return called(Call("hang_up", {"message": said}))
    return Action(said)


def called(call: Call) -> Action:
    made = tool_call(call)
    return Action(str(made), made)


def tool_call(call: Call) -> ToolCall:
    return ToolCall(call.api.replace(".", "_"), call.arguments)


# ── details ──────────────────────────────────────────────────────────────────


def _untold(env: Desk, slots: Iterable[str]) -> list[str]:
    """Return how to ask for those of some slots that the user has not told."""
    desk, name = env.drawn.desk, env.drawn.scenario.name
    told = {*env.memory.told, *(s for s, v in env.drawn.scenario.known.items() if v == name)}
    return [desk.slots[slot].question for slot in slots if slot not in told]


def _left(wishes: Iterable[Wish], made: Counter[str]) -> Call | None:
    """Return the first call for some wishes that was not made; None if all were."""
    unused = made.copy()
    for wish in wishes:
        for call in wish.calls:
            if not unused[_mark(call)]:
                return call
            unused[_mark(call)] -= 1
    return None


def _closing(wish: Wish) -> str:
    if wish.refused:
        return REFUSAL
    answer = "" if wish.answer is None else f" The answer to your question: {wish.answer}."
    return f"That is done.{answer} {ELSE}"


def _words(call: Call, wish: Wish) -> str:
    """Return what a call will do, with what the user has said of it."""
    facts = f" ({', '.join(wish.facts)})" if wish.facts else ""
    return call.api.partition(".")[2].replace("_", " ") + facts


def _mark(call: Call) -> str:
    """Return a call without the words of a hand-over, which are free."""
    kept = {name: value for name, value in call.arguments.items() if name != "reason"}
    return repr((call.api, sorted(kept.items())))
