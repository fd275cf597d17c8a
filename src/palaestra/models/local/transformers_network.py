"""Any other architecture: a model of transformers acts and learns with its own code.

transformers lets a program replace the attention function of most models. Here it becomes the
`Attend` of whoever runs the network: the engine's, over its cache of keys and values, or the
learner's, along rows that share their beginnings. Everything else is the model's own code, and so
are its logits. So the engine, the learner, LoRA and checkpoints are those of resident networks.

When a model is loaded, two sequences side by side are compared with the model's own attention
on each of them. A model that mixes tokens elsewhere (state spaces, convolutions) or masks scores in
a manner of its own cannot run like this; see `own_cache_network`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from palaestra.core.errors import InputError
from palaestra.models.local.architecture import LayerTraits, NetworkConfig
from palaestra.models.local.attention import Attend, Scores
from palaestra.models.local.checkpoint_files import sees
from palaestra.models.local.config_keys import ELSEWHERE
from palaestra.models.local.network import DecoderNetwork
from palaestra.models.local.transformers_attention import ATTENTION, Beside, attending

LENGTHS = (7, 12)  # tokens of the sequences that a model is tried on
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
FULL, SLIDING = "full_attention", "sliding_attention"
FAILURES = (
    *(AttributeError, IndexError, KeyError, NotImplementedError),
    *(RuntimeError, TypeError, ValueError),
)
"""What a model's own code raises where it was not made for."""

CLOSE = {torch.float32: 1e-3, torch.bfloat16: 0.05}  # of the greatest logit


