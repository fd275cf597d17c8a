"""The data-science environment: train a model in a notebook, and predict the hidden targets.

Ids: `datascience/NAME` for each of scikit-learn's bundled data sets (`iris`, `wine`, `cancer`,
`digits`, `diabetes`), `datascience/mixed`. Actions are cells of Python, run by one persistent
interpreter; `submit` ends the task. The score of `submission.csv` on the hidden rows is compared
with a reference solution's (as in MLE-bench, Chan et al. 2025). A task is solved with at least
`SHARE` of the reference's gain over the baseline.

Partial credit by stages, as with instrumentation in reinforcement learning for MLE agents (Yang et
al. 2025): data loaded, model trained, rows predicted, a valid submission, and its score. The first
three are reported by the interpreter, which the agent's code could deceive; so they count for
little, and never for success.
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

import sklearn  # noqa: F401 - if it is missing, the registry says how to install it

from palaestra.core.environment import Action, Observation, Transition
from palaestra.core.errors import EnvironmentFault, InputError
from palaestra.core.rare_capabilities import Sampling
from palaestra.core.task import Task
from palaestra.environments.base import refused
from palaestra.environments.families.datascience.data import SETS, Data, make_data, score_submission
from palaestra.environments.shared.folder_environment import SUBMIT, command_of
from palaestra.environments.shared.sandboxed import SandboxedEnvironment
from palaestra.sandbox import interpreter
from palaestra.sandbox.base import Limits, Mount, Settings
from palaestra.sandbox.factory import open_sandbox
from palaestra.sandbox.interpreter import Interpreter

SHARE = 0.8  # of the reference's gain over the baseline
SECONDS = 30.0  # limit of one cell
CELLS = 30  # after this many, the episode is truncated
STAGES = {
    "loaded": (("read_csv", "open", "loadtxt", "genfromtxt", "DictReader", "reader"), 0.1),
    "trained": (("fit", "fit_transform", "lstsq", "solve"), 0.15),
    "predicted": (("predict", "predict_proba", "fit_predict", "argmax", "argmin", "dot"), 0.1),
}
VALID, GOOD = 0.15, 0.4  # credit for a valid submission, and for its score
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


class DataScience(
    SandboxedEnvironment,
    Sampling,
    id="datascience",
    capabilities={"progress", "oracle"},
    typical_turns=10,
):
    """A notebook with a training table and a test table."""

    _notebook: Interpreter | None = None
    _hidden: tempfile.TemporaryDirectory[str] | None = None

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self._data: Data | None = None
        self._stages: set[str] = set()
        self._score: float | None = None
        self._wanted = 1.0
        self._cells = 0
        self._followed = 0  # how many of the latest cells are the reference's first ones

    @classmethod
    def names(cls) -> list[str]:
        return [*SETS, "mixed"]

    @property
    def instructions(self) -> str:
        return (
            "You work in a Python notebook with NumPy and scikit-learn. Reply with one cell of "
            "Python and nothing else; you see what it prints, its last expression or its "
            f"traceback. Variables last; a cell may take {SECONDS:g} s. When submission.csv is as "
            f"you want it, reply: {SUBMIT}"
        )

    def _begin(self, task: Task) -> Observation:
        for part in (self._notebook, self._sandbox):
            if part is not None:
                part.close()
        self._notebook = None
        self._sandbox = open_sandbox(self._sandbox_kind, self._settings())
        rng = random.Random(f"datascience {self.kind} {task.seed}")
        name = rng.choice(sorted(SETS)) if self.kind == "mixed" else self.kind
        self._data = data = make_data(name, rng)
        self._sandbox.write("train.csv", data.train.encode())
        self._sandbox.write("test.csv", data.test.encode())
        watch = [name for names, _ in STAGES.values() for name in names]
        self._notebook = Interpreter(self._sandbox, seconds=SECONDS, watch=watch, seed=task.seed)
        self._stages, self._score, self._cells, self._followed = set(), None, 0, 0
        self._solved = False
        self._wanted = self._goal()
        how = "by accuracy" if data.classes else "by R²"
        return Observation(
            f"train.csv has columns and the target: {data.about}. test.csv has the same columns of "
            f"other rows, without it. Predict their targets: write submission.csv with the head "
            f"line id,target and a line for each row of test.csv. It is judged {how}; at least "
            f"{self._wanted:.3f} is wanted."
        )

    def _act(self, action: Action) -> Transition:
        data = self._running()
        assert self._notebook is not None
        cell = command_of(action.text)
        if not cell:
            return refused(self.instructions)
        if cell == SUBMIT:
            return self._submitted(data)
        done = self._notebook.run(cell)
        self._cells += 1
        self._followed = 0 if done.error else self._leading(cell, data)
        for stage, (names, _) in STAGES.items():
            if set(names) & set(done.called):
                self._stages.add(stage)
        self._score = self._judged(data)
        return Transition(Observation(str(done)), truncated=self._cells >= CELLS)

    def close(self) -> None:
        """Close the notebook and the sandbox."""
        for part in (self._notebook, self._sandbox):
            if part is not None:
                part.close()
        if self._hidden is not None:
            self._hidden.cleanup()
        self._notebook = self._sandbox = self._hidden = None

    def progress(self) -> float:
        """Return the credit for stages and the current submission; 1 only if solved."""
        data = self._running()
        if self._over and self._solved:
            return 1.0
        done = sum(worth for stage, (_, worth) in STAGES.items() if stage in self._stages)
        if self._score is not None:
            gained = (self._score - data.plain) / max(1e-9, self._wanted - data.plain)
            done += VALID + GOOD * min(1.0, max(0.0, gained))
        return round(done, 6)

    def oracle(self) -> Sequence[Action]:
        """Return the rest of the reference, or all of it after a detour; then submit."""
        data = self._running()
        if self._over:
            return []
        if self._score is not None and self._score >= self._wanted:
            return [Action(SUBMIT)]
        return [*map(Action, _reference(data.classes)[self._followed :]), Action(SUBMIT)]

    def sample_action(self, rng: random.Random) -> Action:
        """Sample a cell that reads the data, a trivial submission, or the end."""
        guess = rng.choice("ab") if self._running().classes else str(rng.randint(50, 300))
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
        return Action(rng.choice(pool))

    # ── details ──────────────────────────────────────────────────────────────

    def _leading(self, cell: str, data: Data) -> int:
        """Return how many cells up to this one are the reference's first ones; 0 if all are."""
        reference = [command_of(one) for one in _reference(data.classes)]
        followed = (
            self._followed + 1 if cell == reference[self._followed] else int(cell == reference[0])
        )
        return followed if followed < len(reference) else 0

    def _settings(self) -> Settings:
        """Return settings with this installation's packages, without scikit-learn's own data."""
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
        """Return the score to reach: the baseline plus `SHARE` of the reference's gain."""
        data = self._running()
        return data.plain + SHARE * (self._reference_score(data) - data.plain)

    def _reference_score(self, data: Data) -> float:
        """Return the reference's score, measured in the same sandbox before the episode."""
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
                raise EnvironmentFault("reset", f"{self.spec.id}: the reference fails: {errors}")
            REACHED[key] = score
        return REACHED[key]

    def _judged(self, data: Data) -> float | None:
        assert self._sandbox is not None
        try:
            return score_submission(
                self._sandbox.read("submission.csv").decode(errors="replace"), data
            )
        except InputError:
            return None

    def _submitted(self, data: Data) -> Transition:
        self._score = self._judged(data)
        self._solved = self._score is not None and self._score >= self._wanted
        outcome = "no valid submission" if self._score is None else f"score {self._score:.3f}"
        return Transition(
            Observation(f"Submitted: {outcome}, {self._wanted:.3f} was wanted."),
            float(self._solved),
            terminated=True,
            success=self._solved,
        )

    def _running(self) -> Data:
        self._current()
        assert self._data is not None
        return self._data


REACHED: dict[str, float] = {}
"""The reference's scores on the tasks that this process has seen."""


@cache
def packages() -> list[str]:
    """Return the folders of installed packages on this Python's path."""
    import sys

    known = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *site.getsitepackages()}
    return [folder for folder in sys.path if folder in known or folder.endswith("-packages")]


def _holds(folder: str) -> bool:
    return (Path(folder) / "sklearn").is_dir()


def _reference(classes: bool) -> list[str]:
    last = "LogisticRegression(max_iter=500)" if classes else "RidgeCV()"
    return [cell.format(last=last, kind="str" if classes else "float") for cell in REFERENCE]
