"""Which models can act, by name, and how each one is made ready to act.

A name is one of `models()`, the folder of a Hugging Face checkpoint, the folder of a
run (its trained policy), or a remote model: `openai:MODEL@URL`, `anthropic:MODEL@URL`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from palaestra.core.agent import Agent
from palaestra.core.errors import InputError, UnknownName
from palaestra.core.model import Model, Renderer
from palaestra.models import weights

if TYPE_CHECKING:
    import torch

    from palaestra.models.resident import ResidentModel

REMOTE = ("openai:", "anthropic:")


class About(NamedTuple):
    """What a listing says of a model."""

    summary: str
    source: str


def models() -> dict[str, About]:
    """Name to summary and source, named models first."""
    named = {name: About(m.summary, m.source) for name, m in weights.MODELS.items()}
    return named | {
        "tiny": About(
            "a transformer of a million parameters, trained from scratch (only for training)",
            "palaestra",
        ),
        "expert": About("the environment's own reference solution", "the environment"),
        "expert?error=P": About(
            "the same, with each action replaced by chance with probability P", "palaestra"
        ),
        "random": About("chooses uniformly among the environment's actions", "palaestra"),
        "null": About("says nothing, ever: what it solves was solved before", "palaestra"),
        "openai:MODEL@URL": About(
            "a model behind an OpenAI-compatible server; #VARIABLE names its API key", "a server"
        ),
        "anthropic:MODEL@URL": About(
            "a model behind a server that speaks Anthropic's messages protocol", "a server"
        ),
        "FOLDER": About(
            "a run's trained policy, a Hugging Face checkpoint, or a learned scorer",
            "this machine",
        ),
    }


def check_model(name: str) -> None:
    """Raise what `load_model` would raise for the name alone; loads nothing.

    Raises:
        UnknownName: no such name, and no folder either.
        InputError: the folder, or the remote address, cannot be used.
    """
    if name in ("random", "null"):
        return
    if name.partition("?")[0] == "expert":
        _error_rate(name)
        return
    if name.startswith(REMOTE):
        from palaestra.models.remote import parse_remote

        parse_remote(name)
        return
    if name == "tiny":
        raise InputError(
            "'tiny' has no weights before it is trained; run `palaestra train quick`, then give "
            "the run's folder as the model."
        )
    path = Path(name).expanduser()
    if not path.is_dir() and "/" not in name and name not in weights.MODELS:
        raise UnknownName("model", name, models())
    if _is_scorer(name):
        return
    weights.check_name(_checkpoint(name))


def load_model(
    name: str, agent: Agent, *, slots: int, context: int, progress: weights.Progress
) -> Model:
    """A model that is ready to act.

    Args:
        name: see the top of this module.
        agent: puts the actions of `expert` and `random` into words.
        slots: conversations that a resident model holds at once.
        context: longest conversation in tokens, of a resident model.
        progress: receives one sentence whenever something takes time.

    Raises:
        InputError: see `check_model` and `weights.prepare`.
    """
    check_model(name)
    if name.partition("?")[0] == "expert":
        from palaestra.models.expert import ExpertModel

        return ExpertModel(agent, error=_error_rate(name))
    if name == "random":
        from palaestra.models.random_choice import RandomModel

        return RandomModel(agent)
    if name == "null":
        from palaestra.models.scripted import ScriptedModel

        return ScriptedModel(lambda _: "", name="null")
    if name.startswith(REMOTE):
        from palaestra.models.remote import parse_remote

        return parse_remote(name)
    if _is_scorer(name):
        from palaestra.models.scoring import ScoringModel

        return ScoringModel(name, Path(name).expanduser())
    folder = checkpoint(name, progress)
    return load_resident(name, folder, slots=slots, context=context)


def checkpoint(name: str, progress: weights.Progress) -> Path:
    """The folder of a checkpoint by its name, ready to be read; raises like `check_model`."""
    return weights.prepare(_checkpoint(name), progress)


def load_resident(name: str, folder: Path, *, slots: int, context: int) -> ResidentModel:
    """The checkpoint in `folder`, in this process.

    It computes in the precision that `auto` stands for, except that weights stored in
    fp32 are never rounded: a policy acts as it did when its training ended.

    Raises:
        InputError: another architecture than Llama's, or a damaged checkpoint.
    """
    import torch

    from palaestra.models.checkpoint_format import read_network
    from palaestra.models.resident import ResidentModel

    place = device("auto")
    dtype = torch.float32 if _stored_in_fp32(folder) else precision("auto", place)
    network = read_network(folder, dtype).to(place)
    longest = min(context, network.config.max_position_embeddings)
    return ResidentModel(name, network, renderer_of(folder), slots=slots, context=longest)


def renderer_of(folder: Path) -> Renderer:
    """ChatML where the tokenizer in `folder` speaks it, else the model's own chat template.

    Raises:
        InputError: there is no readable tokenizer, or no template that keeps earlier tokens.
    """
    from palaestra.models.chatml import START, ChatMLRenderer

    file = folder / "tokenizer.json"
    if file.is_file() and START not in file.read_text(encoding="utf-8", errors="replace"):
        from palaestra.models.template import TemplateRenderer

        return TemplateRenderer.from_folder(folder)
    return ChatMLRenderer.from_folder(folder)


def device(name: str) -> torch.device:
    """Where to compute; `auto` is a CUDA device where there is one.

    Raises:
        InputError: there is none.
    """
    import torch

    found = torch.cuda.is_available()
    if name == "cuda" and not found:
        raise InputError(
            "There is no CUDA device that torch can use; set model.device=cpu, or install torch "
            "with CUDA."
        )
    return torch.device("cuda" if found and name != "cpu" else "cpu")


def precision(name: str, device: torch.device) -> torch.dtype:
    """The number format to compute in; `auto` asks the device."""
    import torch

    if name == "auto":
        return torch.bfloat16 if multiplies_bf16(device) else torch.float32
    return torch.bfloat16 if name == "bf16" else torch.float32


def multiplies_bf16(device: torch.device) -> bool:
    """Whether the device multiplies bf16 matrices natively."""
    import torch

    if device.type == "cuda":
        return torch.cuda.is_bf16_supported()
    flags = Path("/proc/cpuinfo")
    if not flags.is_file():
        return False  # macOS: fp32 is faster there than torch's bf16
    text = flags.read_text()
    return "avx512_bf16" in text or "amx_bf16" in text or " bf16" in text


def _error_rate(name: str) -> float:
    """That of `expert?error=P`; 0 of `expert`."""
    query = name.partition("?")[2]
    if not query:
        return 0.0
    option, _, value = query.partition("=")
    if option != "error":
        raise UnknownName("option of the model 'expert'", option, ["error"])
    try:
        rate = float(value)
    except ValueError:
        rate = -1.0
    if not 0 <= rate <= 1:
        raise InputError(f"'{name}': the error rate must be a number from 0 to 1, not '{value}'.")
    return rate


def _is_scorer(name: str) -> bool:
    return (Path(name).expanduser() / "scorer.json").is_file()  # see `scoring`


def _checkpoint(name: str) -> str:
    """The name of a run's folder becomes that of its trained policy."""
    path = Path(name).expanduser()
    if not (path / "run.json").is_file():
        return name
    final = path / "final"
    if not final.is_dir():
        raise InputError(
            f"The run '{name}' has no trained policy yet; finish it with: "
            f"palaestra train --resume {name}"
        )
    return str(final)


def _stored_in_fp32(folder: Path) -> bool:
    from safetensors import safe_open

    with safe_open(min(folder.glob("*.safetensors")), "pt") as file:
        return all(file.get_slice(name).get_dtype() == "F32" for name in file.keys())  # noqa: SIM118
