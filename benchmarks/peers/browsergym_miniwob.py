"""BrowserGym's MiniWoB tasks: an episode is a reset, the clicks and keys that solve it, its reward.

An episode's processor time is that of this process, of the driver and of the browsers. BrowserGym's
reset ends the two browsers of the episode before (the page's and the chat's) and starts two, so
an episode has a start and an end of both.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import time
from typing import Any

import browsergym.miniwob  # noqa: F401  (registers the tasks)
import gymnasium
import psutil
from browsergym.utils.obs import flatten_axtree_to_str

_ADOPT = 36  # PR_SET_CHILD_SUBREAPER of Linux's prctl(2)
_WORLD: dict[str, Any] = {}
_STARTED: set[int] = set()  # processes that this one started: the driver

# Processes of a browser that outlive it become this process's children, so that they are counted.
ctypes.CDLL(None).prctl(_ADOPT, 1, 0, 0, 0)


def seconds() -> float:
    """The processor time of this process, those below it, and theirs that ended."""
    here = psutil.Process()
    for child in here.children():
        if child.pid not in _STARTED and child.status() == psutil.STATUS_ZOMBIE:
            os.waitpid(child.pid, os.WNOHANG)
    spent = 0.0
    for process in (here, *here.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            spent += sum(process.cpu_times()[:4])
    return spent


def actions(goal: str, tree: str) -> list[str]:
    """Return what solves one of the pages that benchmarks/web.py measures."""

    def find(role: str, name: str | None = None) -> str:
        words = "" if name is None else f" '{re.escape(name)}'"
        found = re.search(rf"\[(\w+)\] {role}{words}", tree)
        assert found is not None, f"no {role} {name!r} for the goal {goal!r} in {tree}"
        return found[1]

    if found := re.fullmatch(r"Enter \"(.*)\" into the text field and press Submit\.", goal):
        return [f"fill({find('textbox')!r}, {found[1]!r})", f"click({find('button')!r})"]
    if found := re.fullmatch(r"Select (.*) and click Submit\.", goal):
        role = "checkbox" if "checkbox" in tree else "radio"
        names = [] if found[1] == "nothing" else found[1].split(", ")
        chosen = [f"click({find(role, name)!r})" for name in names]
        return [*chosen, f"click({find('button')!r})"]
    if found := re.fullmatch(r"Click on the \"(.*)\" button\.", goal):
        return [f"click({find('button', found[1])!r})"]
    if found := re.fullmatch(r"Click on (Tab #\d+)\.", goal):
        return [f"click({find('tab', found[1])!r})"]
    return [f"click({find('button')!r})"]


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Run episodes of a task; return seconds and processor seconds of one, and the share solved."""
    task, count = request["task"], int(request["episodes"])
    if _WORLD.get("task") != task:
        if _WORLD:
            _WORLD["env"].close()
        _WORLD.update(task=task, env=gymnasium.make(task, headless=True))
        _WORLD["env"].reset(seed=0)  # starts its driver and its browsers
        _STARTED.update(child.pid for child in psutil.Process().children() if _is_driver(child))
    env, solved, resetting = _WORLD["env"], 0, 0.0
    began, spent = time.perf_counter(), seconds()
    for seed in range(count):
        before = seconds()
        seen, _ = env.reset(seed=seed)
        resetting += seconds() - before
        reward = 0.0
        for action in actions(seen["goal"], flatten_axtree_to_str(seen["axtree_object"])):
            _, reward, *_ = env.step(action)
        solved += reward > 0
    return {
        "seconds": (time.perf_counter() - began) / count,
        "processor_seconds": (seconds() - spent) / count,
        "reset_processor_seconds": resetting / count,
        "solved": solved / count,
    }


def _is_driver(process: psutil.Process) -> bool:
    return process.name().startswith("node")
