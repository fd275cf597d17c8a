"""The model registry: models by name, and how each is loaded.

A name is one of `models()`, the folder of a Hugging Face checkpoint, a GGUF file, an id
of the Hugging Face hub, the folder of a run (its trained policy), or a remote model:
`openai:MODEL`, `anthropic:MODEL`, `azure:DEPLOYMENT`, or `openai:MODEL@URL` for any server
(see `remote_names`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from palaestra.core.agent import Agent
from palaestra.core.errors import InputError, UnknownName
from palaestra.core.model import Model
from palaestra.models.local import weights
from palaestra.models.local.model_cache import Progress
from palaestra.models.local.name_options import NamedCheckpoint
from palaestra.models.local.named_models import MODELS
from palaestra.models.local.routed_files import refuse_router

if TYPE_CHECKING:
    from palaestra.models.local.bases import LoadedBases
    from palaestra.models.local.networks import Backend
    from palaestra.models.local.quantisation import Quantisation
    from palaestra.models.renderers.chat_template import TemplateRenderer
    from palaestra.models.renderers.chatml import ChatMLRenderer

REMOTE = ("openai:", "anthropic:", "azure:")
REGISTERED = "registered"  # replies come from processes that register with the run
REVISIONS = "revisions"
"""The document of a run that holds the revision of each local model (see `Checkpoint`)."""

RUNS_BY = "runs_by"
"""The document of a run that holds whose code runs each local model (see `networks.way_of`)."""


class About(NamedTuple):
    """A model's entry in a listing."""

    summary: str
    source: str


def models() -> dict[str, About]:
    """Return names with summary and source, named models first."""
    named = {name: About(m.summary, m.source) for name, m in MODELS.items()}
    return named | {
        "tiny": About(
            "a transformer of a million parameters, trained from scratch (only for training)",
            "palaestra",
        ),
        "expert": About("the environment's own reference solution", "the environment"),
        "expert?error=P": About(
            "the same, with each action replaced by a random one with probability P", "palaestra"
        ),
        "reader?right=P": About(
            "a simulated member of a team, of known competence (see models/scripted/reader.py)",
            "palaestra",
        ),
        REGISTERED: About(
            "processes that register with an evaluation reply (see `palaestra serve --team`)",
            "the processes",
        ),
        "planner?own=P&others=P": About(
            "a simulated planner for boxes, of known competence (see models/scripted/planner.py)",
            "palaestra",
        ),
        "random": About("chooses uniformly among the environment's actions", "palaestra"),
        "null": About(
            "replies with nothing: solves only what is solved from the start", "palaestra"
        ),
        "openai:MODEL": About("a model of OpenAI; the API key is in OPENAI_API_KEY", "OpenAI"),
        "anthropic:MODEL": About(
            "a model of Anthropic; the API key is in ANTHROPIC_API_KEY", "Anthropic"
        ),
        "azure:DEPLOYMENT": About(
            "a deployment on Azure; see AZURE_OPENAI_ENDPOINT, AZURE_OPENAI_API_KEY", "Azure"
        ),
        "openai:MODEL@URL": About(
            "a model behind an OpenAI-compatible server; #VARIABLE names its API key", "a server"
        ),
        "anthropic:MODEL@URL": About(
            "a model behind a server that speaks Anthropic's messages protocol", "a server"
        ),
        "OWNER/NAME[@REVISION]": About(
            "a model of the Hugging Face hub, downloaded once into its cache", "the hub"
        ),
        "FILE.gguf": About(
            "a GGUF file of llama.cpp, converted once into the cache", "this machine"
        ),
        "FOLDER": About(
            "a run's trained policy, a Hugging Face checkpoint, or a learned scorer",
            "this machine",
        ),
    }


def is_remote(name: str) -> bool:
    """Return whether a name is that of a remote model."""
    return name.startswith(REMOTE)


def check_model(name: str) -> None:
    """Raise what `load_model` would raise for the name alone; load nothing.

    Raises:
        UnknownName: no such name, and no such folder.
        InputError: the folder, or the remote address, cannot be used.
    """
    if name in ("random", "null", REGISTERED):
        return
    if name.partition("?")[0] == "expert":
        _probabilities(name, ["error"])
        return
    if name.partition("?")[0] == "reader":
        from palaestra.models.scripted.competence import competence_of

        competence_of(name)
        return
    if name.partition("?")[0] == "planner":
        _probabilities(name, PLANNER)
        return
    if is_remote(name):
        from palaestra.models.remote.remote_names import parse_remote

        parse_remote(name)
        return
    if name == "tiny":
        raise InputError(
            "'tiny' has no weights before it is trained; run `palaestra train quick`, then give "
            "the run's folder as the model."
        )
    if _is_scorer(name):
        return
    check_checkpoint(name)


