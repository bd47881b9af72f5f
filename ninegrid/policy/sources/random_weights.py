"""Weights made from a seed, with a real tokenizer: a model for tests, good for nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from ninegrid.errors import SettingsError
from ninegrid.policy.files import is_legal_notice, model_files
from ninegrid.policy.settings import RandomSource


def fill(source: RandomSource, target: Path, downloads: Path, root: Path) -> None:
    """Write the model and its tokenizer into ``target``; equal seeds give equal bytes.

    Raises:
        ModelSourceError: the tokenizer cannot be had.
        SettingsError: ``architecture`` is not one that transformers can build.
        OSError: something cannot be written.
    """
    from ninegrid.policy import sources
    from ninegrid.policy.loading import load_tokenizer, write_model

    parts = target / "tokenizer-source"
    parts.mkdir()
    sources.fill(source.tokenizer, parts, downloads, root)
    tokenizer = load_tokenizer(parts)
    write_model(_build(source, tokenizer), tokenizer, target)
    for path in model_files(parts):
        if is_legal_notice(path.name):
            shutil.copyfile(path, target / path.name)
    shutil.rmtree(parts)


def _build(source: RandomSource, tokenizer: Any) -> Any:
    import torch
    from huggingface_hub.errors import StrictDataclassError
    from transformers import AutoConfig, AutoModelForCausalLM

    auto: Any = AutoModelForCausalLM
    settings = {
        "vocab_size": len(tokenizer),
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
        **source.architecture,
    }
    if settings["vocab_size"] < len(tokenizer):
        raise SettingsError(
            f"model.source.architecture.vocab_size = {settings['vocab_size']}, "
            f"expected at least the tokenizer's {len(tokenizer)}"
        )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(source.seed)
        try:
            return auto.from_config(AutoConfig.for_model(**settings), dtype=torch.float32)
        except (ValueError, TypeError, StrictDataclassError) as error:
            raise SettingsError(f"model.source.architecture cannot be built: {error}") from error
