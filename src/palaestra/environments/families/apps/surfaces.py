"""How an agent reaches a world: which tools it has, and which call each of them makes.

`task`      the few APIs that a task needs and some that it does not, signed in
`all`       every API of the apps, signed in
`discover`  tools to list apps, list and read their APIs, and call one; every app wants a sign-in,
            and only what was read is known, as in AppWorld (Trivedi et al. 2024)
`code`      the same for code as action and for HTTP: a function such as mail.search_messages for
            each API, which is listed once it was read
"""

from __future__ import annotations

import json
import random
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, ClassVar

from palaestra.core.message import ToolCall
from palaestra.core.tool import Tool
from palaestra.environments.families.apps.app import Suite
from palaestra.environments.families.apps.compiler.api import Api
from palaestra.environments.families.apps.compiler.endpoints import LARGEST_PAGE
from palaestra.environments.families.apps.compiler.login import CREDENTIALS, token
from palaestra.environments.families.apps.compiler.openapi import (
    api_documentation,
    body_schema,
    openapi,
)
from palaestra.environments.families.apps.composing.goal import MAIN, Call
from palaestra.environments.families.apps.timed.clock_app import CLOCK
from palaestra.environments.families.apps.world import Called, Reply, World

FINISH = Tool(
    "finish",
    "End the task; give the answer if it asks for one.",
    {"type": "object", "properties": {"answer": {"type": "string"}}},
)
EXTRA = 3  # APIs of a task's tools that it does not need


def tool_of(api: Api) -> Tool:
    """Return an API as a tool."""
    return Tool(tool_name(api.full_name), api.about, api.parameters)


def tool_name(api: str) -> str:
    """Return `app_name`, since names of tools have no full stops; of the clock the name alone."""
    return api.removeprefix(f"{CLOCK}.").replace(".", "_")


@lru_cache(maxsize=64)
def _by_tool(suite: Suite) -> Mapping[str, str]:
    """Return the names of the APIs by those of their tools."""
    return {tool_name(name): name for name in suite.apis}


class Surface(ABC):
    """Tools over a world."""

    example: ClassVar[str] = 'mail_search_messages(query="rent")'

    @abstractmethod
    def tools(self, suite: Suite, needed: Sequence[str], rng: random.Random) -> list[Tool]:
        """Return the tools of a task, besides `finish`.

        Args:
            suite: the apps.
            needed: the APIs that the reference calls.
            rng: draws what else is offered.
        """

    @abstractmethod
    def call(self, world: World, tool: str, arguments: Mapping[str, Any]) -> Reply:
        """Answer a call of one of the tools."""

    def listed(self, world: World, tools: list[Tool]) -> list[Tool]:
        """Return the tools that the agent has now, which began with `tools`."""
        return tools

    def known(self, tool: str) -> bool:
        """Return whether a call of a tool is answered even while it is not listed."""
        return False

    @abstractmethod
    def plan(self, world: World, calls: Sequence[Call]) -> list[ToolCall]:
        """Return the calls of tools that lead to these calls of APIs."""


class SignedIn(Surface):
    """APIs as tools, for somebody who is signed in to all apps."""

    def __init__(self, extra: int | None) -> None:
        """Offer what a task needs and `extra` other APIs of its apps; None: all APIs."""
        self.extra = extra

    def tools(self, suite: Suite, needed: Sequence[str], rng: random.Random) -> list[Tool]:
        apis = [api for api in suite.apis.values() if api.name != "login"]
        if self.extra is not None:
            used = {suite.apis[name].app for name in needed}
            others = [a for a in apis if a.full_name not in needed and a.app in used]
            chosen = {a.full_name for a in rng.sample(others, min(self.extra, len(others)))}
            offered = chosen | set(needed)
            apis = [api for api in apis if api.full_name in offered or api.app == CLOCK]
        return [tool_of(api) for api in apis]

    def call(self, world: World, tool: str, arguments: Mapping[str, Any]) -> Reply:
        return world.call(_by_tool(world.suite)[tool], arguments, MAIN)

    def plan(self, world: World, calls: Sequence[Call]) -> list[ToolCall]:
        return [ToolCall(tool_name(made.api), made.arguments) for made in calls]


PASSWORDS = "supervisor.list_credentials"
TEXT = {"type": "string"}
APP, API = {"app": TEXT}, {"api": TEXT}


