"""Models that mix tokens in a manner of their own: transformers' code, with the model's own cache.

State spaces, gated linear attention, convolutions, ALiBi: what cannot run over our cache of keys
and values, or along rows that share their beginnings, runs as transformers' `generate` runs it.
Each conversation has the model's own cache object (`conversation_cache`), and the learner runs one
row at a time, whole.

When a model is loaded, it is tried (`own_cache_trial`).
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from palaestra.models.local import transformers_network
from palaestra.models.local.architecture import NetworkConfig
from palaestra.models.local.attention import Attend, AttendAlongRows
from palaestra.models.local.cache_states import (
    Reading,
    apart,
    copied,
    form_of,
    joined,
    length_of,
    size_of,
)
from palaestra.models.local.checkpoint_files import sees
from palaestra.models.local.own_cache_trial import measure, try_out
from palaestra.models.local.transformers_network import (
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
RESCALE = "rescale_every"  # of RWKV


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
            begun, steps = measure(self)
            if model.device.type != "meta":
                try_out(self, begun, steps)
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
