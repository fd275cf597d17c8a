"""The message graph: every token of every call, each sampled one exactly once."""

from __future__ import annotations

import asyncio
import tracemalloc
from dataclasses import dataclass
from typing import ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra.agents.direct import DirectAgent
from palaestra.core.agent import Agent
from palaestra.core.episode import Episode
from palaestra.core.graph import Call, MessageGraph
from palaestra.core.message import Message, assistant, system, user
from palaestra.core.model import Finish, Generation, Prompt
from palaestra.core.session import Session
from palaestra.models.scripted.scripted_model import ScriptedModel
from tests.core.small import Asking, Sampled, Stairs, renderer, run_episode, session

END = renderer().reply("")[-1]
PLAIN = [i for i in range(renderer().tokenizer.get_vocab_size()) if renderer().text([i])]


def test_a_call_that_extends_continues_the_branch_and_stores_only_what_is_new() -> None:
    first = [system("Climb."), user("step 0")]
    second = [*first, assistant("up"), user("step 1")]
    model = ScriptedModel(["up", "up"], renderer=renderer())
    root, child = run_episode(Asking(first, second), model).calls
    assert (root.parent, root.messages) == (None, tuple(first))
    assert (child.parent, child.messages) == (0, (user("step 1"),))
    assert list(root.prompt) == renderer().start(first)
    assert len(child.prompt) < len(root.prompt)


def test_an_edited_history_starts_a_new_root() -> None:
    first = [user("step 0")]
    edited = [user("STEP 0"), assistant("up"), user("step 1")]
    otherwise = [user("step 0"), assistant("down"), user("step 1")]
    model = ScriptedModel(["up", "up"], renderer=renderer())
    calls = run_episode(Asking(first, edited, otherwise), model).calls
    assert [call.parent for call in calls] == [None, None, None]
    assert list(calls[1].prompt) == renderer().start(edited)


def test_the_same_question_again_is_a_branch_of_its_own() -> None:
    model = ScriptedModel(["up"], renderer=renderer())
    calls = run_episode(Asking([user("step 0")], [user("step 0")]), model).calls
    assert [call.parent for call in calls] == [None, None]


def test_a_fork_continues_the_shared_part() -> None:
    shared = [user("step 0"), assistant("up")]
    forks = [[*shared, user("a")], [*shared, user("b")]]
    model = ScriptedModel(["up", "left"], renderer=renderer())
    episode = run_episode(Asking([user("step 0")], *forks), model)
    assert [call.parent for call in episode.calls] == [None, 0, 0]
    assert [[call.index for call in path] for path in episode.graph.branches()] == [[0, 1], [0, 2]]


def test_another_role_and_another_model_start_their_own_roots() -> None:
    class Two(Agent):
        name = "two"

        async def run(self, session: Session) -> None:
            await session.generate([user("a")])
            longer = [user("a"), assistant("up"), user("b")]
            await session.generate(longer, role="judge")
            await session.generate(longer, role="other")

    one, other = ScriptedModel(["up", "x"]), ScriptedModel(["up", "x"], name="other")
    episode = run_episode(Two(), {"agent": one, "judge": one, "other": other})
    assert [call.parent for call in episode.calls] == [None, None, None]


def test_calls_are_added_in_order() -> None:
    calls = run_episode(Asking([user("a")]), ScriptedModel(["up"])).calls
    with pytest.raises(ValueError, match="added at position 1"):
        MessageGraph([*calls, *calls])


def test_calls_made_at_the_same_time_are_all_recorded() -> None:
    class Gathering(Agent):
        name = "gathering"

        async def run(self, session: Session) -> None:
            questions = [[user(f"question {i}")] for i in range(5)]
            await asyncio.gather(*(session.generate(question) for question in questions))

    class Later(ScriptedModel):
        seeds: ClassVar[set[int]] = set()

        async def generate(self, prompt: Prompt) -> Generation:
            self.seeds.add(prompt.seed)
            await asyncio.sleep(0)
            return await super().generate(prompt)

    model = Later(["up"], renderer=renderer())
    running = session(Gathering(), model)
    episode = asyncio.run(running.run())
    assert str(episode.outcome) == "failure"
    assert [call.index for call in episode.calls] == [0, 1, 2, 3, 4]
    assert len(model.seeds) == 5


