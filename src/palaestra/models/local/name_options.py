"""What may follow a local model's name: `NAME?template=FILE.jinja&adapter=FOLDER&quantise=int8`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from palaestra.core.errors import InputError, UnknownName
from palaestra.models.local.adapter_config import CONFIG
from palaestra.models.local.quantisation import FORMATS, Quantisation


@dataclass(frozen=True, slots=True)
class NamedCheckpoint:
    """A model's name, taken apart."""

    base: str
    template: Path | None = None  # a chat template of the user's (see `own_template`)
    adapter: Path | None = None  # a folder with a LoRA adapter of the base (see `adapter_config`)
    quantise: Quantisation | None = None  # the format of its weights (see `quantised`)

    @classmethod
    def parse(cls, name: str) -> NamedCheckpoint:
        """Take a name apart.

        Raises:
            UnknownName: another option, or another format of quantisation.
            InputError: an option comes twice, or there is no such file or folder.
        """
        base, _, query = name.partition("?")
        found: dict[str, Any] = {}
        for pair in query.split("&") if query else []:
            option, _, value = pair.partition("=")
            if option not in _OPTIONS:
                raise UnknownName(f"option of the model '{base}'", option, _OPTIONS)
            if option in found:
                raise InputError(f"'{name}' names its {option} twice; name one.")
            found[option] = _OPTIONS[option](name, value)
        return cls(base, **found)


def _template(name: str, value: str) -> Path:
    file = Path(value).expanduser()
    if not file.is_file():
        raise InputError(
            f"'{name}' names no template: there is no file '{value}'; give the path of a Jinja "
            "file."
        )
    return file.absolute()


def _adapter(name: str, value: str) -> Path:
    folder = Path(value).expanduser()
    if (folder / "run.json").is_file():
        folder = folder / "final" / "adapter"
    if not (folder / CONFIG).is_file():
        raise InputError(
            f"'{name}' names no adapter: there is no {CONFIG} in '{folder}'; give a folder that "
            "peft saved, or a run with training.weights=lora."
        )
    return folder.absolute()


def _quantise(name: str, value: str) -> Quantisation:
    for known in FORMATS:
        if known == value:
            return known
    raise UnknownName("quantisation", value, FORMATS)


_OPTIONS = {"template": _template, "adapter": _adapter, "quantise": _quantise}
