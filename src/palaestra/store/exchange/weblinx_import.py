"""The import of WebLINX's demonstrations: one episode each, in which the navigator acts.

Each turn of the navigator is a call and a step; its prompt has what the user said since, and the
page if it is another one. A demonstration counts as solved, with a reward of 1 at its end. The
split is part of an episode's key: `weblinx/test_web/3.0`. The environment is `weblinx` in training
only, else `weblinx/SPLIT`, so that who imitates `weblinx` learns from no demonstration of a test.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from palaestra.core.budget import Usage
from palaestra.core.environment import Action, Observation
from palaestra.core.episode import Episode, Key, Step
from palaestra.core.gestures.gesture_line import write_line
from palaestra.core.graph import Call, MessageGraph
from palaestra.core.message import Message, assistant, text_message
from palaestra.core.model import Finish
from palaestra.core.outcome import Outcome
from palaestra.core.task import Split, Task
from palaestra.store.exchange.plain_json import checked, judged, made_step
from palaestra.store.exchange.weblinx_demonstrations import (
    OURS,
    Demonstration,
    DemonstrationTurn,
    demonstrations_in,
    read_demonstration,
    splits_of,
)

NAVIGATOR = "navigator"
ENVIRONMENT = "weblinx"


def read_weblinx(path: Path) -> Iterator[Episode]:
    """Yield the episodes of a folder of demonstrations, split by split.

    Raises:
        InputError: there are none, or a file of one is missing or invalid.
    """
    there, splits = demonstrations_in(path), splits_of(path)
    for split, names in splits.items():
        for number, name in enumerate(names):
            yield episode_of(read_demonstration(there[name]), split, number)


def episode_of(demonstration: Demonstration, split: str, number: int) -> Episode:
    """Return the episode of the demonstration with a number in a split."""
    turns = [turn for turn in demonstration.turns if turn.gesture is not None]
    seen = _seen(demonstration, turns)
    graph, steps = MessageGraph(), list[Step]()
    conversation: list[Message] = []
    for index, turn in enumerate(turns):
        assert turn.gesture is not None
        line = write_line(turn.gesture)
        conversation.append(text_message("user", seen[index]))
        graph.add(_call(graph, conversation, line))
        conversation.append(graph.calls[-1].reply)
        steps.append(made_step(index, index, Action(line), seen[index + 1]))
    said = [turn.words for turn in demonstration.turns if turn.speaker == "instructor"]
    episode = Episode(
        key=Key(f"{ENVIRONMENT}/{split}", number),
        task=Task(
            id=demonstration.name,
            environment=ENVIRONMENT if split == "train" else f"{ENVIRONMENT}/{split}",
            seed=0,
            split=OURS.get(split, Split.TEST),
            instruction=said[0] if said else "",
        ),
        agent=NAVIGATOR,
        observation=Observation(seen[0]),
        calls=tuple(graph.calls),
        steps=judged(steps, 1.0, success=True),
        outcome=Outcome.success(),
        usage=Usage(turns=len(steps)),
        labels={"site": demonstration.site, "split": split},
    )
    return checked(episode)


def _seen(demonstration: Demonstration, turns: list[DemonstrationTurn]) -> list[str]:
    """Return what the navigator saw before each of its turns, and after the last one."""
    found: list[str] = []
    at, page = 0, ""
    for turn in turns:
        lines = _said(demonstration.turns[at : turn.index])
        if turn.page != page:
            url = f"Page: {turn.url}" if turn.url else ""
            lines += [url, demonstration.page(turn).text]
        at, page = turn.index + 1, turn.page
        found.append("\n".join(filter(None, lines)))
    return [*found, "\n".join(_said(demonstration.turns[at:]))]


def _said(turns: tuple[DemonstrationTurn, ...]) -> list[str]:
    return [f"User: {turn.words}" for turn in turns if turn.speaker == "instructor"]


def _call(graph: MessageGraph, conversation: list[Message], line: str) -> Call:
    place = graph.place(conversation, NAVIGATOR, "agent")
    return Call(
        index=len(graph.calls),
        parent=place.parent,
        role="agent",
        messages=tuple(conversation[place.known :]),
        prompt=(),
        reply=assistant(line),
        completion=(),
        logprobs=(),
        finish=Finish.STOP,
        policy=NAVIGATOR,
        version=0,
    )
