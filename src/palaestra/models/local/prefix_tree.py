"""Prefix tree: the cached token sequences, as a tree over blocks of tokens.

A node is one block of memory: the keys and values of up to `size` tokens that follow those of its
parent. Full blocks are shared by all sequences with the same prefix (sessions, members of a group,
roles, forks). A block that is not yet full (a `tail`) has at most one writer; another sequence that
agrees with part of it copies that part.

Nodes that no running request reads stay known until their block is needed. The least recently used
sequence is evicted first, its last block first.

Source: radix-tree cache of SGLang (Zheng et al. 2024), on blocks as in vLLM (Kwon et al. 2023).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain


@dataclass(slots=True, eq=False)
class Node:
    """One block and the tokens whose keys and values it holds."""

    parent: Node | None  # None for a root
    block: int
    tokens: list[int] = field(default_factory=list)
    readers: int = 0  # running requests that hold it; while positive, it is not evicted
    children: dict[tuple[int, ...], Node] = field(default_factory=dict)  # full, by their tokens
    tails: list[Node] = field(default_factory=list)  # not yet full
    known: bool = True  # false once the tree has been cleared: no other request may find it


@dataclass(frozen=True, slots=True)
class Match:
    """The known prefix of a sequence."""

    nodes: list[Node]  # from the root, shared as they are; the last one is filled if not full
    near: Node | None  # a further block that agrees in its first `shared` tokens
    shared: int
    length: int  # tokens of `nodes`, plus `shared`


class PrefixTree:
    """Nodes of blocks of `size` tokens; it manages block numbers, not the memory itself."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.root = Node(None, -1)
        self.idle = 0  # nodes without readers: blocks that `evict` can give back
        self._leaves: OrderedDict[Node, None] = OrderedDict()  # idle, the least recent first

    def match(self, tokens: Sequence[int]) -> Match:
        """Find the longest known prefix of `tokens`; change nothing."""
        wanted = list(tokens)
        node, nodes, at = self.root, [], 0
        while (child := node.children.get(tuple(wanted[at : at + self.size]))) is not None:
            nodes.append(child)
            node, at = child, at + self.size
        rest = wanted[at : at + self.size]
        near, shared, goes_on = None, 0, False
        for child in chain(node.tails, node.children.values()):
            agreed = common_prefix(child.tokens, rest)
            free = agreed == len(child.tokens) and child.readers == 0  # a tail: it can be filled
            if (agreed, free) > (shared, goes_on):
                near, shared, goes_on = child, agreed, free
        if near is not None and goes_on:
            return Match([*nodes, near], None, 0, at + shared)
        return Match(nodes, near, shared, at + shared)

    def hold(self, nodes: Sequence[Node]) -> None:
        """Add a reader to the nodes of a path: they stay until they are released."""
        for node in nodes:
            if node.readers == 0:
                self.idle -= 1
                self._leaves.pop(node, None)
            node.readers += 1

    def let_go(self, nodes: Sequence[Node]) -> list[int]:
        """Remove a reader from the nodes; return the blocks that became free."""
        free = []
        for node in reversed(nodes):
            node.readers -= 1
            if node.readers:
                continue
            if not node.known:
                free.append(node.block)
            elif not node.tokens:
                self._detach(node)
                free.append(node.block)
            else:
                self.idle += 1
                if not node.children and not node.tails:
                    self._leaves[node] = None
        return free

    def grow(self, parent: Node, block: int) -> Node:
        """Add an empty node below `parent`, with one reader: the request that fills it."""
        node = Node(parent, block, readers=1, known=parent.known)
        if node.known:
            parent.tails.append(node)
        return node

    def fill(self, node: Node, tokens: Sequence[int]) -> Node:
        """Add tokens to the caller's own tail.

        Returns:
            the node to read from now on. It is another one if the full block was already known;
            then the given node is gone and its block free.
        """
        node.tokens.extend(tokens)
        if len(node.tokens) < self.size or not node.known:
            return node
        parent = _parent(node)
        key = tuple(node.tokens)
        parent.tails.remove(node)
        twin = parent.children.setdefault(key, node)
        if twin is not node:
            self.hold([twin])
        return twin

    def evict(self) -> int | None:
        """Evict the least recently used idle leaf; return its block, None without one."""
        if not self._leaves:
            return None
        node, _ = self._leaves.popitem(last=False)
        self.idle -= 1
        self._detach(node)
        parent = _parent(node)
        last = not parent.children and not parent.tails
        if last and parent.readers == 0 and parent.parent is not None:
            self._leaves[parent] = None
            self._leaves.move_to_end(parent, last=False)  # the rest of the same sequence is next
        return node.block

    def clear(self) -> list[int]:
        """Forget everything; return the blocks without readers."""
        free = []
        left = [self.root]
        while left:
            node = left.pop()
            left += [*node.children.values(), *node.tails]
            node.known = False
            node.children, node.tails = {}, []
            if node.readers == 0 and node.parent is not None:
                free.append(node.block)
        self.root = Node(None, -1)
        self._leaves.clear()
        self.idle = 0
        return free

    def _detach(self, node: Node) -> None:
        parent = _parent(node)
        if len(node.tokens) == self.size:
            del parent.children[tuple(node.tokens)]
        else:
            parent.tails.remove(node)


def _parent(node: Node) -> Node:
    assert node.parent is not None
    return node.parent


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """Return the length of the longest common prefix."""
    n = min(len(a), len(b))
    if n == 0 or a[0] != b[0]:
        return 0
    low, high = 0, n  # binary search on equality of slices, which C compares
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
