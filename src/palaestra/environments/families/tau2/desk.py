"""A τ² service desk: the databases of one task, and the tools that act on them.

The package keeps state in a "store" that its tools find in their context. Each desk has its own
store and context, so desks share nothing. The package would unpack and validate the databases for
every episode, and again for every score, which takes half a second and leaves a temporary file.
Here they are read once and shared by copy-on-read: a desk copies an entry when a tool first reads
it. Telecom's databases are small and copied whole.

The package's error messages are returned unchanged. An exception that the package does not handle
(such as a passenger without a name) would drop the agent's turn; here its message is returned too,
as in the benchmark's first implementation.

Telecom gives new bills random ids. Here they follow from the task, so that equal tasks and actions
give equal states.
"""

from __future__ import annotations

import contextvars
import hashlib
from collections.abc import Callable, Coroutine, Mapping
from functools import lru_cache
from typing import Any, TypeVar

from inspect_ai.model._call_tools import resolve_tool_content, tool_call_error, tool_params
from inspect_ai.util import Store
from inspect_ai.util._store import init_subtask_store
from inspect_evals.tau2.airline.AirlineAgentTools import AirlineAgentTools
from inspect_evals.tau2.common.metadata import Tau2MetaData
from inspect_evals.tau2.data_model.tasks import Task
from inspect_evals.tau2.retail.RetailAgentTools import RetailAgentTools
from inspect_evals.tau2.telecom.environment import Environment, get_environment
from inspect_evals.tau2.telecom.solver import perform_action
from inspect_evals.tau2.telecom.TelecomAgentTools import TelecomAgentTools
from inspect_evals.tau2.telecom.TelecomUserTools import TelecomUserTools
from inspect_evals.tau2.utils import get_dict_hash
from pydantic import BaseModel

from palaestra.core.errors import InputError
from palaestra.core.message import ToolCall
from palaestra.environments.families.tau2.domain import (
    DOMAINS,
    database,
    definitions,
    phone,
    records,
)

T = TypeVar("T")


class Lent(dict[str, Any]):
    """A copy-on-read table: an entry is shared until it is first read by its name."""

    def __init__(self, table: Mapping[str, Any]) -> None:
        super().__init__(table)
        self.own: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        entry = super().__getitem__(name)
        if name not in self.own:
            entry = entry.model_copy(deep=True)
            self[name] = entry
        return entry

    def __setitem__(self, name: str, entry: Any) -> None:
        self.own.add(name)
        super().__setitem__(name, entry)


class Desk:
    """The state of one task, with the tools of both sides."""

    def __init__(self, domain: str, task: str) -> None:
        """Set up the task's initial state; raise InputError if the domain has no such task."""
        record = records(domain).get(task)
        if record is None:
            raise InputError(
                f"The τ² domain '{domain}' has no task '{task}'; take tasks of its task set."
            )
        self.domain = domain
        self.sample = DOMAINS[domain].sample(record)
        self.task = Tau2MetaData.model_validate(self.sample.metadata).task
        assert self.task.evaluation_criteria is not None and not isinstance(self.sample.input, str)
        self.criteria, self.opening = self.task.evaluation_criteria, list(self.sample.input)
        self._store = Store(_initial(task)) if domain == "telecom" else _lent(domain)
        self._context = contextvars.Context()
        self.inside(init_subtask_store, self._store)
        self._both = self.inside(get_environment) if domain == "telecom" else None
        self._bills = {bill.bill_id for bill in self._both.tools.db.bills} if self._both else set()

    def call(self, who: str, call: ToolCall) -> str:
        """Call a tool of one side; return its result or error text.

        The arguments must fit the tool's schema.
        """
        tool = definitions(self.domain, who)[call.name].tool
        try:
            given = tool_params(dict(call.arguments), tool)
            result = self.inside(run_coroutine, tool(**given))
            output = str(resolve_tool_content(result, call.name, None).content)
        except Exception as error:
            known = tool_call_error(error, call.name)
            output = f"Error: {known.error.message if known else error}"
        if self._both is not None:
            self._settle(self._both)
        return output

    def act(self, name: str, arguments: Mapping[str, Any]) -> None:
        """Apply the agent's tool of that name in the same way as the package's scorer."""
        tools = {"airline": AirlineAgentTools, "retail": RetailAgentTools}[self.domain]
        getattr(tools(store=self._store, instance=_instance(self.domain)), name)(**arguments)

    def inside(self, function: Callable[..., T], *arguments: Any) -> T:
        """Run a function of the package in this desk's context, where it finds its state."""
        return self._context.run(function, *arguments)

    def digest(self) -> str:
        """Hash the state; digests of one task are equal exactly for equal states."""
        contents = {name: _contents(self.domain, value) for name, value in self._store.items()}
        return str(get_dict_hash(contents))

    # ── details ──────────────────────────────────────────────────────────────

    def _settle(self, both: Environment) -> None:
        """Synchronise phone and database, which the package does only at the next call."""
        both.sync_tools()
        for bill in both.tools.db.bills:
            if bill.bill_id in self._bills:
                continue
            seed = f"{self.task.id} {len(self._bills)}".encode()
            old, bill.bill_id = bill.bill_id, f"B{hashlib.blake2b(seed, digest_size=4).hexdigest()}"
            self._bills.add(bill.bill_id)
            for customer in both.tools.db.customers:
                customer.bill_ids = [bill.bill_id if id == old else id for id in customer.bill_ids]


def run_coroutine(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends, as all of the package's, and return its result."""
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    raise RuntimeError(f"{work} waits for something")


def _instance(domain: str) -> str:
    """Return the name under which the package's tools look for their state."""
    return {"airline": "AirlineTools", "retail": "RetailTools"}[domain]


def _lent(domain: str) -> Store:
    """Make a store with a copy-on-read database of airline or retail."""
    whole, store = database(domain), Store()
    tables = {name: Lent(getattr(whole, name)) for name in type(whole).model_fields}
    lent = type(whole).model_construct(**tables)
    tools = {"airline": AirlineAgentTools, "retail": RetailAgentTools}[domain]
    tools(store=store, instance=_instance(domain), initialized=True, db=lent)
    return store


@lru_cache(maxsize=256)
def _initial(task: str) -> dict[str, Any]:
    """Return the initial contents of a telecom task's store, which a new store copies."""
    store, context = Store(), contextvars.Context()
    whole, device = database("telecom").model_copy(deep=True), phone().model_copy(deep=True)
    TelecomAgentTools(store=store, instance="TelecomAgentTools", initialized=True, db=whole)
    TelecomUserTools(store=store, instance="TelecomUserTools", initialized=True, db=device)
    context.run(init_subtask_store, store)
    state = Task.model_validate(records("telecom")[task]).initial_state
    for action in (state.initialization_actions if state else None) or []:
        context.run(lambda action: perform_action(get_environment(), action), action)
    return dict(store.items())


def _contents(domain: str, value: Any) -> Any:
    """Return a value's contents for hashing; of copy-on-read tables, only changed entries."""
    if not isinstance(value, BaseModel):
        return value if isinstance(value, (str, int, float, bool)) else None
    whole = database(domain)
    if type(value) is not type(whole) or domain == "telecom":
        return value.model_dump()
    changed: dict[str, Any] = {}
    for name in type(value).model_fields:
        lent, table = getattr(whole, name), getattr(value, name)
        for key in sorted(table.own):
            entry = dict.__getitem__(table, key).model_dump()
            if key not in lent or get_dict_hash(entry) != get_dict_hash(lent[key].model_dump()):
                changed[f"{name}/{key}"] = entry
    return changed
