"""Small real models for tests: a GGUF file, wheels that hold it, a folder to load.

The tiny model has the layout of a Llama and a byte-level tokenizer, so everything that reads or
writes model files works on it as on a real one, in milliseconds.
"""

from __future__ import annotations

import base64
import hashlib
import zipfile
from pathlib import Path

import numpy as np

HIDDEN, LAYERS, HEADS, KV_HEADS, FEED_FORWARD = 32, 2, 4, 2, 64
END = "<|im_end|>"
MEMBER = "tiny_model/tiny.gguf"
LICENCE = "Do with these files what you like.\n"


def vocabulary() -> list[str]:
    """One token for each byte, one merge, and two control tokens, the last of which ends a turn."""
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    return [*bytes_to_unicode().values(), "th", "<|endoftext|>", END]


def write_gguf(path: Path, seed: int = 0) -> None:
    """Write a Llama with random float32 weights as a GGUF file."""
    from gguf import GGUFWriter

    path.parent.mkdir(parents=True, exist_ok=True)
    tokens = vocabulary()
    writer = GGUFWriter(path, "llama")
    writer.add_context_length(512)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_dimension_count(HIDDEN // HEADS)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([1] * (len(tokens) - 2) + [3, 3])  # 1: ordinary, 3: control
    writer.add_token_merges(["t h"])
    writer.add_eos_token_id(len(tokens) - 1)
    writer.add_pad_token_id(len(tokens) - 1)
    writer.add_chat_template("{% for m in messages %}{{ m['content'] + '" + END + "' }}{% endfor %}")
    generator = np.random.default_rng(seed)
    for name, shape in _tensors(len(tokens)).items():
        writer.add_tensor(name, generator.normal(0, 0.2, shape).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_wheel(folder: Path, version: str, member: Path, *, stored: bool = False) -> Path:
    """Pack ``member`` as a wheel of the package tiny-model; ``stored`` leaves it uncompressed."""
    info = f"tiny_model-{version}.dist-info"
    wheel = folder / f"tiny_model-{version}-py3-none-any.whl"
    contents = {
        "tiny_model/__init__.py": b"",
        MEMBER: member.read_bytes(),
        f"{info}/licenses/LICENSE": LICENCE.encode(),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: tiny-model\nVersion: {version}\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    contents[f"{info}/RECORD"] = "".join(_record_line(n, c) for n, c in contents.items()).encode()
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED) as archive:
        for name, content in contents.items():
            archive.writestr(name, content)
    return wheel


def _record_line(name: str, content: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(content)}\n"


def _tensors(vocabulary_length: int) -> dict[str, tuple[int, ...]]:
    narrow = HIDDEN // HEADS * KV_HEADS
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (vocabulary_length, HIDDEN),
        "output_norm.weight": (HIDDEN,),
    }
    for layer in range(LAYERS):
        shapes |= {
            f"blk.{layer}.attn_norm.weight": (HIDDEN,),
            f"blk.{layer}.attn_q.weight": (HIDDEN, HIDDEN),
            f"blk.{layer}.attn_k.weight": (narrow, HIDDEN),
            f"blk.{layer}.attn_v.weight": (narrow, HIDDEN),
            f"blk.{layer}.attn_output.weight": (HIDDEN, HIDDEN),
            f"blk.{layer}.ffn_norm.weight": (HIDDEN,),
            f"blk.{layer}.ffn_gate.weight": (FEED_FORWARD, HIDDEN),
            f"blk.{layer}.ffn_up.weight": (FEED_FORWARD, HIDDEN),
            f"blk.{layer}.ffn_down.weight": (HIDDEN, FEED_FORWARD),
        }
    return shapes
