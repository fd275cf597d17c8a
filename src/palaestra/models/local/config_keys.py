"""The keys of a `config.json`, and which of them were understood."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from palaestra.core.errors import InputError

ELSEWHERE = "serve it elsewhere and use openai:MODEL@URL"
# Keys that change nothing here: token ids, how a model was made or saved, dropout, routers' losses;
# and those that begin with an underscore, notes of the program that saved it.
NEUTRAL = frozenset(
    """
    model_type architectures auto_map transformers_version torch_dtype dtype
    bos_token_id eos_token_id pad_token_id cls_token_id sep_token_id unk_token_id mask_token_id
    initializer_range initializer_factor use_cache cache_implementation pretraining_tp
    attention_dropout hidden_dropout resid_pdrop embd_pdrop classifier_dropout
    router_aux_loss_coef output_router_logits router_jitter_noise
    id2label label2id problem_type return_dict output_attentions output_hidden_states
    is_decoder is_llama_config torchscript attn_implementation
    transformers.js_config unsloth_version unsloth_fixed model_max_length max_sequence_length
    experts_per_token initial_context_length tokenizer_class finetuning_task task_specific_params
    max_length max_new_tokens do_sample temperature top_k top_p num_beams repetition_penalty
    """.split()
)
HARMLESS = {"full_attn_mod": 1, "interpolate_factor": 1}
"""Keys that change nothing with this value."""


class Keys:
    """Keys of a JSON object, which must all be read in the end."""

    def __init__(self, data: Mapping[str, Any], where: object) -> None:
        """Begin with all keys unread; `where` is the folder, for errors."""
        self._data, self._where = data, where
        self._read: set[str] = set()

    def __call__(self, name: str, default: Any = None, *, null: bool = False) -> Any:
        """Return a key's value, or its default if it is missing, or null where that is no value."""
        self._read.add(name)
        found = self._data.get(name, default)
        return default if found is None and not null else found

    def required(self, name: str) -> Any:
        """Return a key's value; raise InputError without one."""
        found = self(name)
        if found is None:
            raise InputError(f"The config.json in '{self._where}' has no '{name}'; add it.")
        return found

    def under(self, data: Mapping[str, Any]) -> Keys:
        """Return the keys of an object within this one."""
        return Keys(data, self._where)

    def refusal(self, what: str) -> InputError:
        """Return the error for a trait that is not known."""
        return InputError(
            f"The model in '{self._where}' has {what}, which the resident model does not know; "
            f"{ELSEWHERE}."
        )

    def finish(self) -> None:
        """Raise InputError for a key that is set, was not read, and may change the computation."""
        for name, value in self._data.items():
            known = name in self._read or name in NEUTRAL or name.startswith("_")
            if value and not known and HARMLESS.get(name) != value:
                shown = json.dumps(value)
                shown = shown if len(shown) <= 60 else f"{shown[:59]}…"
                raise self.refusal(f"the key '{name}' = {shown} in its config.json")
