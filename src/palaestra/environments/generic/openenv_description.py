"""What makes an OpenEnv server an environment: how to reach it, to speak to it, and to solve it.

As a TOML file:

    app = "counting:app"              # uvicorn's name of the app; it runs in the file's folder
    # python = "venv/bin/python"      # an interpreter with its packages; else this one
    # url = "http://…"                # instead of an app: a server that runs already
    instructions = "Count to ten."
    observation = "You are at {count}. {hint}"   # of the observation's fields; else all of them
    deterministic = true              # equal seeds and equal actions give equal answers

    [action]                          # one of text, words, tool, mcp
    text = "message"                  # one field of the action's model takes all the words
    # words = { up = { move = 1 }, down = { move = -1 } }   # each word stands for an action
    # tool = "move"                   # a tool call; its arguments are the fields of the model
    # mcp = true                      # the tools that the server itself lists
    fixed = { loud = true }           # fields that are always the same
    samples = ["one", "two"]          # what a random agent says, where `text` is any string

    [solved]                          # when the server says "done", the task is solved if …
    field = "won"                     # … this field of the observation
    equals = true                     #    is this
    # reward = 1.0                    # … or the last reward is at least this
    # total = 10.0                    # … or the sum of the rewards is
    # ends = true                     # solved at once, though the server says nothing of an end

    [[tasks]]                         # without any: endless tasks, told apart by their seeds
    id = "far"
    split = "train"                   # test, where nothing is said
    instruction = "Count to a hundred."   # said before the first observation
    parameters = { goal = 100 }       # given to the server's reset, beside the task's seed
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
    """Unknown keys are mistakes."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Speech(Strict):
    """How an agent's words become the server's action model."""

    text: str = ""
    words: dict[str, dict[str, Any]] = {}
    tool: str = ""
    mcp: bool = False
    fixed: dict[str, Any] = {}
    samples: tuple[str, ...] = ()

    @on_model(mode="after")
    def _one_way(self) -> Self:
        ways = [name for name in ("text", "words", "tool", "mcp") if getattr(self, name)]
        if len(ways) != 1:
            raise ValueError(f"give one of text, words, tool and mcp, not {len(ways)} of them")
        if self.samples and not self.text:
            raise ValueError("samples are of text only")
        if self.fixed and self.mcp:
            raise ValueError("with mcp, no field is fixed")
        return self


class Solved(Strict):
    """When a task is solved."""

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
        """Whether this is the observation, the reward or the sum of rewards of a solved task."""
        if self.field:
            return bool(observation.get(self.field) == self.equals)
        if self.reward is not None:
            return reward >= self.reward
        assert self.total is not None
        return total >= self.total


class Assignment(Strict):
    """A task of a description."""

    id: str
    split: Split = Split.TEST
    instruction: str = ""
    parameters: dict[str, Any] = {}


class Description(Strict):
    """A server, how to speak with it, and its tasks."""

    action: Speech
    solved: Solved
    app: str = ""
    python: str = ""  # empty: this interpreter
    folder: Path = Path()  # where the app runs
    environment: dict[str, str] = {}  # variables, beside those of this process
    url: str = ""
    instructions: str = ""
    observation: str = ""
    tasks: tuple[Assignment, ...] = ()
    deterministic: bool = False
    timeout: float = Field(default=30.0, gt=0)  # seconds of one answer
    turns: int = Field(default=20, gt=0)  # `typical_turns`
    edition: str = "0"  # snapshots of other editions are refused

    @on_field("observation")
    @classmethod
    def _a_template(cls, template: str) -> str:
        for _, name, _, _ in string.Formatter().parse(template):
            if name is not None and not name.split(".")[0].split("[")[0].isidentifier():
                raise ValueError(f"'{{{name}}}' is no name of a field")
        return template

    @on_model(mode="after")
    def _whole(self) -> Self:
        if bool(self.app) is bool(self.url):
            raise ValueError("give either an app or a url")
        if self.url and not self.url.startswith(("http://", "https://")):
            raise ValueError("a url begins with http:// or https://")
        ids = [task.id for task in self.tasks]
        if len(set(ids)) < len(ids):
            raise ValueError(f"ids of tasks are not unique: {', '.join(sorted(ids))}")
        return self

    @property
    def program(self) -> str:
        """The interpreter of the app: a path with a slash is meant from the folder."""
        if not self.python:
            return sys.executable
        return str(self.folder / self.python) if "/" in self.python else self.python

    def find(self, id: object) -> Assignment | None:
        return next((task for task in self.tasks if task.id == id), None)


def load(path: Path) -> Description:
    """The description in a file.

    Raises:
        InputError: there is no such file, or it is no description.
    """
    try:
        body = path.read_bytes()
        said = tomllib.loads(body.decode())
    except (OSError, ValueError) as error:
        raise InputError(f"'{path}' cannot be read as a description: {error}.") from error
    said["folder"] = path.absolute().parent / str(said.get("folder", ""))
    said.setdefault("edition", hashlib.blake2b(body, digest_size=6).hexdigest())
    try:
        return Description.model_validate(said)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "it"
        words = f"'{path}' is no description of an OpenEnv world: {place}: {first['msg']}."
        raise InputError(words) from None
