"""The τ²-bench domains of the package: tasks, splits, policies and tools.

All data is read once per process and never changed. The data files are checked against the release
that this adapter was written for: tasks were corrected between releases, so rewards on other data
are not comparable.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from inspect_ai.dataset import Sample
from inspect_ai.tool import ToolDef
from inspect_evals.tau2.airline import agents as airline_agents
from inspect_evals.tau2.airline import dataset as airline_dataset
from inspect_evals.tau2.airline.data_model import FlightDB
from inspect_evals.tau2.airline.tools import all_airline_tools
from inspect_evals.tau2.retail import agents as retail_agents
from inspect_evals.tau2.retail import dataset as retail_dataset
from inspect_evals.tau2.retail.data_model import RetailDB
from inspect_evals.tau2.retail.tools import all_retail_tools
from inspect_evals.tau2.telecom import agents as telecom_agents
from inspect_evals.tau2.telecom import dataset as telecom_dataset
from inspect_evals.tau2.telecom.data_model import TelecomDB
from inspect_evals.tau2.telecom.tools import all_telecom_agent_tools
from inspect_evals.tau2.telecom.user_data_model import TelecomUserDB
from inspect_evals.tau2.telecom.user_tools import all_telecom_user_tools
from inspect_evals.tau2.utils import TAU2_DATA_DIR

from palaestra.core.errors import InputError
from palaestra.core.task import Split
from palaestra.core.tool import Tool

AGENT, USER = "agent", "user"
RELEASE = "0.26.0"
"""The release of inspect-evals; its data is sierra-research/tau2-bench at commit 377cecff."""

HASHES = {
    "domains/airline/db.json.gz": "95cec1fdf3e04218",
    "domains/airline/policy.txt": "8307c50fda0c7476",
    "domains/airline/split_tasks.json": "53997ae7261defa4",
    "domains/airline/tasks.json": "69db6d690e420250",
    "domains/retail/db.json.gz": "d2d99f30a74c1f8c",
    "domains/retail/policy.txt": "2c9652afbce57d6e",
    "domains/retail/split_tasks.json": "5786a7b81edf2713",
    "domains/retail/tasks.json": "b8bfb7a5bf636d26",
    "domains/telecom/db.toml": "562d647ef9d7df8d",
    "domains/telecom/main_policy.txt": "dde1c5d65d680e1f",
    "domains/telecom/split_tasks.json": "01db106162c42251",
    "domains/telecom/tasks.json.gz": "5c0b9203cda0c1f8",
    "domains/telecom/tech_support_manual.txt": "aaa9139ff05a692c",
    "domains/telecom/user_db.toml": "4886107ea0c16f8e",
    "user_simulator/simulation_guidelines.txt": "075938db4c2042be",
    "user_simulator/simulation_guidelines_tools.txt": "c64fc531ddc5f6a0",
}
"""The data files of that release, by the first 16 digits of their SHA-256."""


@dataclass(frozen=True, slots=True)
class Domain:
    """The package's data and tools of one domain."""

    name: str
    tasks: str  # path of the tasks file
    database: Callable[[], Any]
    policy: Callable[[], str]
    sample: Callable[[dict[str, Any]], Sample]  # makes the package's sample from a task record
    agent_tools: Sequence[Callable[[], Any]]
    user_tools: Sequence[Callable[[], Any]] = ()

    def makers(self, who: str) -> Sequence[Callable[[], Any]]:
        return self.agent_tools if who == AGENT else self.user_tools


DOMAINS = {
    domain.name: domain
    for domain in (
        Domain(
            "airline",
            "domains/airline/tasks.json",
            lambda: FlightDB.model_validate(_json("domains/airline/db.json.gz")),
            airline_agents.get_domain_policy,
            airline_dataset.get_record_to_sample("AirlineAgent"),
            all_airline_tools,
        ),
        Domain(
            "retail",
            "domains/retail/tasks.json",
            lambda: RetailDB.model_validate(_json("domains/retail/db.json.gz")),
            retail_agents.get_domain_policy,
            retail_dataset.get_record_to_sample("RetailAgent"),
            all_retail_tools,
        ),
        Domain(
            "telecom",
            "domains/telecom/tasks.json.gz",
            lambda: TelecomDB.load(str(TAU2_DATA_DIR / "domains/telecom/db.toml")),
            lambda: telecom_agents.get_domain_policy(workflow=False),  # as in the package's task
            telecom_dataset.get_record_to_sample("TelecomAgent"),
            all_telecom_agent_tools,
            all_telecom_user_tools,
        ),
    )
}


@lru_cache(maxsize=len(DOMAINS))
def splits(domain: str) -> dict[Split, tuple[str, ...]]:
    """Return the ids of the published training and test tasks; together, the benchmark's tasks."""
    published = _json(f"domains/{domain}/split_tasks.json")
    return {Split.TRAIN: tuple(published["train"]), Split.TEST: tuple(published["test"])}


@lru_cache(maxsize=len(DOMAINS))
def records(domain: str) -> dict[str, dict[str, Any]]:
    """Return the domain's tasks by id, as published.

    Raises:
        InputError: the data files are not those of `RELEASE`.
    """
    for name in (n for n in HASHES if n.startswith((f"domains/{domain}/", "user_simulator/"))):
        found = hashlib.sha256((TAU2_DATA_DIR / name).read_bytes()).hexdigest()
        if not found.startswith(HASHES[name]):
            raise InputError(
                f"The τ² data file '{name}' is not that of inspect-evals {RELEASE}, so rewards "
                f"would not be comparable; install inspect-evals=={RELEASE}."
            )
    wanted = {id for ids in splits(domain).values() for id in ids}
    listed: Any = _json(DOMAINS[domain].tasks)
    return {record["id"]: record for record in listed if record["id"] in wanted}


@lru_cache(maxsize=len(DOMAINS))
def database(domain: str) -> Any:
    """Return the agent's database before any task."""
    return DOMAINS[domain].database()


@lru_cache(maxsize=1)
def phone() -> Any:
    """Return the database of telecom's user (their phone) before any task."""
    return TelecomUserDB.load(str(TAU2_DATA_DIR / "domains/telecom/user_db.toml"))


@lru_cache(maxsize=2 * len(DOMAINS))
def definitions(domain: str, who: str) -> dict[str, ToolDef]:
    """Return the package's tools of one side, by name."""
    found = [ToolDef(make()) for make in DOMAINS[domain].makers(who)]
    return {definition.name: definition for definition in found}


@lru_cache(maxsize=2 * len(DOMAINS))
def tools(domain: str, who: str) -> tuple[Tool, ...]:
    """Return the tools of one side for a model, each description on one line."""
    return tuple(
        Tool(name, " ".join(d.description.split()), d.parameters.model_dump(exclude_none=True))
        for name, d in definitions(domain, who).items()
    )


def _json(name: str) -> Any:
    """Read a JSON file of the package, gzipped or not."""
    data = (TAU2_DATA_DIR / name).read_bytes()
    return json.loads(gzip.decompress(data) if name.endswith(".gz") else data)
