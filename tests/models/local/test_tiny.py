"""The tiny transformer and the vocabulary that it is given."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from palaestra.models.local.tiny import learn_vocabulary, tiny_network
from palaestra.models.renderers.chatml import ChatMLRenderer
from tests.models.local.test_network import logits

TEXTS = ["go to the red ball", "pick up the blue key", "you see a red ball"] * 5
RENDERER = ChatMLRenderer(learn_vocabulary(TEXTS, 300))


def test_frequent_words_become_single_tokens():
    assert len(RENDERER.reply(" ball")) == 2  # the word and the end
    assert RENDERER.tokenizer.get_vocab_size() <= 300


@given(st.text())
def test_any_text_can_be_said_and_read_back(text):
    plain = text.encode("utf-8", "replace").decode("utf-8")
    assert RENDERER.text(RENDERER.reply(text)) == plain


def test_equal_seeds_give_equal_networks_and_others_do_not():
    sizes = {"layers": 2, "width": 32, "heads": 4, "context": 64}
    a, b, c = (tiny_network(50, **sizes, seed=seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert not torch.equal(a["embedding.weight"], c["embedding.weight"])


def test_a_fresh_network_prefers_nothing():
    network = tiny_network(50, layers=2, width=32, heads=4, context=64, seed=0)
    with torch.no_grad():
        (found,) = logits(network, [[1, 2, 3]])
    p = found.softmax(dim=-1)
    assert float(p.max()) < 0.1
