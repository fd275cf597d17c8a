"""BrowserGym's MiniWoB tasks: an episode is a reset, a click on the page's button, its reward."""

from __future__ import annotations

import re
import time
from typing import Any

import browsergym.miniwob  # noqa: F401  (registers the tasks)
import gymnasium
import psutil
from browsergym.utils.obs import flatten_axtree_to_str

_WORLD: dict[str, Any] = {}


def seconds() -> float:
    """The processor time of this process, those that it started, and theirs that ended."""
    tree = [psutil.Process(), *psutil.Process().children(recursive=True)]
    return sum(sum(process.cpu_times()[:4]) for process in tree)


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Run episodes of a task; return seconds and processor seconds of one, and the share solved."""
    if "env" not in _WORLD:
        _WORLD["env"] = gymnasium.make(request["task"], headless=True)
        _WORLD["env"].reset(seed=0)  # starts its browsers
    env, count, solved = _WORLD["env"], int(request["episodes"]), 0
    began, spent = time.perf_counter(), seconds()
    for seed in range(count):
        seen, _ = env.reset(seed=seed)
        tree = flatten_axtree_to_str(seen["axtree_object"])
        found = re.search(r"\[(\w+)\] button", tree)
        assert found is not None, tree
        _, reward, *_ = env.step(f'click("{found[1]}")')
        solved += reward > 0
    return {
        "seconds": (time.perf_counter() - began) / count,
        "processor_seconds": (seconds() - spent) / count,
        "solved": solved / count,
    }
