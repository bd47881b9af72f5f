"""Checks of what is installed: Python, packages, torch and its devices, bitsandbytes."""

from __future__ import annotations

import os
import re
import shutil
import sys
from importlib import metadata

from ninegrid.doctor.findings import Finding
from ninegrid.project import project_root

SHOWN = 3
"""Packages that are named when more are wrong."""

GB = 1e9


def python() -> Finding:
    """The interpreter."""
    version = ".".join(map(str, sys.version_info[:3]))
    if (3, 11) <= sys.version_info[:2] <= (3, 12):
        return Finding("ok", f"{version}")
    return Finding("fail", f"{version}, expected 3.11 or 3.12", "make setup PYTHON=/path/to/python3.11")


def packages() -> Finding:
    """What is installed beside what is locked."""
    path = project_root() / "requirements.lock"
    locked = re.findall(r"^([\w.-]+)==([^\s;]+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    if not locked:
        return Finding("fail", f"{path} names no packages", "git checkout requirements.lock")
    missing, other = [], []
    for name, wanted in locked:
        have = _version(name)
        if have is None:
            missing.append(name)
        elif have.partition("+")[0] != wanted.partition("+")[0]:
            other.append(f"{name} {have}, locked {wanted}")
    if missing:
        return Finding("fail", f"{len(missing)} of {len(locked)} are missing: {_some(missing)}", "make setup")
    if other:
        text = f"{len(other)} of {len(locked)} have another version: {_some(other)}"
        return Finding("warn", text, "make setup (results were measured with the locked ones)")
    return Finding("ok", f"all {len(locked)} of requirements.lock")


def torch_build() -> Finding:
    """torch, and the devices that it sees."""
    import torch

    if not torch.cuda.is_available():
        if shutil.which("nvidia-smi") is None:
            return Finding("ok", f"torch {torch.__version__}, no CUDA device: the CPU is used")
        return Finding(
            "warn",
            f"torch {torch.__version__} sees no CUDA device, though this machine has NVIDIA's tools",
            "install torch for CUDA, and see that nvidia-smi lists the device",
        )
    devices = []
    for index in range(torch.cuda.device_count()):
        free, total = torch.cuda.mem_get_info(index)
        sixteen = "bfloat16" if torch.cuda.is_bf16_supported() else "no bfloat16"
        name = torch.cuda.get_device_name(index)
        devices.append(f"{name}, {free / GB:.1f} of {total / GB:.1f} GB free, {sixteen}")
    return Finding("ok", f"torch {torch.__version__}; {'; '.join(devices)}")


def cores() -> Finding:
    """Cores that this process may use, and the threads that torch takes."""
    affinity = getattr(os, "sched_getaffinity", None)
    count = len(affinity(0)) if affinity else os.cpu_count() or 1
    import torch

    threads = torch.get_num_threads()
    if threads > count:
        text = f"{count} cores, but torch takes {threads} threads"
        return Finding("warn", text, f"export OMP_NUM_THREADS={count}, or set engine.threads={count}")
    return Finding("ok", f"{count} cores, of which torch takes {threads}")


def bitsandbytes() -> Finding:
    """4-bit weights and 8-bit optimiser state, tried on the device that a run would use."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    error = _bitsandbytes_error(device)
    if error is None:
        return Finding("ok", f"packs weights and steps with 8-bit state on {device}")
    return Finding("warn", f"does not work on {device}: {error}", "do without nf4 and the 8-bit optimisers")


def _bitsandbytes_error(device: str) -> str | None:
    """What goes wrong when a matrix is packed and moved by a step; None if nothing does."""
    from typing import Any

    import torch

    try:
        from ninegrid.policy import quantization

        quantization.still_advice()
        import bitsandbytes.optim
        from bitsandbytes.functional import dequantize_4bit, quantize_4bit

        optimizers: Any = bitsandbytes.optim
        plain = torch.linspace(-1, 1, 64 * 128, device=device).view(64, 128)
        unpacked = dequantize_4bit(*quantize_4bit(plain, quant_type="nf4"))
        if not float((unpacked - plain).abs().max()) < 0.2:  # the widest gap between two values is 0.3
            return "packed weights come back as other ones"
        weight = torch.nn.Parameter(plain.clone())
        weight.grad = torch.ones_like(weight)
        optimizers.AdamW8bit([weight], lr=0.1).step()
        # The first step of Adam moves every weight by the learning rate.
        if not bool((weight - plain + 0.1).abs().max() < 0.01):
            return "a step with 8-bit state goes elsewhere"
    except Exception as error:  # a missing library shows itself in many ways
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return None


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _some(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
