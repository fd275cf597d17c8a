"""Replies for a member of a team: `python team_member.py ADDRESS TOKEN ROLE`, as the run prints."""

import json
import sys
import threading
import time
from contextlib import suppress
from http.client import HTTPException
from urllib.error import HTTPError
from urllib.request import Request, urlopen

ADDRESS, TOKEN, ROLE = sys.argv[1:]


def answer(messages):
    return "accept"  # your program; the conversation is [{"role": "user", "content": "…"}, …]


def send(method, path, token, body=None):
    data, headers = json.dumps(body or {}).encode(), {"Authorization": f"Bearer {token}"}
    with urlopen(Request(ADDRESS + path, data, headers, method=method)) as response:
        return json.loads(response.read() or "null")


def show_alive():
    while True:
        time.sleep(me["heartbeat"])
        with suppress(OSError, HTTPException):
            send("POST", f"/{me['process']}/heartbeat", me["token"])


me = send("POST", "", TOKEN, {"role": ROLE, "capability": "accepts what others propose"})
threading.Thread(target=show_alive, daemon=True).start()
while True:
    try:
        if asked := send("GET", f"/{me['process']}/next", me["token"]):
            reply = {"text": answer(asked["messages"])}
            send("POST", f"/{me['process']}/replies/{asked['question']}", me["token"], reply)
    except HTTPError as error:
        if error.code == 404:  # it was silent for too long
            me = send("POST", "", TOKEN, {"role": ROLE})
        elif error.code != 409:  # 409: the question was put to another process
            break
    except (OSError, HTTPException):  # the run is over, also in the middle of a reply
        break
