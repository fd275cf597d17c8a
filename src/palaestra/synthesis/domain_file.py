"""A domain file: what the data is to be about, and how much of it is wanted.

    name = "county"
    about = "A shelter keeps cats, and the museum next door shows its exhibits."
    seed = 7
    blueprints = 6   # apps
    worlds = 4       # each of `apps` apps that refer to each other, and their users
    apps = 2
    tasks = 24       # each of `goals` goals in one of the worlds
    goals = 2
    told = 6         # tasks in which the user tells each value when asked
    personas = true  # users ask and tell in manners of their own, drawn from the seed
    twins = 4        # pairs of tasks beside rules, of which one forbids what the other permits

    [review]         # with a model: who looks at the words of tasks
    reviewers = 3
    rounds = 2

    [explore]        # with a model: tasks are made of what it does by itself
    explorations = 4
    calls = 6

Without a model, apps are drawn about what `about` names; `files` are blueprints to be used besides.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from palaestra.core.errors import InputError
from palaestra.environments.families.apps.compiler.blueprint import NAME
from palaestra.environments.families.apps.generated import DOMAINS


class Review(BaseModel):
    """How the words of a task are reviewed (APIGen-MT, Prabhakar et al. 2025)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    reviewers: int = Field(3, ge=1, le=15)
    rounds: int = Field(2, ge=1, le=10)  # of writing, reviews, and writing anew


class Explore(BaseModel):
    """How a model explores the worlds (Learn-by-interact, Su et al. 2025)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    explorations: int = Field(4, ge=1, le=100_000)
    calls: int = Field(6, ge=1, le=50)  # at most, of one exploration


class Domain(BaseModel):
    """What is to be synthesised."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern=f"^{NAME}$")
    about: str
    seed: int = Field(0, ge=0)
    blueprints: int = Field(4, ge=1, le=200)
    worlds: int = Field(4, ge=1, le=10_000)
    apps: int = Field(2, ge=1, le=8)
    tasks: int = Field(20, ge=1, le=100_000)
    goals: int = Field(2, ge=1, le=8)
    told: int = Field(0, ge=0, le=100_000)
    twins: int = Field(0, ge=0, le=100_000)
    personas: bool = False  # users speak in manners that are drawn
    agent: str = "direct"  # who shows the reference, and so the form of its replies
    files: dict[str, str] = {}  # texts of blueprints, by file
    procedures: dict[str, str] = {}  # texts, by file
    conversations: int = Field(1, ge=1, le=1000)  # on each path of each procedure
    review: Review | None = None
    explore: Explore | None = None


def read_domain(file: Path) -> Domain:
    """Return the domain of a file, with the texts of the blueprints that it names.

    Raises:
        InputError: it cannot be read, has unknown keys or wrong values, or says nothing.
    """
    document = _toml(file)
    for key in ("files", "procedures"):
        listed = document.get(key, [])
        if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
            raise InputError(f"{file}: '{key}' must be a list of files.")
        document[key] = {name: _text(file.parent / name) for name in listed}
    try:
        domain = Domain.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InputError(f"{file}: {where}: {first['msg']}.") from None
    if not re.search(r"\w", domain.about):
        raise InputError(
            f"{file}: 'about' says nothing; describe the domain, such as "
            '"A shelter keeps cats, and an archive keeps documents."'
        )
    if domain.blueprints < len(domain.files):
        raise InputError(
            f"{file}: blueprints = {domain.blueprints} is less than the {len(domain.files)} files; "
            "set it higher."
        )
    if "conversations" in document and not domain.procedures:
        raise InputError(f"{file}: 'conversations' needs 'procedures'; name some, or leave it out.")
    return domain


def subjects(domain: Domain) -> list[str]:
    """Return the subjects of apps that a description names; if none, those whose entities it names.

    Raises:
        InputError: it names none.
    """
    words = {_singular(word) for word in re.findall(r"[a-z]+", domain.about.casefold())}
    named = [subject for subject in DOMAINS if subject in words]
    by_entity = [
        subject
        for subject, (nouns, _) in DOMAINS.items()
        if words & {*nouns.replace("_", " ").split()}
    ]
    found = named or by_entity
    if not found:
        raise InputError(
            f"'about' of the domain '{domain.name}' names nothing that apps can be drawn about; "
            f"name some of {', '.join(DOMAINS)}, give blueprints as 'files', or a --model that "
            "writes them."
        )
    return found


def _singular(word: str) -> str:
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file} cannot be read: {error}.") from None


def _toml(file: Path) -> dict[str, object]:
    try:
        return tomllib.loads(_text(file))
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{file} is not valid TOML: {error}.") from None
