"""From a folder of model files to a policy and back: equal weights, equal bytes, clear refusals."""

from __future__ import annotations

import hashlib
import json
import logging
import random
import resource
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGUFReader
from safetensors.torch import load_file, save_file
from transformers.utils import logging as transformers_logging

from ninegrid.errors import DataError, SettingsError
from ninegrid.policy.files import MANIFEST
from ninegrid.policy.loading import (
    Policy,
    load_policy,
    save_policy,
    set_determinism,
    unpack_gguf,
    weights_sha256,
)
from ninegrid.policy.settings import LocalSource, ModelSettings
from ninegrid.policy.sources import fetch
from tests.model_files import END, HIDDEN, write_gguf

SETTINGS = ModelSettings(name="tiny", source=LocalSource("local", "unused"), device="cpu")
PROMPT = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a GGUF file and nothing else."""
    folder = tmp_path_factory.mktemp("raw")
    write_gguf(folder / "tiny.gguf", seed=7)
    return folder


@pytest.fixture(scope="module")
def fetched(tmp_path_factory: pytest.TempPathFactory, raw: Path) -> Path:
    """The same model as `fetch` leaves it."""
    place = tmp_path_factory.mktemp("fetched")
    fetch(replace(SETTINGS, source=LocalSource("local", str(raw))), place / "model", place / "downloads")
    return place / "model"


@pytest.fixture
def folder(fetched: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(fetched, tmp_path / "model"))


@pytest.fixture
def policy(fetched: Path) -> Policy:
    return load_policy(fetched, SETTINGS)


def logits(policy: Policy) -> torch.Tensor:
    with torch.no_grad():
        return policy.model(PROMPT).logits


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# ---- loading --------------------------------------------------------------------------------


def test_loaded_policy_is_ready_to_be_asked(policy: Policy) -> None:
    assert policy.name == "tiny"
    assert not policy.model.training
    assert policy.device == torch.device("cpu")
    assert policy.dtype == torch.float32
    assert {p.dtype for p in policy.model.parameters()} == {torch.float32}
    assert all(p.requires_grad for p in policy.model.parameters())
    assert policy.tokenizer.decode(policy.tokenizer("the cat").input_ids) == "the cat"
    assert policy.tokenizer.chat_template.endswith("{% endfor %}")


def test_weights_are_those_of_the_gguf(raw: Path, policy: Policy) -> None:
    """The vectors and the embeddings have the same layout in both files; compare them bit by bit."""
    tensors = {tensor.name: tensor.data for tensor in GGUFReader(raw / "tiny.gguf").tensors}
    model = policy.model.model
    pairs = {
        "output_norm.weight": model.norm.weight,
        "blk.1.attn_norm.weight": model.layers[1].input_layernorm.weight,
        "blk.1.ffn_norm.weight": model.layers[1].post_attention_layernorm.weight,
        "blk.0.ffn_down.weight": model.layers[0].mlp.down_proj.weight,
        "token_embd.weight": model.embed_tokens.weight,
    }
    for name, parameter in pairs.items():
        assert np.array_equal(tensors[name], parameter.detach().numpy()), name


def test_gguf_and_unpacked_files_give_the_same_policy(raw: Path, policy: Policy) -> None:
    packed = load_policy(raw, SETTINGS)
    assert weights_sha256(packed.model) == weights_sha256(policy.model)
    assert torch.equal(logits(packed), logits(policy))
    assert packed.tokenizer.get_vocab() == policy.tokenizer.get_vocab()
    text = "the way, 12 [x]\n"
    assert packed.tokenizer(text).input_ids == policy.tokenizer(text).input_ids


def test_policy_from_gguf_can_be_trained_and_saved(raw: Path, tmp_path: Path) -> None:
    packed = load_policy(raw, SETTINGS)
    packed.model(PROMPT, labels=PROMPT).loss.backward()
    assert all(p.grad is not None for p in packed.model.parameters())
    save_policy(packed, tmp_path / "saved")
    assert "quantization_config" not in json.loads((tmp_path / "saved" / "config.json").read_text())


@pytest.mark.parametrize("name", ["bfloat16", "float16"])
def test_dtype_is_that_of_the_settings(fetched: Path, policy: Policy, name: str) -> None:
    loaded = load_policy(fetched, replace(SETTINGS, dtype=name))
    dtype = getattr(torch, name)
    assert loaded.dtype == dtype
    for ours, full in zip(loaded.model.parameters(), policy.model.parameters(), strict=True):
        assert torch.equal(ours, full.to(dtype))


def test_device_that_is_not_there(fetched: Path) -> None:
    with pytest.raises(
        SettingsError, match=r"model\.device = 'cuda:99', but this machine has no such device"
    ):
        load_policy(fetched, replace(SETTINGS, device="cuda:99"))


def test_device_auto(fetched: Path) -> None:
    expected = "cuda" if torch.cuda.is_available() else "cpu"
    loaded = load_policy(fetched, replace(SETTINGS, device="auto"))
    assert loaded.device.type == expected
    assert loaded.model.device.type == expected


def test_loading_is_silent_and_leaves_the_libraries_log_level(
    raw: Path, capfd: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder
) -> None:
    before = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity(logging.INFO)
    try:
        load_policy(raw, SETTINGS)
        assert transformers_logging.get_verbosity() == logging.INFO
        with pytest.raises(DataError):
            load_policy(raw / "nothing", SETTINGS)
        assert transformers_logging.get_verbosity() == logging.INFO
    finally:
        transformers_logging.set_verbosity(before)
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("", "")


# ---- what cannot be loaded ------------------------------------------------------------------


def refused(folder: Path) -> str:
    with pytest.raises(DataError) as caught:
        load_policy(folder, SETTINGS)
    assert "dvc repro" in str(caught.value)
    assert "python -m stages.fetch_model" in str(caught.value)
    return caught.value.message


def test_missing_folder(tmp_path: Path) -> None:
    assert refused(tmp_path / "gone") == f"there is no folder {tmp_path / 'gone'}"


def test_cut_weights(folder: Path) -> None:
    path = folder / "model.safetensors"
    whole = path.stat().st_size
    path.write_bytes(path.read_bytes()[:-10])
    (folder / MANIFEST).unlink()
    assert refused(folder) == f"{path} is damaged: it has {whole - 10} bytes, its header asks for {whole}"


@pytest.mark.parametrize("junk", [b"", b"\x05\0\0\0\0\0\0\0{bad}", b"\xff" * 64, b"\x02\0\0\0\0\0\0\0[]"])
def test_weights_without_a_header(folder: Path, junk: bytes) -> None:
    (folder / "model.safetensors").write_bytes(junk)
    assert refused(folder) == f"{folder / 'model.safetensors'} is damaged: its header cannot be read"


def test_one_changed_bit_in_fetched_weights(folder: Path) -> None:
    path = folder / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    message = refused(folder)
    assert message.startswith(
        f"{path} is damaged: its sha256 is {hashlib.sha256(content).hexdigest()}, expected"
    )


def test_a_fetched_file_that_went_missing_or_grew(folder: Path) -> None:
    template = folder / "chat_template.jinja"
    size = template.stat().st_size
    template.write_text(template.read_text() + "!")
    assert refused(folder) == f"{template} has {size + 1} bytes, expected {size}"
    template.unlink()
    assert refused(folder) == f"{template} is missing"


def test_missing_shard(folder: Path) -> None:
    index = {"weight_map": {"a": "model.safetensors", "b": "model-2.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert str(folder / "model-2.safetensors") + " is missing" in refused(folder)


def test_broken_configuration(folder: Path) -> None:
    (folder / "config.json").write_text('{"model_type": ')
    assert str(folder / "config.json") + " is damaged: not JSON" in refused(folder)


def test_unknown_architecture(folder: Path) -> None:
    (folder / MANIFEST).unlink()
    (folder / "config.json").write_text('{"model_type": "no-such-model"}')
    assert f"{folder} cannot be loaded as a model" in refused(folder)


def lacking_message(folder: Path, name: str) -> str:
    return f"{folder}: 1 tensors are missing or of another shape, first {name}"


def test_lacking_tensors_are_never_made_up(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / MANIFEST).unlink()
    assert refused(folder) == lacking_message(folder, "model.layers.1.mlp.up_proj.weight")


def test_tensor_of_another_shape(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors["model.norm.weight"] = torch.ones(HIDDEN + 1)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / MANIFEST).unlink()
    assert refused(folder) == lacking_message(folder, "model.norm.weight")


@pytest.mark.parametrize("kept", [3, 20, 1000, 5000, -5000, -3])
def test_cut_gguf(raw: Path, tmp_path: Path, kept: int) -> None:
    path = tmp_path / "tiny.gguf"
    path.write_bytes((raw / "tiny.gguf").read_bytes()[:kept])
    assert str(tmp_path) in refused(tmp_path)


def test_two_gguf_files(raw: Path, tmp_path: Path) -> None:
    shutil.copy(raw / "tiny.gguf", tmp_path / "a.gguf")
    shutil.copy(raw / "tiny.gguf", tmp_path / "b.gguf")
    assert "it holds a.gguf, b.gguf" in refused(tmp_path)


def test_nothing_to_unpack(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"holds no \.gguf file"):
        unpack_gguf(tmp_path)


# ---- saving ---------------------------------------------------------------------------------


def test_saved_policy_reloads_equal(policy: Policy, tmp_path: Path) -> None:
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.add_(0.01)
    save_policy(policy, tmp_path / "saved")
    again = load_policy(tmp_path / "saved", SETTINGS)
    assert weights_sha256(again.model) == weights_sha256(policy.model)
    assert torch.equal(logits(again), logits(policy))
    assert again.tokenizer.get_vocab() == policy.tokenizer.get_vocab()
    assert again.tokenizer.chat_template == policy.tokenizer.chat_template


def test_saving_is_deterministic_and_names_no_place(policy: Policy, tmp_path: Path) -> None:
    save_policy(policy, tmp_path / "here" / "one")
    save_policy(load_policy(tmp_path / "here" / "one", SETTINGS), tmp_path / "there" / "two")
    first, second = contents(tmp_path / "here" / "one"), contents(tmp_path / "there" / "two")
    assert {"model.safetensors", "config.json", "tokenizer.json"} <= set(first)
    assert first == second
    assert not [name for name, content in first.items() if str(tmp_path).encode() in content]
    assert [path.name for path in (tmp_path / "here").iterdir()] == ["one"]


def test_saving_replaces_the_whole_folder(policy: Policy, tmp_path: Path) -> None:
    target = tmp_path / "saved"
    target.mkdir()
    (target / "of-an-earlier-run").write_text("x")
    save_policy(policy, target)
    assert "of-an-earlier-run" not in contents(target)
    assert load_policy(target, SETTINGS).name == "tiny"


def test_a_failed_save_keeps_the_earlier_policy(policy: Policy, tmp_path: Path) -> None:
    save_policy(policy, tmp_path / "saved")
    before = contents(tmp_path / "saved")

    # No file may grow past this: the configuration fits, the weights do not.
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            save_policy(policy, tmp_path / "saved")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert contents(tmp_path / "saved") == before
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]


def test_another_tokenizer_is_saved_in_place_of_the_policys(
    fetched: Path, policy: Policy, tmp_path: Path
) -> None:
    other = load_policy(fetched, SETTINGS).tokenizer
    other.chat_template = "{{ messages }}"
    save_policy(policy, tmp_path / "saved", tokenizer=other)
    assert load_policy(tmp_path / "saved", SETTINGS).tokenizer.chat_template == "{{ messages }}"
    assert policy.tokenizer.chat_template != "{{ messages }}"


def test_padding_stays_the_end_token(policy: Policy, tmp_path: Path) -> None:
    """As in SmolLM2; a saved policy must not get another padding token by itself."""
    save_policy(policy, tmp_path / "saved")
    tokenizer = load_policy(tmp_path / "saved", SETTINGS).tokenizer
    assert tokenizer.eos_token == END
    assert tokenizer.pad_token_id == tokenizer.eos_token_id == policy.tokenizer.eos_token_id


# ---- hashes and determinism -----------------------------------------------------------------


def test_weights_hash_by_its_definition() -> None:
    """Two parameters by sorted name: a header line with name, shape and type, then the raw bytes."""
    model = torch.nn.Linear(2, 1)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0, -2.0]]))
        model.bias.copy_(torch.tensor([0.5]))
    # IEEE 754, little endian: 0.5 = 3f000000, 1 = 3f800000, -2 = c0000000.
    expected = hashlib.sha256(
        b"bias (1,) torch.float32\n\x00\x00\x00\x3f"
        b"weight (1, 2) torch.float32\n\x00\x00\x80\x3f\x00\x00\x00\xc0"
    ).hexdigest()
    assert weights_sha256(model) == expected


def test_weights_hash_sees_every_parameter(policy: Policy) -> None:
    seen = {weights_sha256(policy.model)}
    for parameter in policy.model.parameters():
        with torch.no_grad():
            parameter.view(-1)[-1] += 1
        seen.add(weights_sha256(policy.model))
    assert len(seen) == 1 + len(list(policy.model.parameters()))
    seen.add(weights_sha256(policy.model.to(torch.bfloat16)))
    assert len(seen) == 2 + len(list(policy.model.parameters()))


@pytest.fixture
def restored() -> Iterator[None]:
    """Put torch's switches back after the test."""
    threads, strict = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    yield
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(strict)


