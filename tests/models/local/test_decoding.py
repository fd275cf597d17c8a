"""Incremental decoding equals decoding the whole reply, in linear time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models

from palaestra.core.model import Renderer
from palaestra.models.local.decoding import UNFINISHED, IncrementalDecoder, StopDetector
from palaestra.models.local.tiny import learn_vocabulary
from palaestra.models.renderers.chatml import ChatMLRenderer
from tests.core.small import renderer

WORDS = ["up", " down", "é", "€", "𝄞", "👩‍🚀", "\ufffd", " ", "\n", "日本", "ﷺ", "\u0301"]


@cache
def bytewise() -> Renderer:
    """Return a vocabulary without merges of the characters below: each is several tokens."""
    return ChatMLRenderer(learn_vocabulary(["a b c d"] * 3, 300), "bytes")


@cache
def chunks() -> Tokenizer:
    """Return a vocabulary of words that begin with a blank; the first word's is dropped."""
    words = ["▁", "▁up", "down", "▁▁", ".", "<unk>"]
    found = Tokenizer(models.WordLevel({word: id for id, word in enumerate(words)}, "<unk>"))
    found.decoder = decoders.Metaspace()
    return found


def check(text: object, tokens: Sequence[int]) -> None:
    """Check that each prefix of the tokens has the text that it has when decoded alone."""
    assert callable(text)
    decoding, output = IncrementalDecoder(text), ""
    for count, token in enumerate(tokens, 1):
        new = decoding.add(token)
        assert not new.endswith(UNFINISHED)
        output += new
        assert output + decoding.rest == text(tokens[:count])


@given(st.lists(st.sampled_from(WORDS), max_size=30).map("".join))
def test_characters_that_are_spread_over_tokens_are_reported_once_they_are_whole(text: str) -> None:
    tokens = bytewise().reply(text)
    check(bytewise().text, tokens)


@given(st.lists(st.integers(0, 299), max_size=120))
def test_noise_is_decoded_in_chunks_as_in_whole(tokens: list[int]) -> None:
    check(bytewise().text, tokens)


@given(st.integers(1, 40), st.integers(0, 3))
def test_bytes_that_never_become_a_character_are_decoded_in_chunks_as_in_whole(
    count: int, which: int
) -> None:
    # Lead and continuation bytes mixed with control tokens, longer than the window.
    lead, follow = bytewise().reply("𝄞")[:2]
    control = min(bytewise().end_tokens)
    pattern = [[lead], [follow], [lead, control], [lead, *[control] * 20, follow]][which]
    check(bytewise().text, [*pattern * count, *bytewise().reply("𝄞 é")])


@given(
    st.lists(st.sampled_from(WORDS), max_size=30).map("".join),
    st.lists(st.sampled_from(["é", " down", "pé", "€€", "\ufffd", "up\nup"]), min_size=1),
)
def test_a_stop_string_is_found_with_the_token_that_completes_it(
    text: str, stops: list[str]
) -> None:
    tokens = bytewise().reply(text)
    output = StopDetector(bytewise().text, stops)
    for count, token in enumerate(tokens, 1):
        found = any(stop in bytewise().text(tokens[:count]) for stop in stops)
        assert output.stops(token) == found
        if found:
            break


@given(st.lists(st.integers(0, 5), max_size=60))
def test_blanks_that_belong_to_words_are_kept_in_chunks_as_in_whole(tokens: list[int]) -> None:
    check(chunks().decode, tokens)


def test_the_work_grows_with_the_length_and_not_with_its_square() -> None:
    decoded = 0

    def counting(tokens: Sequence[int]) -> str:
        nonlocal decoded
        decoded += len(tokens)
        return renderer().text(tokens)

    for stops in ((), ("STOP",)):
        each = []
        for count in (100, 1600):
            tokens, decoded = renderer().reply("up and 𝄞 down " * count), 0
            add = StopDetector(counting, stops).stops if stops else IncrementalDecoder(counting).add
            for token in tokens:
                add(token)
            each.append(decoded / len(tokens))
        assert each[1] < 1.5 * each[0]
