"""From our names and values to those that MLflow accepts: pure functions, no store."""

from __future__ import annotations

import hashlib
import json
import re

NAME_LIMIT = 250
PARAM_LIMIT = 6000
TAG_LIMIT = 8000

_NOT_ALLOWED = re.compile(r"[^/\w.\- :]")


def safe_name(name: str) -> str:
    """``name`` if MLflow accepts it as the name of a metric, parameter or tag, else the nearest.

    MLflow allows letters, digits and ``/ _ . - :`` and spaces, no empty or dotted parts between slashes,
    and no two dots at the beginning.  A name that had to be changed ends in a digest of the original, so that
    two names never become one and the same name gets the same replacement in every run.
    """
    parts = _NOT_ALLOWED.sub("_", name).split("/")
    clean = "/".join(part for part in parts if part not in ("", ".", ".."))
    if clean.startswith(".."):  # MLflow takes the beginning of any such name for the folder above
        clean = clean.lstrip("./")
    if name and clean == name and len(name) <= NAME_LIMIT:
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{clean[: NAME_LIMIT - len(digest) - 1]}-{digest}"


def as_text(value: object) -> str:
    """Text as it is, anything else as JSON (so None is ``null`` and True is ``true``)."""
    return value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)


def cut(text: str, limit: int) -> str:
    """``text`` within ``limit`` characters, an ellipsis at its end where some were cut off."""
    printable = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return printable if len(printable) <= limit else printable[: limit - 1] + "…"