# ── sampled tokens ───────────────────────────────────────────────────────────


def test_a_reply_that_would_be_encoded_differently_keeps_its_tokens() -> None:
    canonical = renderer().reply("up up")
    letters = [renderer().reply(letter)[0] for letter in "up up"]
    assert [*letters, END] != canonical and renderer().text(letters) == "up up"
    model = Sampled([[*letters, END], canonical])
    first = [user("step 0")]
    episode = run_episode(Asking(first, [*first, assistant("up up"), user("step 1")]), model)
    start = len(renderer().start(first))
    assert list(model.prompts[1][start : start + len(letters) + 1]) == [*letters, END]
    assert episode.calls[1].parent == 0


def test_an_unclosed_reply_is_closed_by_a_token_that_was_not_sampled() -> None:
    letters = [renderer().reply(letter)[0] for letter in "up"]
    model = Sampled([letters, renderer().reply("up")])
    first = [user("step 0")]
    episode = run_episode(Asking(first, [*first, assistant("up"), user("step 1")]), model)
    root, child = episode.calls
    assert list(root.completion) == letters
    assert child.prompt[0] == END
    whole = renderer().start([*first, assistant("up"), user("step 1")])
    assert renderer().text(episode.graph.tokens(0) + list(child.prompt)) == renderer().text(whole)
    assert sum(token == END for token in model.prompts[1]) == sum(token == END for token in whole)


# ── laws over random trees of conversations ──────────────────────────────────


@dataclass(frozen=True)
class Move:
    """Continue the `of`-th conversation so far (a new one where there is none), by `words`."""

    of: int
    words: tuple[str, ...]
    reply: tuple[int, ...]


words = st.lists(st.text(max_size=12), min_size=1, max_size=3).map(tuple)
sampled = st.builds(
    lambda tokens, closed: (*tokens, END) if closed else tuple(tokens),
    st.lists(st.sampled_from(PLAIN), min_size=1, max_size=6),
    st.booleans(),
)
spoken = st.text(max_size=12).map(lambda text: tuple(renderer().reply(text)))
sampled_trees = st.lists(st.builds(Move, st.integers(-1, 5), words, sampled), max_size=8)
spoken_trees = st.lists(st.builds(Move, st.integers(-1, 5), words, spoken), max_size=8)


class Growing(Agent):
    """Makes the moves, and remembers what it asked."""

    name = "growing"

    def __init__(self, moves: list[Move]) -> None:
        self.moves = moves
        self.asked: list[list[Message]] = []

    async def run(self, session: Session) -> None:
        conversations: list[list[Message]] = []
        for move in self.moves:
            before = conversations[move.of] if 0 <= move.of < len(conversations) else []
            messages = [*before, *(user(text) for text in move.words)]
            self.asked.append(messages)
            reply = await session.generate(messages)
            conversations.append([*messages, assistant(reply.text)])


def grown(moves: list[Move]) -> tuple[Growing, Sampled, Episode]:
    agent, model = Growing(moves), Sampled([move.reply for move in moves])
    return agent, model, run_episode(agent, model)