class TransformersNetwork(DecoderNetwork):
    """A causal language model of transformers, with the interface of `DecoderNetwork`.

    Its blocks cannot be run one by one (`whole`).
    """

    whole = True

    def __init__(self, model: Any, folder: Path | str = "") -> None:
        """Wrap a model in evaluation mode; `folder` names it in errors.

        Raises:
            CannotRun: its attention cannot be replaced, or it does more across tokens than attend.
        """
        nn.Module.__init__(self)
        check_class(type(model), folder)
        self.model = model.eval()
        self.folder = folder
        self._place_of_body = place_of_body(model, folder)
        self._place_of_states = _place_of(self._states(), model)
        self._place_of_blocks = place_of_blocks(model, self._place_of_body, folder)
        try:
            wanted = self._own_logits() if model.device.type != "meta" else None
            self._take_attention()
            self.config = _config_of(model, self._seen(), folder)
            self.context = self.config.max_position_embeddings
            if wanted is not None:
                self._check(wanted)
        except FAILURES as error:
            line = " ".join(str(error).split())[:120]
            raise refusal(folder, f"code that fails without its own attention ({line})") from error

    @property
    def depth(self) -> int:
        return len(self.model.get_submodule(self._place_of_blocks))

    @property
    def body(self) -> nn.Module:
        """The language model without its head."""
        return self.model.get_submodule(self._place_of_body)

    @property
    def dtype(self) -> torch.dtype:
        found: torch.dtype = self.model.get_input_embeddings().weight.dtype
        return found

    @property
    def device(self) -> torch.device:
        found: torch.device = self.model.get_input_embeddings().weight.device
        return found

    def embed(self, tokens: Tensor) -> Tensor:
        found: Tensor = self.model.get_input_embeddings()(tokens)
        return found

    def run(
        self, x: Tensor, positions: Tensor, attend: Attend, first: int = 0, last: int | None = None
    ) -> Tensor:
        """Run all blocks and the final norm on embeddings [N, width], or none (`last` = 0)."""
        if last == 0:
            return x
        if first or last not in (None, self.depth):
            raise ValueError("the blocks of this network run together")
        with attending(attend):
            found = self.body(
                inputs_embeds=x[None], position_ids=positions[..., None, :], use_cache=False
            )
        hidden: Tensor = found.last_hidden_state[0]
        return hidden

    def normed(self, x: Tensor) -> Tensor:
        """Return the hidden states themselves: `run` ends with the final norm."""
        return x

    def logits(self, x: Tensor) -> Tensor:
        """Turn hidden states [M, width] into logits [M, vocabulary], by the model's own code."""
        body = self._states()
        parent, _, name = self._place_of_states.rpartition(".")
        modules = self.model.get_submodule(parent)._modules
        modules[name] = _Given(x[None], body)
        try:
            tokens = torch.zeros(1, len(x), dtype=torch.int64, device=x.device)
            found: Tensor = self.model(input_ids=tokens, use_cache=False).logits[0]
        finally:
            modules[name] = body
        return found

    def layer_of(self, name: str) -> int | None:
        rest = name.removeprefix(f"model.{self._place_of_blocks}.")
        if rest != name:
            return int(rest.partition(".")[0])
        in_body = name.startswith(f"model.{self._place_of_body}.")
        return self.depth if in_body and self.get_parameter(name).dim() == 1 else None

    def save(self, folder: Path) -> None:
        """Write `config.json` and the weights, as `from_pretrained` reads them."""
        self.model.save_pretrained(folder)

    def _states(self) -> nn.Module:
        """Return the module that gives the hidden states which the head reads."""
        return self.body

    def _take_attention(self) -> None:
        """Let our `Attend` answer the language model."""
        self.model.set_attn_implementation(ATTENTION)

    @torch.no_grad()
    def _seen(self) -> list[Asked]:
        """Return what each layer asks of attention."""
        found: dict[int, Asked] = {}

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor, scores: Scores) -> Tensor:
            if layer in found:  # our cache has one place for the keys of a layer
                raise refusal(self.folder, "layers that attend more than once")
            found[layer] = Asked(q.shape[1], k.shape[1], q.shape[2], scores)
            return torch.zeros_like(q)

        width = self.model.get_input_embeddings().weight.shape[1]
        x = torch.zeros(2, width, dtype=self.dtype, device=self.device)
        self.run(x, torch.arange(2, device=self.device), attend)
        if sorted(found) != list(range(self.depth)):
            raise refusal(self.folder, "layers without attention")
        return [found[layer] for layer in sorted(found)]

    @torch.no_grad()
    def _check(self, wanted: Sequence[Tensor]) -> None:
        """Compare the logits of sequences side by side with the model's own."""
        rows = self._rows()
        tokens = torch.cat(rows)
        positions = torch.cat([torch.arange(len(row), device=self.device) for row in rows])
        found = self.logits(self.run(self.embed(tokens), positions, Beside(LENGTHS)))
        for ours, theirs in zip(found.split(LENGTHS), wanted, strict=True):
            if not close(ours, theirs, self.dtype):
                raise refusal(self.folder, "operations across tokens besides plain attention")

    def _rows(self) -> list[Tensor]:
        """Return the sequences that the model is tried on."""
        generator = torch.Generator().manual_seed(0)
        most = self.model.get_input_embeddings().weight.shape[0]
        return [torch.randint(most, (n,), generator=generator).to(self.device) for n in LENGTHS]

    @torch.no_grad()
    def _own_logits(self) -> list[Tensor]:
        """Return the logits of `_rows` by the model's own attention, one sequence at a time."""
        return [self.model(input_ids=row[None], use_cache=False).logits[0] for row in self._rows()]


@dataclass(frozen=True, slots=True)
class Asked:
    """What one layer asks of attention."""

    heads: int
    kv_heads: int
    head_dim: int
    scores: Scores


def load(folder: Path, dtype: torch.dtype) -> TransformersNetwork:
    """Load a checkpoint folder by transformers' own code.

    Raises:
        CannotRun: see `TransformersNetwork`.
        InputError: transformers does not know it, or cannot read it.
    """
    check_replaceable(folder)
    return TransformersNetwork(read_model(folder, dtype), folder)


