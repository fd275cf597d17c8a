"""Descriptions of MCP servers as environments: how to reach one, its tasks, and their checks.

As a TOML file:

    command = "{python}"              # this interpreter; or any program on the PATH
    arguments = ["server.py"]         # it runs in the file's folder
    # url = "http://…/mcp"            # instead of a command: a server that runs already
    instructions = "You keep a to-do list."
    reset = "clear"                   # a hidden tool, called with the task's parameters
    deterministic = true              # equal tasks and equal calls give equal results

    [[tasks]]
    id = "milk"
    instruction = "Put milk on the list."
    check = "my_checks:has_milk"      # called with (task, calls made, last reply): bool or float
    solution = [{ tool = "add", arguments = { text = "milk" } }, "Done."]

    [[tasks]]
    id = "bread"
    instruction = "Put bread on the list."
    split = "train"                   # the default is test
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

PYTHON = "{python}"  # in `command`: the interpreter that runs this process


@dataclass(frozen=True, slots=True)
class Made:
    """A tool call that an agent made, with its result."""

    name: str
    arguments: dict[str, Any]
    text: str  # the result as the agent saw it
    data: Any = None  # the structured content, if the server returns any
    failed: bool = False  # the tool ran and reported an error


class Strict(BaseModel):
    """A frozen model that rejects unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Use(Strict):
    """A tool call in a description."""

    tool: str
    arguments: dict[str, Any] = {}


class Wanted(Use):
    """A check by a tool call: its result, as text or as JSON, must equal a value."""

    equals: Any

    def met_by(self, text: str, data: Any) -> bool:
        """Return whether a result equals the value; a wrapper {"result": …} is ignored."""
        found = [text, data]
        if isinstance(data, dict) and set(data) == {"result"}:
            found.append(data["result"])
        with contextlib.suppress(ValueError):
            found.append(json.loads(text))
        return any(self.equals == value for value in found)


class Assignment(Strict):
    """A task in a description."""

    id: str
    instruction: str
    check: Wanted | Callable[[Assignment, Sequence[Made], str], bool | float]
    split: Split = Split.TEST
    parameters: dict[str, Any] = {}
    solution: tuple[Use | str, ...] = ()  # calls and a last reply that solve it from its start

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
    environment: dict[str, str] = {}  # variables added to those that the MCP client passes
    folder: Path = Path()  # where the command runs
    url: str = ""
    instructions: str = ""  # empty: those of the server
    tools: tuple[str, ...] = ()  # the agent's tools; empty: all except `reset`
    reset: str = ""  # empty: the server is restarted for each task
    deterministic: bool = False
    timeout: float = Field(default=30.0, gt=0)  # seconds of one call
    turns: int = Field(default=20, gt=0)  # `typical_turns`
    edition: str = "0"  # snapshots of other editions are refused

    @on_model(mode="after")
    def _whole(self) -> Self:
        if bool(self.command) is bool(self.url):
            raise ValueError("give either `command` or `url`, not both or neither")
        ids = [task.id for task in self.tasks]
        if len(set(ids)) < len(ids):
            raise ValueError(f"task ids repeat ({', '.join(sorted(ids))}); make each unique")
        if self.url and self.deterministic and not self.reset:
            raise ValueError("`deterministic` with a `url` needs `reset`, a tool that resets")
        return self

    @property
    def program(self) -> str:
        return sys.executable if self.command == PYTHON else self.command

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
    folder = path.absolute().parent
    fields["folder"] = folder / str(fields.get("folder", ""))
    fields.setdefault("edition", hashlib.blake2b(body, digest_size=6).hexdigest())
    try:
        return Description.model_validate(fields, context={"folder": folder})
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"])) or "the file"
        raise InputError(
            f"'{path}' is not a valid description of an MCP server: {key}: {first['msg']}."
        ) from None


def _function(target: str, folder: Path | None) -> Callable[..., Any]:
    """Import the function `module:name` from a file in the folder or an installed module."""
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
        raise ValueError(f"'{target}' cannot be imported ({error}); write 'module:name'") from error
    if not callable(found):
        raise ValueError(f"'{target}' is not a function; name one")
    return found
