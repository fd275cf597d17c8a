"""The conformance kit for pytest: `pytest --check-env family/name` adds a test per clause.

    pytest --check-env mine/world --check-env mine/other

It works in any project that has palaestra installed and needs no test file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from palaestra.environments.conformance.subject import Subject


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("palaestra").addoption(
        "--check-env",
        action="append",
        default=[],
        metavar="ID",
        help="check the palaestra environment of that id against its contract (may be repeated)",
    )


def pytest_collection_modifyitems(
    session: pytest.Session, config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Add a test for each clause and each environment in `--check-env`."""
    wanted = config.getoption("--check-env")
    if not wanted:
        return
    from palaestra.core.errors import InputError
    from palaestra.environments.conformance.clauses import CLAUSES
    from palaestra.environments.conformance.subject import Subject

    for id in wanted:
        try:
            subject = Subject.of(id)
        except InputError as error:
            raise pytest.UsageError(str(error)) from error
        for clause in CLAUSES:
            name = f"{id}::{clause.__name__}"
            items.append(ClauseItem.from_parent(session, name=name, subject=subject, clause=clause))


class ClauseItem(pytest.Item):
    """A test of one clause on one environment."""

    def __init__(
        self, *, subject: Subject, clause: Callable[[Subject], None], **others: Any
    ) -> None:
        super().__init__(**others)
        self._subject, self._clause = subject, clause

    def runtest(self) -> None:
        from palaestra.environments.conformance.checking import check_clause

        finding = check_clause(self._subject, self._clause)
        if not finding.holds:
            lines = [f"{event.did} -> {event.saw}" for event in finding.trace[-12:]]
            raise AssertionError("\n".join([finding.broken, *lines]))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> str:
        """Return the message without a traceback, which would show only the kit's own frames."""
        return str(excinfo.value)

    def reportinfo(self) -> tuple[str, int | None, str]:
        return "palaestra", None, self.name
