"""An environment of elements as BrowserGym's agents expect one: gymnasium, with its observations.

An observation is BrowserGym's dictionary: the goal, the accessibility tree, the DOM, the properties
of each element, the picture. What there is no such thing for is empty: the address of the page, and
the picture where the environment has none. An action is text in BrowserGym's own form, such as
`click('12')`; it is read, never run.
"""

from __future__ import annotations

import io
import time
from typing import Any

import numpy as np
from gymnasium import Env
from gymnasium.spaces import Space

from palaestra.core.environment import Action, Capability
from palaestra.core.errors import InputError
from palaestra.core.rare_capabilities import caption_of, elements_of, picture_of
from palaestra.core.task import Split
from palaestra.environments import registry
from palaestra.environments.shared import browsergym_observations as written

GREETING = "Hi! Which task shall I do for you on this page?"
_ONLY: dict[str, Any] = {
    "headless": True,
    "wait_for_user_message": False,
    "use_raw_page_output": False,
    "record_video_dir": None,
    "viewport": None,
    "slow_mo": None,
}
"""Options of BrowserGym's own environment that have one value here."""


class AnyText(Space[str]):
    """The space of all texts; it has no samples, since actions depend on the page."""

    def contains(self, x: Any) -> bool:
        return isinstance(x, str)


class AnyDictionary(Space[dict[str, Any]]):
    """The space of BrowserGym's observations."""

    def contains(self, x: Any) -> bool:
        return isinstance(x, dict)


class BrowserGymEnvironment(Env[dict[str, Any], str]):
    """An environment with the interface of `browsergym.core.env.BrowserEnv`."""

    metadata = {"render_modes": []}  # noqa: RUF012  (gymnasium's)

    def __init__(self, environment: str, split: Split, **options: object) -> None:
        """Make an environment, with tasks of a split.

        Args:
            environment: the id of one with elements.
            split: whose task number s `reset(seed=s)` begins.
            options: of BrowserGym's environment, with the values that they have here. Its
                translation of actions into Python (`action_mapping`) is not needed: actions are
                read as they are written.
        """
        options.pop("action_mapping", None)
        for name, value in options.items():
            if name not in _ONLY or value != _ONLY[name]:
                known = f"it is always {_ONLY[name]!r} here" if name in _ONLY else "leave it out"
                raise InputError(f"'{environment}' has no option {name}={value!r}; {known}.")
        joint = "&" if "?" in environment else "?"
        self._environment = registry.make(f"{environment}{joint}dialect=browsergym")
        self._tasks, self._split = registry.tasks(environment), split
        self._has_picture = Capability.PICTURE in self._environment.spec.capabilities
        self._action = self._error = self._goal = ""
        self._messages: list[dict[str, Any]] = []
        self._began = 0.0
        self.action_space = AnyText()
        self.observation_space = AnyDictionary()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin task number `seed` of the split; the first one without a seed."""
        self._environment.reset(self._tasks.task(self._split, seed or 0))
        self._began = time.time()
        self._action = self._error = ""
        self._goal = caption_of(self._environment)
        self._messages = [_message("assistant", GREETING), _message("user", self._goal)]
        return self._observation(), {"task_info": {}}

    def step(self, action: str) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Do an action; what is wrong with it is in `last_action_error`."""
        begun = time.time()
        done = self._environment.step(Action(action))
        self._action = action
        self._error = "" if done.valid else done.observation.text
        if done.valid and action.lstrip().startswith("send_msg_to_user"):
            self._messages.append(_message("assistant", action))
        info = {
            "action_exec_start": begun,
            "action_exec_stop": time.time(),
            "action_exec_timeout": 0.0,
            "task_info": {"success": done.success},
        }
        return self._observation(), done.reward, done.terminated, done.truncated, info

    def close(self) -> None:
        self._environment.close()

    def _observation(self) -> dict[str, Any]:
        elements = elements_of(self._environment)
        title = elements[0].name if elements and elements[0].role == "RootWebArea" else ""
        return {
            "chat_messages": tuple(self._messages),
            "goal": self._goal,
            "goal_object": ({"type": "text", "text": self._goal},),
            "open_pages_urls": ("",),
            "open_pages_titles": (title,),
            "active_page_index": np.asarray([0]),
            "url": "",
            "screenshot": self._screenshot(),
            "dom_object": written.dom_snapshot(elements),
            "axtree_object": written.axtree(elements),
            "extra_element_properties": written.extra_properties(elements),
            "focused_element_bid": written.focused(elements),
            "last_action": self._action,
            "last_action_error": self._error,
            "elapsed_time": np.asarray([time.time() - self._began]),
        }

    def _screenshot(self) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """Return the picture as uint8[height, width, 3]; one black pixel if there is none."""
        if not self._has_picture:
            return np.zeros((1, 1, 3), np.uint8)
        from PIL import Image

        return np.asarray(Image.open(io.BytesIO(picture_of(self._environment))).convert("RGB"))


def _message(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "timestamp": time.time(), "message": text}
