"""Measures `page-graph`: what the filters keep, and whether the oracle solves every kept task.

    python scripts/page_graph_study.py apps:2 apps-new:3 encyclopedia:1

Each world is crawled in the real browser; each kept task is done there by the walker, then ended at
once with nothing done, and with another task's answer. No language model takes part.
"""

from __future__ import annotations

import sys
import time
from collections import Counter

from palaestra.core.environment import Action
from palaestra.core.task import Split
from palaestra.environments import registry
from palaestra.environments.families.page_graph.environment import TASKS, PageGraphTasks
from palaestra.environments.families.page_graph.meta_paths import META_PATHS
from palaestra.evaluation.statistics.intervals import wilson


def main() -> None:
    for part in sys.argv[1:]:
        name, _, worlds = part.partition(":")
        measure(name, int(worlds))


def measure(name: str, worlds: int) -> None:
    """Print the yield of some worlds, and how many tasks were solved."""
    env, tasks = PageGraphTasks(name), registry.tasks(f"page-graph/{name}")
    rejected, paths, solved = Counter[str](), Counter[str](), Counter[str]()
    pages = edges = samples = gestures = 0
    begun = time.process_time()
    for world in range(worlds):
        for slot in range(TASKS):
            task = tasks.task(Split.TEST, world * TASKS + slot)
            env.reset(task)
            kept = env.drawn.kept
            if slot == 0:
                rejected += kept.rejected
                samples += kept.samples
                pages += len(env.drawn.graph.pages)
                edges += sum(map(len, env.drawn.graph.edges.values()))
            if slot >= len(kept.tasks):
                break
            plan = env.oracle()
            steps = [env.step(action) for action in plan]
            gestures += len(plan)
            path = env.candidate.meta_path
            paths[path] += 1
            solved[path] += steps[-1].success
            if not steps[-1].success:
                said = next((one.observation.text for one in steps if not one.valid), "")
                print("not solved:", task.id, env.candidate.goal, [one.text for one in plan], said)
            other = kept.tasks[(slot + 1) % len(kept.tasks)].answer or ""
            for kind, line in (("nothing", "answer ''"), ("other", f"answer {other!r}")):
                env.reset(task)
                solved[kind] += env.step(Action(line)).success
    env.close()
    count, done = sum(paths.values()), sum(solved[one] for one in META_PATHS)
    print(f"\n{name}: {worlds} worlds, {pages} pages, {edges} edges, {samples} candidates")
    print(f"left out: {dict(rejected)}")
    print(f"kept: {count}, by meta-path {dict(paths)}")
    found = wilson(done, count)
    between = f"{100 * found.low:.1f} to {100 * found.high:.1f} %"
    print(f"solved by the walker: {done} of {count} ({between})")
    print(f"solved by nothing: {solved['nothing']}, by another answer: {solved['other']}")
    print(f"gestures of a way, mean: {gestures / count:.1f}")
    print(f"processor time of this process: {time.process_time() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    main()
