"""Hidden tests of a package: what its expressions give, against what the original gives.

The package under test is run in a sandbox of its own, in which the agent never was; what it should
give never enters any sandbox. So a package can lie only by giving the right answers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

from palaestra.core.errors import EnvironmentFault
from palaestra.environments.code.mutation import Mutation, mutations
from palaestra.environments.code.packages import PACKAGES, Package
from palaestra.safety.sandbox import Limits, Sandbox

PROGRAM = Path(__file__).with_name("examples_program.py")
LIMITS = Limits(seconds=20.0, cpu_seconds=20.0)
SOUND: dict[str, tuple[str, ...]] = {}  # package to what its expressions give, once known


class Examiner:
    """Runs the expressions of one package, each time in a sandbox in which nothing was."""

    def __init__(self, package: Package, opened: Callable[[], Sandbox]) -> None:
        self.package, self._opened = package, opened
        self.expressions = expressions(package.name)

    def sound(self) -> tuple[str, ...]:
        """What the original gives."""
        name = self.package.name
        if name not in SOUND:
            found = self.given(sources(name))
            if any(one.endswith("on import") for one in found):
                raise EnvironmentFault("reset", f"the package '{name}' cannot be imported inside")
            SOUND[name] = found
        return SOUND[name]

    def given(self, files: Mapping[str, str]) -> tuple[str, ...]:
        """What a package of these files gives; where it breaks down, nothing right."""
        found, _ = self._run(files, "")
        return found

    def sites(self) -> list[tuple[str, Mutation]]:
        """Every place for a bug in what the expressions execute."""
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
        asked = {"setup": self.package.setup, "expressions": self.expressions, "trace": trace}
        program = PROGRAM.read_text(encoding="utf-8")
        command = ["python3", "-s", "-c", program]
        sandbox = self._opened()
        try:
            for path, source in files.items():
                sandbox.write(path, source.encode())
            ran = sandbox.run(command, input=json.dumps(asked), limits=LIMITS)
        finally:
            sandbox.close()
        try:
            told = json.loads(ran.stdout)
            found = tuple(map(str, told["found"]))
            executed = {(str(path), int(line)) for path, line in told["executed"]}
        except (ValueError, KeyError, TypeError):
            found, executed = (), set()
        missing = len(self.expressions) - len(found)
        return (*found, *["breaks down"] * missing)[: len(self.expressions)], executed


@cache
def expressions(package: str) -> tuple[str, ...]:
    """Those of a package, each once."""
    return tuple(dict.fromkeys(PACKAGES[package].expressions()))


@cache
def sources(package: str) -> dict[str, str]:
    """The files of the original."""
    return PACKAGES[package].files()
