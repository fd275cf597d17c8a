"""A verifier of trajectories against the truth: accuracy and AUC on tasks that it never met.

    python scripts/verifier_study.py [--fit 160] [--first 60] [--tasks 60]

The verifier (`evaluation/judges/trajectory_judge.py`) learns from the solved episodes of an expert
that errs, on tasks of the training split of `apps/easy` and `apps/medium`. It is measured on tasks
of the test split, whose people and worlds are others, and on `apps/easy-challenge`, whose app it
never met. Each task is done in several ways: by its reference, in other right ways
(`composing/right_solutions.py`), and in wrong ones (`composing/wrong_solutions.py`). Each is an
episode of its own, and the truth is the outcome that the environment gives it.

Beside it: a rule that is wrong with a stated probability, at random. Intervals are at 95 %,
bootstrapped over tasks.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np

from palaestra.core.environment import Action
from palaestra.core.message import ToolCall
from palaestra.core.task import Split, Task
from palaestra.core.tool import random_call
from palaestra.environments.families.apps.composing.goal import Call
from palaestra.environments.families.apps.composing.right_solutions import right_solutions
from palaestra.environments.families.apps.composing.wrong_solutions import (
    Solution,
    wrong_solutions,
)
from palaestra.environments.families.apps.environment import Apps
from palaestra.environments.families.apps.surfaces import FINISH
from palaestra.evaluation.judges.trajectory_features import FEATURES, REQUEST, Trajectory
from palaestra.evaluation.judges.trajectory_judge import fit
from palaestra.evaluation.judges.verdict import PASS

ERROR = 0.1  # of the expert from whose episodes the verifier learns
RIGHT, WRONG, ERRING = 2, 4, 3  # other solutions of a task, at most, and episodes that err
LONGEST = 40  # actions of an episode
RESAMPLES = 2_000
Scored = tuple[int, float, bool]
"""A task's number, the value of a judge, and the truth."""


@dataclass(frozen=True, slots=True)
class Judged:
    """An episode of a task, and whether it solved it."""

    task: int
    kind: str  # unusual: it was found by search, to be right in another way
    trajectory: Trajectory
    solved: bool


def rolled_out(env: Apps, task: Task, acts: Iterator[Action]) -> tuple[Trajectory, bool]:
    """Return the trajectory of an episode in which these actions are done, and its outcome."""
    request = REQUEST.split(env.reset(task).text)[-1]
    calls, seen, solved = list[ToolCall](), list[str](), False
    for action in acts:
        step = env.step(action)
        assert action.call is not None  # of all actions here
        calls.append(action.call)
        seen.append(step.observation.text)
        solved = step.success
        if step.terminated:
            break
    return Trajectory(request, tuple(calls), tuple(seen)), solved


def erring(env: Apps, seed: object, error: float = ERROR) -> Iterator[Action]:
    """Yield what an expert does that takes a random action with this probability."""
    rng = random.Random(f"erring {seed}")
    for _ in range(LONGEST):
        plan = env.oracle()
        if not plan:
            return
        if rng.random() < error:
            call = random_call(env.tools, rng)
            yield Action(str(call), call)
        else:
            yield plan[0]


def solution(made: Solution) -> Iterator[Action]:
    """Yield the actions of a solution."""
    for call in (*map(_tool_call, made.calls), _finish(made.answer)):
        yield Action(str(call), call)


def _tool_call(call: Call) -> ToolCall:
    return ToolCall(call.api.replace(".", "_", 1), call.arguments)


def _finish(answer: object) -> ToolCall:
    return ToolCall(FINISH.name, {} if answer is None else {"answer": str(answer)})


