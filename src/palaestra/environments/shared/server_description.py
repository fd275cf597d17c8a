"""What the descriptions of servers as environments have in common; see `described_server`.

A description is a TOML file that says how to reach a server, and lists tasks. A family adds the
keys of its protocol; unknown keys are errors.
"""

from __future__ import annotations

import hashlib
import tomllib
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic import model_validator as on_model

from palaestra.core.errors import InputError
from palaestra.core.task import Split


class Strict(BaseModel):
    """A frozen model that rejects unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class DescribedTask(Strict):
    """A task in a description."""

    id: str
    split: Split = Split.TEST
    instruction: str = ""
    parameters: dict[str, Any] = {}


T = TypeVar("T", bound=DescribedTask)


class ServerDescription(Strict, Generic[T]):
    """A server and its tasks."""

    server: ClassVar[str]  # its kind, in errors: "an MCP server"

    tasks: tuple[T, ...] = ()
    folder: Path = Path()  # where its program runs
    environment: dict[str, str] = {}  # variables added to those of this process
    url: str = ""  # of a server that runs already
    instructions: str = ""
    deterministic: bool = False
    timeout: float = Field(default=30.0, gt=0)  # seconds of one call
    turns: int = Field(default=20, gt=0)  # `typical_turns`
    edition: str = "0"  # snapshots of other editions are refused

    @on_model(mode="after")
    def _each_task_once(self) -> Self:
        ids = [task.id for task in self.tasks]
        if len(set(ids)) < len(ids):
            raise ValueError(f"task ids repeat ({', '.join(sorted(ids))}); make each unique")
        return self

    def find(self, id: object) -> T | None:
        """Return the task of that id, if there is one."""
        return next((task for task in self.tasks if task.id == id), None)

    @classmethod
    def load(cls, path: Path) -> Self:
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
            return cls.model_validate(fields, context={"folder": path.absolute().parent})
        except ValidationError as error:
            first = error.errors()[0]
            key = ".".join(map(str, first["loc"])) or "the file"
            raise InputError(
                f"'{path}' is not a valid description of {cls.server}: {key}: {first['msg']}."
            ) from None
