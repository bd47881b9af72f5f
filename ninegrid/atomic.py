"""Folders that appear under their name only when they are complete.

A folder is filled beside its final place and renamed.  Whatever a killed process leaves behind
is recognised and removed by the next one that writes the same folder; a lock that the system
drops with its holder tells a leftover from work in progress, so no clock and no process id is
trusted.  POSIX only, and no shield against power loss (nothing is flushed to the disk).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import glob
import os
import secrets
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Draft:
    """A folder that is being filled.

    Attributes:
        path: where to write.
        lock: file descriptor that marks the folder as in use.  Hand it to a child process that
            writes there (``pass_fds``), so that it counts as in use while the child lives.
    """

    path: Path
    lock: int


@contextlib.contextmanager
def new_folder(folder: Path) -> Iterator[Draft]:
    """Fill ``folder`` aside; it replaces an earlier one only if the block ends without error.

    Files get the permissions that the umask grants, whatever their writer chose.

    Raises:
        OSError: the folder cannot be written or replaced.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(folder)
    draft = _open_draft(folder)
    try:
        yield draft
        _open_permissions(draft.path)
        _publish(draft.path, folder)
    finally:
        shutil.rmtree(draft.path, ignore_errors=True)
        os.close(draft.lock)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Let one process at a time work in ``folder``, which is made if need be; others wait."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def remove_leftovers(folder: Path) -> None:
    """Remove what killed processes left of their drafts of ``folder``."""
    for path in folder.parent.glob(f"{glob.escape(_prefix(folder))}*"):
        lock = _try_lock(path)
        if lock is not None:
            shutil.rmtree(path, ignore_errors=True)
            os.close(lock)


def _open_draft(folder: Path) -> Draft:
    while True:
        path = _draft_name(folder)
        path.mkdir()
        lock = _try_lock(path)
        # Between the two calls another process may have taken the new folder for a leftover.
        if lock is not None and path.exists():
            return Draft(path, lock)
        if lock is not None:
            os.close(lock)


def _try_lock(path: Path) -> int | None:
    """Lock a folder; None when it is in use, gone, or not a folder."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _publish(draft: Path, folder: Path) -> None:
    while not _renamed(draft, folder):
        # Named like a draft, so that it is a leftover if the process dies in between.
        aside = _draft_name(folder)
        with contextlib.suppress(FileNotFoundError):  # another process was faster
            folder.rename(aside)
        renamed = _renamed(draft, folder)
        shutil.rmtree(aside, ignore_errors=True)
        if renamed:
            return


def _renamed(draft: Path, folder: Path) -> bool:
    """Rename unless a folder that holds something is in the way."""
    try:
        draft.rename(folder)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            return False
        raise
    return True


def _open_permissions(folder: Path) -> None:
    """Some writers make files for the owner alone; the folder itself shows what the umask allows."""
    allowed = folder.stat().st_mode & 0o666
    for path in folder.rglob("*"):
        if path.is_file():
            path.chmod(allowed)


def _draft_name(folder: Path) -> Path:
    return folder.parent / f"{_prefix(folder)}{secrets.token_hex(4)}"


def _prefix(folder: Path) -> str:
    return f".{folder.name}.partial-"
