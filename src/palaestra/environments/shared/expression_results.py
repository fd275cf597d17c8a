"""Results of expressions in a sandbox: what hidden tests compare.

`examples_program.py` runs inside; the expected results never enter any sandbox.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from palaestra.environments.shared import examples_program
from palaestra.sandbox.base import Limits, Sandbox

PROGRAM = Path(examples_program.__file__)
LIMITS = Limits(seconds=20.0, cpu_seconds=20.0)


def evaluated(
    sandbox: Sandbox, setup: str, expressions: Sequence[str], trace: str = ""
) -> tuple[tuple[str, ...], set[tuple[str, int]]]:
    """Return the results of expressions after a setup, and the lines that they executed.

    Args:
        sandbox: where they run, with the files that the setup imports.
        setup: a program.
        expressions: what is evaluated after it, in its namespace.
        trace: a folder of whose files executed lines are noted; empty: of none.

    Returns:
        the `repr` of each value or the name of its error, and pairs of path and line. If the
        program crashes, the missing results are "breaks down".
    """
    request = {"setup": setup, "expressions": list(expressions), "trace": trace}
    command = ["python3", "-s", "-c", PROGRAM.read_text(encoding="utf-8")]
    ran = sandbox.run(command, input=json.dumps(request), limits=LIMITS)
    try:
        reply = json.loads(ran.stdout)
        found = tuple(map(str, reply["found"]))
        executed = {(str(path), int(line)) for path, line in reply["executed"]}
    except (ValueError, KeyError, TypeError):
        found, executed = (), set()
    missing = len(expressions) - len(found)
    return (*found, *["breaks down"] * missing)[: len(expressions)], executed
