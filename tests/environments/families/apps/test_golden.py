"""Tasks of the levels stay what they are: models are trained on them, and results compare."""

from __future__ import annotations

import hashlib

import pytest

from palaestra.core.task import Split
from palaestra.environments.families.apps.environment import Apps

GOLDEN = {
    "easy": "473feadf9e7f3db7208b32a8",
    "medium": "edb3adafe83129a26715f89c",
    "hard": "eda8359abc916467ab026c11",
    "hard:all": "55bf0d7cf5dead65b60982b5",
    "medium-challenge": "a423faa6e6a03fac35edfaca",
    "medium-new": "d90045c5b6d83216efc397e9",
}


@pytest.mark.parametrize("id", GOLDEN)
def test_tasks_and_their_episodes_are_byte_equal(id: str) -> None:
    assert digest(id) == GOLDEN[id]


def digest(id: str) -> str:
    """Return a digest of all that an agent sees and reaches in six tasks that it solves."""
    env, seen = Apps(id), hashlib.blake2b(digest_size=12)
    for split in Split:
        for task in Apps.tasks(f"apps/{id}").take(split, 2):
            record: list[object] = [env.reset(task).text, [tool.signature for tool in env.tools]]
            for action in env.oracle():
                then = env.step(action)
                record += [action.text, then.observation.text, then.success, env.progress()]
            seen.update(repr(record).encode())
    env.close()
    return seen.hexdigest()
