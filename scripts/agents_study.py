"""The study of docs/results/agents.md: agents on several worlds, each episode at an equal budget.

    python scripts/agents_study.py run FOLDER [--model MODEL] [--tasks N] [--agents A,B]
                                              [--worlds X,Y] [--seeds 1,2] [--weights W]
    python scripts/agents_study.py table FOLDER [--to docs/results/agents.md]

What stands in that file from the line `## What it says` on is kept.

`run` lives what is not there yet: a run folder for each model, world and agent, so that it can be
stopped, gone on with, and given more agents or worlds later. Without --agents they are all that
need no option, plus the variants in AGENTS. Agents meet the same tasks with the same seeds, one
episode at a time where they learn from one to the next. `table` writes what is there.

MODEL is `expert` (the world's own solution, of whose actions one in five is replaced by chance:
what an agent does about errors can be seen to help or not), which is what is meant without one,
`smollm2` (SmolLM2-135M-Instruct as it is), or `trained` (what training made of it in one of the
worlds: the folder of its weights is given with --weights).
"""

from __future__ import annotations

import argparse
import contextlib
import io
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from palaestra.cli.agents_command import every_agent
from palaestra.cli.agents_text import rows
from palaestra.cli.main import main as palaestra
from palaestra.evaluation import samples
from palaestra.evaluation.leaderboard import build
from palaestra.store.run import RunFolder

REMARKS = "## What it says\n"
STOPPED = 130  # exit code of a command that was interrupted
TOKENS = 8192  # read and sampled, per episode
INTRO = f"""# Agents side by side, at equal budgets

Each agent lives the same held-out tasks with the same seeds. An episode ends, at the latest,
after {TOKENS} tokens read and sampled (a prompt told anew is read anew; one that continues a
conversation costs what it adds) or after as many actions as the world grants by default. Success
with its 95 % interval over tasks (Wilson), the difference to `direct` paired by task (Newcombe);
tokens, calls and turns are means per episode.

```
python scripts/agents_study.py run runs/agents --model expert
python scripts/agents_study.py run runs/agents --model smollm2
python scripts/agents_study.py run runs/agents --model trained --weights runs/trained
python scripts/agents_study.py table runs/agents --to docs/results/agents.md
```

The expert asks the world for the right action, and one in five of its actions is replaced by
chance. It needs to remember nothing, so with it a memory cannot help: what it costs, and what it
loses where the budget ends an episode, is what the table shows of memories. Planning,
verification and search can help it, as they act on its errors. Agents that differ in words only
meet the same chances and do the same. `rules`, `skills`, `profile` and `recall?across=true`
learn from the tasks before, in their order."""
AGENTS = ["direct?history=2", "summary?budget=1000", "sliding?window=2", "recall?across=true"]
WORLDS = [
    "babyai/GoToLocalS5N2",
    "babyai/PickupLoc",
    "textworld/coin-easy",
    "textworld/treasure-easy",
    "gymnasium/Taxi-v4",
    "gymnasium/CliffWalking-v1",
    "probe/memory-4",
    "probe/umbrella-8",
]


@dataclass(frozen=True)
class Played:
    """A model of the study, and what it can afford."""

    name: str
    words: str
    tasks: int
    concurrency: int  # 1: agents that learn from episode to episode do so in the order of the tasks
    reply: int  # tokens


MODELS = {
    "expert": Played(
        "expert?error=0.2", "An expert of whose actions one in five is wrong", 60, 1, 128
    ),
    "smollm2": Played("smollm2-135m", "SmolLM2-135M-Instruct, untrained", 20, 8, 48),
    "trained": Played(
        "runs/trained", "SmolLM2-135M-Instruct, trained in GoToLocalS5N2 as `direct`", 20, 8, 48
    ),
}


def remarks(file: Path) -> str:
    """What somebody has written about the tables in the file."""
    _, head, rest = (file.read_text() if file.is_file() else "").partition(REMARKS)
    return f"\n{head}{rest}" if head else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    work = verbs.add_parser("run")
    work.add_argument("folder", type=Path)
    work.add_argument("--model", choices=MODELS, default="expert")
    work.add_argument("--tasks", type=int)
    work.add_argument("--agents")
    work.add_argument("--worlds")
    work.add_argument("--seeds", default="1")
    work.add_argument("--weights", help="of the model `trained`: a run of training, or its weights")
    table = verbs.add_parser("table")
    table.add_argument("folder", type=Path)
    table.add_argument("--to", type=Path)
    options = parser.parse_args()
    if options.verb == "run":
        return live(options)
    said = page(options.folder)
    options.to.write_text(said + remarks(options.to)) if options.to else print(said)
    return 0


