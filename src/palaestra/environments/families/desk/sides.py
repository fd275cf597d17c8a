"""The two sides of a desk: what each of them reads, its tools, and how its actions are read."""

from __future__ import annotations

import re
from functools import cache

from palaestra.core.environment import Action
from palaestra.core.message import ToolCall
from palaestra.core.tool import NotACall, Tool, checked, parse_call
from palaestra.environments.families.apps.surfaces import FINISH, tool_of
from palaestra.environments.families.desk.scenario import ServiceDesk

AGENT, USER = "agent", "user"
USERS, SOLO = "users", "solo"  # suffixes
LONGEST = 2_000  # characters of a message
WRITTEN_CALL = r"<tool_call>|(```\w*\s*)?(\{|[a-z_]+\()"  # how a call in text begins
HANG_UP = Tool(
    "hang_up",
    "End the conversation, with last words.",
    {"type": "object", "properties": {"message": {"type": "string"}}},
)
RULES = (
    "{about} Help the user, and keep to the policy below. Reply with one message to the user, or "
    "with one tool call such as {example}; never with both."
)
SOLO_RULES = (
    "{about} Do what the ticket says, and keep to the policy below. Nobody can be asked; the "
    "user's phone lies before you. Reply with one tool call such as {example}. When all is done, "
    "or must not be done, call finish()."
)
BOTH = (
    "A user and an agent at a service desk talk, and may act on the same things. The first thing "
    "that you see says which of them you are, what your rules are, and which tools you have. Reply "
    "with one message to the other, or with one tool call; never with both."
)


def briefing(desk: ServiceDesk, form: str) -> str:
    """Return the agent's instructions: how to reply, its tools, and the policy."""
    tools = tools_of(desk, AGENT, form)
    needed = ", ".join(f"{name}=…" for name in tools[0].parameters.get("required", ()))
    rules = SOLO_RULES if form == SOLO else RULES
    head = rules.format(about=desk.about, example=f"{tools[0].name}({needed})")
    return f"{head}{listing(tools)}{desk.policy}"


@cache
def tools_of(desk: ServiceDesk, who: str, form: str = "") -> tuple[Tool, ...]:
    """Return the tools of a side; the first of the user's is that to hang up."""
    apps = [app for name, app in desk.suite.apps.items() if name != "supervisor"]
    apis = [api for app in apps for api in app.apis.values() if api.name != "login"]
    theirs = [tool_of(api) for api in apis if desk.of_user(api.full_name)]
    mine = [tool_of(api) for api in apis if not desk.of_user(api.full_name)]
    if who == USER:
        return (HANG_UP, *theirs)
    return (*mine, *theirs, FINISH) if form == SOLO else tuple(mine)


def parse_action(action: Action, tools: tuple[Tool, ...]) -> ToolCall | str:
    """Parse an action into a tool call, if it has one or is written as one, else a message.

    Raises:
        NotACall: it is a call that does not fit the tools, or no text that can be said.
    """
    text = action.text.strip()
    if action.call is not None:
        return checked(action.call, tools)
    if re.match(WRITTEN_CALL, text):
        return parse_call(text, tools)
    if not text or not all(part.isprintable() for part in text.split()):
        raise NotACall("Say something, or call a tool.")
    if len(text) > LONGEST:
        raise NotACall(f"Say it in at most {LONGEST} characters.")
    return text


def listing(tools: tuple[Tool, ...]) -> str:
    return "\n\nTools:\n" + "\n".join(f"- {tool.signature}" for tool in tools) + "\n\n"
