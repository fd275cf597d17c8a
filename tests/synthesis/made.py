"""Small domains, and models with scripts for them."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from palaestra.core.message import Message
from palaestra.environments.families.apps.generated import blueprint_text
from palaestra.models.scripted.scripted_model import ScriptedModel
from palaestra.synthesis.committee import REVIEWER, WRITER
from palaestra.synthesis.data_synthesis import Yield, synthesise
from palaestra.synthesis.domain_file import Domain

ABOUT = "A shelter keeps cats, and the museum next door shows its exhibits."
COUNTY = Domain(name="county", about=ABOUT, seed=7, blueprints=4, worlds=2, tasks=4)
FILES = ("blueprints", "worlds", "tasks", "dialogues", "rows")


def made(folder: Path, domain: Domain = COUNTY, model: ScriptedModel | None = None) -> list[Yield]:
    return asyncio.run(synthesise(domain, folder, lambda said: None, model))


def contents(folder: Path) -> dict[str, bytes]:
    """The bytes of all files but the lock's."""
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.name != ".lock"}


def lines(folder: Path, stage: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / f"{stage}.jsonl").read_text().splitlines()]


def asked(messages: Sequence[Message]) -> str:
    return messages[-1].text


def county_model(
    write: Callable[[str], str] = lambda plain: json.dumps({"instruction": f"Hello! {plain}"}),
    review: Callable[[str], str] = lambda question: '{"accept": true}',
    engineer: Callable[[str], str] | None = None,
) -> ScriptedModel:
    """A model that writes good blueprints and words, unless other replies are given."""

    def reply(messages: Sequence[Message]) -> str:
        question = asked(messages)
        if messages[0].text == WRITER:
            found = re.search(r"in plain terms: (.*)", question)
            assert found is not None
            return write(found[1] if "refused" not in question else question)
        if messages[0].text == REVIEWER:
            return review(question)
        number = re.search(r"service (\d+) of", question)
        assert number is not None
        if engineer is not None:
            return engineer(question)
        return f"Here it is:\n```toml\n{blueprint_text(int(number[1]))}```"

    return ScriptedModel(reply, name="writer")
