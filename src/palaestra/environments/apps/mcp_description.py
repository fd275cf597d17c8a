"""What makes an MCP server an environment: how to reach it, what to do there, how it is checked.

As a TOML file:

    command = "{python}"              # this interpreter; or any program on the PATH
    arguments = ["server.py"]         # it runs in the file's folder
    # url = "http://…/mcp"            # instead of a command: a server that runs already
    instructions = "You keep a to-do list."
    reset = "clear"                   # a tool for us alone, called with a task's parameters
    deterministic = true              # equal tasks and equal calls give equal answers

    [[tasks]]
    id = "milk"
    instruction = "Put milk on the list."
    check = "my_checks:has_milk"      # called with (task, calls made, last words): bool or float
    solution = [{ tool = "add", arguments = { text = "milk" } }, "Done."]

    [[tasks]]
    id = "bread"
    instruction = "Put bread on the list."
    split = "train"                   # test, where nothing is said
    check = { tool = "show", equals = "bread" }
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import json
import sys
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo
from pydantic import field_validator as on_field
from pydantic import model_validator as on_model

from palaestra.core.errors import InputError
from palaestra.core.task import Split

PYTHON = "{python}"  # of a command: the interpreter that runs this


@dataclass(frozen=True, slots=True)
class Made:
    """A call that an agent made, and what came of it."""

    name: str
    arguments: dict[str, Any]
    text: str  # what the agent was told
    data: Any = None  # the structured content, where the server gives any
    failed: bool = False  # the tool ran and says that it failed


class Strict(BaseModel):
    """Unknown keys are mistakes."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Use(Strict):
    """A call of a tool."""

    tool: str
    arguments: dict[str, Any] = {}


class Wanted(Use):
    """A call whose result must equal something: its text, or what it is as JSON."""

    equals: Any

    def met_by(self, text: str, data: Any) -> bool:
        """Whether a result is it; servers wrap what is no object as {"result": …}."""
        found = [text, data]
        if isinstance(data, dict) and set(data) == {"result"}:
            found.append(data["result"])
        with contextlib.suppress(ValueError):
            found.append(json.loads(text))
        return any(self.equals == one for one in found)


class Assignment(Strict):
    """A task of a description."""

    id: str
    instruction: str
    check: Wanted | Callable[[Assignment, Sequence[Made], str], bool | float]
    split: Split = Split.TEST
    parameters: dict[str, Any] = {}
    solution: tuple[Use | str, ...] = ()  # calls and last words that solve it from its start

    @on_field("check", mode="before")
    @classmethod
    def _named(cls, check: Any, info: ValidationInfo) -> Any:
        folder = (info.context or {}).get("folder")
        return _function(check, folder) if isinstance(check, str) else check


class Description(Strict):
    """A server and its tasks."""

    tasks: tuple[Assignment, ...] = Field(min_length=1)
    command: str = ""
    arguments: tuple[str, ...] = ()
    environment: dict[str, str] = {}  # variables, beside the few that the protocol's client passes
    folder: Path = Path()  # where the command runs
    url: str = ""
    instructions: str = ""  # empty: those of the server
    tools: tuple[str, ...] = ()  # that the agent may use; empty: all but the one that resets
    reset: str = ""  # empty: the server is started anew for each task
    deterministic: bool = False
    timeout: float = Field(default=30.0, gt=0)  # seconds of one call
    turns: int = Field(default=20, gt=0)  # `typical_turns`
    edition: str = "0"  # snapshots of other editions are refused

    @on_model(mode="after")
    def _whole(self) -> Self:
        if bool(self.command) is bool(self.url):
            raise ValueError("give either a command or a url")
        ids = [task.id for task in self.tasks]
        if len(set(ids)) < len(ids):
            raise ValueError(f"ids of tasks are not unique: {', '.join(sorted(ids))}")
        if self.url and self.deterministic and not self.reset:
            raise ValueError("a server behind a url is deterministic only with a tool that resets")
        return self

    @property
    def program(self) -> str:
        return sys.executable if self.command == PYTHON else self.command

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
    folder = path.absolute().parent
    said["folder"] = folder / str(said.get("folder", ""))
    said.setdefault("edition", hashlib.blake2b(body, digest_size=6).hexdigest())
    try:
        return Description.model_validate(said, context={"folder": folder})
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "it"
        words = f"'{path}' is no description of an MCP world: {place}: {first['msg']}."
        raise InputError(words) from None


def _function(target: str, folder: Path | None) -> Callable[..., Any]:
    """The function `module:name`, from a file in the folder or from what is installed."""
    module_name, _, name = target.partition(":")
    file = folder / (module_name.replace(".", "/") + ".py") if folder else None
    try:
        if file is not None and file.is_file():
            spec = importlib.util.spec_from_file_location(f"{module_name}@{folder}", file)
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[spec.name] = module  # dataclasses look there
            spec.loader.exec_module(module)
        else:
            module = importlib.import_module(module_name)
        found: Callable[..., Any] = getattr(module, name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"there is no function '{target}' ({error})") from error
    if not callable(found):
        raise ValueError(f"'{target}' is no function")
    return found
