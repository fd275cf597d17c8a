"""What the scripts of foreign clients share: the session's world, as a tool."""

import json
import os
from urllib.error import HTTPError
from urllib.request import Request, urlopen

TASK, MODEL = os.environ["PALAESTRA_TASK"], os.environ["PALAESTRA_MODEL"]
SYSTEM = "You act in a world by calling its tool, one call after the other, until it is over."
SCHEMA = {
    "type": "object",
    "properties": {"action": {"type": "string"}},
    "required": ["action"],
}
over = False


def act(action: str) -> str:
    """Act in the world.

    Args:
        action: what to do
    """
    global over
    headers = {"Authorization": "Bearer " + os.environ["PALAESTRA_TOKEN"]}
    body = json.dumps({"action": action}).encode()
    try:
        with urlopen(Request(os.environ["PALAESTRA_WORLD_URL"] + "/step", body, headers)) as answer:
            step = json.load(answer)
    except HTTPError:
        over = True
        return "It is over."
    over = step["over"]
    return step["observation"]
