"""Truncated history: what an agent that sees its last turns alone still solves; Markdown tables.

    python scripts/history_study.py [--tasks 100]

The agent is `direct` with `history=K`: its prompts hold the task, the last K exchanges and the
result before them. Its model is a program that knows the procedure, the calls of the reference, and
nothing else but its prompt. A value that the task does not say must stand in a result that is in
the prompt; where it does not, the program makes the call again that shows it. It takes what it has
done from its prompt, too. So an episode fails for its short history alone, when its turns run out
(three times those of the reference, and 6) or something is done twice.

First table: success on tasks of the test split, whose goals are the same with a value that stands
in the task (`goal`), follows from another answer (`-chain`), is known to the person (`-ask`), or
stands in one of many mails (`-hidden`); with `:discover`, passwords and tokens must be remembered,
too. Second: differences from `goal`, paired over tasks. In percent, with intervals at 95 %.
"""

from __future__ import annotations

import argparse
import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from palaestra.agents.direct import DirectAgent
from palaestra.core.budget import Budget
from palaestra.core.environment import Action
from palaestra.core.episode import Key
from palaestra.core.message import Message
from palaestra.core.session import Session
from palaestra.core.task import Split, Task
from palaestra.environments.families.apps.environment import Apps
from palaestra.evaluation.statistics.intervals import paired_difference, wilson
from palaestra.models.scripted.scripted_model import ScriptedModel
from palaestra.rollout.guarded_environment import LocalEnvironment

PAIRED = ("goal", "goal-chain", "goal-ask", "goal-hidden")
IDS = (*PAIRED, *(f"{name}:discover" for name in PAIRED))
KEPT: tuple[int | None, ...] = (0, 1, 2, 3, 4, 6, 8, None)
FREE = ("subject", "body", "question")  # arguments in the program's own words


@dataclass(frozen=True)
class Procedure:
    """The reference of a task, with what each of its calls was answered, and needs."""

    task: str  # the first observation
    actions: tuple[Action, ...]
    results: tuple[str, ...]
    changes: tuple[bool, ...]  # whether a call changes something, or is the last
    needs: tuple[frozenset[str], ...]  # words of arguments that the task does not say

    @classmethod
    def of(cls, env: Apps, task: Task) -> Procedure:
        """Run the reference of a task."""
        first = env.reset(task).text
        mentions = env.draw(task).task.mentions
        actions, results, changes = list(env.oracle()), list[str](), list[bool]()
        for action in actions:
            before = env.state_key()
            step = env.step(action)
            results.append(step.observation.text)
            changes.append(env.state_key() != before)
        needs = [
            frozenset(
                word
                for word in _words(action.call.arguments if action.call else {}, mentions)
                if not _says(first, word) and any(_says(r, word) for r in results[:number])
            )
            for number, action in enumerate(actions)
        ]
        return cls(first, tuple(actions), tuple(results), tuple(changes), tuple(needs))

    def reply(self, messages: Sequence[Message]) -> str:
        """Return the next action, by what stands in a prompt."""
        texts = [message.text for message in messages[1:]]
        seen = {
            number: result
            for number, (action, result) in enumerate(zip(self.actions, self.results, strict=True))
            if any(text.endswith(result) for text in texts)
            or any(text == action.text and at + 1 < len(texts) for at, text in enumerate(texts))
        }
        last = max(seen, default=-1)
        goal = next(n for n in range(last + 1, len(self.actions)) if self.changes[n])
        return self.actions[self._next(goal, seen)].text

    def _next(self, wanted: int, seen: dict[int, str]) -> int:
        """Return the call to make now: the wanted one, or one that shows what it needs."""
        for word in sorted(self.needs[wanted]):
            if not any(_says(result, word) for result in seen.values()):
                shows = next(n for n, result in enumerate(self.results) if _says(result, word))
                return self._next(shows, seen)
        return wanted


def _words(given: Mapping[str, Any], mentions: Sequence[str]) -> Iterator[str]:
    """Yield the words of a call's arguments; of free wording only what it must mention."""
    for name, value in given.items():
        if isinstance(value, Mapping):
            yield from _words(value, mentions)
        elif name in FREE:
            yield from (one for one in mentions if one in str(value))
        else:
            yield from str(value).split()


def _says(text: str, word: str) -> bool:
    """Return whether a text has a word; a number also with zeros at its end."""
    form = rf"{re.escape(word)}0?" if "." in word else re.escape(word)
    form = form.removesuffix(r"\.00?") if word.endswith(".0") else form
    return re.search(rf"(?<![\w.]){form}(?![\w@]|\.\d)", text) is not None


def solved(name: str, number: int) -> list[float]:
    """Return whether the program solves a task of the test split, by how much history is kept."""
    task = Apps.tasks(f"apps/{name}").task(Split.TEST, number)
    procedure = Procedure.of(Apps(name), task)
    budget = Budget(turns=3 * len(procedure.actions) + 6)
    found = []
    for kept in KEPT:
        agent, env = DirectAgent(history=kept), LocalEnvironment(Apps(name))
        models = {"agent": ScriptedModel(procedure.reply)}
        session = Session(Key("test", number), task, env, agent, models, budget=budget)
        found.append(float(asyncio.run(session.run()).outcome.solved))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=int, default=100)
    count = parser.parse_args().tasks
    found: dict[str, list[list[float]]] = {name: [] for name in IDS}
    for number in range(count):
        for name in IDS:
            found[name].append(solved(name, number))
    by_kept = {name: list(zip(*tasks, strict=True)) for name, tasks in found.items()}
    heads = [f"last {kept}" if kept is not None else "all" for kept in KEPT]
    print(f"| id | {' | '.join(heads)} |")
    print("| --- " * (1 + len(heads)) + "|")
    for name, kept in by_kept.items():
        shares = [wilson(round(sum(scores)), count) for scores in kept]
        cells = [f"{100 * s.mean:.0f} ({100 * s.low:.0f} to {100 * s.high:.0f})" for s in shares]
        print(f"| `{name}` | {' | '.join(cells)} |")
    print(f"\n| difference | {' | '.join(heads)} |")
    print("| --- " * (1 + len(heads)) + "|")
    for name, kept in by_kept.items():
        base = name.replace(name.partition(":")[0], PAIRED[0])
        if name == base:
            continue
        pairs = zip(kept, by_kept[base], strict=True)
        gaps = [paired_difference(scores, of_base) for scores, of_base in pairs]
        cells = [f"{100 * g.mean:+.0f} ({100 * g.low:+.0f} to {100 * g.high:+.0f})" for g in gaps]
        print(f"| `{name}` minus `{base}` | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