def live(options: argparse.Namespace) -> int:
    """Live what is not there yet; returns 1 if anything could not be lived."""
    model = MODELS[options.model]
    asked_model = options.weights if options.model == "trained" else model.name
    if asked_model is None:
        print("--model trained needs the weights that training made: --weights", file=sys.stderr)
        return 2
    agents = options.agents.split(",") if options.agents else [*every_agent(), *AGENTS]
    failed = 0
    for world in options.worlds.split(",") if options.worlds else WORLDS:
        for agent in agents:
            folder = options.folder / options.model / plain(world) / plain(agent)
            folder.parent.mkdir(parents=True, exist_ok=True)
            asked = ["agents", "compare", world, "--agents", agent, "--model", asked_model]
            asked += ["--tokens", str(TOKENS), "--max-tokens", str(model.reply), "--json"]
            asked += ["--tasks", str(options.tasks or model.tasks), "--seeds", options.seeds]
            asked += ["--concurrency", str(model.concurrency), "--run", str(folder)]
            started = time.monotonic()
            with contextlib.redirect_stdout(io.StringIO()):
                code = palaestra(asked)
            if code == STOPPED:
                return STOPPED
            failed += code != 0
            seconds = time.monotonic() - started
            print(f"{world}, {agent}: {seconds:.1f} s{', failed' if code else ''}", flush=True)
    return min(failed, 1)


def plain(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name)


def page(folder: Path) -> str:
    """The tables of all that is there, in Markdown."""
    parts = [INTRO]
    for key, model in MODELS.items():
        found = sorted((folder / key).glob("*/*/run.json"))
        if found:
            parts += [f"## {model.words} (`{model.name}`)", *_tables(found)]
    return "\n\n".join(parts) + "\n"


def _tables(found: Sequence[Path]) -> list[str]:
    parts: list[samples.Part] = []
    calls: dict[tuple[str, str], list[int]] = {}  # by agent and world
    for run in (file.parent for file in found):
        of = samples.read(run)
        parts += of
        with RunFolder.read(run) as opened:
            for part in of:
                episodes = opened.database.episodes(part.cell.phase)
                where = (part.cell.agent, part.cell.environment)
                made = [len(episode.calls) for episode in episodes if episode.outcome.scored]
                calls.setdefault(where, []).extend(made)
    board = build(parts)
    agents = list(dict.fromkeys(["direct", *sorted(c.agent for c in board.contenders)]))
    by_world = {
        world: {r["agent"]: r for r in rows(board, world, agents, calls)} for world in board.weights
    }
    return [_overview(by_world, agents), *(_world(world, of) for world, of in by_world.items())]


def _overview(by_world: dict[str, dict[str, Any]], agents: Sequence[str]) -> str:
    lines = ["| agent | " + " | ".join(by_world) + " | mean | tokens |"]
    lines.append("|" + " --- |" * (len(by_world) + 3))
    for agent in agents:
        of = [by_world[world].get(agent) for world in by_world]
        having = [row for row in of if row and row["success"]]
        cells = [_rate(row["success"]) if row and row["success"] else "–" for row in of]
        whole = len(having) == len(by_world)
        mean = sum(row["success"]["mean"] for row in having) / max(1, len(having))
        spent = sum(row["tokens"] for row in having) / max(1, len(having))
        cells += [f"{100 * mean:.0f}", f"{spent:.0f}"] if whole else ["–", "–"]
        lines.append(f"| {agent} | " + " | ".join(cells) + " |")
    tasks = sorted(
        {row["success"]["n"] for of in by_world.values() for row in of.values() if row["success"]}
    )
    count = " to ".join(str(n) for n in dict.fromkeys((tasks[0], tasks[-1])))
    return "\n".join([f"Success in % with its 95 % interval, {count} tasks a world.", "", *lines])


def _world(world: str, of: dict[str, Any]) -> str:
    lines = [
        f"### {world}",
        "",
        "| agent | success % | against direct | progress % | turns | calls | tokens | faults |",
        "|" + " --- |" * 8,
    ]
    for agent, row in of.items():
        progress = "–" if row["progress"] is None else f"{100 * row['progress']:.0f}"
        numbers = [
            f"{row[name]:.1f}" if row[name] is not None else "–" for name in ("turns", "calls")
        ]
        tokens = "–" if row["tokens"] is None else f"{row['tokens']:.0f}"
        gap = _rate(row["difference"], "+") if row["difference"] else ""
        success = _rate(row["success"]) if row["success"] else "–"
        cells = [agent, success, gap, progress, *numbers, tokens, str(row["faults"])]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _rate(of: dict[str, float], sign: str = "") -> str:
    mean, low, high = (f"{100 * of[name]:{sign}.0f}" for name in ("mean", "low", "high"))
    return f"{mean} [{low}, {high}]"


if __name__ == "__main__":
    sys.exit(main())
