"""Keeping other libraries' bars, advice and reports off the terminal and off the network."""

from __future__ import annotations

import contextlib
import logging
import os
import warnings
from collections.abc import Iterator

CHATTY = ("trl", "transformers", "accelerate", "datasets")


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Errors still come as exceptions; lines of `ninegrid.progress` are shown as ever."""
    import datasets
    from huggingface_hub import constants

    levels = {name: logging.getLogger(name).level for name in CHATTY}
    bars, telemetry = datasets.are_progress_bars_disabled(), constants.HF_HUB_DISABLE_TELEMETRY
    tqdm = os.environ.get("TQDM_DISABLE")
    try:
        for name in CHATTY:
            logging.getLogger(name).setLevel(logging.ERROR)
        datasets.disable_progress_bars()
        constants.HF_HUB_DISABLE_TELEMETRY = True  # TRL's trainers report their use to the hub
        os.environ["TQDM_DISABLE"] = "1"  # the only switch of the bar over the reference's log-probs
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
        if not bars:
            datasets.enable_progress_bars()
        constants.HF_HUB_DISABLE_TELEMETRY = telemetry
        _restore("TQDM_DISABLE", tqdm)


def _restore(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value
