"""Checks that asynchronous episodes are equal to the byte when they are played again.

    python scripts/apps_replay.py [--episodes 1000]

Each episode is one of `apps/timed-30:all`: steps of the reference, with waits, lists and thoughts
of random length between them, so that events happen in between. Two processes with different hash
seeds play all of them; each saves every episode in the middle and lets another environment end it
from there, too. All observations, snapshots, state keys and verdicts must be equal.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import subprocess
import sys
from dataclasses import replace

from palaestra.core.environment import Action
from palaestra.core.task import Split, Task
from palaestra.environments.families.apps.environment import Apps

ID = "apps/timed-30:all"
TURNS = 25
DETOURS = ("now()", "wait(minutes={})", "wait_for_notification(minutes={})", "mail_list_messages()")


def played(env: Apps, other: Apps, task: Task, seed: int) -> str:
    """Return a digest of an episode; raises if the other environment ends it differently."""
    rng, parts = random.Random(f"replay {seed}"), [env.reset(task).text]
    middle = rng.randint(1, 5)
    left: list[Action] = []
    saved, since = b"", len(parts)
    for turn in range(TURNS):
        if turn == middle:
            saved, since = env.snapshot(), len(parts)
            left = []
        plan = env.oracle()
        if not plan or rng.random() < 0.3:
            plan = [Action(rng.choice(DETOURS).format(rng.randint(1, 40)))]
        action = replace(plan[0], spent=rng.randint(0, 900))
        left.append(action)
        step = env.step(action)
        parts += [repr(step), env.state_key()]
        if step.terminated:
            break
    if saved:
        other.reset(task)
        other.restore(saved)
        again = [part for one in left for part in (repr(other.step(one)), other.state_key())]
        if again != parts[since:] or other.snapshot() != env.snapshot():
            raise SystemExit(f"Episode {seed} of {task.id} ended differently from a snapshot.")
    parts.append(hashlib.sha256(env.snapshot()).hexdigest())
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def play(episodes: int) -> None:
    """Print a digest of each episode."""
    env, other = Apps(ID.partition("/")[2]), Apps(ID.partition("/")[2])
    for seed, task in enumerate(Apps.tasks(ID).take(Split.TRAIN, episodes)):
        print(played(env, other, task, seed))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=1000)
    parser.add_argument("--play", action="store_true", help="print the digests and compare nothing")
    given = parser.parse_args()
    if given.play:
        play(given.episodes)
        return
    digests = []
    for seed in ("1", "2"):
        command = [sys.executable, __file__, "--play", "--episodes", str(given.episodes)]
        done = subprocess.run(
            command, env=os.environ | {"PYTHONHASHSEED": seed}, check=True, stdout=subprocess.PIPE
        )
        digests.append(done.stdout.decode().split())
    differ = [n for n, (a, b) in enumerate(zip(*digests, strict=True)) if a != b]
    if differ:
        raise SystemExit(f"Episodes {differ} differ between two processes.")
    whole = hashlib.sha256(" ".join(digests[0]).encode()).hexdigest()[:16]
    print(f"{len(digests[0])} episodes of {ID} are equal to the byte; their digest is {whole}.")


if __name__ == "__main__":
    main()
