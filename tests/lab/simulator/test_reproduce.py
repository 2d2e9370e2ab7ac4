"""The reproduction: honest comparison, and nothing of what was published fed in."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import leadline.lab.simulator
from leadline.cli.lab import lab
from leadline.lab.reproduce import Reproduction, judge, reproduce
from leadline.lab.reproduce_measure import Band
from leadline.lab.reproduce_plot import plot
from leadline.lab.reproduce_published import PUBLISHED, TRUNCATION, Figure
from leadline.lab.simulator.settings import LoopSettings

SIMULATOR = Path(leadline.lab.simulator.__file__).parent
SETUP = {180_000, 40, 3, 0.2, 5, 2, 8_000, 2_000, 512, 128, 7}
"""What the documents describe as the set-up, not as outcomes: budget, rounds, depth limit, the guard's and levels' constants."""


@pytest.fixture(scope="module")
def found() -> Reproduction:
    return reproduce(4)


def test_the_simulator_does_not_know_the_published_figures() -> None:
    """Importing all of it loads no module of the comparison."""
    modules = [f"leadline.lab.simulator.{path.stem}" for path in SIMULATOR.glob("*.py") if path.stem != "__init__"]
    code = f"import sys, importlib; [importlib.import_module(name) for name in {modules!r}]; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=dict(os.environ))
    assert not [name for name in done.stdout.split() if name.startswith("leadline.lab.reproduce")]


def test_no_published_outcome_is_a_constant_of_the_simulator() -> None:
    """No number in its source, and no parameter, is a figure that was published as an outcome."""
    outcomes = {figure.value for figure in PUBLISHED if figure.name.split(".")[0] != "tokens"} | {0.24, 0.22}
    outcomes = {value for value in outcomes if value not in SETUP and value not in (0, 1)}
    assert {0.71, 0.09, 214, 37, 0.41, 0.68, 12, 19, 0.18} <= outcomes
    for path in SIMULATOR.glob("*.py"):
        numbers = {
            node.value
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool)
        }
        assert not numbers & outcomes, path.name


def test_every_published_figure_is_compared(found: Reproduction) -> None:
    assert [row.figure for row in found.rows] == list(PUBLISHED)
    assert [row.figure for row in found.truncation] == list(TRUNCATION)


def test_a_few_seeds_already_show_the_experiment(found: Reproduction) -> None:
    """Over four seeds all but a few rows are reproduced; the figures of record take fifty."""
    missed = [row.figure.name for row in found.rows if not row.reproduced]
    assert len(missed) <= 3, missed
    assert all(row.reproduced for row in found.truncation)


def test_the_gap_between_the_onsets_comes_from_the_mechanism(found: Reproduction) -> None:
    """Taking out what the summaries are made of, and the topics' unequal relevance, takes the gap away."""
    delays = {one.what: one.delay for one in found.mechanism}
    assert delays["as calibrated"] >= 4
    assert delays["random spans, topics equally relevant"] < delays["as calibrated"] / 2


def test_the_level_blamed(found: Reproduction) -> None:
    """A silent chain is blamed where its fact vanished; with its input counted, where the tail was dropped too."""
    by_topic, with_values, counted = (one.levels for one in found.collapse.blames)
    assert by_topic == {"recall-floor": [3]}
    assert with_values == {"recall-floor": [2]}
    assert counted == {"recall-floor": [2], "budget-open": [3]}


@pytest.mark.parametrize(
    ("figure", "median", "good"),
    [
        (Figure("x", "", 0.5), 0.54, True),
        (Figure("x", "", 0.5), 0.56, False),
        (Figure("x", "", 12, "rounds", 2), 14, True),
        (Figure("x", "", 12, "rounds", 2), 9, False),
        (Figure("x", "", 0.18, "range", 0.1, 0.24), 0.2, True),
        (Figure("x", "", 0.18, "range", 0.1, 0.24), 0.25, False),
        (Figure("x", "", 12, "at-most"), 13, False),
        (Figure("x", "", 1, "at-least"), 1, True),
        (Figure("x", "", 0, "exact"), 1, False),
    ],
)
def test_a_row_says_whether_it_is_reproduced(figure: Figure, median: float, good: bool) -> None:
    """Against the tolerance of its kind, never against the band."""
    assert judge(figure, Band(median, 0.0, 100.0)).reproduced is good


def test_json_names_everything(found: Reproduction) -> None:
    """Rows, the truncation case, the mechanism, and every parameter with its value and reason."""
    told = json.loads(json.dumps(found.as_json()))
    assert {"seeds", "rows", "truncation", "mechanism", "parameters", "reproduced", "of"} == set(told)
    assert len(told["parameters"]) == len(LoopSettings.__dataclass_fields__)


def test_the_verb_prints_tables() -> None:
    """Exit code 0 or 1 by what was reproduced."""
    result = CliRunner().invoke(lab, ["reproduce", "--seeds", "1"], standalone_mode=False)
    assert result.exception is None
    assert result.return_value in (0, 1)
    assert "Salience inversion" in result.output


def test_the_curves_are_drawn(found: Reproduction, tmp_path: Path) -> None:
    plot(found, tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
