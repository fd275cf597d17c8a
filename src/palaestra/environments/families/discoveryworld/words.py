"""DiscoveryWorld's actions as tools, and its observations as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from palaestra.core.message import ToolCall
from palaestra.core.tool import Tool

DIRECTIONS = ("north", "east", "south", "west")
OBJECT = {"type": "integer", "description": "the number of an object"}
ONE = ("pickup", "drop", "open", "close", "activate", "deactivate", "talk", "eat", "read")
DOES = {
    "pickup": "Pick up an object in front of you.",
    "drop": "Drop an object that you carry.",
    "open": "Open an object.",
    "close": "Close an object.",
    "activate": "Switch an object on.",
    "deactivate": "Switch an object off.",
    "talk": "Talk to somebody in front of you.",
    "eat": "Eat an object.",
    "read": "Read an object.",
}
TERRAIN = frozenset({"grass", "path", "floor", "wall", "fence", "sand", "water", "dirt"})


def _tool(name: str, description: str, **arguments: Any) -> Tool:
    return Tool(
        name,
        description,
        {"type": "object", "properties": arguments, "required": list(arguments)},
    )


DIRECTION = {"type": "string", "enum": list(DIRECTIONS)}
TOOLS = (
    _tool("move_direction", "Walk one step.", direction=DIRECTION),
    _tool("rotate_direction", "Turn on the spot.", direction=DIRECTION),
    _tool("teleport_to_location", "Go to a named place.", location={"type": "string"}),
    _tool("teleport_to_object", "Go beside an object.", object=OBJECT),
    *(_tool(name, DOES[name], object=OBJECT) for name in ONE),
    _tool("put", "Put an object in or on another, or give it.", object=OBJECT, into=OBJECT),
    _tool("use", "Use an object, such as a thermometer, on another.", object=OBJECT, on=OBJECT),
    _tool("discovery_feed_get_updates", "Read what others have posted."),
    _tool("discovery_feed_get_post_by_id", "Read a post.", post={"type": "integer"}),
    _tool("choose_dialog_option", "In a talk, say one of the options.", option={"type": "integer"}),
)


def as_json(call: ToolCall) -> dict[str, Any]:
    """Return a call in the package's JSON format."""
    values = list(call.arguments.values())
    if call.name == "choose_dialog_option":
        return {"chosen_dialog_option_int": values[0]}
    slots = dict(zip(("arg1", "arg2"), values, strict=False))
    return {"action": call.name.upper(), **slots}


def in_order(call: ToolCall) -> ToolCall:
    """Return the call with its arguments in the tool's order."""
    tool = next(tool for tool in TOOLS if tool.name == call.name)
    known = tool.parameters["properties"]
    return ToolCall(call.name, {name: call.arguments[name] for name in known})


def described(seen: Mapping[str, Any], places: Sequence[str]) -> str:
    """Render an observation (the package's "ui") as lines of text.

    Equal things in one direction are listed once, with the number of the nearest.
    """
    here = seen["agentLocation"]
    lines = [
        f"Last action: {seen['lastActionMessage'].strip()}" if seen["lastActionMessage"] else "",
        seen["extended_action_message"].strip(),
        f"You are at ({here['x']}, {here['y']}), facing {here['faceDirection']}. "
        f"You can walk {_listed(here['directions_you_can_move'])}.",
        f"You carry: {_things(seen['inventoryObjects'])}.",
        f"In front of you: {_things(seen['accessibleEnvironmentObjects'])}.",
        "Around you: " + _around(seen["nearbyObjects"]["objects"]),
    ]
    for agent in seen["nearbyAgents"].get("list_of_agents", {}) or {}:
        lines.append(f"Somebody is near: {agent}.")
    posts = seen["discoveryFeed"].get("posts") or []
    lines += [f"New post {post['postID']} by {post['author']}: {post['content']}" for post in posts]
    talk = seen["dialog_box"]
    if talk["is_in_dialog"]:
        lines.append(f"You are in a talk. It was said: {talk['dialogIn']}")
        lines += [f"  option {number}: {words}" for number, words in talk["dialogOptions"].items()]
    if places:
        lines.append("Places: " + ", ".join(places) + ".")
    return "\n".join(line for line in lines if line)


def _things(objects: Sequence[Mapping[str, Any]]) -> str:
    return _listed([f"{each['description']} [{each['uuid']}]" for each in objects])


def _listed(words: Sequence[str]) -> str:
    return ", ".join(words) or "nothing"


def _around(objects: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    directions = []
    for direction, things in objects.items():
        nearest: dict[str, Mapping[str, Any]] = {}
        for thing in things:
            known = nearest.get(thing["description"])
            if known is None or thing["distance"] < known["distance"]:
                nearest[thing["description"]] = thing
        parts = [
            f"{name} [{thing['uuid']}] at {thing['distance']}"
            for name, thing in nearest.items()
            if thing["name"] not in TERRAIN
        ]
        if parts:
            directions.append(f"{direction}: {', '.join(parts)}")
    return "; ".join(directions) + "." if directions else "nothing but ground."