def lessons(ids: Sequence[str], count: int) -> list[Trajectory]:
    """Return the solved episodes of the expert that errs."""
    found = []
    for id in ids:
        env = Apps(id)
        for number in range(count // len(ids)):
            task = Apps.tasks(f"apps/{id}").task(Split.TRAIN, number)
            case, solved = rolled_out(env, task, erring(env, number))
            found += [case] if solved else []
    return found


def episodes(id: str, numbers: Iterable[int]) -> Iterator[Judged]:
    """Yield right and wrong episodes of tasks of the test split, by their numbers."""
    env = Apps(f"{id}:all")
    for number in numbers:
        task = Apps.tasks(f"apps/{id}").task(Split.TEST, number)
        rng = random.Random(f"verifier {id} {number}")
        made = Apps(id).draw(task)
        with closing(made.open()) as world:
            ran, _ = made.task.reference(world)
            right = list(right_solutions(world, made.task, rng))
            wrong = list(wrong_solutions(world, made.task, rng))
        chosen = [Solution("the reference", tuple(ran.calls), ran.answer)]
        chosen += rng.sample(wrong, min(WRONG, len(wrong)))
        for one in chosen:
            yield Judged(number, "usual", *rolled_out(env, task, solution(one)))
        for attempt in range(ERRING):
            made_by_expert = rolled_out(env, task, erring(env, f"{number} {attempt}", 2 * ERROR))
            yield Judged(number, "usual", *made_by_expert)
        for one in rng.sample(right, min(RIGHT, len(right))):
            yield Judged(number, "unusual", *rolled_out(env, task, solution(one)))


def accuracy(scored: Sequence[Scored]) -> float:
    """Return the mean of the accuracies on right and on wrong episodes."""
    shares = [
        [(value >= PASS) == true for _, value, true in scored if true is kind]
        for kind in (True, False)
    ]
    return float(np.mean([np.mean(share) for share in shares]))


def auc(scored: Sequence[Scored]) -> float:
    """Return the probability that a right episode has a higher value than a wrong one."""
    right = np.array([value for _, value, true in scored if true])
    wrong = np.array([value for _, value, true in scored if not true])
    higher = (right[:, None] > wrong).mean() + 0.5 * (right[:, None] == wrong).mean()
    return float(higher)


def interval(scored: Sequence[Scored], measure: Callable[[Sequence[Scored]], float]) -> str:
    """Return a measure with its interval, resampling tasks."""
    by_task: dict[int, list[Scored]] = {}
    for one in scored:
        by_task.setdefault(one[0], []).append(one)
    tasks, rng = list(by_task.values()), np.random.default_rng(0)
    found = []
    for _ in range(RESAMPLES):
        drawn = [one for n in rng.integers(len(tasks), size=len(tasks)) for one in tasks[n]]
        if len({true for _, _, true in drawn}) == 2:
            found.append(measure(drawn))
    low, high = np.quantile(found, [0.025, 0.975])
    return f"{measure(scored):.2f} ({low:.2f} to {high:.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--fit", type=int, default=160, help="episodes to learn from")
    parser.add_argument("--first", type=int, default=60, help="tasks to leave out before")
    parser.add_argument("--tasks", type=int, default=60, help="of each id")
    options = parser.parse_args()
    verifier = fit(lessons(("easy", "medium"), options.fit))
    print(f"Learned from {len(verifier.library.trajectories)} right trajectories.\n")
    print("| weight | feature |\n| --- | --- |")
    for weight, name in sorted(zip(verifier.weights, FEATURES, strict=True)):
        print(f"| {weight:+.2f} | {name} |")
    print(
        "\n| tasks | episodes (right) | judge | balanced accuracy | AUC |\n"
        "| --- | --- | --- | --- | --- |"
    )
    for id in ("easy", "medium", "easy-challenge"):
        judged = list(episodes(id, range(options.first, options.first + options.tasks)))
        rng = random.Random(0)
        values = {
            "verifier": [verifier.probability(one.trajectory) for one in judged],
            **{
                f"rule, wrong in {error:.0%}": [
                    float(one.solved != (rng.random() < error)) for one in judged
                ]
                for error in (0.1, 0.2, 0.3)
            },
        }
        usual = [at for at, one in enumerate(judged) if one.kind == "usual"]
        values["verifier, usual episodes only"] = [values["verifier"][at] for at in usual]
        for name, found in values.items():
            of = judged if len(found) == len(judged) else [judged[at] for at in usual]
            scored = [(one.task, value, one.solved) for one, value in zip(of, found, strict=True)]
            right = sum(one.solved for one in of)
            cells = f"{interval(scored, accuracy)} | {interval(scored, auc)}"
            print(f"| {id} | {len(of)} ({right}) | {name} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
