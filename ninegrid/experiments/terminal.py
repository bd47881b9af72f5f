"""Numbers, intervals and tables as they stand in a terminal."""

from __future__ import annotations

from collections.abc import Sequence


def signed(value: float | None) -> str:
    """Three decimals with the sign; a dash where there is nothing."""
    return "-" if value is None else f"{round(value, 3) + 0.0:+.3f}"  # no -0.000


def interval(low: float | None, high: float | None) -> str:
    """Both ends; a dash where there is no interval."""
    return "-" if low is None or high is None else f"{low:+.3f} to {high:+.3f}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Columns padded to their widest cell, the first ``left`` to the left, the others to the right."""
    lines = [header, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column < left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )
