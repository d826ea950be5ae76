"""Pictures: curves over one axis, written to a file whose ending says the format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from skellam.errors import DomainError, MissingExtraError

FORMATS = ("pdf", "png", "svg")


def draw(
    path: Path,
    across: Sequence[float],
    curves: Mapping[str, Sequence[float]],
    *,
    x: str,
    y: str,
    title: str,
    logarithmic: bool = False,
) -> None:
    """Draw every curve over ``across``; infinite values leave a gap."""
    if path.suffix[1:].lower() not in FORMATS:
        raise DomainError(f"{path} must end in one of .{', .'.join(FORMATS)}")
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("pictures need matplotlib: pip install 'skellam[plots]'") from error
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.add_subplot(xlabel=x, ylabel=y, title=title)
    for name, values in curves.items():
        axes.plot(across, values, marker="o", markersize=4, label=name)
    if logarithmic:
        axes.set_yscale("log")
    axes.grid(visible=True, alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=150)
