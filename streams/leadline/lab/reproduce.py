"""The founding documents' experiments, run again, beside what the documents published.

:func:`reproduce` runs everything; each :class:`Row` says whether its figure came out, and by how much it differs.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, NamedTuple

from leadline.lab.reproduce_measure import Band, Experiment, Progress, experiment
from leadline.lab.reproduce_mechanism import Variation, variations
from leadline.lab.reproduce_published import PUBLISHED, TRUNCATION, Figure
from leadline.lab.reproduce_truncation import Collapse, collapse
from leadline.lab.simulator.settings import REASONS, LoopSettings

__all__ = ["NOTES", "Reproduction", "Row", "judge", "reproduce"]

NOTES = {
    "tokens.off_budget": "the pass drops whole items, so it ends a little below",
    "claims.unsupported": "of 20 claims; varies much from seed to seed, and many sessions have none",
    "grounded.unsupported": "by construction, once every retained summary keeps a leaf",
    "grounded.pressure": "tokens retained over the budget, mean of rounds 21 to 40, where what salience keeps is not given up",
    "grounded.depth": "by the document's own rule, which caps a pinned hierarchy at 2; the pressure alone does not force it here",
    "truncation.reported": "by construction: a silent agent reports none; what it did not read is counted below",
}
"""What a reader must know to compare a figure."""


class Row(NamedTuple):
    """One published figure beside the measured one. ``difference``: a share of the published value; for rounds, rounds."""

    figure: Figure
    band: Band
    difference: float
    reproduced: bool
    note: str = ""


class Reproduction(NamedTuple):
    rows: list[Row]
    truncation: list[Row]
    collapse: Collapse
    mechanism: list[Variation]
    experiment: Experiment
    settings: LoopSettings

    def as_json(self) -> dict[str, Any]:
        """One object: ``seeds``, ``rows``, ``truncation``, ``mechanism``, ``parameters``, ``reproduced``."""
        every = [*self.rows, *self.truncation]
        return {
            "seeds": self.experiment.seeds,
            "rows": [_row(row) for row in self.rows],
            "truncation": {
                "rows": [_row(row) for row in self.truncation],
                "blamed": [{"reporting": one.reporting, "levels": one.levels} for one in self.collapse.blames],
            },
            "mechanism": [one._asdict() for one in self.mechanism],
            "parameters": [
                {"name": one.name, "value": getattr(self.settings, one.name), "reason": REASONS[one.name]}
                for one in fields(LoopSettings)
            ],
            "reproduced": sum(row.reproduced for row in every),
            "of": len(every),
        }


def reproduce(
    seeds: int, progress: Progress | None = None, settings: LoopSettings | None = None, first_seed: int = 0
) -> Reproduction:
    """Everything, over ``seeds`` seeds from ``first_seed`` on. Deterministic."""
    settings = settings or LoopSettings()
    found = experiment(settings, seeds, progress, first_seed)
    case = collapse()
    return Reproduction(
        rows=[judge(figure, found.values[figure.name]) for figure in PUBLISHED],
        truncation=[judge(figure, Band(*[case.values[figure.name]] * 3)) for figure in TRUNCATION],
        collapse=case,
        mechanism=variations(settings, min(seeds, 10), first_seed),
        experiment=found,
        settings=settings,
    )


def judge(figure: Figure, band: Band) -> Row:
    """Hold the median to the published figure."""
    median, value = band.median, figure.value
    if figure.within == "rounds":
        difference, good = median - value, abs(median - value) <= figure.tolerance
    elif figure.within == "range":
        upper = figure.upper if figure.upper is not None else value
        short = min(0.0, median - value) + max(0.0, median - upper)
        difference, good = short / value, short == 0.0
    elif figure.within == "share":
        difference = median / value - 1.0
        good = abs(difference) <= figure.tolerance
    else:
        difference = median / value - 1.0 if value else median
        good = {"at-most": median <= value, "at-least": median >= value, "exact": median == value}[figure.within]
    return Row(figure, band, difference, good, NOTES.get(figure.name, ""))


def _row(row: Row) -> dict[str, Any]:
    figure = row.figure
    return {
        "name": figure.name,
        "says": figure.says,
        "published": figure.value if figure.upper is None else [figure.value, figure.upper],
        "within": figure.within,
        "tolerance": figure.tolerance if figure.within in ("share", "rounds") else None,
        "median": round(row.band.median, 4),
        "band_90": [round(row.band.low, 4), round(row.band.high, 4)],
        "difference": round(row.difference, 4),
        "reproduced": row.reproduced,
        "note": row.note,
    }
