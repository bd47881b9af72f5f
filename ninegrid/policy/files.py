"""What a folder of model files holds, and whether that can be a model.

Looks at names, headers and hashes only; nothing here reads weights into memory or imports torch.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MANIFEST = "source.json"
"""Written by ``fetch`` beside the model's files: where they came from, their lengths and hashes."""

NEEDS = "needs.json"
"""Written beside a trained policy's files: what loading it takes (`ninegrid.policy.needs`)."""

_SUFFIXES = (".safetensors", ".gguf", ".json", ".jinja", ".txt", ".model")
_LEGAL = ("LICENSE", "LICENCE", "COPYING", "NOTICE")
_INDEX = "model.safetensors.index.json"
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt")


def is_legal_notice(name: str) -> bool:
    """Whether a file of this name states a licence."""
    return name.upper().startswith(_LEGAL)


def is_model_file(name: str) -> bool:
    """Whether a file belongs to a model: weights, configuration, tokenizer, template, licence.

    Pickled weights do not (loading them runs whatever code they hold), nor does Python code.
    """
    return name not in (MANIFEST, NEEDS) and (is_legal_notice(name) or name.endswith(_SUFFIXES))


def model_files(folder: Path) -> list[Path]:
    """The model's files at the top of ``folder``, sorted by name."""
    return sorted(p for p in folder.iterdir() if p.is_file() and is_model_file(p.name))


def copy_model_files(source: Path, target: Path) -> None:
    """Copy the model's files, following links; what else lies in ``source`` stays there."""
    for path in model_files(source):
        shutil.copyfile(path, target / path.name)


def sha256_of(path: Path) -> str:
    """Hash of a file's content, in hex."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def describe_files(folder: Path) -> dict[str, dict[str, Any]]:
    """Name -> length in bytes and sha256 of every model file."""
    return {p.name: {"bytes": p.stat().st_size, "sha256": sha256_of(p)} for p in model_files(folder)}


def gguf_file(folder: Path) -> Path | None:
    """The GGUF file that holds the weights, or None where they are safetensors (or missing)."""
    if any(folder.glob("*.safetensors")):
        return None
    return next(iter(sorted(folder.glob("*.gguf"))), None)


def find_problem(folder: Path) -> str | None:
    """The first reason, naming the file, why ``folder`` cannot be loaded; None if it looks whole."""
    if not folder.is_dir():
        return f"there is no folder {folder}"
    return next(_problems(folder), None)


def find_difference(folder: Path) -> str | None:
    """The first file that is not the one its manifest names; None if all are, or without one."""
    manifest = folder / MANIFEST
    if not manifest.exists():
        return None
    recorded = json.loads(manifest.read_text(encoding="utf-8"))["files"]
    for name, expected in recorded.items():
        path = folder / name
        if not path.is_file():
            return f"{path} is missing"
        if path.stat().st_size != expected["bytes"]:
            return f"{path} has {path.stat().st_size} bytes, expected {expected['bytes']}"
        actual = sha256_of(path)
        if actual != expected["sha256"]:
            return f"{path} is damaged: its sha256 is {actual}, expected {expected['sha256']}"
    return None


def _problems(folder: Path) -> Iterator[str]:
    weights = sorted(folder.glob("*.safetensors"))
    ggufs = sorted(folder.glob("*.gguf"))
    if not weights and len(ggufs) != 1:
        held = ", ".join(p.name for p in ggufs) or "neither"
        yield f"{folder} must hold .safetensors files or one .gguf file; it holds {held}"
    if weights and not (folder / "config.json").exists():
        yield f"{folder} holds no config.json"
    if weights and not any((folder / name).exists() for name in _TOKENIZERS):
        yield f"{folder} holds no tokenizer ({', '.join(_TOKENIZERS)})"
    for path in sorted(folder.glob("*.json")):
        yield from _json_problem(path)
    yield from _missing_shards(folder)
    for path in weights:
        yield from _safetensors_problem(path)
    for path in ggufs:
        if _first_bytes(path, 4) != b"GGUF":
            yield f"{path} is damaged: it does not begin as a GGUF file does"


def _json_problem(path: Path) -> Iterator[str]:
    try:
        json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        yield f"{path} is damaged: not JSON ({error})"


def _missing_shards(folder: Path) -> Iterator[str]:
    index = folder / _INDEX
    if index.exists():
        shards = json.loads(index.read_text(encoding="utf-8")).get("weight_map", {}).values()
        for name in sorted(set(shards)):
            if not (folder / name).is_file():
                yield f"{folder / name} is missing, {_INDEX} names it"


def _safetensors_problem(path: Path) -> Iterator[str]:
    """A file is 8 bytes of header length, the header, and the tensors' bytes up to the last end."""
    with path.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        header = stream.read(min(length, path.stat().st_size))
    try:
        entries = json.loads(header)
        end = max((e["data_offsets"][1] for name, e in entries.items() if name != "__metadata__"), default=0)
    except (ValueError, KeyError, TypeError, AttributeError):
        yield f"{path} is damaged: its header cannot be read"
        return
    actual, expected = path.stat().st_size, 8 + length + end
    if actual != expected:
        yield f"{path} is damaged: it has {actual} bytes, its header asks for {expected}"


def _first_bytes(path: Path, count: int) -> bytes:
    with path.open("rb") as stream:
        return stream.read(count)
