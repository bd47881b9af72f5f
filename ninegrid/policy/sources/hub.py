"""A repository of the Hugging Face Hub at one commit.

Goes through the Hub's own cache: an interrupted download goes on where it stopped, a model that
another program fetched is not fetched again, and HF_HOME, HF_HUB_OFFLINE and the rest of the
Hub's settings apply.  What is said where neither has the files is `ninegrid.policy.sources.carrying`.
"""

from __future__ import annotations

from pathlib import Path

from ninegrid.errors import ModelSourceError
from ninegrid.policy.files import copy_model_files, find_problem
from ninegrid.policy.settings import HubSource
from ninegrid.policy.sources.carrying import absent
from ninegrid.progress import say

_WANTED = ["*.safetensors", "*.json", "tokenizer*", "*.jinja", "*.txt", "*.model", "LICENSE*", "NOTICE*"]
_UNWANTED = ["*/*"]  # subfolders hold the same weights in other formats

_PATIENCE = 10.0
"""Seconds in which the Hub must answer at all.  Its client would try, and complain, for half a minute."""

_NO_WAY = ("ConnectError", "ConnectTimeout", "ProxyError")
"""What the HTTP library raises where nobody answers; it differs between versions of the Hub's client, these
names do not."""


def fill(source: HubSource, target: Path, name: str) -> None:
    """Copy the repository's model files into ``target``.

    Args:
        name: of the model, by which it is chosen.

    Raises:
        ModelSourceError: neither the Hub nor its cache gives the files.
        OSError: something cannot be written.
    """
    say(f"fetching {source.repo} at {source.revision} from the Hub, or its cache")
    why = _out_of_reach(source)
    folder = _snapshot(source, name) if why is None else _cached(source, name, why)
    copy_model_files(folder, target)


def _out_of_reach(source: HubSource) -> str | None:
    """Why the Hub cannot be asked; None if it answers, whatever it says."""
    from huggingface_hub import get_session, hf_hub_url, is_offline_mode
    from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]  # its HTTP library's base error

    if is_offline_mode():
        return "HF_HUB_OFFLINE is set"
    url = hf_hub_url(source.repo, "config.json", revision=source.revision)
    try:
        get_session().head(url, timeout=_PATIENCE)
    except HTTPError as error:
        return f"the Hub cannot be reached ({error})" if type(error).__name__ in _NO_WAY else None
    return None


def _snapshot(source: HubSource, name: str) -> Path:
    """The folder of the Hub's cache that holds the complete commit, after a download."""
    from huggingface_hub.errors import (  # type: ignore[attr-defined]  # as above
        HTTPError,
        LocalEntryNotFoundError,
    )

    try:
        return _download(source, local_files_only=False)
    except LocalEntryNotFoundError as error:
        return _cached(source, name, f"the Hub did not give it ({error.__cause__ or error})")
    except (HTTPError, OSError) as error:
        if getattr(error, "errno", None) is not None:
            raise  # the disk's fault
        raise _explained(error, source) from error


def _cached(source: HubSource, name: str, why: str) -> Path:
    """The folder of the Hub's cache that holds the whole model, without a look at the Hub.

    Raises:
        ModelSourceError: there is none; says what is needed, and how it gets here.
    """
    from huggingface_hub import constants
    from huggingface_hub.errors import LocalEntryNotFoundError

    cache = Path(constants.HF_HUB_CACHE)
    try:
        folder = _download(source, local_files_only=True)
    except LocalEntryNotFoundError as error:
        raise absent(source, name, why, cache) from error
    problem = find_problem(folder)
    if problem is not None:
        raise absent(source, name, f"{why}, and the Hub's cache holds only a part: {problem}", cache)
    return folder


def _download(source: HubSource, *, local_files_only: bool) -> Path:
    from huggingface_hub import snapshot_download

    path = snapshot_download(
        source.repo,
        revision=source.revision,
        allow_patterns=_WANTED,
        ignore_patterns=_UNWANTED,
        local_files_only=local_files_only,
    )
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
    return ModelSourceError(
        f"the Hub did not give {source.repo}: {error}",
        hint="run the stage again: it goes on where it stopped",
    )
