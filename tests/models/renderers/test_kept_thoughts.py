"""Templates that drop earlier thoughts: a branch per turn, or one branch with all thoughts."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from palaestra.core.agent import Agent
from palaestra.core.episode import Episode
from palaestra.core.errors import TemplateBreaksPrefix
from palaestra.core.message import Message, ToolCall, assistant, tool_result, user
from palaestra.core.model import Sampling
from palaestra.core.session import Session
from palaestra.core.tool import Tool
from palaestra.learning.data.rows import rows_of
from palaestra.models.registry import dropping_thoughts
from palaestra.models.scripted.scripted_model import ScriptedModel
from tests.core.small import run_episode
from tests.models.renderers.templating import tiny

DROPPING = ("qwen3", "glm", "gpt_oss", "minimax")
SWAP = Tool("swap", "Swap.", {"type": "object", "properties": {}})
TURNS = 4


class Talk(Agent):
    """Speaks with its model for some turns."""

    name = "talk"

    async def run(self, session: Session) -> None:
        messages: list[Message] = [user("turn 0")]
        for turn in range(1, TURNS + 1):
            reply = await session.generate(messages, tools=(SWAP,))
            messages += [reply.message, user(f"turn {turn}")]


def talk(name: str, *, keep: bool) -> Episode:
    script = [assistant(f"word {n}", reasoning=f"thought {n}") for n in range(TURNS)]
    model = ScriptedModel(script, renderer=tiny(name, keep), name="policy")
    return run_episode(Talk(), model, sampling=Sampling(max_tokens=200))


def shown(name: str, tokens: Sequence[int]) -> str:
    return "".join(tiny(name).token_strings(tokens))


@pytest.mark.parametrize("name", DROPPING)
def test_each_turn_begins_a_branch_which_is_what_the_template_makes_of_it(name: str) -> None:
    made = talk(name, keep=False)
    assert [call.parent for call in made.calls] == [None] * TURNS
    for call in made.calls:
        prompt = tiny(name).start(call.messages, (SWAP,))
        assert list(call.prompt) == prompt
        assert "thought" not in shown(name, prompt)


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("name", DROPPING)
def test_each_sampled_token_is_trained_once(name: str, keep: bool) -> None:
    made = talk(name, keep=keep)
    rows = rows_of(made, "policy")
    assert len(rows) == (1 if keep else TURNS)
    assert sum(row.trained for row in rows) == sum(len(call.completion) for call in made.calls)
    trained = [t for row in rows for t, on in zip(row.tokens, row.mask, strict=True) if on]
    assert trained == [token for call in made.calls for token in call.completion]


@pytest.mark.parametrize("name", DROPPING)
def test_kept_thoughts_make_one_branch_of_all_that_was_sampled(name: str) -> None:
    made = talk(name, keep=True)
    assert [call.parent for call in made.calls] == [None, *range(TURNS - 1)]
    text = shown(name, made.graph.tokens(TURNS - 1))
    places = [text.index(f"{word} {n}") for n in range(TURNS) for word in ("thought", "word")]
    assert places == sorted(places)
    last = made.calls[-1].prompt
    assert shown(name, last).count("turn 3") == 1 and "turn 2" not in shown(name, last)
    # The new turn is written as the template writes it.
    fresh = tiny(name).start([user("turn 0"), assistant("word 0"), user("turn 3")], (SWAP,))
    begins = shown(name, fresh).index("word 0") + len("word 0")
    assert shown(name, fresh)[begins:].endswith(shown(name, last).lstrip())


def test_kept_thoughts_reach_over_calls_and_their_results() -> None:
    """Qwen 3 shows thoughts between calls, and drops them all when the user speaks again."""
    call = ToolCall("swap", {}, "abcdefghi")
    history = [
        user("one"),
        assistant("", reasoning="first", tool_calls=[call]),
        tool_result("done", id="abcdefghi", name="swap"),
        assistant("two", reasoning="second"),
    ]
    with pytest.raises(TemplateBreaksPrefix):
        tiny("qwen3").extend(history, [user("three")], True, (SWAP,))
    tail = shown("qwen3", tiny("qwen3", True).extend(history, [user("three")], True, (SWAP,)))
    assert tail == "\n<|im_start|>user\nthree<|im_end|>\n<|im_start|>assistant\n"


def test_a_template_that_changes_more_than_thoughts_still_breaks_the_branch() -> None:
    history = [user("one"), assistant("<think>x</think>two")]
    render = tiny("qwen3", True)
    with pytest.raises(TemplateBreaksPrefix):
        render.extend(history, [user("three")], True)


def test_which_templates_drop_thoughts_is_known_when_they_are_loaded() -> None:
    assert all(tiny(name).drops_thoughts for name in DROPPING)
    assert not any(tiny(name, True).drops_thoughts for name in DROPPING)
    assert not any(tiny(name).drops_thoughts for name in ("qwen2_5", "smollm3", "llama3", "kimi"))
    assert "'qwen3' drops earlier thoughts" in dropping_thoughts("qwen3")
    assert "model.keep_thoughts=true" in dropping_thoughts("qwen3")


# ── ends of replies that belong to the next message ──────────────────────────


@pytest.mark.parametrize(("name", "spoken", "answered"), [
    ("glm", "<|user|>", "<|observation|>"),
    ("gemma4", "<turn|>", "<|tool_response>"),
])  # fmt: skip
def test_the_end_of_a_reply_stands_for_the_role_that_follows(
    name: str, spoken: str, answered: str
) -> None:
    """Sampled as the template writes it, it is not written again; otherwise it is."""
    render = tiny(name)
    id = {render.token_strings([id])[0]: id for id in render.end_tokens}
    call = ToolCall("swap", {}, "abcdefghi")
    results = [tool_result("done", id="abcdefghi", name="swap")]
    said = {
        "spoken": [user("one"), assistant("two")],
        "called": [user("one"), assistant("", tool_calls=[call])],
    }
    for history, new, end, other in (
        (said["spoken"], [user("three")], spoken, answered),
        (said["called"], results, answered, spoken),
    ):
        assert render.closes(id[end], new) and not render.closes(id[other], new)
        closed, cut = (render.extend(history, new, closes, (SWAP,)) for closes in (True, False))
        assert cut == [id[end], *closed]
