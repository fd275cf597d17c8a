"""Decoding with quantised weights against full precision, in speed, memory and quality.

SmolLM2-135M, batches of 1, 16 and 64 sequences with about 64 tokens of context each: int8 and nf4
against bf16, and, on x86 processors, against fp32 once more in a process from which AVX-512 is
hidden. Each row also says what the blocks' weights take, and the mean Kullback-Leibler divergence
per token from the model in fp32 over a page of this repository's documentation:
    python benchmarks/quantised.py [--json]
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", str(os.cpu_count()))

import avx2
import torch
import workload
from decode import decoded
from measuring import PeerUnavailable, Result, alternate, run
from provenance import ROOT

from palaestra.learning.compute.shared_prefix_attention import RowAttention
from palaestra.models.local.engine import Engine
from palaestra.models.local.lora import linear_layers
from palaestra.models.local.network import DecoderNetwork
from palaestra.models.local.networks import load_network
from palaestra.models.local.quantisation import FORMATS, Quantisation
from palaestra.models.local.quantised import QuantisedLinear
from palaestra.models.registry import renderer_of

BATCHES, CONTEXT = (1, 16, 64), 64
TEXT, TOKENS = ROOT / "docs" / "design.md", 512


def network(dtype: torch.dtype, quantisation: Quantisation | None = None) -> DecoderNetwork:
    return load_network(workload.checkpoint(), dtype, quantisation=quantisation)


def megabytes(network: DecoderNetwork) -> float:
    """What the blocks' linear layers take."""
    total = 0
    for layer in linear_layers(network).values():
        weight: Any = layer if isinstance(layer, QuantisedLinear) else layer.weight
        total += weight.nbytes
    return total / 1e6


@torch.no_grad()
def predicted(network: DecoderNetwork) -> torch.Tensor:
    """The log-probabilities of every next token of the text, [tokens, vocabulary]."""
    text = TEXT.read_text(encoding="utf-8")
    tokens = renderer_of(workload.checkpoint()).tokenizer.encode(text).ids[:TOKENS]
    attend = RowAttention([range(len(tokens))], len(tokens), network.device)
    x = network.run(network.embed(torch.tensor(tokens)), torch.arange(len(tokens)), attend)
    return network.logits(x).float().log_softmax(dim=1)


@cache
def divergence(quantisation: Quantisation) -> float:
    """Nats per token from the model in fp32."""
    whole = predicted(network(torch.float32))
    found = predicted(network(torch.float32, quantisation))
    return float((whole.exp() * (whole - found)).sum(dim=1).mean())


def decoding(network: DecoderNetwork, batch: int) -> Callable[[], float]:
    """Decode with a warmed-up engine; each call returns tokens per second."""
    engine, seeds = Engine(network, frozenset(), slots=batch, context=256), itertools.count()
    decoded(engine, batch, next(seeds), CONTEXT)
    return lambda: decoded(engine, batch, next(seeds), CONTEXT)


def rows(narrow: bool, rounds: int) -> list[Result]:
    """Each format against full precision, at each batch size."""
    dtype, name = (torch.bfloat16, "bf16") if narrow else (torch.float32, "fp32")
    where = "" if narrow else ", AVX2"
    whole = network(dtype)
    found = []
    for format, batch in itertools.product(FORMATS, BATCHES):
        quantised = network(dtype, format)
        measured = alternate(decoding(quantised, batch), decoding(whole, batch), rounds)
        found.append(
            Result(
                name=f"decode in {format}{where}, batch {batch}, against {name}",
                ratio=measured.ratio,
                goal=None,
                low=measured.low,
                high=measured.high,
                figures={
                    f"{format} tokens/s": measured.ours,
                    f"{name} tokens/s": measured.theirs,
                    f"{format} MB": megabytes(quantised),
                    f"{name} MB": megabytes(whole),
                    "KL nats": divergence(format),
                },
            )
        )
    return found


def hidden(rounds: int) -> list[Result]:
    """The rows of a process without AVX-512."""
    command = [sys.executable, str(Path(__file__)), "--json", "--avx2", f"--rounds={rounds}"]
    done = subprocess.run(command, env=os.environ | avx2.VARIABLES, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"the process without AVX-512 failed: {done.stderr}")
    return [Result(**row) for row in json.loads(done.stdout)]


def measure(options: argparse.Namespace) -> list[Result]:
    """Rows in bf16, then those in fp32 without AVX-512."""
    if torch.cuda.is_available():
        raise PeerUnavailable("these are figures of processors")
    if options.avx2:
        avx2.hold()
        return rows(narrow=False, rounds=options.rounds)
    found = rows(narrow=True, rounds=options.rounds)
    with_avx2 = platform.machine() == "x86_64" and not options.native
    return found + (hidden(options.rounds) if with_avx2 else [])


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=3, help="of alternation (3)")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--avx2", action="store_true", help="only the rows without AVX-512")
    only.add_argument("--native", action="store_true", help="only the rows with AVX-512")


if __name__ == "__main__":
    run(__doc__, measure, options)
