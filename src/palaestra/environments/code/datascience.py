"""The data-science world: train a model in a notebook, and predict rows whose answers are hidden.

Ids: `datascience/NAME` for each of scikit-learn's bundled data sets (`iris`, `wine`, `cancer`,
`digits`, `diabetes`), `datascience/mixed`. Actions are cells of Python, run by one interpreter that
persists; `submit` ends the task, and the score of `submission.csv` on the hidden rows decides,
against a reference solution's (as in MLE-bench, Chan et al. 2025). A task is solved with at least
`SHARE` of what the reference gains over guessing without looking.

Partial credit by stages, as instrumentation gives it in reinforcement learning for MLE agents (Yang
et al. 2025): data loaded, model trained, rows predicted, a valid submission, and how good it is.
The first three are told by the interpreter, which code could deceive; so they count for little, and
never for success.
"""

from __future__ import annotations

import hashlib
import random
import site
import sysconfig
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import sklearn  # noqa: F401 - where it is missing, the registry says how to get it

from palaestra.core.environment import Action, Capability, Observation, Transition
from palaestra.core.errors import EnvironmentFault, InputError
from palaestra.core.task import Task
from palaestra.environments.code.boxed import Boxed
from palaestra.environments.code.datascience_data import SETS, Data, made, scored
from palaestra.environments.code.folder_world import SUBMIT, command_of
from palaestra.safety import interpreter
from palaestra.safety.interpreter import Interpreter
from palaestra.safety.opening import open_sandbox
from palaestra.safety.sandbox import Limits, Mount, Settings

SHARE = 0.8  # of what the reference gains over guessing
SECONDS = 30.0  # of one cell
CELLS = 30  # after so many, the episode is cut off
STAGES = {
    "loaded": (("read_csv", "open", "loadtxt", "genfromtxt", "DictReader", "reader"), 0.1),
    "trained": (("fit", "fit_transform", "lstsq", "solve"), 0.15),
    "predicted": (("predict", "predict_proba", "fit_predict", "argmax", "argmin", "dot"), 0.1),
}
VALID, GOOD = 0.15, 0.4  # of a submission: that it is one, and its score against the reference's
LIMITS = Limits(memory=2 * 2**30, disk_bytes=64 * 2**20)
REFERENCE = (
    "import csv\nimport numpy as np\n"
    "rows = list(csv.reader(open('train.csv')))[1:]\n"
    "hidden = list(csv.reader(open('test.csv')))[1:]\n"
    "X = np.array([row[1:-1] for row in rows], float)\n"
    "T = np.array([row[1:] for row in hidden], float)",
    "from sklearn.linear_model import LogisticRegression, RidgeCV\n"
    "from sklearn.pipeline import make_pipeline\nfrom sklearn.preprocessing import StandardScaler\n"
    "last = {last}\n"
    "y = np.array([row[-1] for row in rows], {kind})\n"
    "model = make_pipeline(StandardScaler(), last).fit(X, y)",
    "answers = model.predict(T)\n"
    "with open('submission.csv', 'w') as file:\n"
    "    file.write('id,target\\n')\n"
    "    for row, answer in zip(hidden, answers):\n"
    "        file.write(f'{{row[0]}},{{answer}}\\n')",
)


