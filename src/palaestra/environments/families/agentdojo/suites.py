"""AgentDojo's suites by name: their tasks, their attacks, and the initial state of each task."""

from __future__ import annotations

import contextlib
import datetime
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from agentdojo.agent_pipeline import AgentPipeline
from agentdojo.attacks import BaseAttack, load_attack
from agentdojo.attacks.attack_registry import ATTACKS
from agentdojo.base_tasks import BaseInjectionTask, BaseUserTask
from agentdojo.default_suites.v1.tools import cloud_drive_client, email_client
from agentdojo.functions_runtime import TaskEnvironment
from agentdojo.task_suite.load_suites import get_suite
from agentdojo.task_suite.task_suite import TaskSuite

from palaestra.core.errors import InputError, UnknownName
from palaestra.core.task import Task

VERSIONS = ("v1", "v1.1", "v1.1.1", "v1.1.2", "v1.2", "v1.2.1", "v1.2.2")
NEWEST = VERSIONS[-1]
SUITES = ("banking", "slack", "travel", "workspace")
VICTIM = "local"  # the package's name for a local model; attacks call it "Local model"
BY_HAND = "manual"  # this attack asks a person at the keyboard

NOW = datetime.datetime(2024, 6, 1)
"""The time stamp of mail and files: later than every date in the suites."""

STAMPING = (cloud_drive_client, email_client)  # modules that read the clock


@dataclass(frozen=True, slots=True)
class Bench:
    """A parsed name: `suite` or `suite:attack`, each optionally with `@version`."""

    suite_name: str
    attack_name: str = ""
    version: str = NEWEST

    @classmethod
    def of(cls, name: str) -> Bench:
        """Parse a name; raises UnknownName unless suite, attack and version exist."""
        found = re.fullmatch(r"(\w+)(?::(\w+))?(?:@(v[\d.]+))?", name)
        if found is None:
            raise UnknownName("AgentDojo environment", name, names())
        suite, attack, version = found[1], found[2] or "", found[3] or NEWEST
        if version not in VERSIONS:
            raise UnknownName("version of AgentDojo's benchmark", version, VERSIONS)
        if suite not in SUITES or (attack and attack not in attacks()):
            raise UnknownName("AgentDojo environment", name, names())
        return cls(suite, attack, version)

    @property
    def suite(self) -> TaskSuite[Any]:
        return get_suite(self.version, self.suite_name)

    @property
    def attack(self) -> BaseAttack | None:
        return _attack(self) if self.attack_name else None

    def rows(self) -> list[dict[str, str]]:
        """List every user task; under attack, with every injection task (one for DoS attacks)."""
        users = list(self.suite.user_tasks)
        if self.attack is None:
            return [{"user_task": user} for user in users]
        goals = list(self.suite.injection_tasks)[: 1 if self.attack.is_dos_attack else None]
        return [{"user_task": user, "injection_task": goal} for user in users for goal in goals]

    def chosen(self, task: Task) -> tuple[BaseUserTask[Any], BaseInjectionTask[Any] | None]:
        """Return the package's tasks that a task names; raises InputError for any other task."""
        named = dict(task.parameters)
        user = self.suite.user_tasks.get(named.pop("user_task", None))
        goal = self.suite.injection_tasks.get(named.pop("injection_task", None))
        if user is None or named or (goal is None) is not (self.attack is None):
            raise InputError(
                f"'{task.id}' (of '{task.environment}') is not a task of agentdojo/{self.label}; "
                "take one from that environment's own task set."
            )
        return user, goal

    @property
    def label(self) -> str:
        """The name without the default version."""
        attack = f":{self.attack_name}" if self.attack_name else ""
        return self.suite_name + attack + ("" if self.version == NEWEST else f"@{self.version}")

    def pristine(self, parameters: Mapping[str, Any]) -> TaskEnvironment:
        """Return a copy of the suite's state with the attack's injections."""
        # Without an attack, all tasks share one state before the package prepares it for a task.
        row = tuple(sorted(parameters.items())) if self.attack_name else ()
        return _pristine(self, row).model_copy(deep=True)


def names() -> list[str]:
    return [*SUITES, *(f"{suite}:{attack}" for suite in SUITES for attack in attacks())]


def attacks() -> list[str]:
    """List the package's attacks, except the one that asks a person."""
    return [name for name in ATTACKS if name != BY_HAND]


@lru_cache(maxsize=128)
def _attack(bench: Bench) -> BaseAttack:
    victim = AgentPipeline([])
    victim.name = VICTIM
    return load_attack(bench.attack_name, bench.suite, victim)


@lru_cache(maxsize=8)  # reading a suite's YAML takes up to half a second
def _pristine(bench: Bench, row: tuple[tuple[str, Any], ...]) -> TaskEnvironment:
    injections: dict[str, str] = {}
    if bench.attack is not None:
        named = dict(row)
        user = bench.suite.user_tasks[named["user_task"]]
        goal = bench.suite.injection_tasks[named["injection_task"]]
        injections = bench.attack.attack(user, goal)
    return bench.suite.load_and_inject_default_environment(injections)


# ── the time ─────────────────────────────────────────────────────────────────


class _Standing:
    """A `datetime.datetime` for the package's tools whose time is always `NOW`."""

    def __getattr__(self, name: str) -> Any:
        return getattr(datetime.datetime, name)

    def now(self) -> datetime.datetime:
        return NOW


class _Module:
    """The module `datetime` with a fixed clock."""

    datetime = _Standing()

    def __getattr__(self, name: str) -> Any:
        return getattr(datetime, name)


@contextlib.contextmanager
def standing_clock() -> Iterator[None]:
    """Make the package's tools stamp mail and files with `NOW`, so episodes are reproducible."""
    before = [module.datetime for module in STAMPING]
    for module in STAMPING:
        module.datetime = _Module()
    try:
        yield
    finally:
        for module, known in zip(STAMPING, before, strict=True):
            module.datetime = known
