"""The prefix tree: what is known, shared and forgotten, in blocks of three tokens."""

from hypothesis import given
from hypothesis import strategies as st

from palaestra.models.local.prefix_tree import PrefixTree, common_prefix

SIZE = 3
tokens = st.lists(st.integers(0, 2), max_size=12)


def roll_out(tree: PrefixTree, text: list[int], first: int = 0):
    """Return the nodes of a sequence that one reader has computed, with numbered blocks."""
    match = tree.match(text)
    nodes = list(match.nodes)
    tree.hold(nodes)
    at = match.length - match.shared
    while at < len(text):
        if not nodes or len(nodes[-1].tokens) == SIZE:
            nodes.append(tree.grow(nodes[-1] if nodes else tree.root, first))
            first += 1
        part = text[at : at + SIZE - len(nodes[-1].tokens)]
        nodes[-1] = tree.fill(nodes[-1], part)
        at += len(part)
    return nodes


def shown(nodes) -> list[int]:
    return [token for node in nodes for token in node.tokens]


@given(tokens, tokens)
def test_the_common_prefix_is_found(a, b):
    n = common_prefix(a, b)
    assert a[:n] == b[:n]
    assert n == min(len(a), len(b)) or a[n] != b[n]


@given(st.lists(tokens, max_size=12), tokens)
def test_the_longest_known_prefix_is_found(texts, asked):
    tree = PrefixTree(SIZE)
    for number, text in enumerate(texts):
        tree.let_go(roll_out(tree, text, 100 * number))
    match = tree.match(asked)
    assert match.length == max((common_prefix(text, asked) for text in texts), default=0)
    whole = shown(match.nodes)
    assert whole == asked[: len(whole)]
    assert match.length == len(whole) + match.shared
    assert (
        match.near is None
        or match.near.tokens[: match.shared] == asked[len(whole) :][: match.shared]
    )


def test_a_whole_block_is_one_node_for_all_who_begin_with_it():
    tree = PrefixTree(SIZE)
    first = roll_out(tree, [1, 2, 3, 4], 0)
    second = roll_out(tree, [1, 2, 3, 5], 10)
    assert first[0] is second[0]
    assert first[1] is not second[1]
    assert (first[0].readers, first[1].readers, second[1].readers) == (2, 1, 1)


def test_two_who_compute_the_same_block_end_up_with_one():
    tree = PrefixTree(SIZE)
    one, other = tree.grow(tree.root, 0), tree.grow(tree.root, 1)
    assert tree.fill(one, [1, 2, 3]) is one
    assert tree.fill(other, [1, 2, 3]) is one
    assert one.readers == 2


def test_an_idle_tail_is_gone_on_with_and_a_busy_one_is_only_near():
    tree = PrefixTree(SIZE)
    (tail,) = roll_out(tree, [1, 2])
    busy = tree.match([1, 2, 3, 4])
    assert (busy.nodes, busy.near, busy.shared) == ([], tail, 2)
    tree.let_go([tail])
    idle = tree.match([1, 2, 3, 4])
    assert (idle.nodes, idle.near, idle.length) == ([tail], None, 2)
    other = tree.match([1, 0])  # agrees with a part of it
    assert (other.nodes, other.near, other.shared) == ([], tail, 1)


def test_the_sequence_used_longest_ago_goes_first_from_its_end():
    tree = PrefixTree(SIZE)
    old, new = [0, 0, 0, 1, 1, 1, 2], [0, 0, 0, 2, 2, 2, 1]
    tree.let_go(roll_out(tree, old, 0))  # blocks 0, 1, 2
    tree.let_go(roll_out(tree, new, 10))  # blocks 10, 11 beside the shared 0
    tree.let_go(roll_out(tree, old, 20))
    assert [tree.evict() for _ in range(6)] == [11, 10, 2, 1, 0, None]
    assert tree.idle == 0


def test_what_is_read_is_never_evicted():
    tree = PrefixTree(SIZE)
    held = roll_out(tree, [0, 0, 0, 1, 1], 0)
    tree.let_go(roll_out(tree, [0, 0, 0, 2], 10))
    assert [tree.evict(), tree.evict()] == [10, None]
    tree.let_go(held)
    assert [tree.evict(), tree.evict(), tree.evict()] == [1, 0, None]


def test_clearing_hides_what_is_read_and_frees_it_when_it_is_let_go():
    tree = PrefixTree(SIZE)
    held = roll_out(tree, [0, 0, 0, 1], 0)
    tree.let_go(roll_out(tree, [2, 2], 10))
    assert tree.clear() == [10]
    assert tree.match([0, 0, 0, 1]).length == 0
    held[1] = tree.fill(held[1], [1, 1])  # the reader continues
    held.append(tree.grow(held[1], 2))
    tree.fill(held[2], [5])
    tree.let_go(roll_out(tree, [0, 0, 0, 1], 20))  # another reader computes it again
    assert tree.match([0, 0, 0, 1, 1, 1, 5]).length == 4
    assert sorted(tree.let_go(held)) == [0, 1, 2]
    assert tree.match([0, 0, 0, 1]).length == 4


def test_a_block_into_which_nothing_was_written_is_free_at_once():
    tree = PrefixTree(SIZE)
    node = tree.grow(tree.root, 7)
    assert tree.let_go([node]) == [7]
    assert tree.root.tails == []
