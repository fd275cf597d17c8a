"""Descriptions of OpenEnv servers as environments: how to reach one, its actions, its goal.

As a TOML file:

    app = "counting:app"              # uvicorn's name of the app; it runs in the file's folder
    # python = "venv/bin/python"      # an interpreter with its packages; default: this one
    # url = "http://…"                # instead of `app`: a server that runs already
    instructions = "Count to ten."
    observation = "You are at {count}. {hint}"   # template of the fields; default: all fields
    deterministic = true              # equal seeds and equal actions give equal observations

    [action]                          # one of text, words, tool, mcp
    text = "message"                  # the field of the action model that takes the whole reply
    # words = { up = { move = 1 }, down = { move = -1 } }   # each word stands for an action
    # tool = "move"                   # a tool call; its arguments are the fields of the model
    # mcp = true                      # the tools that the server itself lists
    fixed = { loud = true }           # fields with constant values
    samples = ["one", "two"]          # replies of a random agent, where `text` is any string

    [solved]                          # at "done", the task is solved if …
    field = "won"                     # … this field of the observation
    equals = true                     #    has this value
    # reward = 1.0                    # … or the last reward is at least this
    # total = 10.0                    # … or the sum of the rewards is at least this
    # ends = true                     # end as soon as solved, even if the server does not

    [[tasks]]                         # without tasks: one task per seed
    id = "far"
    split = "train"                   # the default is test
    instruction = "Count to a hundred."   # shown before the first observation
    parameters = { goal = 100 }       # passed to the server's reset, with the task's seed
"""

from __future__ import annotations

import string
import sys
from collections.abc import Mapping
from typing import Any, Self

from pydantic import Field
from pydantic import field_validator as on_field
from pydantic import model_validator as on_model

from palaestra.environments.shared.server_description import (
    DescribedTask,
    ServerDescription,
    Strict,
)


class ActionFormat(Strict):
    """How an agent's reply becomes the server's action model."""

    text: str = ""
    words: dict[str, dict[str, Any]] = Field(default_factory=dict)
    tool: str = ""
    mcp: bool = False
    fixed: dict[str, Any] = Field(default_factory=dict)
    samples: tuple[str, ...] = ()

    @on_model(mode="after")
    def _one_format(self) -> Self:
        formats = [name for name in ("text", "words", "tool", "mcp") if getattr(self, name)]
        if len(formats) != 1:
            raise ValueError(f"give one of text, words, tool and mcp, not {len(formats)} of them")
        if self.samples and not self.text:
            raise ValueError("`samples` works with `text` only; remove it")
        if self.fixed and self.mcp:
            raise ValueError("`fixed` does not work with `mcp`; remove it")
        return self


class Solved(Strict):
    """The condition under which a task is solved."""

    field: str = ""
    equals: Any = True
    reward: float | None = None
    total: float | None = None
    ends: bool = False

    @on_model(mode="after")
    def _one_measure(self) -> Self:
        if sum((bool(self.field), self.reward is not None, self.total is not None)) != 1:
            raise ValueError("give one of field, reward and total")
        return self

    def met_by(self, observation: Mapping[str, Any], reward: float, total: float) -> bool:
        """Return whether the observation, the last reward or the total meets the condition."""
        if self.field:
            return bool(observation.get(self.field) == self.equals)
        if self.reward is not None:
            return reward >= self.reward
        assert self.total is not None
        return total >= self.total


class Description(ServerDescription[DescribedTask]):
    """A server, its action format, and its tasks."""

    server = "an OpenEnv server"

    action: ActionFormat
    solved: Solved
    app: str = ""
    python: str = ""  # empty: this interpreter
    observation: str = ""

    @on_field("observation")
    @classmethod
    def _a_template(cls, template: str) -> str:
        for _, name, _, _ in string.Formatter().parse(template):
            if name is not None and not name.split(".")[0].split("[")[0].isidentifier():
                raise ValueError(f"'{{{name}}}' is not the name of a field; correct the template")
        return template

    @on_model(mode="after")
    def _whole(self) -> Self:
        if bool(self.app) is bool(self.url):
            raise ValueError("give either `app` or `url`, not both or neither")
        if self.url and not self.url.startswith(("http://", "https://")):
            raise ValueError("`url` must begin with http:// or https://")
        return self

    @property
    def program(self) -> str:
        """The interpreter of the app; a path with a slash is relative to the folder."""
        if not self.python:
            return sys.executable
        return str(self.folder / self.python) if "/" in self.python else self.python
