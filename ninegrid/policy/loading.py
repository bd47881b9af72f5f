"""From a folder of model files to a policy in memory, and back.

Reads local files only, silently, and refuses files that are not whole.  Where the files come from
is ``sources``; prompts, sampling and training know nothing of files.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import logging
import os
import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, GgufConfig
from transformers.utils import logging as transformers_logging

from ninegrid.atomic import new_folder
from ninegrid.errors import DataError, SettingsError
from ninegrid.policy.adapters import is_adapted, read_adapter, write_adapter
from ninegrid.policy.files import find_difference, gguf_file
from ninegrid.policy.needs import Needs, find_policy_problem, read_needs
from ninegrid.policy.quantization import (
    Quantization,
    forget_packing,
    loading_config,
    run_unpacked,
    unpacking_config,
)
from ninegrid.policy.settings import ModelSettings

_HINT = "make it again: dvc repro (the base model alone: python -m stages.fetch_model)"


@dataclass(frozen=True)
class Policy:
    """A model that can be asked and trained, with its tokenizer.

    The padding token may be the end token (it is in SmolLM2), so a mask must come from lengths,
    never from a comparison with ``tokenizer.pad_token_id``.

    Attributes:
        model: a causal language model, in evaluation mode when loaded.
        tokenizer: its tokenizer.
        device: where the weights are.
        dtype: the weights' number format.
        name: as in the settings.
    """

    model: Any
    tokenizer: Any
    device: torch.device
    dtype: torch.dtype
    name: str


def load_policy(folder: Path, settings: ModelSettings) -> Policy:
    """Load the model and tokenizer in ``folder``, as ``fetch`` or `save_policy` wrote them.

    What a trained policy says that it needs goes before the settings: one that was trained beside packed
    weights and then merged is not packed again.

    Raises:
        DataError: the folder is missing, or a file in it is missing or damaged.
        SettingsError: the device asked for is not there.
    """
    _require_whole(folder)
    needs = read_needs(folder) or Needs(settings.dtype, settings.quantization)
    return load_weights(folder, replace(needs, dtype=settings.dtype), settings.device, settings.name)


def load_weights(folder: Path, needs: Needs, device: str = "cpu", name: str = "") -> Policy:
    """Load what is in ``folder`` with all that it ``needs``; see `load_policy`."""
    place, dtype = _device(device), getattr(torch, needs.dtype)
    with _silence(), _readable(folder):
        tokenizer = load_tokenizer(folder)
        model = _load_model(needs.base_folder(folder), dtype, needs.quantization, place)
        if needs.adapter:
            read_adapter(model, folder)
    return Policy(model.to(place).eval(), tokenizer, place, dtype, name)


def save_policy(policy: Policy, folder: Path, tokenizer: Any = None) -> None:
    """Write the policy as a folder that `load_policy` and model servers read.

    The folder appears only when complete; equal weights and tokenizers give equal bytes.

    Args:
        policy: what to save.
        folder: replaced as a whole.
        tokenizer: saved instead of the policy's own (one that carries another chat template).

    Raises:
        OSError: the folder cannot be written.
    """
    with new_folder(folder) as draft:
        write_model(policy.model, policy.tokenizer if tokenizer is None else tokenizer, draft.path)


def weights_sha256(model: Any) -> str:
    """Hash over names, shapes, number formats and values of all parameters, by sorted name."""
    digest = hashlib.sha256()
    for name, parameter in sorted(model.named_parameters()):
        digest.update(f"{name} {tuple(parameter.shape)} {parameter.dtype}\n".encode())
        raw = parameter.detach().cpu().contiguous().view(-1).view(torch.uint8)
        digest.update(raw.numpy().data)
    return digest.hexdigest()


def set_determinism(threads: int | None, seed: int) -> None:
    """Make what this process computes repeatable.

    Args:
        threads: of the CPU's matrix products (their sums depend on it); None leaves torch's choice.
        seed: of Python's, numpy's and torch's global generators.
    """
    # Read by cuBLAS when the first CUDA matrix product runs.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    # By itself that also fills every new buffer, lest one be read before it is written: a tenth of the time.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    if threads is not None:
        torch.set_num_threads(threads)
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def load_tokenizer(folder: Path) -> Any:
    """The tokenizer in ``folder``: from its own files, else out of the GGUF file."""
    own = (folder / "tokenizer_config.json").exists() or (folder / "tokenizer.json").exists()
    return AutoTokenizer.from_pretrained(folder, local_files_only=True, **({} if own else _gguf(folder)))


def write_model(model: Any, tokenizer: Any, folder: Path) -> None:
    """Write model and tokenizer into an existing folder; of an adapted model, the adapter alone.

    Raises:
        OSError: the folder cannot be written.
    """
    try:
        with _silence():
            if is_adapted(model):
                write_adapter(model, folder)
                model.generation_config.save_pretrained(folder)
            else:
                model.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
    except SafetensorError as error:  # how its writer reports, for one, a full disk
        raise OSError(errno.EIO, str(error), str(folder)) from error


def write_serving_defaults(folder: Path, temperature: float) -> None:
    """Have servers draw replies at ``temperature`` from the whole distribution, unless a request differs.

    A policy is trained and measured so.  A model's own defaults may be greedy, or leave out the improbable.
    """
    own = GenerationConfig.from_pretrained(folder)
    ends = {name: getattr(own, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    make: Any = GenerationConfig  # not annotated there
    make(do_sample=True, temperature=temperature, top_k=0, top_p=1.0, **ends).save_pretrained(folder)


def unpack_gguf(folder: Path) -> None:
    """Replace the GGUF file in ``folder`` by what it holds: float32 weights and the tokenizer.

    Raises:
        DataError: the file is not a whole GGUF model.
    """
    path = gguf_file(folder)
    if path is None:
        raise DataError(f"{folder} holds no .gguf file")
    with _silence(), _readable(folder):
        model = _load_model(folder, torch.float32, "none", torch.device("cpu"))
        tokenizer = load_tokenizer(folder)
    write_model(model, tokenizer, folder)
    path.unlink()


def _load_model(folder: Path, dtype: torch.dtype, quantization: Quantization, device: torch.device) -> Any:
    auto: Any = AutoModelForCausalLM
    model, info = auto.from_pretrained(
        folder,
        dtype=dtype,
        local_files_only=True,
        ignore_mismatched_sizes=True,  # reported below, by name
        output_loading_info=True,
        **_gguf(folder),
        **_packing(folder, dtype, quantization, device),
    )
    if quantization == "none":
        forget_packing(model)
    else:
        run_unpacked(model)
        _let_go_of_files(model)
    # transformers would draw these at random.
    lacking = sorted([*info["missing_keys"], *(name for name, *_ in info["mismatched_keys"])])
    if lacking:
        what = f"{len(lacking)} tensors are missing or of another shape, first {lacking[0]}"
        raise DataError(f"{folder}: {what}", hint=_HINT)
    return model


def _gguf(folder: Path) -> dict[str, str]:
    """The argument that makes transformers read a GGUF file, where the weights are in one."""
    path = gguf_file(folder)
    return {} if path is None else {"gguf_file": path.name}


def _let_go_of_files(model: Any) -> None:
    """Copy what was not packed: tensors as they lie in a file keep the whole of it mapped."""
    for parameter in model.parameters():
        if parameter.is_floating_point():
            parameter.data = parameter.data.clone()


def _packing(
    folder: Path, dtype: torch.dtype, quantization: Quantization, device: torch.device
) -> dict[str, Any]:
    """The arguments that say how the weights are to lie in memory, and where, if they are packed."""
    # Plain weights, which can be trained and saved; by itself transformers may keep them packed.
    unpacked = GgufConfig(dequantize=True) if gguf_file(folder) else unpacking_config(folder)
    packed = loading_config(quantization, dtype)
    if packed is None:
        return {} if unpacked is None else {"quantization_config": unpacked}
    if unpacked is not None:
        raise DataError(f"{folder} holds weights that are packed already", hint="set model.quantization=none")
    return {"quantization_config": packed, "device_map": {"": device}}


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    device = torch.device(name)
    there = {
        "cpu": True,
        "cuda": (device.index or 0) < torch.cuda.device_count(),
        "mps": torch.backends.mps.is_available(),
    }
    if not there[device.type]:
        raise SettingsError(
            f"model.device = {name!r}, but this machine has no such device", hint="set model.device=auto"
        )
    return device


def _require_whole(folder: Path) -> None:
    problem = find_policy_problem(folder) or find_difference(folder)
    if problem is not None:
        raise DataError(problem, hint=_HINT)


@contextlib.contextmanager
def _readable(folder: Path) -> Iterator[None]:
    """Turn what the libraries raise for unusable files into one kind of error."""
    try:
        yield
    except (OSError, ValueError, KeyError, IndexError, struct.error, SafetensorError) as error:
        raise DataError(f"{folder} cannot be loaded as a model: {error}", hint=_HINT) from error


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Keep progress bars and advice off the terminal; errors still come as exceptions."""
    verbosity = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity(logging.ERROR)
    try:
        # The bar of the GGUF conversion has no switch: it writes to whatever stderr is.
        with contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        transformers_logging.set_verbosity(verbosity)
