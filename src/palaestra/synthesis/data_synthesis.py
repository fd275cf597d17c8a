"""The synthesis of a domain: its stages in order, and how many of their items passed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from palaestra.agents.registry import make_agent
from palaestra.core.errors import InputError
from palaestra.core.model import Model
from palaestra.environments.families.synthesised.finished_folder import Made
from palaestra.environments.families.synthesised.procedures import parse_procedure
from palaestra.environments.families.synthesised.synthesised_tasks import (
    SOURCES,
    is_repeated,
    task_lines,
)
from palaestra.synthesis.blueprint_stage import blueprint_stage, check_blueprint, passed
from palaestra.synthesis.domain_file import Domain, subjects
from palaestra.synthesis.linked_worlds import world_stage
from palaestra.synthesis.procedure_stages import conversation_stage, path_stage
from palaestra.synthesis.reference_dialogues import dialogue_stage, row_stage
from palaestra.synthesis.stage_files import StageFolder
from palaestra.synthesis.task_stage import (
    exploration_stage,
    task_stage,
    told_stage,
    twin_stage,
)

EPISODES = ("dialogues", "conversations")
"""Stages whose lines are episodes."""


@dataclass(frozen=True, slots=True)
class Yield:
    """What a stage made."""

    stage: str
    made: int  # that passed
    tried: int  # with those that were rejected
    reasons: Counter[str] = field(default_factory=Counter)  # of rejection


async def synthesise(
    domain: Domain, folder: Path, say: Callable[[str], None], model: Model | None = None
) -> list[Yield]:
    """Make all files of a domain, or those that are missing, and return the yield of each stage.

    Args:
        domain: what is wanted.
        folder: new, or of the same domain and model.
        say: receives a sentence when a stage is finished.
        model: writes blueprints and the words of tasks; None: both are drawn.

    Raises:
        InputError: see `check_domain` and `StageFolder`; or too few blueprints passed.
    """
    check_domain(domain, with_model=model is not None)
    settings = {**domain.model_dump(mode="json"), "model": model.name if model else None}
    for key in ("told", "twins", "personas"):  # folders of earlier versions have no such keys
        if not settings[key]:
            del settings[key]
    stages = [
        blueprint_stage(domain, model),
        world_stage(domain),
        task_stage(domain, model),
        *((exploration_stage(domain, model),) if model and domain.explore else ()),
        *((told_stage(domain),) if domain.told else ()),
        *((twin_stage(domain),) if domain.twins else ()),
        dialogue_stage(domain),
        *((path_stage(domain), conversation_stage(domain)) if domain.procedures else ()),
    ]
    stages.append(row_stage([one.name for one in stages if one.name in EPISODES]))
    return yields(await StageFolder(folder, settings).run(stages, say))


def check_domain(domain: Domain, with_model: bool) -> None:
    """Check what can be checked before anything is made.

    Raises:
        InputError: a blueprint or a procedure does not pass (its line is named), the description
            names nothing that could be drawn, or a table wants a model and there is none.
        UnknownName: there is no such agent.
    """
    for file, text in domain.files.items():
        check_blueprint(text, file)
    for file, text in domain.procedures.items():
        parse_procedure(text, file)
    make_agent(domain.agent)
    for table, given in (("review", domain.review), ("explore", domain.explore)):
        if not with_model and given is not None:
            raise InputError(
                f"The domain '{domain.name}' has [{table}], and nobody does that without a model; "
                "give --model, or leave the table out."
            )
    if not with_model and domain.blueprints > len(domain.files):
        subjects(domain)


def yields(made: Made) -> list[Yield]:
    """Return what each stage made, and why the rest was rejected."""
    blueprints = made["blueprints"]
    kept = len(passed(blueprints))
    refused = _reasons(blueprints)
    if repeated := sum(one["toml"] is not None for one in blueprints) - kept:
        refused["another blueprint has the same name"] = repeated
    tasks = task_lines(made)
    solved = [number for number, one in enumerate(tasks) if one["goals"] is not None]
    twice = Counter(is_repeated(tasks, number) for number in solved)[True]
    failed = Counter(
        {
            "an earlier task is the same": twice,
            "the environment does not call it solved": len(solved) - twice - len(made["dialogues"]),
        }
    )
    return [
        Yield("blueprints", kept, kept + refused.total(), refused),
        Yield("worlds", len(made["worlds"]), len(made["worlds"])),
        *(_of_tasks(stage, made[stage]) for stage in SOURCES if stage in made),
        Yield("dialogues", len(made["dialogues"]), len(solved), +failed),
        *_by_procedures(made),
        Yield("rows", len(made["rows"]), len(made["rows"])),
    ]


def _of_tasks(stage: str, lines: list[Any]) -> Yield:
    passing, reasons = sum(one["goals"] is not None for one in lines), _reasons(lines)
    return Yield(stage, passing, passing + reasons.total(), reasons)


def _by_procedures(made: Made) -> list[Yield]:
    if "paths" not in made:
        return []
    reasons, tried = _reasons(made["paths"]), len(made["paths"])
    kept = tried - reasons.total()
    done = len(made["conversations"])
    return [Yield("paths", kept, tried, reasons), Yield("conversations", done, kept)]


def _reasons(lines: list[dict[str, dict[str, int]]]) -> Counter[str]:
    found: Counter[str] = Counter()
    for line in lines:
        found.update(line["rejected"])
    return found
