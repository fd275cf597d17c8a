"""Replies are decoded token by token as they would be in one piece, and no slower."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models

from palaestra.core.model import Renderer
from palaestra.models.chatml import ChatMLRenderer
from palaestra.models.decoding import UNFINISHED, Decoding, Said
from palaestra.models.tiny import learn_vocabulary
from tests.core.small import renderer

WORDS = ["up", " down", "é", "€", "𝄞", "👩‍🚀", "\ufffd", " ", "\n", "日本", "ﷺ", "\u0301"]


@cache
def bytewise() -> Renderer:
    """A vocabulary without merges of the characters below, so that they are several tokens."""
    return ChatMLRenderer(learn_vocabulary(["a b c d"] * 3, 300), "bytes")


@cache
def pieces() -> Tokenizer:
    """A vocabulary of words that begin with a blank, of which the first one's is dropped."""
    words = ["▁", "▁up", "down", "▁▁", ".", "<unk>"]
    found = Tokenizer(models.WordLevel({word: id for id, word in enumerate(words)}, "<unk>"))
    found.decoder = decoders.Metaspace()
    return found


def check(text: object, tokens: Sequence[int]) -> None:
    """Each beginning of the tokens has the words that it would have alone."""
    assert callable(text)
    decoding, said = Decoding(text), ""
    for count, token in enumerate(tokens, 1):
        new = decoding.add(token)
        assert not new.endswith(UNFINISHED)
        said += new
        assert said + decoding.rest == text(tokens[:count])


@given(st.lists(st.sampled_from(WORDS), max_size=30).map("".join))
def test_characters_that_are_spread_over_tokens_are_told_once_they_are_whole(text: str) -> None:
    tokens = bytewise().reply(text)
    check(bytewise().text, tokens)


@given(st.lists(st.integers(0, 299), max_size=120))
def test_noise_is_decoded_as_in_one_piece(tokens: list[int]) -> None:
    check(bytewise().text, tokens)


@given(st.integers(1, 40), st.integers(0, 3))
def test_bytes_that_never_become_a_character_are_decoded_as_in_one_piece(
    count: int, which: int
) -> None:
    # Lead and continuation bytes, and control tokens among them, for longer than is remembered.
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
    said = Said(bytewise().text, stops)
    for count, token in enumerate(tokens, 1):
        found = any(stop in bytewise().text(tokens[:count]) for stop in stops)
        assert said.stops(token) == found
        if found:
            break


@given(st.lists(st.integers(0, 5), max_size=60))
def test_blanks_that_belong_to_words_are_kept_as_in_one_piece(tokens: list[int]) -> None:
    check(pieces().decode, tokens)


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
            add = Said(counting, stops).stops if stops else Decoding(counting).add
            for token in tokens:
                add(token)
            each.append(decoded / len(tokens))
        assert each[1] < 1.5 * each[0]