def read_model(folder: Path, dtype: torch.dtype) -> Any:
    """Return transformers' model of a checkpoint; raise like `load`."""
    return read_with(model_class(folder).from_pretrained, folder, dtype, "eager")


def read_with(own: Any, folder: Path, dtype: torch.dtype, attention: str | None) -> Any:
    """Return what transformers' function reads from a checkpoint.

    Args:
        own: a `from_pretrained`.
        folder: the checkpoint.
        dtype: of the weights.
        attention: whose code attends; None: the model's default.

    Raises:
        InputError: it cannot be read.
    """
    try:
        return own(folder, dtype=dtype, attn_implementation=attention)
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        line = " ".join(str(error).split())[:200]
        raise InputError(
            f"transformers cannot load the model in '{folder}' ({line}); download it again, or "
            f"{ELSEWHERE}."
        ) from error


def blank(folder: Path, dtype: torch.dtype) -> TransformersNetwork:
    """Return the network of a checkpoint without weights, on the device "meta"."""
    check_replaceable(folder)
    with torch.device("meta"):
        return TransformersNetwork(blank_model(folder, dtype), folder)


def blank_model(folder: Path, dtype: torch.dtype) -> Any:
    """Return transformers' model of a checkpoint, with new weights on the present device.

    Mixtures of experts are in bf16, since torch cannot plan their products in other formats.
    """
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(folder)
    dtype = planned_dtype(config, dtype)
    return model_class(folder)._from_config(config, dtype=dtype, attn_implementation="eager")


def planned_dtype(config: Any, dtype: torch.dtype) -> torch.dtype:
    """Return the number format in which a model without weights can be planned."""
    experts = any(getattr(config, name, None) for name in EXPERTS)
    return torch.bfloat16 if experts else dtype


def model_class(folder: Path) -> Any:
    """Return transformers' class of the checkpoint in a folder.

    Raises:
        InputError: transformers has none.
    """
    from transformers import (
        MODEL_FOR_CAUSAL_LM_MAPPING,
        MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING,
        AutoConfig,
    )

    mapping, kind = MODEL_FOR_CAUSAL_LM_MAPPING, "a causal language model"
    if sees(folder):
        mapping, kind = MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING, "a model of images and text"
    source = (folder / "config.json").read_text(encoding="utf-8")
    try:
        name = json.loads(source).get("model_type")
        config = AutoConfig.from_pretrained(folder)
        return mapping[type(config)]
    except (OSError, ValueError, KeyError) as error:
        raise InputError(
            f"The model in '{folder}' is of type '{name}', which this version of transformers does "
            f"not know as {kind}; update transformers, or {ELSEWHERE}."
        ) from error


def check_replaceable(folder: Path) -> None:
    """Check that the attention of the model in a folder can be replaced; load nothing.

    Raises:
        CannotRun: it cannot.
        InputError: transformers does not know the model.
    """
    from transformers import AutoConfig

    check_class(model_class(folder), folder)
    config = AutoConfig.from_pretrained(folder).get_text_config()
    others = set(getattr(config, "layer_types", None) or ()) - {FULL, SLIDING}
    for name in sorted(others):
        raise refusal(folder, f"layers of type '{name}'")


def longest_context(folder: Path) -> int:
    """Return the tokens of the longest sequence that the model in a folder was made for."""
    from transformers import AutoConfig

    return longest_of(AutoConfig.from_pretrained(folder))


def check_class(model: Any, folder: Path | str) -> None:
    """Raise CannotRun for a class of models whose attention cannot be replaced."""
    if not getattr(model, "_supports_attention_backend", False):
        raise refusal(
            folder, f"attention ({model.__name__}) that transformers does not let replace"
        )


class CannotRun(InputError):
    """A model cannot run in a way that was tried."""


def refusal(folder: Path | str, what: str) -> CannotRun:
    """Return the error for a model that cannot run here."""
    return CannotRun(f"The model in '{folder}' has {what}, so it cannot run here; {ELSEWHERE}.")


