"""Models of the Hugging Face hub: ids, the local cache, downloads. `huggingface_hub` is imported on first use."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from medusakit.errors import ModelError

_ID = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+)(@(?P<revision>[\w./-]+))?(:(?P<quant>[\w.-]+))?")
_PATTERNS = [
    "*.safetensors", "*.safetensors.index.json", "config.json", "generation_config.json", "tokenizer*",
    "special_tokens_map.json", "added_tokens.json", "chat_template*", "vocab.json", "merges.txt",
]  # fmt: skip
_TIMEOUT_S = 10
_SHARD = re.compile(r"-\d{5}-of-\d{5}\.gguf$")

_EXAMPLE = "a model as OWNER/NAME, e.g. HuggingFaceTB/SmolLM2-135M-Instruct; medusa models list   names others"


@dataclass(frozen=True, slots=True)
class HubId:
    """org/name[@revision][:quant]; `quant` picks a GGUF file of the repository by its name, such as Q4_K_M."""

    repo: str
    revision: str | None = None
    quant: str | None = None

    def __str__(self) -> str:
        revision = f"@{self.revision}" if self.revision else ""
        return f"{self.repo}{revision}{f':{self.quant}' if self.quant else ''}"


def parse_hub_id(name: str) -> HubId | None:
    """None where `name` does not have the form of a hub id."""
    match = _ID.fullmatch(name)
    return None if match is None else HubId(match["repo"], match["revision"], match["quant"])


def hub_is_offline() -> bool:
    """Whether HF_HUB_OFFLINE (or TRANSFORMERS_OFFLINE) forbids the network."""
    values = (os.environ.get(key, "") for key in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"))
    return any(value.upper() in ("1", "ON", "YES", "TRUE") for value in values)


def find_cached(hub_id: HubId) -> Path | None:
    """A folder, or a GGUF file, of the hub's cache on this disk; None where it is not there whole."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        folder = Path(snapshot_download(hub_id.repo, revision=hub_id.revision, local_files_only=True))
    except LocalEntryNotFoundError:
        return None
    except HFValidationError as error:
        raise ModelError(
            f"{hub_id.repo!r} is not a valid hub id: {error}",
            hint=_EXAMPLE,
        ) from None
    files = sorted(file.name for file in folder.iterdir())
    if _wants_folder(hub_id, files):
        return folder if _whole(folder) else None
    ggufs = [name for name in files if name.endswith(".gguf")]
    matching = _matching(hub_id, ggufs)
    return folder / matching[0] if len(matching) == 1 else None


def fetch(hub_id: HubId) -> Path:
    """Download; huggingface_hub draws its own bar. The ModelError tells gated, missing and no network apart."""
    from huggingface_hub import HfApi, hf_hub_download, snapshot_download

    with _hub_errors(hub_id):
        # model_info and not list_repo_files: that one retries for 20 s without a network
        info = HfApi().model_info(hub_id.repo, revision=hub_id.revision, timeout=_TIMEOUT_S)
        files = [file.rfilename for file in info.siblings or ()]
        if _wants_folder(hub_id, files):
            return Path(snapshot_download(hub_id.repo, revision=hub_id.revision, allow_patterns=_PATTERNS))
        name = _pick(hub_id, [name for name in files if name.endswith(".gguf")])
        return Path(hf_hub_download(hub_id.repo, name, revision=hub_id.revision))


def _wants_folder(hub_id: HubId, files: Sequence[str]) -> bool:
    return hub_id.quant is None and "config.json" in files and any(name.endswith(".safetensors") for name in files)


def _whole(folder: Path) -> bool:
    """Whether all weights are there: an interrupted download leaves a snapshot with some shards missing."""
    from medusakit.models.hf import weight_files

    try:
        return bool(weight_files(folder))
    except ModelError:
        return False


def _matching(hub_id: HubId, ggufs: Sequence[str]) -> list[str]:
    wanted = (hub_id.quant or "").lower()
    # whole words: Q4_K must not take Q4_K_M
    pattern = re.compile(rf"(^|[^a-z0-9_]){re.escape(wanted)}([^a-z0-9_]|$)") if wanted else re.compile("")
    return [name for name in ggufs if pattern.search(name.lower()) and "mmproj" not in name.lower()]


def _pick(hub_id: HubId, ggufs: Sequence[str]) -> str:
    matching = _matching(hub_id, ggufs)
    if len(matching) == 1 and not _SHARD.search(matching[0]):
        return matching[0]
    if any(_SHARD.search(name) for name in matching):
        raise ModelError(
            f"{hub_id} is split into {len(matching)} GGUF files, which are not read; merge them first",
            hint=_EXAMPLE,
        )
    if not ggufs:
        raise ModelError(
            f"{hub_id.repo} holds neither config.json with safetensors nor a GGUF file",
            hint=_EXAMPLE,
        )
    what = "no GGUF file" if not matching else f"{len(matching)} GGUF files"
    raise ModelError(
        f"{what} of {hub_id.repo} match {hub_id.quant or 'no quant given'}; there are: {', '.join(ggufs[:20])}",
        hint=f"{hub_id.repo}:Q4_0",
    )


@contextmanager
def _hub_errors(hub_id: HubId) -> Iterator[None]:
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    try:
        yield
    except ModelError:
        raise
    except GatedRepoError:  # before RepositoryNotFoundError, which is its base class
        raise ModelError(
            f"{hub_id.repo} is gated: its licence has to be accepted at https://huggingface.co/{hub_id.repo}",
            hint="hf auth login, after accepting the licence",
        ) from None
    except RepositoryNotFoundError:
        raise ModelError(
            f"the hub has no model {hub_id.repo}, or it is private and you are not logged in",
            hint=_EXAMPLE,
        ) from None
    except RevisionNotFoundError:
        raise ModelError(
            f"{hub_id.repo} has no revision {hub_id.revision!r}",
            hint=_EXAMPLE,
        ) from None
    except HFValidationError as error:
        raise ModelError(
            f"{hub_id.repo!r} is not a valid hub id: {error}",
            hint=_EXAMPLE,
        ) from None
    except HfHubHTTPError as error:
        raise ModelError(
            f"the hub refused {hub_id}: {error}",
            hint=_EXAMPLE,
        ) from error
    except Exception as error:  # the HTTP library's own errors differ between versions; all mean "no connection" here
        raise ModelError(
            f"cannot reach the hub for {hub_id}: {error}", hint="check the network, or give a file: -m model.gguf"
        ) from error
