"""The quality of the rules as a picture: precision and recall with their intervals, and the closed loop."""

from __future__ import annotations

from pathlib import Path

import matplotlib

from leadline.lab.quality import Quality, Share

__all__ = ["plot"]


def plot(found: Quality, path: Path) -> None:
    """Write a PNG (or whatever the name ends in)."""
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.5), constrained_layout=True, width_ratios=(2, 1))
    for offset, (name, colour) in enumerate((("precision", "C0"), ("recall", "C1"))):
        for index, rule in enumerate(found.rules):
            share: Share = getattr(rule, name)
            if share.value is not None:
                error = [[share.value - share.low], [share.high - share.value]]
                at = index + 0.15 * (2 * offset - 1)
                left.errorbar(share.value, at, xerr=error, fmt="o", color=colour, label=name if index == 0 else None)
    left.set_yticks(range(len(found.rules)), [rule.rule for rule in found.rules])
    left.set_title(f"{len(found.judged)} labelled sessions, 95 % intervals")
    left.legend(fontsize="small")
    closed = found.closed
    right.bar(("ignored", "obeyed"), (closed.unsupported_ignored, closed.unsupported_obeyed), color=("C3", "C2"))
    right.set_title(f"unsupported claims, {closed.sessions} sessions each\nmedian token cost {closed.token_cost:.1%}")
    figure.savefig(path, dpi=120)
    plt.close(figure)
