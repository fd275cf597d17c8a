"""transformers' cache objects as values: copied, joined to a batch, taken apart, measured.

What a model of transformers remembers of a conversation is an object of its own: keys and values,
states of recurrences and convolutions, counters. Models write into it. Here it is a tree whose
leaves are tensors [batch, ...] and plain values; nothing else about it is assumed. When a model is
loaded, it is tried whether it computes alike with trees that were copied and joined.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedConfig
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

GROWING = ("keys", "values")  # of a `DynamicLayer`: [batch, heads, tokens, d]


@dataclass(slots=True, eq=False)
class Reading:
    """A conversation that goes on: what the model remembers of it, and its next tokens."""

    state: Any  # None: nothing was read yet
    start: int  # tokens that were read
    tokens: Sequence[int]  # the next ones, at least one
    hidden: Tensor | None = None  # the last hidden state of the last token, [width]


def copied(state: Any) -> Any:
    """Return a state that shares no memory with the given one."""
    return _mapped(lambda parts, growing: parts[0].clone(), [state])


def size_of(state: Any) -> int:
    """Return the bytes of a state's tensors."""
    found = 0

    def measure(parts: Sequence[Tensor], growing: bool) -> Tensor:
        nonlocal found
        found += parts[0].nbytes
        return parts[0]

    _mapped(measure, [state])
    return found


def form_of(state: Any, *, padded: bool) -> Hashable:
    """Return what states must have in common to be joined.

    Args:
        state: of one conversation.
        padded: whether keys and values of different numbers of tokens can be joined.
    """
    if isinstance(state, Tensor):
        return state.shape, state.dtype
    if isinstance(state, dict):
        return tuple((key, form_of(value, padded=padded)) for key, value in state.items())
    if isinstance(state, list | tuple):
        return tuple(form_of(value, padded=padded) for value in state)
    if not _is_node(state):
        return type(state), state if isinstance(state, Hashable) else id(state)
    growing = GROWING if padded and _grows(state) else ()
    return type(state), tuple(
        (name, form_of(value, padded=padded))
        for name, value in vars(state).items()
        if name not in growing
    )


def length_of(state: Any) -> int:
    """Return for how many tokens a state holds keys and values, beginning with the first; or 0."""
    found = 0

    def measure(parts: Sequence[Tensor], growing: bool) -> Tensor:
        nonlocal found
        found = max(found, parts[0].shape[-2]) if growing else found
        return parts[0]

    _mapped(measure, [state])
    return found


def difference(found: Any, wanted: Any) -> float:
    """Return the greatest difference between states of equal form, relative to the tensor's size.

    Infinite where tensors differ in shape.
    """
    worst = 0.0

    def compare(parts: Sequence[Tensor], growing: bool) -> Tensor:
        nonlocal worst
        one, other = (part.double() for part in parts)
        if one.shape != other.shape:
            worst = float("inf")
        elif one.numel() and not torch.equal(one, other):
            off = float((one - other).abs().max() / other.abs().max())
            worst = max(worst, off if off == off else float("inf"))
        return parts[0]

    _mapped(compare, [found, wanted])
    return worst


def joined(states: Sequence[Any]) -> Any:
    """Return the batch of states of equal form; shorter keys and values get zeros before them."""

    def join(parts: Sequence[Tensor], growing: bool) -> Tensor:
        if growing:
            longest = max(part.shape[-2] for part in parts)
            parts = [F.pad(part, (0, 0, longest - part.shape[-2], 0)) for part in parts]
        return torch.cat(list(parts))

    return _mapped(join, states)


def apart(batch: Any, paddings: Sequence[int]) -> list[Any]:
    """Return the states of a batch; `paddings` are the numbers of zeros before keys and values."""

    def of(row: int, padding: int) -> Any:
        def cut(parts: Sequence[Tensor], growing: bool) -> Tensor:
            own = parts[0][row : row + 1]
            return (own[..., padding:, :] if growing else own).clone()

        return _mapped(cut, [batch])

    return [of(row, padding) for row, padding in enumerate(paddings)]


def _mapped(function: Callable[[Sequence[Tensor], bool], Tensor], states: Sequence[Any]) -> Any:
    """Return a tree of the tensors that `function` makes of the tensors in one place of each.

    It is also told whether they grow with each token, and can be padded.
    """
    first = states[0]
    if isinstance(first, Tensor):
        return function(states, False)
    if isinstance(first, dict):
        return type(first)(
            (key, _mapped(function, [state[key] for state in states])) for key in first
        )
    if isinstance(first, list | tuple):
        return type(first)(_mapped(function, list(parts)) for parts in zip(*states, strict=True))
    if not _is_node(first):
        return first
    found, grows = copy.copy(first), _grows(first)
    for name, value in vars(first).items():
        parts = [vars(state)[name] for state in states]
        if grows and name in GROWING and isinstance(value, Tensor):
            vars(found)[name] = function(parts, True)
        else:
            vars(found)[name] = _mapped(function, parts)
    return found


def _is_node(state: Any) -> bool:
    """Return whether a value is an object of transformers with values of its own."""
    ours = type(state).__module__.startswith("transformers.")
    return ours and hasattr(state, "__dict__") and not isinstance(state, type | PreTrainedConfig)


def _grows(state: Any) -> bool:
    return isinstance(state, DynamicLayer) and not isinstance(state, DynamicSlidingWindowLayer)
