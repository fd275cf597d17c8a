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

import hashlib
import string
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic import field_validator as on_field
from pydantic import model_validator as on_model

from palaestra.core.errors import InputError
from palaestra.core.task import Split


class Strict(BaseModel):
    """A frozen model that rejects unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ActionFormat(Strict):
    """How an agent's reply becomes the server's action model."""

    text: str = ""
    words: dict[str, dict[str, Any]] = {}
    tool: str = ""
    mcp: bool = False
    fixed: dict[str, Any] = {}
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


class Assignment(Strict):
    """A task in a description."""

    id: str
    split: Split = Split.TEST
    instruction: str = ""
    parameters: dict[str, Any] = {}


class Description(Strict):
    """A server, its action format, and its tasks."""

    action: ActionFormat
    solved: Solved
    app: str = ""
    python: str = ""  # empty: this interpreter
    folder: Path = Path()  # where the app runs
    environment: dict[str, str] = {}  # variables added to those of this process
    url: str = ""
    instructions: str = ""
    observation: str = ""
    tasks: tuple[Assignment, ...] = ()
    deterministic: bool = False
    timeout: float = Field(default=30.0, gt=0)  # seconds for one answer
    turns: int = Field(default=20, gt=0)  # `typical_turns`
    edition: str = "0"  # snapshots of other editions are refused

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
        ids = [task.id for task in self.tasks]
        if len(set(ids)) < len(ids):
            raise ValueError(f"task ids repeat ({', '.join(sorted(ids))}); make each unique")
        return self

    @property
    def program(self) -> str:
        """The interpreter of the app; a path with a slash is relative to the folder."""
        if not self.python:
            return sys.executable
        return str(self.folder / self.python) if "/" in self.python else self.python

    def find(self, id: object) -> Assignment | None:
        return next((task for task in self.tasks if task.id == id), None)


def load(path: Path) -> Description:
    """Load the description in a TOML file.

    Raises:
        InputError: the file cannot be read, or is not a valid description.
    """
    try:
        body = path.read_bytes()
        fields = tomllib.loads(body.decode())
    except (OSError, ValueError) as error:
        raise InputError(
            f"'{path}' cannot be read as a description ({error}); give a TOML file."
        ) from error
    fields["folder"] = path.absolute().parent / str(fields.get("folder", ""))
    fields.setdefault("edition", hashlib.blake2b(body, digest_size=6).hexdigest())
    try:
        return Description.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"])) or "the file"
        raise InputError(
            f"'{path}' is not a valid description of an OpenEnv server: {key}: {first['msg']}."
        ) from None
