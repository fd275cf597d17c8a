"""What a network is: its sizes and traits, one typed table for every supported model.

`model_types.py` reads the table from a checkpoint's `config.json`; `network.py` runs what it says.
The defaults of every trait are Llama's (Touvron et al. 2023).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Scaling(StrEnum):
    """How rotary positions were stretched to longer contexts; `rotary.py` has the formulas."""

    NONE = "default"
    LINEAR = "linear"  # every pair turns slower by `factor`
    DYNAMIC = "dynamic"  # begins beyond `max_position_embeddings`, where no sequence reaches
    LLAMA3 = "llama3"  # slow pairs turn slower by `factor`, fast ones as before
    YARN = "yarn"  # likewise, with a ramp over the pairs; attention is sharper
    LONGROPE = "longrope"  # a factor per pair, for short contexts and for long ones


@dataclass(frozen=True, slots=True)
class Rotary:
    """Rotary positions (Su et al. 2021) of a layer."""

    theta: float = 10_000.0  # pair i of n turns by theta^(-i/n) per token
    share: float = 1.0  # of a head's features that turn; 0: the layer knows no positions
    interleaved: bool = False  # features 2i and 2i + 1 are a pair, not i and i + n
    scaling: Scaling = Scaling.NONE
    factor: float = 1.0
    original: int = 0  # context before the scaling, in tokens
    low: float = 1.0  # turns within `original` below which a pair is slow (llama3, yarn)
    high: float = 4.0  # turns within `original` above which a pair is fast
    whole: bool = True  # yarn's ramp begins and ends at whole pairs
    magnitude: float = 1.0  # of the rotated queries and keys (yarn, longrope)
    short_factors: tuple[float, ...] = ()  # longrope's, of each pair
    long_factors: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture of experts in place of one feed-forward layer (Shazeer et al. 2017)."""

    count: int
    chosen: int  # per token: those with the greatest router scores
    inner: int  # width of each
    normalised: bool = True  # the weights of the chosen sum to one
    shared: int = 0  # width of one more expert for every token, which has a gate of its own
    router_bias: bool = False


@dataclass(frozen=True, slots=True)
class LayerTraits:
    """In what one layer may differ from the others."""

    rotary: Rotary = Rotary()
    window: int | None = None  # tokens that a token attends to, itself included; None: all
    experts: Experts | None = None


class Activation(StrEnum):
    """The function of the gate, in the feed-forward layers."""

    SILU = "silu"
    GELU = "gelu"
    GELU_TANH = "gelu_tanh"  # the approximation
    RELU = "relu"
    CLAMPED = "clamped"  # x sigmoid(a x) of x <= limit, times 1 + the other half within +-limit


class HeadNorm(StrEnum):
    """What is normed of queries and keys before they rotate."""

    NONE = "none"
    HEAD = "head"  # each head
    WHOLE = "whole"  # all heads together


@dataclass(frozen=True, slots=True)
class NetworkConfig:
    """Sizes and traits; sizes in the words of Hugging Face's `config.json`."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    max_position_embeddings: int
    rms_norm_eps: float = 1e-5
    tie_word_embeddings: bool = True
    head_dim: int = 0  # 0: hidden_size / num_attention_heads
    layers: tuple[LayerTraits, ...] = ()  # (): all alike, and plain
    model_type: str = "llama"  # names the tensors of checkpoints
    source: str = field(default="{}", compare=False, repr=False)  # its config.json
    # attention
    qkv_bias: bool = False
    out_bias: bool = False
    head_norm: HeadNorm = HeadNorm.NONE
    attention_scale: float = 0.0  # of queries times keys; 0: head_dim^-1/2
    attention_softcap: float | None = None  # scores become cap tanh(score / cap)
    sinks: bool = False  # each head attends to nothing with a learned score
    # feed-forward layers
    mlp_bias: bool = False
    activation: Activation = Activation.SILU
    clamp_limit: float = 7.0
    clamp_sharpness: float = 1.702  # a
    # norms and the residual stream
    norm_before: bool = True  # of each half of a layer
    norm_after: bool = False  # of what each half adds
    norm_offset: float = 0.0  # is added to the norms' weights
    residual_multiplier: float = 1.0  # of what each half adds
    # the ends
    embedding_multiplier: float = 1.0
    logit_divisor: float = 1.0
    logit_softcap: float | None = None

    def __post_init__(self) -> None:
        head_dim = self.head_dim or self.hidden_size // self.num_attention_heads
        computed = {
            "head_dim": head_dim,
            "layers": self.layers or (LayerTraits(),) * self.num_hidden_layers,
            "attention_scale": self.attention_scale or head_dim**-0.5,
        }
        for name, value in computed.items():
            object.__setattr__(self, name, value)

    def plain_attention(self, context: int) -> bool:
        """Return whether all layers attend as Llama's do in sequences of `context` tokens."""
        narrow = any(t.window is not None and t.window < context for t in self.layers)
        return not (narrow or self.sinks or self.attention_softcap)
