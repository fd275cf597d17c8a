"""The configuration of a LoRA adapter's folder, as peft writes it; nothing here needs torch."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from palaestra.core.errors import InputError
from palaestra.models.local.file_hashes import sha256

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_INERT = {  # keys that do not change what an adapter computes from its tensors
    "task_type", "peft_type", "auto_mapping", "peft_version", "base_model_name_or_path", "revision",
    "inference_mode", "r", "target_modules", "exclude_modules", "lora_alpha", "lora_dropout",
    "fan_in_fan_out", "use_rslora", "init_lora_weights", "layers_to_transform", "layers_pattern",
    "megatron_core", "qalora_group_size", "loftq_config",
}  # fmt: skip
_OFF: tuple[Any, ...] = (None, False, {}, [], "none")


@dataclass(frozen=True, slots=True)
class AdapterConfig:
    """The hyperparameters of an adapter."""

    rank: int
    alpha: float
    rank_stabilised: bool = False  # Kalajdzievski 2023

    @property
    def scale(self) -> float:
        """The factor of `up @ down`."""
        return self.alpha / (self.rank**0.5 if self.rank_stabilised else self.rank)

    @classmethod
    def read(cls, folder: Path) -> AdapterConfig:
        """Read the configuration, and check that there are weights.

        Raises:
            InputError: the folder holds no LoRA adapter of peft, or one of a kind that is not
                known.
        """
        try:
            config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
            kind = config["peft_type"]
            found = cls(
                int(config["r"]), float(config["lora_alpha"]), bool(config.get("use_rslora"))
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"The folder '{folder}' is no LoRA adapter: {CONFIG} cannot be read ({error!r}); "
                "give a folder that peft saved."
            ) from error
        if kind != "LORA":
            raise InputError(f"The adapter '{folder}' is of type {kind}; only LORA is supported.")
        unknown = [key for key, value in config.items() if key not in _INERT and value not in _OFF]
        if unknown:
            raise InputError(
                f"The adapter '{folder}' has '{unknown[0]}' = {config[unknown[0]]!r:.40}, which is "
                "not supported; train a plain LoRA adapter, or merge it into its base with peft."
            )
        if not (folder / WEIGHTS).is_file():
            raise InputError(f"The adapter '{folder}' lacks {WEIGHTS}; save it again with peft.")
        return found


def identity(folder: Path) -> str:
    """Return a hash of the adapter: of its weights, and of how they are scaled."""
    both = f"{sha256(folder / WEIGHTS)} {AdapterConfig.read(folder).scale}"
    return hashlib.sha256(both.encode()).hexdigest()
