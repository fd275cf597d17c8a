"""Conversations as examples."""

import pytest

from palaestra.core.episode import Key
from palaestra.core.errors import InputError
from palaestra.core.message import assistant, user
from palaestra.learning.data.examples.conversations import (
    conversation_example,
    last_reply_example,
)
from tests.learning.data.examples.stories import RENDERER, trained_words


def test_the_last_reply_alone_is_trained_in_the_same_row():
    conversation = [user("who"), assistant("me"), user("s0"), assistant("a0")]
    whole, last = (
        make(conversation, RENDERER, Key("general", 0))
        for make in (conversation_example, last_reply_example)
    )
    assert last.row.tokens == whole.row.tokens
    assert trained_words(last.row) == "a0"


@pytest.mark.parametrize(
    "conversation",
    [
        [],
        [user("who")],
        [assistant("me")],
        [user("who"), assistant("me"), user("s0")],
        [user("who"), assistant("me"), assistant("a0")],
    ],
)
def test_conversations_that_do_not_answer_each_other_are_refused(conversation):
    with pytest.raises(InputError, match="onversation"):
        conversation_example(conversation, RENDERER, Key("general", 0))
