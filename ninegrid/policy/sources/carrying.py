"""What to say where a model's files cannot be had from here: which, how large, and how to carry them over."""

from __future__ import annotations

from pathlib import Path

from ninegrid.errors import ModelSourceError
from ninegrid.policy.settings import HubSource


def absent(source: HubSource, name: str, why: str, cache: Path) -> ModelSourceError:
    """The error for a repository that is neither in reach nor in the Hub's cache.

    Args:
        name: of the model, by which it is chosen.
        why: it is not in reach.
        cache: the Hub's cache on this machine.
    """
    fetch = f"hf download {source.repo} --revision {source.revision} --exclude '*/*'"
    first = "accept its agreement on its page, run hf auth login, then: " if source.gated else ""
    lines = [
        f"{source.repo} is not on this machine, and it cannot be fetched: {why}",
        f"files: {_weights(source)}; beside them config.json, generation_config.json, the tokenizer's files "
        "and its chat template, some MB",
        f"to get them, on a machine with a connection: {first}{fetch} --local-dir {name}",
        f"then copy that folder to this machine, say to data/hub/{name}, and here: "
        f"python -m ninegrid.params model={name} model.source.kind=local model.source.path=data/hub/{name}",
        f"or into the Hub's cache: {first}{fetch}, and copy the folder {_cache_folder(source)} from "
        f"the cache there into {cache} here",
    ]
    return ModelSourceError(
        "\n     ".join(lines), hint="then run the stage again; with a connection it fetches the files itself"
    )


def _weights(source: HubSource) -> str:
    files = f"{source.weight_files} " if source.weight_files else ""
    length = f"about {source.weight_bytes / 1e9:.1f} GB" if source.weight_bytes else "how large is not known"
    several = "file" if source.weight_files == 1 else "files"
    index = " with their index model.safetensors.index.json" if source.weight_files != 1 else ""
    return f"{files}*.safetensors {several}, {length}{index}"


def _cache_folder(source: HubSource) -> str:
    return f"models--{source.repo.replace('/', '--')}"
