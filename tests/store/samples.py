"""Episodes to store: a plain one, and a hypothesis strategy for strange ones."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

from hypothesis import strategies as st

from palaestra.core.budget import Usage
from palaestra.core.environment import Action, Observation, Signals, Transition
from palaestra.core.episode import Episode, Forfeit, Key, Step
from palaestra.core.graph import Call
from palaestra.core.message import (
    Image,
    Message,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    assistant,
    user,
)
from palaestra.core.model import Finish
from palaestra.core.outcome import Limit, Outcome, Owner
from palaestra.core.task import Split, Task
from palaestra.core.tool import Tool


def call(index: int, parent: int | None = None) -> Call:
    return Call(
        index=index,
        parent=parent,
        role="agent",
        messages=(user(f"turn {index}"),),
        prompt=(1, 70_000, index),
        reply=assistant("go forward"),
        completion=(7, 2),
        logprobs=(-0.1, -2.5e-7),
        finish=Finish.STOP,
        policy="resident",
        version=3,
    )


def step(index: int) -> Step:
    transition = Transition(Observation("a wall"), reward=0.5, info={"seen": ["door", 1]})
    return Step(index, index, Action("go forward"), transition, Signals("key", 0.25))


def episode(key: Key, turns: int = 3) -> Episode:
    """An ordinary one: each call continues the one before, and chooses one step."""
    return Episode(
        key=key,
        task=Task("train/1", "babyai/GoTo", seed=3, parameters={"size": 5}),
        agent="direct",
        observation=Observation("a room"),
        calls=tuple(call(i, i - 1 if i else None) for i in range(turns)),
        steps=tuple(step(i) for i in range(turns)),
        outcome=Outcome.success(),
        usage=Usage(turns=turns, prompt_tokens=3 * turns, sampled_tokens=2 * turns, seconds=0.1),
        progress=1.0,
        labels={"seed": "1"},
    )


def python(code: str, *arguments: str) -> subprocess.Popen[str]:
    """A real second process."""
    command = [sys.executable, "-c", textwrap.dedent(code), *arguments]
    root = Path(__file__).parents[2]  # so that it, too, finds the package `tests`
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root)


floats = st.floats(allow_nan=False) | st.sampled_from([-0.0, 5e-324, -1e-310, -1e308])
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
small = st.integers(0, 5)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | floats | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=5,
)
json_objects = st.dictionaries(text, json_values, max_size=3)
pictures = st.sampled_from(
    [
        Image.of(start + bytes(range(size)))
        for start in (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF89a")
        for size in (0, 1, 256)
    ]
)
tool_calls = st.builds(ToolCall, text, json_objects, text)
parts = st.one_of(
    st.builds(Text, text),
    pictures,
    st.builds(Reasoning, text, text),
    tool_calls,
    st.builds(ToolResult, text, text, st.booleans(), text),
)
messages = st.builds(
    Message,
    st.sampled_from(["system", "user", "assistant", "tool"]),
    st.lists(parts, max_size=3).map(tuple),
)
tools = st.lists(st.builds(Tool, text, text, json_objects), max_size=2).map(tuple)
observations = st.builds(
    Observation,
    text,
    st.lists(pictures, max_size=2).map(tuple),
    st.dictionaries(text, text, max_size=2),
)
token_ids = st.lists(st.integers(0, 300) | st.integers(0, 2**40), max_size=6).map(tuple)
log_probabilities = st.lists(floats | st.floats(width=32, allow_nan=False), max_size=6).map(tuple)
outcomes = (
    st.sampled_from([Outcome.success(), Outcome.failure()])
    | st.sampled_from(Limit).map(Outcome.truncated)
    | st.builds(Outcome.error, text, st.sampled_from(Owner), text)
)


@st.composite
def calls(draw: st.DrawFn) -> tuple[Call, ...]:
    """A message graph of any shape: several roots, several branches."""
    found: list[Call] = []
    for index in range(draw(small)):
        one = st.builds(
            Call,
            index=st.just(index),
            parent=st.none() | st.integers(0, index - 1) if index else st.none(),
            role=text,
            messages=st.lists(messages, max_size=3).map(tuple),
            prompt=token_ids,
            reply=messages,
            completion=token_ids,
            logprobs=log_probabilities,
            finish=st.sampled_from(Finish),
            policy=text,
            version=st.integers(0, 2**40),
            computed_tokens=small,
            seconds=floats,
            entropies=log_probabilities,
            tools=tools,
        )
        found.append(draw(one))
    return tuple(found)


actions = st.builds(Action, text, st.none() | tool_calls)
transitions = st.builds(
    Transition,
    observations,
    reward=floats,
    terminated=st.booleans(),
    truncated=st.booleans(),
    success=st.booleans(),
    valid=st.booleans(),
    info=json_objects,
    rewards=st.dictionaries(text, floats, max_size=2),
)
signals = st.builds(
    Signals,
    st.none() | text,
    st.none() | floats,
    st.none() | text,
    st.lists(text, max_size=2).map(tuple),
)
forfeits = st.builds(Forfeit, text, outcomes, st.dictionaries(text, floats, max_size=2))
steps = st.lists(
    st.builds(
        Step,
        small,
        st.none() | small,
        actions,
        transitions,
        signals,
        floats,
        st.none() | small,
        st.none() | forfeits,
        st.booleans(),
    ),
    max_size=4,
).map(tuple)
keys = st.builds(Key, text, st.integers(0, 2**40), small)
tasks = st.builds(
    Task,
    id=text,
    environment=text,
    seed=st.integers(0, 2**63),
    split=st.sampled_from(Split),
    instruction=text,
    parameters=json_objects,
)
episodes = st.builds(
    Episode,
    key=keys,
    task=tasks,
    agent=text,
    observation=st.none() | observations,
    calls=calls(),
    steps=steps,
    outcome=outcomes,
    usage=st.builds(Usage, small, small, small, floats),
    progress=st.none() | floats,
    labels=st.dictionaries(text, text, max_size=2),
)