class Discover(Surface):
    """Four tools, behind which are all apps and their documentation."""

    TOOLS = (
        Tool("list_apps", "List the apps.", {"type": "object", "properties": {}}),
        Tool(
            "list_apis",
            "List the APIs of an app.",
            {"type": "object", "properties": APP, "required": ["app"]},
        ),
        Tool(
            "read_api",
            "Read how an API is called, such as mail.login.",
            {"type": "object", "properties": API, "required": ["api"]},
        ),
        Tool(
            "call",
            "Call an API with its arguments.",
            {
                "type": "object",
                "properties": API | {"arguments": {"type": "object"}},
                "required": ["api"],
            },
        ),
    )

    def tools(self, suite: Suite, needed: Sequence[str], rng: random.Random) -> list[Tool]:
        return list(self.TOOLS)

    def call(self, world: World, tool: str, arguments: Mapping[str, Any]) -> Reply:
        if tool == "call":
            return self._called(world, arguments["api"], arguments.get("arguments", {}))
        reply = self._read(world.suite, tool, arguments)
        world.note(Called(tool, arguments, reply.status))
        return reply

    def _called(self, world: World, api: str, given: Mapping[str, Any]) -> Reply:
        """Call an API; only the person's own app knows who calls."""
        found = world.suite.apis.get(api)
        known = found is not None and not world.suite.blueprints[found.app].private
        return world.call(api, given, MAIN if known else 0)

    def _read(self, suite: Suite, tool: str, arguments: Mapping[str, Any]) -> Reply:
        """Return a list of apps or APIs, or the documentation of one."""
        if tool == "list_apps":
            return Reply(200, {name: app.blueprint.about for name, app in suite.apps.items()})
        if tool == "list_apis":
            app = suite.apps.get(arguments["app"])
            if app is None:
                known = ", ".join(suite.apps)
                return Reply(404, {"error": f"There is no app '{arguments['app']}', only {known}."})
            return Reply(200, {api.full_name: api.about for api in app.apis.values()})
        api = suite.apis.get(arguments["api"])
        if api is None:
            return Reply(404, {"error": f"There is no API '{arguments['api']}'."})
        return Reply(200, {"documentation": api_documentation(api)})

    def plan(self, world: World, calls: Sequence[Call]) -> list[ToolCall]:
        """Read what was not read yet, sign in where it was not done yet, and call."""
        done = {(made.api, json.dumps(dict(made.arguments))) for made in world.calls}
        plan: list[ToolCall] = []

        def once(name: str, arguments: Mapping[str, Any]) -> None:
            if (mark := (name, json.dumps(dict(arguments)))) not in done:
                done.add(mark)
                plan.append(ToolCall(name, arguments))

        once("list_apps", {})
        credentials = {row["app"]: row for row in world.state.find(CREDENTIALS, owner=MAIN)}
        for made in calls:
            app = made.api.partition(".")[0]
            given = dict(made.arguments)
            once("list_apis", {"app": app})
            if world.suite.blueprints[app].private:
                known = {key: credentials[app][key] for key in ("username", "password")}
                if (f"{app}.login", json.dumps(known)) not in done:
                    done.add((f"{app}.login", json.dumps(known)))
                    once("read_api", {"api": f"{app}.login"})
                    self._sign_in(app, known, done, plan)
                given["access_token"] = token(credentials[app])
            once("read_api", {"api": made.api})
            plan.append(self._planned(made.api, given))
        return plan

    def _planned(self, api: str, arguments: Mapping[str, Any]) -> ToolCall:
        """Return the call of a tool that calls an API."""
        return ToolCall("call", {"api": api, "arguments": arguments})

    def _sign_in(
        self, app: str, known: Mapping[str, str], done: set[tuple[str, str]], plan: list[ToolCall]
    ) -> None:
        """Add a look at the passwords, if there was none yet, and a sign-in."""
        look = {"per_page": LARGEST_PAGE}
        if (PASSWORDS, json.dumps(look)) not in done:
            done.add((PASSWORDS, json.dumps(look)))
            plan.append(self._planned(PASSWORDS, look))
        plan.append(self._planned(f"{app}.login", known))


READ, READ_OPENAPI = "read_api", "read_openapi"


class Functions(Discover):
    """A function for each API, listed once it was read; calls of the others are answered, too."""

    example = 'mail.search_messages(query="rent")'

    def tools(self, suite: Suite, needed: Sequence[str], rng: random.Random) -> list[Tool]:
        return [replace(tool, answers_json=True) for tool in self.TOOLS if tool.name != "call"]

    def listed(self, world: World, tools: list[Tool]) -> list[Tool]:
        read = {made.arguments["api"]: 0 for made in world.calls if made.api == READ and made.ok}
        return [*tools, *(_function(world.suite, world.suite.apis[name]) for name in read)]

    def known(self, tool: str) -> bool:
        return "." in tool or tool == READ_OPENAPI

    def call(self, world: World, tool: str, arguments: Mapping[str, Any]) -> Reply:
        return (
            super().call(world, tool, arguments)
            if "." not in tool
            else self._called(world, tool, arguments)
        )

    def _sign_in(
        self, app: str, known: Mapping[str, str], done: set[tuple[str, str]], plan: list[ToolCall]
    ) -> None:
        """Read also how to list the passwords: code can call only what it has read."""
        if (mark := (READ, json.dumps({"api": PASSWORDS}))) not in done:
            done.add(mark)
            plan.append(ToolCall(READ, {"api": PASSWORDS}))
        super()._sign_in(app, known, done, plan)

    def _read(self, suite: Suite, tool: str, arguments: Mapping[str, Any]) -> Reply:
        """Also return the OpenAPI document of an app, for programs."""
        if tool != READ_OPENAPI:
            return super()._read(suite, tool, arguments)
        app = suite.apps.get(str(arguments.get("app")))
        if app is None:
            return Reply(404, {"error": f"There is no app '{arguments.get('app')}'."})
        return Reply(200, openapi(app))

    def _planned(self, api: str, arguments: Mapping[str, Any]) -> ToolCall:
        return ToolCall(api, arguments)


def _function(suite: Suite, api: Api) -> Tool:
    """Return an API as a function of its app."""
    body = body_schema(suite.apps[api.app], api)
    return Tool(api.full_name, api.about, body, answers_json=True)


SURFACES: dict[str, Surface] = {
    "task": SignedIn(EXTRA),
    "all": SignedIn(None),
    "discover": Discover(),
    "code": Functions(),
}
