"""The worker's side of `Peer`: answers one JSON object per line with one JSON object.

    python -P serving.py SCRIPT

SCRIPT defines `answer(request: dict) -> dict`; its imports and its state (a loaded model)
live as long as the worker. It runs in the peer's environment and imports nothing of
palaestra. What it prints goes to the log, never among the answers.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any


def main(path: str) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries print to the standard output, native ones among them
    answer: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    for line in sys.stdin:
        try:
            if answer is None:
                answer = load(path)
            reply = answer(json.loads(line))
        except Exception as error:
            traceback.print_exc()
            reply = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(reply) + "\n")
        answers.flush()


def load(path: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """The script's `answer`; the module's name cannot be taken for the peer's."""
    spec = importlib.util.spec_from_file_location("palaestra_peer_script", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and pickles look their module up
    spec.loader.exec_module(module)
    answer: Callable[[dict[str, Any]], dict[str, Any]] = module.answer
    return answer


if __name__ == "__main__":
    main(sys.argv[1])
