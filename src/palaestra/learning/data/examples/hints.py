"""Hints: what a good attempt did where another attempt at the same task went wrong.

Source: Memento No More (Alakuijala et al. 2025) attaches hints to failing steps, and distils them
away. There people write the hints; this rule takes them from a sibling that solved the task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from palaestra.core.episode import Episode, Step

StepHints = Mapping[str, Mapping[str, str]]
"""By task and state key: the text that is added to the observation of that state."""


def hint(action: str) -> str:
    """Return what is added to the observation of a state in which an action is right."""
    return f"\nHint: {action}."


def step_hints(episodes: Sequence[Episode]) -> dict[str, dict[str, str]]:
    """Return hints for all tasks that one attempt solved and another failed.

    The failing step is the first one that acts unlike the shortest solution in a state that the
    solution passes. From there on, each state of the solution has its action as a hint; of several
    failed attempts, the one that fails earliest counts.

    Args:
        episodes: of any speakers; those without a valid result are left out, and so are steps
            without state keys.
    """
    tasks: dict[str, list[Episode]] = {}
    for episode in episodes:
        if episode.outcome.scored:
            tasks.setdefault(episode.task.id, []).append(episode)
    found: dict[str, dict[str, str]] = {}
    for task, attempts in tasks.items():
        solved = [one for one in attempts if one.outcome.solved]
        if not solved:
            continue
        solution = min(solved, key=lambda one: len(one.steps)).steps
        failed = (one.steps for one in attempts if not one.outcome.solved)
        starts = [start for steps in failed if (start := _departs(steps, solution)) is not None]
        if starts:
            found[task] = {
                step.before.state_key: hint(step.action.text)
                for step in solution[min(starts) :]
                if step.before.state_key is not None
            }
    return found


def stated_hints(episode: Episode, hints: StepHints) -> list[str]:
    """Return the hints of its task that the prompts of an episode hold, the longest first."""
    known = set(hints.get(episode.task.id, {}).values())
    prompts = [message.text for call in episode.calls for message in call.messages]
    stated = {hint for hint in known if any(hint in text for text in prompts)}
    return sorted(stated, key=lambda hint: (-len(hint), hint))


def _departs(steps: Sequence[Step], solution: Sequence[Step]) -> int | None:
    """Return the step of the solution at which other steps first act unlike it, or None.

    In a state that the solution passes several times, its last action counts.
    """
    places = {step.before.state_key: place for place, step in enumerate(solution)}
    for step in steps:
        place = None if step.before.state_key is None else places.get(step.before.state_key)
        if place is not None and step.action.text != solution[place].action.text:
            return place
    return None