@settings(max_examples=60)
@given(sampled_trees)
def test_the_deltas_along_a_path_are_the_prompt_that_was_read(moves: list[Move]) -> None:
    agent, model, episode = grown(moves)
    graph = episode.graph
    newline = renderer().extend([], [user("")], True)[: -len(renderer().start([user("")]))]
    for call, asked, read in zip(episode.calls, agent.asked, model.prompts, strict=True):
        assert (*graph.tokens(call.index),) == (*read, *call.completion)
        assert graph.conversation(call.index) == (*asked, call.reply)
        expected: list[int] = []
        for node in graph.path(call.index):  # put together independently of the session
            if expected:
                expected += ([] if expected[-1] == END else [END]) + newline
            expected += [*renderer().start(node.messages), *node.completion]
        assert expected == [*read, *call.completion]


@settings(max_examples=60)
@given(sampled_trees)
def test_each_sampled_token_is_in_exactly_one_node(moves: list[Move]) -> None:
    _, _, episode = grown(moves)
    assert [call.completion for call in episode.calls] == [move.reply for move in moves]
    nodes = {call.index for path in episode.graph.branches() for call in path}
    assert nodes == set(range(len(moves)))
    assert episode.usage.sampled_tokens == sum(len(move.reply) for move in moves)


@settings(max_examples=60)
@given(spoken_trees)
def test_where_replies_are_canonical_the_prompt_is_the_conversation_rendered_whole(
    moves: list[Move],
) -> None:
    agent, model, _ = grown(moves)
    for asked, read in zip(agent.asked, model.prompts, strict=True):
        assert list(read) == renderer().start(asked)


# ── where a prompt belongs ───────────────────────────────────────────────────


def reference(graph: MessageGraph, messages: list[Message], policy: str, role: str) -> int | None:
    """The speaker's latest call if it is extended, else the longest of its calls that is."""
    own = [call.index for call in graph.calls if (call.policy, call.role) == (policy, role)]
    extended = {
        index: len(graph.conversation(index))
        for index in own
        if len(graph.conversation(index)) < len(messages)
        and messages[: len(graph.conversation(index))] == list(graph.conversation(index))
    }
    if own and own[-1] in extended:
        return own[-1]
    return max(extended, key=lambda index: (extended[index], index), default=None)


speakers = st.sampled_from([("one", "agent"), ("one", "judge"), ("two", "agent")])
few_words = st.lists(st.sampled_from(["a", "b"]), min_size=1, max_size=2)
asked = st.lists(st.tuples(speakers, st.integers(-1, 6), few_words), max_size=12)


@settings(max_examples=200)
@given(asked)
def test_a_prompt_continues_the_latest_or_the_longest_conversation(
    moves: list[tuple[tuple[str, str], int, list[str]]],
) -> None:
    graph = MessageGraph()
    conversations: list[list[Message]] = []
    for (policy, role), of, texts in moves:
        before = conversations[of] if 0 <= of < len(conversations) else []
        messages = [*before, *(user(text) for text in texts)]
        expected = reference(graph, messages, policy, role)
        place = graph.place(messages, policy, role)
        assert place.parent == expected and place.prompt == messages
        assert place.known == (0 if expected is None else len(graph.conversation(expected)))
        call = Call(
            index=len(graph.calls),
            parent=place.parent,
            role=role,
            messages=tuple(messages[place.known :]),
            prompt=(len(graph.calls),),
            reply=assistant("ok"),
            completion=(0,),
            logprobs=(0.0,),
            finish=Finish.STOP,
            policy=policy,
            version=0,
        )
        graph.add(call, place.prompt)
        conversations.append([*messages, assistant("ok")])
        assert [graph.conversation(i) for i in range(len(graph.calls))] == conversations
    assert [graph.tokens(i) for i in range(len(graph.calls))] == [
        MessageGraph(graph.calls).tokens(i) for i in range(len(graph.calls))
    ]


def test_the_memory_of_a_conversation_grows_with_its_turns_not_with_their_square() -> None:
    def peak(turns: int) -> int:
        tracemalloc.start()
        try:
            model = ScriptedModel(lambda messages: "up")
            run_episode(DirectAgent(), model, Stairs(height=turns))
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(20)  # what is made once
    assert peak(1600) < 6 * peak(400)
