"""Models of the Hugging Face hub, by id: `OWNER/NAME`, or `OWNER/NAME@REVISION`.

`huggingface_hub` downloads into its own cache (HF_HOME), which other programs share, and only what
is needed: safetensors, config, tokenizer, chat template, generation config. A revision is a branch,
a tag or a commit; the default is `main`. What was found is a commit, which the run records. Files
that the hub keeps by their SHA-256 (the weights) are checked against it, since the client checks
their size only.
"""

from __future__ import annotations

import errno
import re
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from palaestra.core.errors import InputError, PalaestraError, StorageFull
from palaestra.models.local.file_hashes import sha256
from palaestra.models.local.model_cache import Progress

WEIGHTS = ("model.safetensors", "model-*-of-*.safetensors", "model.safetensors.index.json")
FILES = (
    *WEIGHTS,
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
)
_PART = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_ID = re.compile(rf"({_PART}/{_PART})(?:@(\S+))?")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class HubName:
    """A model of the hub, and the revision that was asked for."""

    id: str
    revision: str | None = None

    @classmethod
    def parse(cls, name: str) -> HubName | None:
        """Return the parts of a name; None if it is not of the hub's form."""
        found = _ID.fullmatch(name)
        return cls(*found.groups()) if found else None

    def __str__(self) -> str:
        return self.id if self.revision is None else f"{self.id}@{self.revision}"


def downloaded(name: HubName, progress: Progress) -> Path:
    """Return the folder of a model's files, in the hub's cache; its name is the commit.

    Without a connection, the files that are in the cache are used.

    Raises:
        InputError: the hub has no such model or revision, does not give it to this user, or cannot
            be reached; or the model has no safetensors; or a file is damaged.
        StorageFull: the disk is full.
    """
    from huggingface_hub import snapshot_download

    folder = cached(name) if _COMMIT.fullmatch(name.revision or "") else None
    if folder is None:
        try:
            folder = Path(
                snapshot_download(
                    name.id,
                    revision=name.revision,
                    allow_patterns=list(FILES),
                    local_files_only=not _announced(name, progress),
                )
            )
        except Exception as error:  # its HTTP library differs by the client's version
            raise _explained(name, error) from error
    if not any(folder.glob("model*.safetensors")):
        raise InputError(
            f"The model '{name}' has no safetensors on the hub; choose one that has, or download a "
            f"GGUF file of it (`hf download {name.id} FILE.gguf`) and give its path."
        )
    _check_hashes(name, folder)
    return folder


def cached(name: HubName) -> Path | None:
    """Return the folder of a model that is complete in the hub's cache; ask no server."""
    from huggingface_hub import snapshot_download

    try:
        folder = snapshot_download(
            name.id, revision=name.revision, allow_patterns=list(FILES), local_files_only=True
        )
    except (OSError, ValueError):
        return None
    return Path(folder)


def _announced(name: HubName, progress: Progress) -> bool:
    """Say how much will be downloaded, if anything; return whether the hub can be reached."""
    from huggingface_hub import HfApi, is_offline_mode, try_to_load_from_cache
    from huggingface_hub.errors import HfHubHTTPError

    if is_offline_mode():
        return False
    try:
        found = HfApi().model_info(name.id, revision=name.revision, files_metadata=True)
    except HfHubHTTPError:
        return True  # the download explains what the hub answers, or finds the files in the cache
    except Exception as error:
        if not _is_of_http(error):
            raise
        return False
    missing = [
        file
        for file in found.siblings or ()
        if _is_wanted(file.rfilename)
        and not isinstance(try_to_load_from_cache(name.id, file.rfilename, revision=found.sha), str)
    ]
    if missing:
        size = sum(file.size or 0 for file in missing) / 1e6
        progress(f"downloading {name} from the hub: {len(missing)} files, {size:.0f} MB…")
    return True


def _is_wanted(file: str) -> bool:
    return any(fnmatch(file, pattern) for pattern in FILES)


def _check_hashes(name: HubName, folder: Path) -> None:
    """Raise InputError if a file that the cache names by its SHA-256 has another."""
    for file in sorted(folder.glob("*.safetensors")):
        blob = file.resolve()
        if _SHA256.fullmatch(blob.name) and sha256(blob) != blob.name:
            raise InputError(
                f"The file '{file.name}' of '{name}' does not match its SHA-256 on the hub; "
                f"delete {blob}, and download it again."
            )


def _explained(name: HubName, error: Exception) -> Exception:
    """Return one sentence for what the client raised; its own error if it is no such thing."""
    from huggingface_hub import is_offline_mode
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    if isinstance(error, PalaestraError):
        return error
    match error:
        case GatedRepoError():
            return InputError(
                f"The model '{name.id}' is gated; ask for access on its page on the hub, then log "
                "in with `hf auth login` or set HF_TOKEN."
            )
        case RepositoryNotFoundError():
            return InputError(
                f"'{name.id}' is no folder here, and the hub has no such model that you may read; "
                "check the name, or log in with `hf auth login` if it is private."
            )
        case RevisionNotFoundError():
            return InputError(
                f"The model '{name.id}' has no revision '{name.revision}' on the hub; give one of "
                "its branches, tags or commits after the @."
            )
        case LocalEntryNotFoundError() if is_offline_mode():
            return InputError(
                f"'{name}' is no folder here, and is not complete in the hub's cache while "
                "HF_HUB_OFFLINE is set; unset it, or give the folder of a checkpoint."
            )
        case LocalEntryNotFoundError():
            return InputError(
                f"'{name}' is no folder here, is not complete in the hub's cache, and the hub "
                "cannot be reached; check the connection, or give the folder of a checkpoint."
            )
        case HfHubHTTPError():
            status = error.response.status_code
            remedy = "log in again with `hf auth login`" if status == 401 else "try again later"
            return InputError(f"The hub refuses '{name}' (status {status}); {remedy}.")
        case OSError() if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return StorageFull(
                f"The disk was full while '{name}' was downloaded; free some space, or set HF_HOME "
                "to a folder on another disk."
            )
        case OSError() if error.errno is not None:
            return InputError(
                f"The hub's cache cannot be used for '{name}' ({error.strerror or error}); set "
                "HF_HOME to a folder that you can write to."
            )
        case OSError():  # such as a file of another size than announced
            return InputError(f"'{name}' was not downloaded whole; start again to continue.")
    if _is_of_http(error):
        return InputError(
            f"The connection was lost while '{name}' was downloaded; start again to continue."
        )
    return error


def _is_of_http(error: Exception) -> bool:
    """Return whether an error is of the client's HTTP library: httpx, or httpx2 since 2.0."""
    return type(error).__module__.partition(".")[0].startswith("httpx")
