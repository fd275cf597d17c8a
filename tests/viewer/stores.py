"""Real run folders for the pages to show, and the hostile things that episodes may hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from palaestra.core.environment import Action, Observation, Transition
from palaestra.core.episode import Episode, Key
from palaestra.core.message import assistant, user
from palaestra.core.outcome import Limit, Outcome, Owner
from palaestra.store.run_folder import RunFolder
from palaestra.viewer.app import application
from palaestra.viewer.site import Site
from tests.store.samples import episode

HOSTILE = (
    "<script>document.title='owned'</script>",
    '"><img src=x onerror="document.title=\'owned\'">',
    "[press](javascript:document.title='owned')",
    "{{ 7 * 7 }} {% include 'base.html' %} ${7*7}",
    "</textarea></title></style><svg/onload=document.title='owned'>",
    "\x00\x1b[31m\u202egnp.exe\u2028",
    "go\u200b \U000e0069\U000e0067\ufe01\u00ad\u3164 forward",
    "long " * 20_000,
)
OUTCOMES = (
    Outcome.success(),
    Outcome.failure(),
    Outcome.truncated(Limit.TURNS),
    Outcome.error("crash", Owner.ENVIRONMENT, "the world fell"),
)
RECIPE = {
    "command": "eval",
    "summary": "react with tiny on babyai/GoTo (test)",
    "environment": "babyai/GoTo",
    "model": "tiny",
    "agent": "react",
    "temperature": 1.0,
}


def plain(key: Key, *, number: int = 0, saw: str = "a room", did: str = "go forward") -> Episode:
    """An episode of three turns whose first one saw and did that."""
    made = episode(key)
    step = made.steps[0]
    first = replace(
        step,
        action=Action(did),
        transition=Transition(Observation(saw), reward=float(number % 10) / 10),
    )
    call = replace(made.calls[0], messages=(user(saw),), reply=assistant(did))
    return replace(
        made,
        task=replace(made.task, id=f"test/{number}"),
        observation=Observation(saw),
        calls=(call, *made.calls[1:]),
        steps=(first, *made.steps[1:]),
        outcome=OUTCOMES[number % len(OUTCOMES)],
    )


def make_run(
    root: Path, name: str, episodes: Sequence[Episode], recipe: dict[str, Any] | None = None
) -> Path:
    """A finished run."""
    with RunFolder.create(root / name, RECIPE if recipe is None else recipe) as run:
        for one in episodes:
            run.database.finish(one)
    return root / name


def make_training(root: Path, name: str, steps: int = 12, **recipe: Any) -> Path:
    """A run of a training loop: tests before and after, steps with rollouts and figures."""
    about = {"summary": "a small one", "environment": {"id": "babyai/GoTo"}, "seed": 1, **recipe}
    with RunFolder.create(root / name, about) as run:
        for number in range(8):
            run.database.finish(plain(Key("test/base", number), number=4 * number + 1))
            run.database.finish(plain(Key("test/rl", number), number=4 * number + number % 2))
        for step in range(1, steps + 1):
            for group in range(2):
                for member in range(2):
                    number = step + group + member
                    run.database.finish(plain(Key(f"rl/{step}", group, member), number=number))
            figures = {"success": step / steps, "entropy": 1.0 / step, "gap": 0.2, "loss": -0.1}
            run.database.add_metrics("rl", step, figures)
        stage = {"name": "rl", "seconds": 3.0, "sampled_tokens": 10, "prompt_tokens": 20}
        run.database.put("stages", [{**stage, "trained_tokens": 10}])
        run.database.put("machine", {"cpu": "abacus", "cores": 2, "memory_bytes": 8e9})
        run.database.put("totals", {"seconds": 3.5, "peak_memory_bytes": 5e8})
    return root / name


TOKEN = "known-to-one"


def client_of(root: Path, shown: str = TOKEN) -> TestClient:
    """A browser without JavaScript, on this machine, which was opened with that token."""
    client = TestClient(application(Site(root), TOKEN), base_url="http://127.0.0.1:8417")
    client.get(f"/?token={shown}", follow_redirects=False)
    return client