def check_checkpoint(name: str) -> None:
    """Raise what `checked_checkpoint` would raise for the name alone; load nothing."""
    try:
        weights.check_name(_checkpoint(name))
    except UnknownName as error:
        if error.kind != "model":
            raise
        raise UnknownName("model", name, models()) from None


def check_unrouted(name: str) -> None:
    """Raise InputError if a model to be trained has a router, with which learning cannot go on."""
    refuse_router(Path(NamedCheckpoint.parse(_checkpoint(name)).base).expanduser())


def licence_of(name: str) -> str:
    """Return the licence of a model that is available by a name of its own; else nothing."""
    if not is_local(name):
        return ""
    found = MODELS.get(NamedCheckpoint.parse(_checkpoint(name)).base)
    return "" if found is None else found.licence


def is_local(name: str) -> bool:
    """Return whether a name is that of a checkpoint, which this process loads."""
    if is_remote(name) or name == REGISTERED or name.partition("?")[0] in SCRIPTED:
        return False
    return not _is_scorer(name)


def sees(name: str) -> bool | None:
    """Return whether a local model reads images; None: unknown before it is downloaded."""
    from palaestra.models.local import checkpoint_files

    found = _checkpoint(name)
    if NamedCheckpoint.parse(found).base in MODELS:
        return False
    folder = weights.ready(found)
    return None if folder is None else checkpoint_files.sees(folder)


def prepare_models(names: Iterable[str], progress: Progress) -> dict[str, str | None]:
    """Download, convert and check all that the named models need; load nothing.

    Args:
        names: see the top of this module; other than local models need nothing.
        progress: receives one sentence whenever something takes time.

    Returns:
        The revision of each local model (see `weights.Checkpoint`).

    Raises:
        InputError: see `check_model`, `weights.obtain` and `networks.check_network`.
    """
    revisions: dict[str, str | None] = {}
    for name in names:
        if is_local(name):
            revisions[name] = checked_checkpoint(name, progress).revision
    return revisions


def checked_checkpoint(
    name: str,
    progress: Progress,
    revision: str | None = None,
    backend: Backend = "auto",
    quantise: Quantisation | None = None,
) -> weights.Checkpoint:
    """Return a checkpoint by its name, of an architecture that is supported; see `obtain`.

    `quantise` holds where the name says nothing of it.
    """
    import torch

    from palaestra.models.local import checkpoint_files
    from palaestra.models.local.networks import (
        blank_network,
        check_network,
        check_quantisation,
        runs_resident,
    )

    found = weights.obtain(_checkpoint(name), progress, revision)
    found = replace(found, quantise=found.quantise or quantise)
    check_network(found.folder, backend)
    check_quantisation(found.folder, found.quantise, backend)
    routed = found.routed
    adapters = [found.adapter] if routed is None else list(routed.adapters.values())
    for adapter in adapters:
        if adapter is not None:
            from palaestra.models.local.adapter_files import check_base

            check_base(adapter, found.folder, found.quantise)
    if not runs_resident(found.folder, backend):
        slower = "slower than a resident network"
        if blank_network(found.folder, torch.float32, backend).own_cache:
            slower = f"with its own cache, much {slower}"
            if checkpoint_files.sees(found.folder):
                slower += ", and reads text only"
        progress(f"'{name}' runs by transformers' own code, {slower}.")
    return found


def load_model(
    name: str,
    agent: Agent,
    *,
    slots: int,
    context: int,
    progress: Progress,
    revision: str | None = None,
    keep_thoughts: bool = False,
    bases: LoadedBases | None = None,
) -> Model:
    """Return a model that is ready to act.

    Args:
        name: see the top of this module.
        agent: phrases the actions of `expert` and `random` as replies.
        slots: conversations that a resident model holds at once.
        context: longest conversation in tokens, of a resident model, if its own is longer.
        progress: receives one sentence whenever something takes time.
        revision: of a local model, as a run recorded it.
        keep_thoughts: of a local model, see `renderer_of`.
        bases: local models that are loaded already, whose weights adapters share.

    Raises:
        InputError: see `check_model` and `weights.obtain`.
    """
    check_model(name)
    if name.partition("?")[0] == "expert":
        from palaestra.models.scripted.expert import ExpertModel

        return ExpertModel(agent, error=_probabilities(name, ["error"]).get("error", 0.0))
    if name.partition("?")[0] == "reader":
        from palaestra.models.scripted.competence import competence_of
        from palaestra.models.scripted.reader import ReaderModel

        return ReaderModel(agent, competence=competence_of(name))
    if name.partition("?")[0] == "planner":
        from palaestra.models.scripted.planner import PlannerCompetence, PlannerModel

        return PlannerModel(agent, competence=PlannerCompetence(**_probabilities(name, PLANNER)))
    if name == "random":
        from palaestra.models.scripted.random_choice import RandomModel

        return RandomModel(agent)
    if name == "null":
        from palaestra.models.scripted.scripted_model import ScriptedModel

        return ScriptedModel(lambda _: "", name="null")
    if name == REGISTERED:
        raise InputError(
            f"The model '{REGISTERED}' replies only in evaluations, with which processes can "
            "register; use `palaestra serve --team` or `palaestra eval`, or name another model."
        )
    if is_remote(name):
        from palaestra.models.remote.remote_names import parse_remote

        return parse_remote(name)
    if _is_scorer(name):
        from palaestra.models.local.scoring import ScoringModel

        return ScoringModel(name, Path(name).expanduser())
    from palaestra.models.local.bases import LoadedBases

    found = weights.obtain(_checkpoint(name), progress, revision)
    model = (bases or LoadedBases()).load(
        name, found, slots=slots, context=context, keep_thoughts=keep_thoughts
    )
    assert model.renderer is not None
    if model.renderer.drops_thoughts:
        progress(dropping_thoughts(name))
    return model


