"""Hidden tests of a package: the results of its expressions, compared with the original's.

The package under test runs in a separate sandbox, which the agent never entered, and the expected
results never enter any sandbox. So a package passes only by computing the right results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

from palaestra.core.errors import EnvironmentFault
from palaestra.environments.families.repository.packages import PACKAGES, Package
from palaestra.environments.shared.expression_results import evaluated
from palaestra.environments.shared.mutation import Mutation, mutations
from palaestra.sandbox.base import Sandbox

EXPECTED: dict[str, tuple[str, ...]] = {}  # cache of the original's results by package


class Examiner:
    """A runner of one package's expressions, each time in a fresh sandbox."""

    def __init__(self, package: Package, opened: Callable[[], Sandbox]) -> None:
        self.package, self._opened = package, opened
        self.expressions = expressions(package.name)

    def expected(self) -> tuple[str, ...]:
        """Return the original's results.

        Raises:
            EnvironmentFault: the original cannot be imported in the sandbox.
        """
        name = self.package.name
        if name not in EXPECTED:
            found = self.results(sources(name))
            if any(result.endswith("on import") for result in found):
                raise EnvironmentFault("reset", f"the package '{name}' cannot be imported inside")
            EXPECTED[name] = found
        return EXPECTED[name]

    def results(self, files: Mapping[str, str]) -> tuple[str, ...]:
        """Return the results of a package with these files; if it crashes, all are wrong."""
        found, _ = self._run(files, "")
        return found

    def sites(self) -> list[tuple[str, Mutation]]:
        """Return all mutations of the lines that the expressions execute."""
        files = sources(self.package.name)
        _, executed = self._run(files, self.package.name)
        return [
            (path, mutation)
            for path, source in files.items()
            if path.startswith(f"{self.package.name}/")
            for mutation in mutations(source)
            if (path, mutation.line) in executed
        ]

    def _run(
        self, files: Mapping[str, str], trace: str
    ) -> tuple[tuple[str, ...], set[tuple[str, int]]]:
        sandbox = self._opened()
        try:
            for path, source in files.items():
                sandbox.write(path, source.encode())
            return evaluated(sandbox, self.package.setup, self.expressions, trace)
        finally:
            sandbox.close()


@cache
def expressions(package: str) -> tuple[str, ...]:
    """Return the distinct expressions of a package."""
    return tuple(dict.fromkeys(PACKAGES[package].expressions()))


@cache
def sources(package: str) -> dict[str, str]:
    """Return the original's source files by path."""
    return PACKAGES[package].files()