def draws(seed: int) -> list[Any]:
    set_determinism(None, seed)
    return [random.random(), float(np.random.rand()), float(torch.rand(()))]


def test_set_determinism(restored: None) -> None:
    torch.use_deterministic_algorithms(False)
    torch.set_num_threads(1)
    set_determinism(None, 3)
    assert torch.get_num_threads() == 1
    assert torch.are_deterministic_algorithms_enabled()
    set_determinism(2, 3)
    assert torch.get_num_threads() == 2


def test_seed_sets_all_three_generators(restored: None) -> None:
    first, again, other = draws(3), draws(3), draws(4)
    assert first == again
    assert all(a != b for a, b in zip(first, other, strict=True))
    assert draws(2**40) == draws(2**40)  # numpy takes 32 bits


# ---- the real tokenizer and model -----------------------------------------------------------


@pytest.mark.slow
def test_real_policy_survives_saving(smollm2_dir: Path, tmp_path: Path) -> None:
    policy = load_policy(smollm2_dir, SETTINGS)
    save_policy(policy, tmp_path / "saved")
    again = load_policy(tmp_path / "saved", SETTINGS)
    assert weights_sha256(again.model) == weights_sha256(policy.model)
    assert torch.equal(logits(again), logits(policy))
    ours = contents(smollm2_dir)
    saved = contents(tmp_path / "saved")
    assert {name: ours[name] for name in saved} == saved


@pytest.mark.slow
def test_real_tokenizer_pads_with_its_end_token(tiny_dir: Path) -> None:
    tokenizer = load_policy(tiny_dir, SETTINGS).tokenizer
    assert (tokenizer.pad_token_id, tokenizer.eos_token_id, len(tokenizer)) == (2, 2, 49152)
    assert "<|im_start|>" in tokenizer.chat_template