class DataScience(Boxed):
    """A notebook beside two tables."""

    capabilities = frozenset({Capability.PROGRESS, Capability.ORACLE})
    _notebook: Interpreter | None = None
    _hidden: tempfile.TemporaryDirectory[str] | None = None

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self._data: Data | None = None
        self._stages: set[str] = set()
        self._score: float | None = None
        self._wanted = 1.0
        self._cells = 0
        self._led = 0  # the latest cells that are the reference's first ones

    @classmethod
    def names(cls) -> list[str]:
        return [*SETS, "mixed"]

    @property
    def typical_turns(self) -> int:
        return 10

    @property
    def instructions(self) -> str:
        return (
            "You work in a Python notebook with NumPy and scikit-learn. Reply with one cell of "
            "Python and nothing else; you see what it prints, its last expression or its "
            f"traceback. Variables last; a cell may take {SECONDS:g} s. When submission.csv is as "
            f"you want it, reply: {SUBMIT}"
        )

    def reset(self, task: Task) -> Observation:
        for part in (self._notebook, self._sandbox):
            if part is not None:
                part.close()
        self._notebook = None
        self._sandbox = open_sandbox(self._sandbox_kind, self._settings())
        dice = random.Random(f"datascience {self.kind} {task.seed}")
        name = dice.choice(sorted(SETS)) if self.kind == "mixed" else self.kind
        self._data = data = made(name, dice)
        self._sandbox.write("train.csv", data.train.encode())
        self._sandbox.write("test.csv", data.test.encode())
        watch = [name for names, _ in STAGES.values() for name in names]
        self._notebook = Interpreter(self._sandbox, seconds=SECONDS, watch=watch, seed=task.seed)
        self._stages, self._score, self._cells, self._led = set(), None, 0, 0
        self._over = self._solved = False
        self._wanted = self._goal()
        how = "by accuracy" if data.classes else "by R²"
        return Observation(
            f"train.csv has columns and the target: {data.about}. test.csv has the same columns of "
            f"other rows, without it. Predict their targets: write submission.csv with the head "
            f"line id,target and a line for each row of test.csv. It is judged {how}; at least "
            f"{self._wanted:.3f} is wanted."
        )

    def step(self, action: Action) -> Transition:
        data = self._running()
        assert self._notebook is not None
        cell = command_of(action.text)
        if self._over:
            return Transition(Observation("The task is over."), terminated=True, valid=False)
        if not cell:
            return Transition(Observation(self.instructions), valid=False)
        if cell == SUBMIT:
            return self._submitted(data)
        done = self._notebook.run(cell)
        self._cells += 1
        self._led = 0 if done.error else self._leading(cell, data)
        for stage, (names, _) in STAGES.items():
            if set(names) & set(done.called):
                self._stages.add(stage)
        self._score = self._judged(data)
        return Transition(Observation(str(done)), truncated=self._cells >= CELLS)

    def close(self) -> None:
        """End the notebook and the sandbox."""
        for part in (self._notebook, self._sandbox):
            if part is not None:
                part.close()
        if self._hidden is not None:
            self._hidden.cleanup()
        self._notebook = self._sandbox = self._hidden = None

    def progress(self) -> float:
        """Stages passed and the score of the submission as it stands; 1 only if solved."""
        data = self._running()
        if self._over and self._solved:
            return 1.0
        done = sum(worth for stage, (_, worth) in STAGES.items() if stage in self._stages)
        if self._score is not None:
            gained = (self._score - data.plain) / max(1e-9, self._wanted - data.plain)
            done += VALID + GOOD * min(1.0, max(0.0, gained))
        return round(done, 6)

    def oracle(self) -> Sequence[Action]:
        """What is left of the reference, or all of it after a detour; then the submission."""
        data = self._running()
        if self._over:
            return []
        if self._score is not None and self._score >= self._wanted:
            return [Action(SUBMIT)]
        return [*map(Action, _reference(data.classes)[self._led :]), Action(SUBMIT)]

    def sample_action(self, dice: random.Random) -> Action:
        """A look at the data, a trivial submission, or the end."""
        guess = dice.choice("ab") if self._running().classes else str(dice.randint(50, 300))
        pool = (
            "open('train.csv').readline()",
            "sum(1 for line in open('test.csv'))",
            "import os; sorted(os.listdir('.'))",
            "1 / 0",
            "with open('submission.csv', 'w') as file:\n    file.write('id,target\\n')\n"
            "    for row in list(open('test.csv'))[1:]:\n"
            f"        file.write(row[:4] + ',{guess}\\n')",
            SUBMIT,
        )
        return Action(dice.choice(pool))

    # ── details ──────────────────────────────────────────────────────────────

    def _leading(self, cell: str, data: Data) -> int:
        """How many cells, this one the last, are the reference's first ones; 0 if that is all."""
        way = [command_of(one) for one in _reference(data.classes)]
        led = self._led + 1 if cell == way[self._led] else int(cell == way[0])
        return led if led < len(way) else 0

    def _settings(self) -> Settings:
        """With the packages of this installation, but without scikit-learn's own data."""
        folders, kind = packages(), self._sandbox_kind
        if kind == "unsafe":
            inside, mounts = folders, []
        else:
            self._hidden = self._hidden or tempfile.TemporaryDirectory(prefix="palaestra-nothing-")
            inside = [f"/packages{number}" for number in range(len(folders))]
            mounts = [Mount(Path(one), at) for one, at in zip(folders, inside, strict=True)]
            home = next(at for at, one in zip(inside, folders, strict=True) if _holds(one))
            mounts.append(Mount(Path(self._hidden.name), f"{home}/sklearn/datasets/data"))
        usual = interpreter.settings(kind, LIMITS, mounts)
        environment = {**usual.environment, "PYTHONPATH": ":".join(inside)}
        return replace(usual, environment=environment)

    def _goal(self) -> float:
        """The score that is wanted: from guessing most of the way to the reference's."""
        data = self._running()
        return data.plain + SHARE * (self._reference_score(data) - data.plain)

    def _reference_score(self, data: Data) -> float:
        """What the reference reaches, in the same sandbox before the agent comes."""
        assert self._sandbox is not None
        key = hashlib.sha256((data.train + data.test).encode()).hexdigest()
        if key not in REACHED:
            saved = self._sandbox.save()
            trial = Interpreter(self._sandbox, seconds=SECONDS)
            errors = [trial.run(cell).error for cell in _reference(data.classes)]
            score = self._judged(data)
            trial.close()
            self._sandbox.restore(saved)
            if score is None or score <= data.plain:
                raise EnvironmentFault("reset", f"{self._id}: the reference fails: {errors}")
            REACHED[key] = score
        return REACHED[key]

    def _judged(self, data: Data) -> float | None:
        assert self._sandbox is not None
        try:
            return scored(self._sandbox.read("submission.csv").decode(errors="replace"), data)
        except InputError:
            return None

    def _submitted(self, data: Data) -> Transition:
        self._over = True
        self._score = self._judged(data)
        self._solved = self._score is not None and self._score >= self._wanted
        told = "no valid submission" if self._score is None else f"score {self._score:.3f}"
        return Transition(
            Observation(f"Submitted: {told}, {self._wanted:.3f} was wanted."),
            float(self._solved),
            terminated=True,
            success=self._solved,
        )

    def _running(self) -> Data:
        if self._data is None:
            raise InputError(f"The world '{self._id}' has no task yet; call reset with one first.")
        return self._data


REACHED: dict[str, float] = {}
"""What the reference reached on the tasks that this process has seen."""


@cache
def packages() -> list[str]:
    """Folders of installed packages, as this Python finds them."""
    import sys

    known = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *site.getsitepackages()}
    return [folder for folder in sys.path if folder in known or folder.endswith("-packages")]


def _holds(folder: str) -> bool:
    return (Path(folder) / "sklearn").is_dir()


def _reference(classes: bool) -> list[str]:
    last = "LogisticRegression(max_iter=500)" if classes else "RidgeCV()"
    return [cell.format(last=last, kind="str" if classes else "float") for cell in REFERENCE]
