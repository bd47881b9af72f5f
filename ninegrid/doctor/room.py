"""Checks of room: memory for the settings' training, and disk for what it writes."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from ninegrid.doctor.checkout import all_settings, existing
from ninegrid.doctor.findings import Finding

GB = 1e9

CHECKPOINTS = 4
"""At most on disk at once: this run's, the one that is being written, and two of other runs."""

COPIES = 3
"""Of the weights: the model, the trained policy, and DVC's cache of it."""


def memory() -> Finding:
    """Whether the training of these settings fits, by the memory plan."""
    from ninegrid.plan.model_sizes import CannotPlanError
    from ninegrid.plan.plan import Planner

    settings = all_settings()
    try:
        plan = Planner(settings, measure_prompts=False).training(settings)
    except CannotPlanError as error:
        return Finding("warn", f"what training needs is not known: {error.message}", error.hint)
    peak, device = plan.peak, plan.device
    available = f"{device.available / GB:.1f} GB to be had on {device.name}"
    text = f"training needs {peak.total / GB:.1f} GB of the {available}"
    return Finding("ok", text) if plan.fits else Finding("fail", text, "python -m ninegrid.plan")


def disk() -> Finding:
    """Room where outputs and checkpoints go."""
    from ninegrid.plan.model_sizes import CannotPlanError
    from ninegrid.plan.plan import Planner

    settings = all_settings()
    try:
        weights = Planner(settings, measure_prompts=False).weights(settings)
    except CannotPlanError as error:
        return Finding("warn", f"what training writes is not known: {error.message}", error.hint)
    state = weights.trained_bytes + sum(line.n_bytes for line in weights.state)
    every = settings.train.checkpoint_every
    needs = {
        settings.paths.folder("policy"): COPIES * weights.stored.n_bytes,
        settings.paths.state_folder(): CHECKPOINTS * state if every else 0,
    }
    return disk_finding(needs)


def disk_finding(needs: dict[Path, int]) -> Finding:
    """Whether every folder's disk has room for what is written there; two on one disk share it."""
    by_disk: dict[int, tuple[Path, int]] = {}
    for folder, n_bytes in needs.items():
        there = existing(folder)
        if not os.access(there, os.W_OK):
            return Finding("fail", f"{there} cannot be written", f"chmod u+w {there}")
        number = there.stat().st_dev
        by_disk[number] = (there, by_disk.get(number, (there, 0))[1] + n_bytes)
    said = []
    for there, n_bytes in by_disk.values():
        free = shutil.disk_usage(there).free
        said.append(f"{free / GB:.1f} GB free, a run may write {n_bytes / GB:.1f} GB")
        if free < n_bytes:
            return Finding("fail", f"{there}: {said[-1]}", "make room, or set train.checkpoint_every=0")
    return Finding("ok", "; ".join(said))