def dropping_thoughts(name: str) -> str:
    """Return the sentence about the cost of a chat template that drops earlier thoughts."""
    return (
        f"The chat template of '{name}' drops earlier thoughts when the user speaks again. Each "
        "such turn begins a new branch, which is read from its beginning: n turns read about n/2 "
        "times the tokens. keep_thoughts goes on with the thoughts instead (--keep-thoughts; in a "
        "recipe, model.keep_thoughts=true)."
    )


def checkpoint(name: str, progress: Progress) -> weights.Checkpoint:
    """Return a checkpoint by its name, ready to read; raise like `check_model`."""
    return weights.obtain(_checkpoint(name), progress)


def check_context(
    name: str, folder: Path, context: int, option: str, backend: Backend = "auto"
) -> None:
    """Check that a model's context is as long as `option` asks.

    Raises:
        InputError: it is shorter, or the architecture is not supported.
    """
    from palaestra.models.local.networks import longest_context

    longest = longest_context(folder, backend)
    if context > longest:
        raise InputError(
            f"{option} = {context} is longer than the context of '{name}' ({longest} tokens); set "
            f"{option}={longest} or less."
        )


def renderer_of(folder: Path, *, keep_thoughts: bool = False) -> ChatMLRenderer | TemplateRenderer:
    """Return a ChatML renderer if the tokenizer in `folder` has ChatML, else the chat template's.

    A model that sees always has its template's.

    With `keep_thoughts`, a conversation goes on after its sampled tokens even where the template
    would drop earlier reasoning.

    Raises:
        InputError: there is no readable tokenizer, or no template that keeps earlier tokens.
    """
    from palaestra.models.local import checkpoint_files
    from palaestra.models.renderers.chatml import START, ChatMLRenderer

    if checkpoint_files.sees(folder):
        from palaestra.models.renderers.chat_template import TemplateRenderer

        return TemplateRenderer.seeing(folder, keep_thoughts=keep_thoughts)
    file = folder / "tokenizer.json"
    if file.is_file() and START.encode() not in file.read_bytes():
        from palaestra.models.renderers.chat_template import TemplateRenderer

        return TemplateRenderer.from_folder(folder, keep_thoughts=keep_thoughts)
    return ChatMLRenderer.from_folder(folder, keep_thoughts=keep_thoughts)


PLANNER = ("own", "others", "active")  # of the model `planner`
SCRIPTED = ("expert", "reader", "planner", "random", "null", "tiny")


def _probabilities(name: str, options: Sequence[str]) -> dict[str, float]:
    """Return the options of a scripted model, such as those of `expert?error=0.1`.

    Raises:
        UnknownName: there is no such option.
        InputError: a value is no number from 0 to 1.
    """
    model, _, query = name.partition("?")
    found: dict[str, float] = {}
    for part in query.split("&") if query else ():
        option, _, value = part.partition("=")
        if option not in options:
            raise UnknownName(f"option of the model '{model}'", option, options)
        try:
            found[option] = float(value)
        except ValueError:
            found[option] = -1.0
        if not 0 <= found[option] <= 1:
            raise InputError(f"'{name}': {option} must be a number from 0 to 1, not '{value}'.")
    return found


def _is_scorer(name: str) -> bool:
    return (Path(name).expanduser() / "scorer.json").is_file()  # see `scoring`


def _checkpoint(name: str) -> str:
    """Return the checkpoint's name; the folder of a run becomes that of its trained policy."""
    base, mark, options = name.partition("?")
    path = Path(base).expanduser()
    if not (path / "run.json").is_file():
        return name
    final = path / "final"
    if not final.is_dir():
        raise InputError(
            f"The run '{base}' has no trained policy yet; finish it with: "
            f"palaestra train --resume {base}"
        )
    return f"{final}{mark}{options}"
