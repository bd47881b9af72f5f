"""A repository of the Hugging Face Hub at one commit.

Goes through the Hub's own cache: an interrupted download goes on where it stopped, a model that
another program fetched is not fetched again, and HF_HOME, HF_HUB_OFFLINE and the rest of the
Hub's settings apply.
"""

from __future__ import annotations

from pathlib import Path

from ninegrid.errors import ModelSourceError
from ninegrid.policy.files import copy_model_files
from ninegrid.policy.settings import HubSource
from ninegrid.progress import say

_WANTED = ["*.safetensors", "*.json", "tokenizer*", "*.jinja", "*.txt", "*.model", "LICENSE*", "NOTICE*"]
_UNWANTED = ["*/*"]  # subfolders hold the same weights in other formats


def fill(source: HubSource, target: Path) -> None:
    """Copy the repository's model files into ``target``.

    Raises:
        ModelSourceError: the Hub cannot be reached, or does not give the files.
        OSError: something cannot be written.
    """
    say(f"fetching {source.repo} at {source.revision} from the Hub, or its cache")
    copy_model_files(_snapshot(source), target)


def _snapshot(source: HubSource) -> Path:
    """The folder of the Hub's cache that holds the complete commit."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]  # its HTTP library's base error

    try:
        path = snapshot_download(
            source.repo, revision=source.revision, allow_patterns=_WANTED, ignore_patterns=_UNWANTED
        )
    except (HTTPError, OSError) as error:
        if getattr(error, "errno", None) is not None:
            raise  # the disk's fault
        raise _explained(error, source) from error
    return Path(path)


def _explained(error: Exception, source: HubSource) -> ModelSourceError:
    from huggingface_hub import errors

    # A gated repository is an instance of both, so it comes first.
    if isinstance(error, errors.GatedRepoError):
        return ModelSourceError(
            f"{source.repo} is gated: its owner asks for an agreement first",
            hint="accept it on the repository's page, then log in with: hf auth login",
        )
    if isinstance(error, errors.RepositoryNotFoundError):
        return ModelSourceError(
            f"the Hub has no repository {source.repo}, or you may not see it",
            hint="check model.source.repo; for a private one log in with: hf auth login",
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return ModelSourceError(
            f"{source.repo} has no commit {source.revision}", hint="check model.source.revision"
        )
    if isinstance(error, errors.LocalEntryNotFoundError):
        return _unreachable(source, error)
    return ModelSourceError(
        f"the Hub did not give {source.repo}: {error}",
        hint="run the stage again: it goes on where it stopped",
    )


def _unreachable(source: HubSource, error: Exception) -> ModelSourceError:
    from huggingface_hub import is_offline_mode

    if is_offline_mode():
        return ModelSourceError(
            f"HF_HUB_OFFLINE is set, and the Hub's cache lacks {source.repo} at {source.revision}",
            hint="run the stage once with HF_HUB_OFFLINE=0, or use a folder: model.source.kind=local",
        )
    return ModelSourceError(
        f"the Hub cannot be reached for {source.repo}: {error.__cause__ or error}",
        hint="check the network and HF_ENDPOINT, then run the stage again: it goes on where it stopped",
    )
