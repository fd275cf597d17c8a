"""Conversations by written procedures: paths that cover each, and what is said on them."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from palaestra.core.task import Task
from palaestra.environments.families.apps.composing.draws import WORDS
from palaestra.environments.families.synthesised.finished_folder import Made
from palaestra.environments.families.synthesised.procedure_desk import ProcedureDesk, rejected
from palaestra.environments.families.synthesised.procedures import (
    Procedure,
    covering_paths,
    parse_procedure,
)
from palaestra.store.codec import JSON
from palaestra.store.exchange.episode_schema import episode_document
from palaestra.synthesis.domain_file import Domain
from palaestra.synthesis.reference_dialogues import shown
from palaestra.synthesis.stage_files import Stage


def path_stage(domain: Domain) -> Stage:
    """Return the stage that makes conversations to be had.

    A line: `procedure` (its file), `path` (steps and outcomes), `slots` (what the user says),
    `rejected` (number by reason; empty if it passed). An item has one line for each path.
    """

    async def make(made: Made, number: int) -> Sequence[JSON]:
        file = list(domain.procedures)[number // domain.conversations]
        rng = random.Random(f"paths {domain.seed} {number}")
        procedure = parse_procedure(domain.procedures[file], file)
        slots = dict.fromkeys(step.asks for step in procedure.steps.values() if step.asks)
        drawn = [{slot: _value(rng) for slot in slots} for _ in covering_paths(procedure)]
        desks = [
            ProcedureDesk(procedure, path, values)
            for path, values in zip(covering_paths(procedure), drawn, strict=True)
        ]
        task = Task(f"paths/{number}", domain.name, seed=0)
        lines: list[JSON] = []
        for at, (path, values) in enumerate(zip(covering_paths(procedure), drawn, strict=True)):
            other = ProcedureDesk(procedure, path, {slot: _value(rng) for slot in slots})
            reason = rejected(desks[at], task, [*desks[:at], *desks[at + 1 :], other])
            lines.append(
                {
                    "procedure": file,
                    "path": [list(step) for step in path],
                    "slots": dict(values),
                    "rejected": {reason: 1} if reason else {},
                }
            )
        return lines

    return Stage("paths", (), lambda made: len(domain.procedures) * domain.conversations, make)


def conversation_stage(domain: Domain) -> Stage:
    """Return the stage that makes conversations: episodes, as those of the stage `dialogues`."""

    async def make(made: Made, number: int) -> Sequence[JSON]:
        line = made["paths"][number]
        if line["rejected"]:
            return []
        id = f"procedures/{domain.name}"
        episode = await shown(domain, id, number, desk_of(line, _parsed(domain, line)))
        return [episode_document(episode)] if episode.outcome.solved else []

    return Stage("conversations", ("paths",), lambda made: len(made["paths"]), make)


def desk_of(line: Mapping[str, Any], procedure: Procedure) -> ProcedureDesk:
    """Return the conversation of a line of the stage `paths`."""
    path = tuple((number, outcome) for number, outcome in line["path"])
    return ProcedureDesk(procedure, path, line["slots"])


def _parsed(domain: Domain, line: Mapping[str, Any]) -> Procedure:
    return parse_procedure(domain.procedures[line["procedure"]], line["procedure"])


def _value(rng: random.Random) -> str:
    return f"{rng.choice(WORDS)}-{rng.randint(100, 999)}"
