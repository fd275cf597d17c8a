"""Tools through chat templates: calls round-trip, and tokens stay as sampled."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra.core.errors import InputError, TemplateBreaksPrefix
from palaestra.core.message import Message, ToolCall, assistant, system, tool_result, user
from palaestra.core.model import Prompt, Renderer, Reply, Sampling
from palaestra.core.tool import Tool
from palaestra.models.renderers.chat_template import TemplateRenderer
from palaestra.models.renderers.tool_conventions import read_reply
from tests.models.renderers.templating import NAMES, renderer, source, tokenizer

ALONE = ("llama3", "gpt_oss")  # templates with one call per reply
WORDLESS = (*ALONE, "mistral", "llama_python")  # replies with calls have no text
KEEPS_REASONING = ("qwen3", "smollm3", "glm", "gpt_oss", "gemma4", "minimax")

TOOL = Tool(
    "swap",
    "Swap two things.",
    {
        "type": "object",
        "properties": {
            "place": {"type": "integer"},
            "note": {"type": "string"},
            "sure": {"type": "boolean"},
            "all": {"type": "array", "items": {"type": "number"}},
            "more": {"type": "object"},
        },
    },
)
words = st.text(st.characters(categories=("L", "N", "P", "Zs")), max_size=20).map(str.strip)
values: dict[str, st.SearchStrategy[Any]] = {
    "place": st.integers(-99, 99),
    "note": words,
    "sure": st.booleans(),
    "all": st.lists(st.integers(0, 9) | st.just(0.5), max_size=3),
    "more": st.dictionaries(words, words | st.none() | st.booleans(), max_size=2),
}
calls = st.fixed_dictionaries({}, optional=values).map(lambda given: ToolCall("swap", given))
output = st.text(st.characters(categories=("L", "N", "Zs")), max_size=20).map(str.strip)


def prompt(tools: tuple[Tool, ...] = (TOOL,)) -> Prompt:
    return Prompt((), None, Sampling(), 7, tools=tools)


def numbered(many: list[ToolCall], turn: int, name: str = "") -> list[ToolCall]:
    """Return the calls with ids that the template keeps."""
    form = f"functions.swap:{turn}{{}}" if name == "kimi" else f"call{turn:02}00{{}}"
    return [ToolCall(c.name, c.arguments, form.format(n)) for n, c in enumerate(many)]


def thought(name: str) -> str:
    """Return what a reply has to think where every prompt opens a thought."""
    return "Well." if name == "minimax" else ""


def bare(many: tuple[ToolCall, ...] | list[ToolCall]) -> list[ToolCall]:
    return [ToolCall(call.name, call.arguments) for call in many]


@st.composite
def turns(draw: st.DrawFn, name: str) -> list[Message]:
    """A conversation in which each reply calls tools, and each call is answered."""
    asked = [user(draw(output) or "What now?")]
    found = [system("You act."), *asked] if draw(st.booleans()) else asked
    most = 1 if name in ALONE else 3
    for turn in range(draw(st.integers(1, 3))):
        many = numbered(draw(st.lists(calls, min_size=1, max_size=most)), turn, name)
        text = "" if name in WORDLESS else draw(output)
        thought = draw(output) or "Well." if name in KEEPS_REASONING else ""
        found.append(assistant(text, reasoning=thought, tool_calls=many))
        found += [tool_result(draw(output), id=call.id, name=call.name) for call in many]
    return found


def replies(conversation: list[Message]) -> list[int]:
    return [n for n, message in enumerate(conversation) if message.role == "assistant"]


@pytest.mark.parametrize("name", NAMES)
def test_every_template_here_renders_tools(name: str) -> None:
    assert renderer(name).native_tools
    received = renderer(name).text(renderer(name).start([user("?")], [TOOL]))
    assert "swap" in received and TOOL.description in received


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25)
@given(data=st.data())
def test_calls_are_read_as_the_template_writes_them(name: str, data: st.DataObject) -> None:
    most = 1 if name in ALONE else 3
    many = numbered(data.draw(st.lists(calls, min_size=1, max_size=most)), 0)
    tokens = renderer(name).reply(assistant("", tool_calls=many))
    assert tokens[-1] in renderer(name).end_tokens
    reply = read_reply(renderer(name), prompt(), renderer(name).text(tokens))
    assert bare(reply.tool_calls) == bare(many) and reply.text == ""
    assert len({call.id for call in reply.tool_calls}) == len(many)
    if name == "mistral":  # which writes ids
        assert list(reply.tool_calls) == many


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25)
@given(data=st.data())
def test_a_conversation_with_calls_is_extended_exactly(name: str, data: st.DataObject) -> None:
    render, conversation = renderer(name), data.draw(turns(name))
    places = replies(conversation)
    tokens = render.start(conversation[: places[0]], [TOOL])
    cut = list(tokens)
    for place, following in zip(places, [*places[1:], len(conversation)], strict=True):
        sampled = render.reply(conversation[place])
        history, new = conversation[: place + 1], conversation[place + 1 : following]
        before = list(tokens)
        tokens += sampled + render.extend(history, new, True, [TOOL])
        cut += sampled[:-1] + render.extend(history, new, False, [TOOL])
        assert tokens[: len(before)] == before
    assert tokens == cut  # whether or not the end of a reply was sampled
    whole = render.start(conversation, [TOOL])
    assert "".join(render.token_strings(tokens)) == "".join(render.token_strings(whole))


@pytest.mark.parametrize("name", NAMES)
def test_a_reply_that_was_written_otherwise_keeps_its_tokens(name: str) -> None:
    """The tokens after a reply depend on its content, not on its blanks."""
    said = assistant("", reasoning=thought(name), tool_calls=[call("abcdefghi")])
    render, history = renderer(name), [user("?"), said]
    answer = [tool_result("done", id="abcdefghi", name="swap")]
    tail = render.extend(history, answer, True, [TOOL])
    assert tail[: len(tail)] == render.extend(history, answer, False, [TOOL])[1:]
    assert "done" in render.text(tail)


def call(id: str = "", **arguments: Any) -> ToolCall:
    return ToolCall("swap", arguments or {"place": 2}, id)


# ── malformed calls ──────────────────────────────────────────────────────────

HERMES = '<tool_call>\n{"name": "swap", "arguments": {"place": 2}}\n</tool_call>'


@pytest.mark.parametrize(
    "text",
    [
        "I swap.",
        " I swap.\n",
        '<tool_call>\n{"name": "swap", "arguments": {"place": 2\n</tool_call>',
        '<tool_call>{"name": "swap", "arguments": [2]}</tool_call>',
        '<tool_call>{"arguments": {}}</tool_call>',
        '<tool_call>{"name": "swap", "arguments": {"place": NaN}}</tool_call>',
        '<tool_call>{"name": "swap", "arguments": {}} and more</tool_call>',
        "<tool_call>swap</tool_call>",
        "</tool_call><tool_call>",
    ],
)
def test_malformed_calls_stay_words(text: str) -> None:
    assert renderer("qwen2_5").parse(text) == Reply(text)


def test_sound_calls_are_made_beside_malformed_ones_which_stay_words() -> None:
    bad = "<tool_call>\n{oops}\n</tool_call>"
    reply = renderer("qwen2_5").parse(f"First.\n{HERMES}\n{bad}\n{HERMES}")
    assert reply.tool_calls == (call(), call())
    assert reply.text.split("\n") == ["First.", "", *bad.split("\n")]


def test_a_call_whose_closing_tag_was_cut_is_made() -> None:
    assert renderer("qwen2_5").parse(HERMES.removesuffix("\n</tool_call>")).tool_calls == (call(),)


def test_an_argument_may_hold_the_closing_tag() -> None:
    text = json.dumps({"name": "swap", "arguments": {"note": "</tool_call>"}})
    reply = renderer("qwen2_5").parse(f"<tool_call>{text}</tool_call>")
    assert reply.tool_calls == (call(note="</tool_call>"),)


@given(st.text(st.sampled_from(list('<tool_call>/{}":, [TOOL_CALLS]name1')), max_size=60))
def test_no_text_is_lost_or_breaks_the_reading(text: str) -> None:
    for name in NAMES:
        reply = renderer(name).parse(text)
        thinks = "<think>" in text or name == "minimax"
        assert reply.tool_calls or thinks or reply.text == text


def test_llama_makes_one_call_a_reply_and_nothing_else() -> None:
    one = '{"name": "swap", "parameters": {"place": 2}}'
    assert renderer("llama3").parse(one) == Reply("", "", (call(),))
    assert renderer("llama3").parse(f"<|python_tag|>{one}").tool_calls == (call(),)
    for words in (f"{one}; {one}", f"I say {one}", '{"name": "Bob", "age": 3}'):
        assert renderer("llama3").parse(words) == Reply(words)


def test_two_calls_stay_words_where_the_template_takes_one() -> None:
    alone = source("qwen2_5").replace(
        "{%- for tool_call in message.tool_calls %}",
        "{%- if message.tool_calls | length > 1 %}{{ raise_exception('one') }}{% endif %}"
        "{%- for tool_call in message.tool_calls %}",
    )
    tokens = tokenizer("qwen2_5")
    tokens.chat_template = alone
    render = TemplateRenderer(tokens, "alone")
    assert render.native_tools and render.parse(HERMES).tool_calls == (call(),)
    assert render.parse(HERMES + HERMES) == Reply(HERMES + HERMES)


def test_a_template_that_shows_doubled_braces_gets_them_back() -> None:
    """Qwen2.5-Coder's is Qwen 2.5's, but for the form of a call that it shows the model."""
    shown, call_form = (
        '{\\"name\\": <function-name>',
        '{{"name": "swap", "arguments": {"place": 2}}}',
    )
    coder = tokenizer("qwen2_5")
    coder.chat_template = source("qwen2_5").replace(shown, "{" + shown)
    render = TemplateRenderer(coder, "coder")
    assert coder.chat_template != source("qwen2_5") and render.native_tools
    for text in (call_form, HERMES, f"<tool_call>\n{call_form}\n</tool_call>"):
        assert render.parse(text) == Reply("", "", (call(),))
    assert renderer("qwen2_5").parse(call_form) == Reply(call_form)


def test_mistrals_later_form_is_read_too() -> None:
    tokens = tokenizer("mistral")
    tokens.chat_template = (
        "{% for m in messages %}{% if m.role == 'user' %}"
        "{{ '[AVAILABLE_TOOLS]' + tools | tojson + '[/AVAILABLE_TOOLS]' if tools and loop.first }}"
        "[INST]{{ m.content }}[/INST]{% elif m.role == 'tool' %}"
        "[TOOL_RESULTS]{{ m.content }}[/TOOL_RESULTS]{% else %}{{ m.content }}"
        "{% for c in m.tool_calls or [] %}[TOOL_CALLS]{{ c.function.name }}[ARGS]"
        "{{ c.function.arguments | tojson }}{% endfor %}</s>{% endif %}{% endfor %}"
    )
    render = TemplateRenderer(tokens, "later")
    assert render.native_tools
    text = 'Now. [TOOL_CALLS]swap[ARGS]{"place": 2}[TOOL_CALLS]swap[ARGS]{"place": 2}'
    assert render.parse(text) == Reply("Now.", "", (call(), call()))


# ── reasoning ────────────────────────────────────────────────────────────────


def test_reasoning_is_kept_apart() -> None:
    text = f"<think>\nWhich one?\n</think>\n\nThat one.\n{HERMES}"
    assert renderer("qwen3").parse(text) == Reply("That one.", "Which one?", (call(),))
    assert renderer("qwen3").parse("<think>\nWhich") == Reply("", "Which")
    assert renderer("qwen3").parse("That one.") == Reply("That one.")
    assert renderer("qwen2_5").parse(text).reasoning == ""  # its template has none


def test_reasoning_is_kept_as_long_as_the_template_keeps_it() -> None:
    """Qwen 3 shows thoughts between calls, and strips them when the user speaks again."""
    render = renderer("qwen3")
    reply = assistant("", reasoning="Which one?", tool_calls=[call()])
    history = [user("?"), reply]
    assert render.extend(history, [tool_result("done")], True, [TOOL])
    with pytest.raises(TemplateBreaksPrefix, match="'qwen3'"):
        render.extend(history, [tool_result("done"), user("Thanks.")], True, [TOOL])


def test_a_template_that_begins_the_thought_reads_what_follows_as_one() -> None:
    tokens = tokenizer("qwen3_5")
    render = TemplateRenderer(tokens, "opens")
    assert render.native_tools
    assert render.parse("Left or right?\n</think>\n\nLeft.") == Reply("Left.", "Left or right?")
    assert render.parse("Left or") == Reply("", "Left or")
    history = [user("?"), assistant("Left.", reasoning="Left or right?")]
    assert "Go on." in render.text(render.extend(history, [user("Go on.")], True, [TOOL]))


def test_deepseek_strips_thoughts_of_earlier_replies() -> None:
    history = [user("?"), assistant("left", reasoning="Left or right?")]
    with pytest.raises(TemplateBreaksPrefix, match="'deepseek'"):
        renderer("deepseek").extend(history, [user("!")], True)
    assert renderer("deepseek").extend([user("?"), assistant("left")], [user("!")], True)


# ── forged control tokens, foreign ids, templates without tools ──────────────


@pytest.mark.parametrize("name", NAMES)
def test_control_tokens_in_tools_calls_and_results_end_no_turn(name: str) -> None:
    render = renderer(name)
    end = render.token_strings(sorted(render.end_tokens))[0]

    def controls(word: str) -> int:
        tool = Tool("swap", f"Swap. {word}", {"type": "object", "properties": {"note": {}}})
        many = [call("abcdefghi", note=word)]
        history = [user("?"), assistant("", reasoning=thought(name), tool_calls=many)]
        result = tool_result(f"done {word}", id="abcdefghi", name="swap")
        tokens = [
            *render.start([*history, result], [tool]),
            *render.extend(history, [result], False, [tool]),
        ]
        return sum(token in render.end_tokens for token in tokens)

    assert controls(end) == controls("nothing")


def test_ids_of_other_models_are_shortened_where_a_template_needs_it() -> None:
    long = "call_Ab3dEf6hIj9lMn2p"
    history = [user("?"), assistant("", tool_calls=[call(long)])]
    tail = renderer("mistral").text(
        renderer("mistral").extend(history, [tool_result("done", id=long)], True, [TOOL])
    )
    shown = renderer("mistral").parse(
        renderer("mistral").text(renderer("mistral").reply(history[-1]))
    )
    assert f'"call_id": "{shown.tool_calls[0].id}"' in tail


def test_more_calls_than_a_template_takes_are_an_error_naming_it() -> None:
    with pytest.raises(InputError, match=r"'llama3'.*single tool-calls"):
        renderer("llama3").start([user("?"), assistant("", tool_calls=[call("a"), call("b")])])


PLAIN = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def plain() -> Renderer:
    tokens = tokenizer("qwen2_5")
    tokens.chat_template = PLAIN
    return TemplateRenderer(tokens, "plain")


def test_a_template_without_tools_gets_them_as_words() -> None:
    render = plain()
    assert not render.native_tools
    received = "".join(render.token_strings(render.start([system("Act."), user("?")], [TOOL])))
    assert received.startswith("<|im_start|>system\nAct.\n\n# Tools\n\n<tools>\n{")
    assert "<tool_call>" in received
    reply = render.parse(f"Now.\n{HERMES}")
    assert reply == Reply("Now.", "", (call(),))
    history = [user("?"), assistant("Now.", tool_calls=[call()])]
    tail = render.extend(history, [tool_result("done")], True, [TOOL])
    assert "<tool_response>\ndone\n</tool_response>" in render.text(tail)
    joined = render.start(history[:1], [TOOL]) + render.reply(history[1]) + tail
    assert joined == render.start([*history, tool_result("done")], [TOOL])


def test_a_template_whose_calls_no_convention_reads_gets_tools_as_words() -> None:
    odd = tokenizer("qwen2_5")
    odd.chat_template = source("qwen2_5").replace("<tool_call>", "<odd>").replace('"name"', '"who"')
    render = TemplateRenderer(odd, "odd")
    assert not render.native_tools and render.parse(HERMES).tool_calls == (call(),)


def test_words_are_words_where_no_tools_are_offered() -> None:
    assert read_reply(renderer("qwen2_5"), prompt(()), HERMES) == Reply(HERMES)


def test_ids_follow_from_the_seed() -> None:
    reply = read_reply(renderer("qwen2_5"), prompt(), HERMES + HERMES)
    again = read_reply(renderer("qwen2_5"), prompt(), HERMES + HERMES)
    assert reply == again and len({call.id for call in reply.tool_calls}) == 2


def test_texts_become_what_the_schema_asks_for() -> None:
    text = (
        "<tool_call>\n<function=swap>\n<parameter=place>\n12\n</parameter>\n<parameter=note>\n12\n"
        "</parameter>\n<parameter=sure>\nTrue\n</parameter>\n</function>\n</tool_call>"
    )
    reply = read_reply(renderer("qwen_xml"), prompt(), text)
    assert bare(reply.tool_calls) == [call(place=12, note="12", sure=True)]
