"""World knowledge beside actions: what attempts at a task teach, said before it is acted upon.

Source: WKM (Qiao et al. 2024). There a model sums up what a success has that a failure lacks (task
knowledge) and each state on the way (state knowledge); a world knowledge model learns to say both,
the agent reads the first, and the second is looked up to change the probabilities of actions. Here
a rule sums up, and one policy learns to say both as the thoughts of the agent `react`, which acts
with it; probabilities are left alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from palaestra.agents.react import FORMAT, reply_of
from palaestra.core.episode import Episode, Step
from palaestra.core.message import Message, assistant, system, user
from palaestra.core.model import Renderer
from palaestra.learning.data.examples.conversations import conversation_example
from palaestra.learning.data.examples.example import (
    Example,
    Score,
    ScoreName,
    grouped,
    reads_progress,
    scoring,
    usable,
)
from palaestra.learning.methods.component import Kind, Need, Status, component

Tried = dict[str, Counter[str]]
"""By state key, how often each action was taken there."""


@component(
    Kind.EXAMPLES,
    "world-knowledge",
    source="Qiao et al. 2024 (WKM)",
    status=Status.EXPERIMENTAL,
    needs=[Need.ATTEMPT, Need.ANCHOR],
    when={Need.PROGRESS: reads_progress},
)
def world_knowledge(
    episodes: Sequence[Episode],
    policy: str,
    renderer: Renderer,
    instructions: str,
    *,
    of_task: bool = True,
    of_state: bool = True,
    least: float = 1.0,
    score: Score | ScoreName = "success",
) -> list[Example]:
    """Take successes as replies of `react` whose thoughts say what all attempts at the task teach.

    Before the first action: the actions of the success, and where failures left them. Before each
    action: how many of the attempts that took it in this state succeeded, of each action tried.

    Args:
        episodes: groups of rollouts; environments must declare state keys. Those without a valid
            result are left out.
        policy: whose actions are imitated.
        renderer: of the policy; rows hold tokens that no model sampled.
        instructions: of the environment.
        of_task: say what attempts at the task teach.
        of_state: say what attempts in each state teach.
        least: lowest score of a success.
        score: success, reward, progress, or a function of the episode.
    """
    score = scoring(score)
    found: list[Example] = []
    for group in grouped(usable(episodes, policy)):
        good = [episode for episode in group if score(episode) >= least]
        bad = [episode for episode in group if score(episode) < least]
        won, tried = _actions_by_state(good), _actions_by_state(group)
        for episode in good:
            if not episode.steps:
                continue
            thoughts = [
                _state_knowledge(step, won, tried) if of_state else "" for step in episode.steps
            ]
            if of_task:
                thoughts[0] = f"{task_knowledge(episode, bad)} {thoughts[0]}".strip()
            messages = list(_conversation(episode, instructions, thoughts))
            found.append(conversation_example(messages, renderer, episode.key))
    return found


def task_knowledge(success: Episode, failures: Sequence[Episode]) -> str:
    """Return the actions of a success, and the first other action of each failure, if any."""
    actions = [_action(step) for step in success.steps]
    left = dict.fromkeys(
        _first_other(actions, [_action(step) for step in f.steps]) for f in failures
    )
    wrong = [action for action in left if action]
    avoid = f" Not: {', '.join(wrong)}." if wrong else ""
    return f"Do: {', '.join(actions)}.{avoid}"


def _first_other(actions: Sequence[str], others: Sequence[str]) -> str:
    """Return the first of `others` that is not the action in its place; empty if all are."""
    pairs = zip([*actions, *[""] * len(others)], others, strict=False)
    return next((other for action, other in pairs if other != action), "")


def _actions_by_state(episodes: Sequence[Episode]) -> Tried:
    found: Tried = {}
    for episode in episodes:
        taken = {(step.before.state_key, _action(step)) for step in episode.steps}
        for key, action in sorted((key, action) for key, action in taken if key is not None):
            found.setdefault(key, Counter())[action] += 1  # once an episode, however often it loops
    return found


def _state_knowledge(step: Step, won: Tried, tried: Tried) -> str:
    """Return, of each action tried in the state of a step, how many attempts with it succeeded."""
    key = step.before.state_key
    if key is None:
        return ""
    counts = tried[key]
    best_first = sorted(counts, key=lambda action: (-won.get(key, Counter())[action], action))
    return " ".join(f"{a} {won.get(key, Counter())[a]}/{counts[a]}" for a in best_first)


def _conversation(
    episode: Episode, instructions: str, thoughts: Sequence[str]
) -> Iterator[Message]:
    """Yield the messages of the agent `react` that thinks so and acts as recorded."""
    yield system(f"{instructions}\n{FORMAT}")
    seen = episode.observation.text if episode.observation else ""
    for step, thought in zip(episode.steps, thoughts, strict=True):
        yield user(seen)
        yield assistant(reply_of(thought, _action(step)))
        seen = step.transition.observation.text


def _action(step: Step) -> str:
    return step.action.text.strip()
