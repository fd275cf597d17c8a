"""What may follow the name of a local model: `NAME?template=FILE.jinja&adapter=FOLDER`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from palaestra.core.errors import InputError, UnknownName
from palaestra.models.local.adapter_config import CONFIG


@dataclass(frozen=True, slots=True)
class NamedCheckpoint:
    """A model's name, taken apart."""

    base: str
    template: Path | None = None  # a chat template of the user's (see `own_template`)
    adapter: Path | None = None  # a folder with a LoRA adapter of the base (see `adapter_config`)

    @classmethod
    def parse(cls, name: str) -> NamedCheckpoint:
        """Take a name apart.

        Raises:
            UnknownName: another option.
            InputError: an option comes twice, or there is no such file or folder.
        """
        base, _, query = name.partition("?")
        found: dict[str, Path] = {}
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


_OPTIONS = {"template": _template, "adapter": _adapter}
