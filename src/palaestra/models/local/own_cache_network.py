"""Models that mix tokens in a manner of their own: transformers' code, with the model's own cache.

State spaces, gated linear attention, convolutions, ALiBi: what cannot run over our cache of keys
and values, or along rows that share their beginnings, runs as transformers' `generate` runs it.
Each conversation has the model's own cache object (`conversation_cache`), and the learner runs one
row at a time, whole.

When a model is loaded, it is tried: its own logits against those of its last hidden states, one
pass against one token after the other, and what its cache allows besides (several tokens at once,
conversations side by side). What fails the first two is refused.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from palaestra.models.local import transformers_network
from palaestra.models.local.architecture import NetworkConfig
from palaestra.models.local.attention import Attend, AttendAlongRows, Scores
from palaestra.models.local.cache_states import (
    apart,
    copied,
    difference,
    form_of,
    joined,
    length_of,
    size_of,
)
from palaestra.models.local.checkpoint_files import sees
from palaestra.models.local.transformers_network import (
    CLOSE,
    FAILURES,
    CannotRun,
    TransformersNetwork,
    check_replaceable,
    longest_of,
    model_class,
    place_of_blocks,
    place_of_body,
    planned_dtype,
    read_with,
    refusal,
)

CACHES = ("past_key_values", "cache_params", "state")  # what models call their cache
CLOSE_STATES = {torch.float32: 1e-3, torch.bfloat16: 0.2}  # of the greatest entry
RESCALE = "rescale_every"  # of RWKV
READ, TRIED = 19, 24  # tokens of a trial that are read at once, and in all


@dataclass(slots=True, eq=False)
class Reading:
    """A conversation that goes on: what the model remembers of it, and its next tokens."""

    state: Any  # None: nothing was read yet
    start: int  # tokens that were read
    tokens: Sequence[int]  # the next ones, at least one
    hidden: Tensor | None = None  # the last hidden state of the last token, [width]


class OwnCacheNetwork(TransformersNetwork):
    """A causal language model of transformers with its own attention and its own cache."""

    own_cache = True

    def __init__(self, model: Any, folder: Path | str = "") -> None:
        """Wrap a model in evaluation mode; `folder` names it in errors.

        Raises:
            InputError: it has no cache, or does not compute alike with it and without it.
        """
        nn.Module.__init__(self)
        self.model, self.folder = model.eval(), folder
        try:
            # RWKV divides its weights in place by powers of two, for numbers narrower than bf16
            self._rescale = getattr(model.config, RESCALE, None)
            self._set_rescale(0)
            self._place_of_body = self._place_of_states = place_of_body(model, folder)
            self._place_of_blocks = place_of_blocks(model, self._place_of_body, folder)
            accepted = inspect.signature(self.body.forward).parameters
            self._cache = next((name for name in CACHES if name in accepted), None)
            if self._cache is None or "inputs_embeds" not in accepted:
                raise refusal(folder, f"no cache ({type(model).__name__})")
            self._numbered = "position_ids" in accepted
            self.config = self._sizes()
            self.context = self.config.max_position_embeddings
            before = [parameter._version for parameter in model.parameters()]
            self.uncalled = self._uncalled()
            if before != [parameter._version for parameter in model.parameters()]:
                raise refusal(folder, "a pass that changes its weights")
            self.reads_on, self.joins, self.pads, self.joins_several = True, False, False, False
            """What its cache allows: several tokens at once after others; conversations of one
            form side by side, of any lengths side by side, and several tokens of each at once."""
            self.state_bytes = self.token_bytes = 0
            """Of a conversation's cache: whatever its length, and for each token."""
            begun, steps = self._measure()
            if model.device.type != "meta":
                self._try(begun, steps)
        except FAILURES as error:
            line = " ".join(str(error).split())[:120]
            raise refusal(folder, f"code that fails with its own cache ({line})") from error

    def run(
        self, x: Tensor, positions: Tensor, attend: Attend, first: int = 0, last: int | None = None
    ) -> Tensor:
        """Run all blocks and the final norm on embeddings [N, width], or none (`last` = 0).

        Each row of `attend` is a pass of its own; without rows, the tokens are one row. A token
        that rows share is computed in each of them, and taken from the first.
        """
        if last == 0:
            return x
        if first or last not in (None, self.depth):
            raise ValueError("the blocks of this network run together")
        rows: Sequence[Sequence[int]] = [range(len(x))]
        if isinstance(attend, AttendAlongRows):
            rows = attend.rows
        found: list[Tensor] = []
        known = 0
        for row in rows:
            own = sum(entry >= known for entry in row)
            if own == 0:
                continue
            entries = torch.tensor(list(row), device=x.device)
            # without weights, the code that tells sequences apart fails where there is no cache
            hidden, _ = self._body(x[entries][None], None, positions, keep=x.is_meta)
            found.append(hidden[0, len(row) - own :])
            known += own
        return torch.cat(found)

    def save(self, folder: Path) -> None:
        """Write `config.json` and the weights, as `from_pretrained` reads them."""
        self._set_rescale(self._rescale)
        self.model.save_pretrained(folder)
        self._set_rescale(0)

    def _set_rescale(self, every: int | None) -> None:
        if self._rescale is not None:
            setattr(self.model.config, RESCALE, every)

    def copied(self, state: Any) -> Any:
        """Return a copy of what `read` made of a conversation."""
        return copied(state)

    def size_of(self, state: Any) -> int:
        """Return its bytes."""
        return size_of(state)

    def read(self, readings: Sequence[Reading]) -> None:
        """Read the next tokens of conversations: set each one's `state` and `hidden`.

        Equal numbers of tokens run in one batch as far as the model's cache allows it.
        """
        left = list(readings)
        while left:
            passes: dict[tuple[int, Hashable], list[Reading]] = {}
            for reading in left:
                count = (
                    1 if reading.state is not None and not self.reads_on else len(reading.tokens)
                )
                joins = self.joins and (count == 1 or self.joins_several)
                form = form_of(reading.state, padded=self.pads) if joins else id(reading)
                passes.setdefault((count, form), []).append(reading)
            for (count, _), together in passes.items():
                self._read(together, count)
            left = [reading for reading in left if reading.tokens]

    def _read(self, readings: Sequence[Reading], count: int) -> None:
        """Read the next `count` tokens of conversations that one pass can hold."""
        tokens = torch.tensor([list(r.tokens[:count]) for r in readings], device=self.device)
        starts = [reading.start for reading in readings]
        lengths = [length_of(reading.state) if len(readings) > 1 else 0 for reading in readings]
        paddings = [max(lengths) - length for length in lengths]
        state, seen = readings[0].state, None
        if len(readings) > 1 and state is not None:
            state = joined([reading.state for reading in readings])
            if any(paddings):
                at = torch.arange(max(lengths) + count, device=self.device)
                seen = (at >= torch.tensor(paddings, device=self.device)[:, None]).long()
        steps = torch.arange(count, device=self.device)
        positions = torch.tensor(starts, device=self.device)[:, None] + steps
        x = self.embed(tokens)
        hidden, state = self._body(x, state, positions, keep=True, seen=seen)
        states = [state] if len(readings) == 1 else apart(state, paddings)
        for reading, own, last in zip(readings, states, hidden[:, -1], strict=True):
            reading.state, reading.hidden = own, last
            reading.start, reading.tokens = reading.start + count, reading.tokens[count:]

    def _body(
        self,
        x: Tensor,
        state: Any,
        positions: Tensor,
        *,
        keep: bool = False,
        seen: Tensor | None = None,
    ) -> tuple[Tensor, Any]:
        """Run the model without its head on embeddings [B, n, width].

        Args:
            x: the embeddings.
            state: what it remembers of the tokens before; it may be changed.
            positions: of the tokens, [B, n]; unused without a state: they begin with 0.
            keep: whether it is to remember these tokens too.
            seen: which tokens are none, of those before and these; None: all are.

        Returns:
            The hidden states, [B, n, width], and what the model remembers now.
        """
        assert self._cache is not None
        options: dict[str, Any] = {self._cache: state} if state is not None else {}
        if self._numbered and state is not None:
            options["position_ids"] = positions  # else they begin with 0
        if seen is not None:
            options["attention_mask"] = seen
        found = self.body(inputs_embeds=x, use_cache=keep, **options)
        return found.last_hidden_state, getattr(found, self._cache) if keep else None

    def _sizes(self) -> NetworkConfig:
        config = self.model.config.get_text_config()
        embedding = self.model.get_input_embeddings().weight
        heads = getattr(config, "num_attention_heads", None)
        heads = heads if isinstance(heads, int) and heads > 0 else 1
        return NetworkConfig(
            vocab_size=embedding.shape[0],
            hidden_size=embedding.shape[1],
            intermediate_size=0,
            num_hidden_layers=self.depth,
            num_attention_heads=heads,
            num_key_value_heads=heads,
            max_position_embeddings=longest_of(config),
            tie_word_embeddings=bool(getattr(config, "tie_word_embeddings", False)),
            # the logits may be capped, which takes more memory
            logit_softcap=getattr(config, "final_logit_softcapping", None),
            model_type=config.model_type,
            source=json.dumps(self.model.config.to_dict(), default=str),
        )

    @torch.no_grad()
    def _uncalled(self) -> frozenset[str]:
        """Return the linear layers that are not called: the model reads their weights itself."""
        called: set[nn.Module] = set()
        layers = {name: one for name, one in self.named_modules() if isinstance(one, nn.Linear)}
        hooks = [
            layer.register_forward_pre_hook(lambda module, given: called.add(module))
            for layer in layers.values()
        ]
        x = self.embed(torch.zeros(2, dtype=torch.int64, device=self.device))
        self._body(x[None], None, torch.arange(2, device=self.device)[None], keep=x.is_meta)
        for hook in hooks:
            hook.remove()
        return frozenset(
            name
            for name, layer in layers.items()
            if layer not in called and self.layer_of(f"{name}.weight") is not None
        )

    # ── the trial ────────────────────────────────────────────────────────────

    @torch.no_grad()
    def _measure(self) -> tuple[Reading, Reading]:
        """Measure the cache; return a sequence half read, and read token by token from there."""
        row = self._row()
        begun = Reading(None, 0, row[:READ])
        self.read([begun])
        self.reads_on = False
        steps = Reading(copied(begun.state), READ, row[READ:])
        self.read([steps])
        self.reads_on = True
        small, large = size_of(begun.state), size_of(steps.state)
        self.token_bytes = -(-max(0, large - small) // (TRIED - READ))
        self.state_bytes = max(0, large - TRIED * self.token_bytes)
        return begun, steps

    @torch.no_grad()
    def _try(self, begun: Reading, steps: Reading) -> None:
        """Try the model on two short sequences, of which `_measure` read the first."""
        first = self._row()
        second = first[::-1]
        wanted = self._plain_logits(first)
        x = self.embed(torch.tensor(first, device=self.device))
        whole = self.run(x, torch.arange(TRIED, device=self.device), _one_row)
        if not self._close(self.logits(whole), wanted):
            raise refusal(self.folder, "logits that its last hidden states alone do not give")
        if not (self._same(begun, wanted[READ - 1]) and self._same(steps, wanted[-1])):
            raise refusal(self.folder, "a cache that does not compute what one pass computes")
        self.reads_on = self._works(lambda: self._reads_on(begun, first, wanted))
        rows, logits = (first, second), (wanted, self._plain_logits(second))
        self.joins = True
        self.joins = self._works(lambda: self._joins(rows, logits, READ, 1))
        self.pads = self.joins
        self.pads = self.joins and self._works(lambda: self._joins(rows, logits, READ - 3, 1))
        lengths, count = {READ, READ - 3 if self.pads else READ}, 2 if self.reads_on else 1
        self.joins_several = self.joins
        self.joins_several = self.joins and self._works(
            lambda: all(self._joins(rows, logits, length, count) for length in lengths)
        )

    def _reads_on(self, begun: Reading, row: Sequence[int], wanted: Tensor) -> bool:
        """Return whether several tokens can be read at once after others.

        What a recurrence remembers shows less in the logits than in its state, and fades.
        """
        whole = Reading(None, 0, row)
        found = Reading(copied(begun.state), READ, row[READ : READ + 2])
        self.read([whole, found])
        if not self._same(found, wanted[READ + 1]):
            return False
        found.tokens = row[READ + 2 :]
        self.read([found])
        alike = difference(found.state, whole.state) <= CLOSE_STATES.get(self.dtype, 0.2)
        return alike and self._same(found, wanted[-1])

    def _joins(
        self, rows: Sequence[Sequence[int]], wanted: Sequence[Tensor], length: int, count: int
    ) -> bool:
        """Return whether conversations of READ and `length` tokens go on side by side, in steps."""
        starts = (READ, length)
        readings = [Reading(None, 0, row[:n]) for row, n in zip(rows, starts, strict=True)]
        self.read(readings)
        if self.pads or length == READ:  # else they would run apart
            forms = {form_of(reading.state, padded=self.pads) for reading in readings}
            if len(forms) > 1:
                return False
        for step in range(0, TRIED - READ - count + 1, count):
            for reading, row, n in zip(readings, rows, starts, strict=True):
                reading.tokens = row[n + step : n + step + count]
            self.read(readings)
            for reading, logits, n in zip(readings, wanted, starts, strict=True):
                if not self._same(reading, logits[n + step + count - 1]):
                    return False
        return True

    def _works(self, trial: Callable[[], bool]) -> bool:
        try:
            return trial()
        except FAILURES:
            return False

    def _same(self, reading: Reading, wanted: Tensor) -> bool:
        assert reading.hidden is not None
        return self._close(self.logits(reading.hidden[None])[0], wanted)

    def _close(self, found: Tensor, wanted: Tensor) -> bool:
        limit = CLOSE.get(self.dtype, 0.05) * float(wanted.abs().max())
        return float((found - wanted).abs().max()) <= limit  # not a number: not close

    def _plain_logits(self, row: Sequence[int]) -> Tensor:
        tokens = torch.tensor([row], device=self.device)
        found: Tensor = self.model(input_ids=tokens, use_cache=False).logits[0]
        return found

    def _row(self) -> list[int]:
        generator = torch.Generator().manual_seed(0)
        most = self.config.vocab_size
        row = torch.randint(most, (TRIED,), generator=generator).tolist()
        padding = getattr(self.model.config.get_text_config(), "pad_token_id", None)
        return [token if token != padding else (token + 1) % most for token in row]


def _one_row(layer: int, q: Tensor, k: Tensor, v: Tensor, scores: Scores) -> Tensor:
    """Stand for the attention of one row (an `Attend`): the model attends by its own code."""
    raise AssertionError("a model with its own cache asked for an attention of ours")


def check(folder: Path) -> None:
    """Check that transformers knows the model in a folder; load nothing.

    Raises:
        InputError: it does not.
    """
    model_class(folder)
    if not can_share(folder):
        _text_class(folder)


def can_share(folder: Path) -> bool:
    """Return whether our cache may hold what a model attends to, as far as its type tells."""
    try:
        check_replaceable(folder)
    except CannotRun:
        return False
    return True


def load(folder: Path, dtype: torch.dtype) -> TransformersNetwork:
    """Load a checkpoint folder by transformers' own code, with our cache if that is possible.

    A model that sees reads text only with a cache of its own.

    Raises:
        InputError: it can run in neither way.
    """
    if can_share(folder):
        try:
            return _shared(folder).load(folder, dtype)
        except CannotRun:
            if sees(folder):
                raise
    own = _text_class(folder).from_pretrained
    return OwnCacheNetwork(read_with(own, folder, dtype, None), folder)


def blank(folder: Path, dtype: torch.dtype) -> TransformersNetwork:
    """Return the network of a checkpoint without weights, on the device "meta".

    It is not tried: a model whose attention could be replaced may turn out, with its weights, to
    need its own cache.
    """
    from transformers import AutoConfig

    if can_share(folder):
        try:
            return _shared(folder).blank(folder, dtype)
        except CannotRun:
            if sees(folder):
                raise
    config = AutoConfig.from_pretrained(folder)
    with torch.device("meta"):
        model = _text_class(folder).from_config(config, dtype=planned_dtype(config, dtype))
    return OwnCacheNetwork(model, folder)


def _shared(folder: Path) -> Any:
    """Return the module that loads a model over our cache."""
    if not sees(folder):
        return transformers_network
    from palaestra.models.local import seeing_network

    return seeing_network


def _text_class(folder: Path) -> Any:
    """Return transformers' loader of the causal language model in a folder.

    Raises:
        CannotRun: it has none that stands alone.
    """
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoConfig, AutoModelForCausalLM

    if type(AutoConfig.from_pretrained(folder)) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise refusal(folder, "a language model that transformers does not run without its tower")
    return AutoModelForCausalLM
