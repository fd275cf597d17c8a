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
import importlib
import importlib.util
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from pydantic import Field, ValidationInfo
from pydantic import field_validator as on_field
from pydantic import model_validator as on_model

from palaestra.environments.shared.server_description import (
    DescribedTask,
    ServerDescription,
    Strict,
)

PYTHON = "{python}"  # in `command`: the interpreter that runs this process


@dataclass(frozen=True, slots=True)
class Made:
    """A tool call that an agent made, with its result."""

    name: str
    arguments: dict[str, Any]
    text: str  # the result as the agent saw it
    data: Any = None  # the structured content, if the server returns any
    failed: bool = False  # the tool ran and reported an error


class Use(Strict):
    """A tool call in a description."""

    tool: str
    arguments: dict[str, Any] = Field(default_factory=dict)


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


class Assignment(DescribedTask):
    """A task, its check, and a solution."""

    instruction: str
    check: Wanted | Callable[[Assignment, Sequence[Made], str], bool | float]
    solution: tuple[Use | str, ...] = ()  # calls and a last reply that solve it from its start

    @on_field("check", mode="before")
    @classmethod
    def _named(cls, check: Any, info: ValidationInfo) -> Any:
        folder = (info.context or {}).get("folder")
        return _function(check, folder) if isinstance(check, str) else check


class Description(ServerDescription[Assignment]):
    """A server and its tasks; without `instructions`, those of the server are used."""

    server = "an MCP server"

    tasks: tuple[Assignment, ...] = Field(min_length=1)
    command: str = ""
    arguments: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()  # the agent's tools; empty: all except `reset`
    reset: str = ""  # empty: the server is restarted for each task

    @on_model(mode="after")
    def _whole(self) -> Self:
        if bool(self.command) is bool(self.url):
            raise ValueError("give either `command` or `url`, not both or neither")
        if self.url and self.deterministic and not self.reset:
            raise ValueError("`deterministic` with a `url` needs `reset`, a tool that resets")
        return self

    @property
    def program(self) -> str:
        return sys.executable if self.command == PYTHON else self.command


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
