"""Tasks of the levels stay what they are: models are trained on them, and results compare."""

from __future__ import annotations

import hashlib

import pytest

from palaestra.core.task import Split
from palaestra.environments.families.apps.environment import Apps

GOLDEN = {
    "easy": "7e481523daae2a4882e5d07d",
    "medium": "8d44109a5a9e77be63af3250",
    "hard": "31f3ed65fcad0b83e625b219",
    "hard:all": "4fb6731f3ed3569f0e2d2b6d",
    "medium-challenge": "7621d78272cfb26d47a33166",
    "medium-new": "b81d327323ac99886f3fbf53",
}


@pytest.mark.parametrize("id", GOLDEN)
def test_tasks_and_their_episodes_are_byte_equal(id: str) -> None:
    assert digest(id) == GOLDEN[id]


def digest(id: str) -> str:
    """Return a digest of all that an agent sees and reaches in six tasks that it solves."""
    env, seen = Apps(id), hashlib.blake2b(digest_size=12)
    for split in Split:
        for task in Apps.tasks(f"apps/{id}").take(split, 2):
            record: list[object] = [env.reset(task), [tool.signature for tool in env.tools]]
            for action in env.oracle():
                record += [action, env.state_key(), env.step(action), env.progress()]
            seen.update(repr(record).encode())
    env.close()
    return seen.hexdigest()
