"""The trial of a model with a cache of its own: what its cache allows, and whether it is right.

Its own logits are held against those of its last hidden states, and one pass against one token
after the other: what fails either is refused. Besides, the trial finds out whether several tokens
can be read at once after others, and whether conversations can go on side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from palaestra.models.local.attention import Scores
from palaestra.models.local.cache_states import Reading, copied, difference, form_of, size_of
from palaestra.models.local.transformers_network import CLOSE, FAILURES, refusal

if TYPE_CHECKING:
    from palaestra.models.local.own_cache_network import OwnCacheNetwork

CLOSE_STATES = {torch.float32: 1e-3, torch.bfloat16: 0.2}  # of the greatest entry
READ, TRIED = 19, 24  # tokens of a trial that are read at once, and in all


@torch.no_grad()
def measure(network: OwnCacheNetwork) -> tuple[Reading, Reading]:
    """Measure the cache; return a sequence half read, and read token by token from there."""
    row = _row(network)
    begun = Reading(None, 0, row[:READ])
    network.read([begun])
    network.reads_on = False
    steps = Reading(copied(begun.state), READ, row[READ:])
    network.read([steps])
    network.reads_on = True
    small, large = size_of(begun.state), size_of(steps.state)
    network.token_bytes = -(-max(0, large - small) // (TRIED - READ))
    network.state_bytes = max(0, large - TRIED * network.token_bytes)
    return begun, steps


@torch.no_grad()
def try_out(network: OwnCacheNetwork, begun: Reading, steps: Reading) -> None:
    """Try the model on two short sequences, of which `measure` read the first."""
    first = _row(network)
    second = first[::-1]
    wanted = _plain_logits(network, first)
    x = network.embed(torch.tensor(first, device=network.device))
    whole = network.run(x, torch.arange(TRIED, device=network.device), _one_row)
    if not _close(network, network.logits(whole), wanted):
        raise refusal(network.folder, "logits that its last hidden states alone do not give")
    if not (_same(network, begun, wanted[READ - 1]) and _same(network, steps, wanted[-1])):
        raise refusal(network.folder, "a cache that does not compute what one pass computes")
    network.reads_on = _works(lambda: _reads_on(network, begun, first, wanted))
    rows, logits = (first, second), (wanted, _plain_logits(network, second))
    network.joins = True
    network.joins = _works(lambda: _joins(network, rows, logits, READ, 1))
    network.pads = network.joins
    network.pads = network.joins and _works(lambda: _joins(network, rows, logits, READ - 3, 1))
    lengths, count = {READ, READ - 3 if network.pads else READ}, 2 if network.reads_on else 1
    network.joins_several = network.joins
    network.joins_several = network.joins and _works(
        lambda: all(_joins(network, rows, logits, length, count) for length in lengths)
    )


def _reads_on(network: OwnCacheNetwork, begun: Reading, row: Sequence[int], wanted: Tensor) -> bool:
    """Return whether several tokens can be read at once after others.

    What a recurrence remembers shows less in the logits than in its state, and fades.
    """
    whole = Reading(None, 0, row)
    found = Reading(copied(begun.state), READ, row[READ : READ + 2])
    network.read([whole, found])
    if not _same(network, found, wanted[READ + 1]):
        return False
    found.tokens = row[READ + 2 :]
    network.read([found])
    alike = difference(found.state, whole.state) <= CLOSE_STATES.get(network.dtype, 0.2)
    return alike and _same(network, found, wanted[-1])


def _joins(
    network: OwnCacheNetwork,
    rows: Sequence[Sequence[int]],
    wanted: Sequence[Tensor],
    length: int,
    count: int,
) -> bool:
    """Return whether conversations of READ and `length` tokens go on side by side, in steps."""
    starts = (READ, length)
    readings = [Reading(None, 0, row[:n]) for row, n in zip(rows, starts, strict=True)]
    network.read(readings)
    if network.pads or length == READ:  # else they would run apart
        forms = {form_of(reading.state, padded=network.pads) for reading in readings}
        if len(forms) > 1:
            return False
    for step in range(0, TRIED - READ - count + 1, count):
        for reading, row, n in zip(readings, rows, starts, strict=True):
            reading.tokens = row[n + step : n + step + count]
        network.read(readings)
        for reading, logits, n in zip(readings, wanted, starts, strict=True):
            if not _same(network, reading, logits[n + step + count - 1]):
                return False
    return True


def _works(trial: Callable[[], bool]) -> bool:
    try:
        return trial()
    except FAILURES:
        return False


def _same(network: OwnCacheNetwork, reading: Reading, wanted: Tensor) -> bool:
    assert reading.hidden is not None
    return _close(network, network.logits(reading.hidden[None])[0], wanted)


def _close(network: OwnCacheNetwork, found: Tensor, wanted: Tensor) -> bool:
    limit = CLOSE.get(network.dtype, 0.05) * float(wanted.abs().max())
    return float((found - wanted).abs().max()) <= limit  # not a number: not close


def _plain_logits(network: OwnCacheNetwork, row: Sequence[int]) -> Tensor:
    tokens = torch.tensor([row], device=network.device)
    found: Tensor = network.model(input_ids=tokens, use_cache=False).logits[0]
    return found


def _row(network: OwnCacheNetwork) -> list[int]:
    generator = torch.Generator().manual_seed(0)
    most = network.config.vocab_size
    row = torch.randint(most, (TRIED,), generator=generator).tolist()
    padding = getattr(network.model.config.get_text_config(), "pad_token_id", None)
    return [token if token != padding else (token + 1) % most for token in row]


def _one_row(layer: int, q: Tensor, k: Tensor, v: Tensor, scores: Scores) -> Tensor:
    """Stand for the attention of one row (an `Attend`): the model attends by its own code."""
    raise AssertionError("a model with its own cache asked for an attention of ours")