class _Given(nn.Module):
    """The hidden states of a model, in place of the modules that compute them."""

    def __init__(self, hidden: Tensor, body: nn.Module) -> None:
        super().__init__()
        self.__dict__["_hidden"], self.__dict__["_body"] = hidden, body

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return _Output(last_hidden_state=self._hidden)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_body"], name)  # heads read numbers of their body


class _Output(dict[str, Tensor]):
    """What a model's body returns: its fields, of which all but one are None."""

    def __getitem__(self, key: Any) -> Any:
        return self["last_hidden_state"] if key == 0 else dict.__getitem__(self, key)

    def __getattr__(self, name: str) -> Any:
        return self.get(name)


def _place_of(wanted: nn.Module, model: nn.Module) -> str:
    """Return the name of a module of a model."""
    return next(name for name, one in model.named_modules() if one is wanted)


def place_of_body(model: Any, folder: Path | str) -> str:
    """Return the name of the module that computes a language model's hidden states."""
    names = {id(module): name for name, module in model.named_modules() if name}
    for body in (model.get_decoder(), model.base_model, getattr(model, "model", model)):
        if id(body) in names:
            return str(names[id(body)])
    raise refusal(folder, "no body apart from its head")


def place_of_blocks(model: Any, body: str, folder: Path | str) -> str:
    """Return the name of the list of layers in a model's body."""
    count = model.config.get_text_config().num_hidden_layers
    for name, module in model.named_modules():
        inside = name.startswith(f"{body}.") and isinstance(module, nn.ModuleList)
        if inside and len(module) == count:
            return str(name)
    raise refusal(folder, "no list of layers")


def _config_of(model: Any, asked: Sequence[Asked], folder: Path | str) -> NetworkConfig:
    """Return the sizes and traits of attention that the layers were seen to have."""
    config, first = model.config.get_text_config(), asked[0]
    alike = {(one.heads, one.kv_heads, one.head_dim, one.scores.scale) for one in asked}
    if len(alike) > 1:
        raise refusal(folder, "layers of different shapes")
    windows = [one.scores.window for one in asked]
    kinds = getattr(config, "layer_types", None) or []
    for kind, window in zip(kinds, windows, strict=False):
        if (kind == SLIDING) != (window is not None):
            raise refusal(folder, "windows of attention that it does not pass on")
    used = getattr(config, "use_sliding_window", True)
    if not kinds and used and getattr(config, "sliding_window", None) and not any(windows):
        raise refusal(folder, "windows of attention that it does not pass on")
    embedding = model.get_input_embeddings().weight
    return NetworkConfig(
        vocab_size=embedding.shape[0],
        hidden_size=embedding.shape[1],
        intermediate_size=0,
        num_hidden_layers=len(asked),
        num_attention_heads=first.heads,
        num_key_value_heads=first.kv_heads,
        max_position_embeddings=longest_of(config),
        tie_word_embeddings=bool(getattr(config, "tie_word_embeddings", False)),
        head_dim=first.head_dim,
        attention_scale=first.scores.scale,
        attention_softcap=first.scores.softcap,
        sinks=first.scores.sinks is not None,
        # the logits may be capped, which takes more memory
        logit_softcap=getattr(config, "final_logit_softcapping", None),
        layers=tuple(replace(LayerTraits(), window=window) for window in windows),
        model_type=config.model_type,
        source=json.dumps(config.to_dict(), default=str),
    )


def longest_of(config: Any) -> int:
    text = config.get_text_config()
    names = ("max_position_embeddings", "n_positions", "seq_length", "max_seq_len")
    found = (getattr(text, name, None) for name in names)
    return next((int(number) for number in found if number), 2048)


def close(ours: Tensor, theirs: Tensor, dtype: torch.dtype) -> bool:
    """Return whether the logits of a network in that number format are equal but for rounding."""
    limit = CLOSE.get(dtype, 0.05)
    return bool((ours - theirs).abs().max() <= limit * theirs.abs().max())
