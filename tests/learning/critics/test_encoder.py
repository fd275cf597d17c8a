"""What scorers read: each sequence's own states, whatever travels with it."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra.core.episode import Key
from palaestra.core.errors import InputError
from palaestra.learning.compute.shared_prefix_attention import causal_attention
from palaestra.learning.critics.encoder import hidden_at, last_states, replies, states_at
from palaestra.learning.data.rows import Row
from palaestra.learning.data.trajectory import Trajectory, Turn
from tests.learning.critics.rollouts import rollouts, small

sequences = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=8), min_size=1, max_size=10)


def alone(network, tokens):
    """Hidden states of one sequence, with plain causal attention."""

    def attend(layer, q, k, v, scores):
        return causal_attention(q[None], k[None], v[None])[0]

    ids = torch.tensor(tokens)
    return network.run(network.embed(ids), torch.arange(len(tokens)), attend)


@settings(max_examples=25)
@given(sequences)
@torch.no_grad()
def test_states_are_those_of_each_sequence_run_alone(found):
    network = small()
    positions = [range(len(sequence)) for sequence in found]
    together = hidden_at(network, found, positions)
    apart = torch.cat([alone(network, sequence) for sequence in found])
    assert torch.allclose(together, apart, atol=1e-5)


@torch.no_grad()
def test_states_come_in_the_order_in_which_they_were_asked_for():
    network = small()
    asked = hidden_at(network, [[1, 2], [1, 2, 3]], [[1], [2, 0]])
    longer = alone(network, [1, 2, 3])
    assert torch.allclose(asked, longer[[1, 2, 0]], atol=1e-5)


@torch.no_grad()
def test_heads_read_what_the_output_layer_reads():
    network = small()
    states = states_at(network, [[1, 2, 3]], [[2]])
    expected = network.logits(alone(network, [1, 2, 3]))[2]
    assert torch.allclose(states @ network.embedding.weight.T, expected[None], atol=1e-5)


@torch.no_grad()
def test_what_does_not_fit_the_context_is_cut_off_at_its_beginning():
    network = small(context=4)
    long, short = [1, 2, 3, 1, 2, 0], [3, 1, 2, 0]
    assert torch.equal(last_states(network, [long]), last_states(network, [short]))
    assert torch.equal(hidden_at(network, [long], [[2]]), hidden_at(network, [short], [[0]]))
    with pytest.raises(InputError, match="context of 4 tokens"):
        hidden_at(network, [long], [[1]])


@pytest.mark.parametrize("empty", [[], [[]], [[1], []]])
def test_nothing_cannot_be_read(empty):
    with pytest.raises(InputError, match="at least one"):
        last_states(small(), empty)


@pytest.mark.parametrize("forgetful", [False, True])
def test_turns_are_found_in_rows(forgetful):
    made = rollouts(
        [[([1, 2], [3], 0.0), ([4], [5, 6], 1.0)], [([7], [8], 0.0)]], forgetful=forgetful
    )
    (first, second), (other,) = replies(made.trajectories, made.rows)
    assert (first.history, first.tokens) == ((1, 2), (3,))
    assert second.history == ((4,) if forgetful else (1, 2, 3, 4))
    assert second.tokens == (5, 6)
    assert second.whole == second.history + second.tokens
    assert (other.history, other.tokens) == ((7,), (8,))


def test_replies_that_follow_each_other_without_a_word_between_are_two():
    key = Key("rl/1", 0)
    row = Row(key, [1, 2, 3], [False, True, True], [0.0, -1.0, -1.0], [-1, 0, 1])
    trajectory = Trajectory(key, "g", (Turn(1, call=0), Turn(1, call=1)), 1.0)
    ((first, second),) = replies([trajectory], [row])
    assert (first.tokens, second.history, second.tokens) == ((2,), (1, 2), (3,))


def test_rows_of_other_episodes_are_refused():
    made = rollouts([[([1], [2], 0.0)], [([1], [2, 3], 0.0)]])
    with pytest.raises(InputError, match=r"Call 0 of rl/1/0\.0 has 1 tokens.*hold none"):
        replies(made.trajectories, made.rows[1:])
    short = Row(made.rows[1].key, [1, 2], [False, True], [0.0, 0.0], [-1, 0])
    with pytest.raises(InputError, match="has 2 tokens, but the rows hold 1"):
        replies(made.trajectories[1:], [short])
