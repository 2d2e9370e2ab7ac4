"""The reproduction as a picture: the four signals by round, medians and bands, with the published points on them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import matplotlib

from leadline.lab.reproduce import Reproduction
from leadline.lab.reproduce_published import PUBLISHED

__all__ = ["plot"]

_TITLES: Final = {
    "raw_ratio": "raw ratio",
    "distinct_source_spans": "distinct source spans",
    "query_cosine_retained": "mean salience of retained items",
    "summary_depth_max": "deepest summary",
}
_LABELS: Final = {"plain": ("with decay", "C3"), "no-decay": ("without decay", "C0"), "grounded": ("grounding enforced", "C2")}
_POINTS: Final = {
    "raw_ratio": (("raw_ratio.start", 1), ("raw_ratio.round_28", 28), ("raw_ratio.end", 40)),
    "distinct_source_spans": (("spans.start", 1), ("spans.round_30", 30)),
    "query_cosine_retained": (("salience.start", 1), ("salience.end", 40)),
    "summary_depth_max": (("depth.pinned", 12),),
}


def plot(found: Reproduction, path: Path) -> None:
    """Write a PNG (or whatever the name ends in)."""
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(11, 7.5), constrained_layout=True)
    for axis, (signal, title) in zip(axes.flat, _TITLES.items(), strict=True):
        _draw(axis, found, signal)
        axis.set_title(title)
        axis.set_xlabel("compaction round")
    for row in found.rows:
        if row.figure.name.startswith("onset."):
            colour = _LABELS["plain" if row.figure.name == "onset.with_decay" else "no-decay"][1]
            axes.flat[0].axvline(row.band.median, color=colour, linestyle=":", linewidth=1)
    axes.flat[0].axhline(0.5, color="grey", linewidth=0.6)
    axes.flat[0].legend(fontsize="small")
    figure.suptitle(
        f"The salience-inversion experiment, {found.experiment.seeds} seeds: median, 90 % band; crosses: the published figures"
    )
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _draw(axis: Any, found: Reproduction, signal: str) -> None:
    for kind, (label, colour) in _LABELS.items():
        curves = found.experiment.curves[kind][signal]
        rounds = range(1, len(curves.median) + 1)
        axis.plot(rounds, curves.median, color=colour, label=label)
        axis.fill_between(rounds, curves.low, curves.high, color=colour, alpha=0.15, linewidth=0)
    values = {figure.name: figure.value for figure in PUBLISHED}
    points = _POINTS[signal]
    axis.plot([at for _, at in points], [values[name] for name, _ in points], "kx", markersize=9, label="published")
