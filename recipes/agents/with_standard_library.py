"""An agent of Python's standard library alone, which acts by the world's JSON endpoint."""

import json
import os
from urllib.request import Request, urlopen

HEADERS = {
    "Authorization": f"Bearer {os.environ['PALAESTRA_TOKEN']}",
    "Content-Type": "application/json",
}


def call(url: str, body: object = None) -> dict:
    data = None if body is None else json.dumps(body).encode()
    with urlopen(Request(url, data, HEADERS)) as answer:
        return json.load(answer)


world = os.environ["PALAESTRA_WORLD_URL"]
view = call(world)
talk = [
    {"role": "system", "content": view["instructions"]},
    {"role": "user", "content": view["observation"]},
]
while not view["over"]:
    asked = {"model": os.environ["PALAESTRA_MODEL"], "messages": talk}
    reply = call(os.environ["OPENAI_BASE_URL"] + "/chat/completions", asked)
    message = reply["choices"][0]["message"]
    view = call(world + "/step", {"action": message["content"]})
    talk += [message, {"role": "user", "content": view["observation"]}]
