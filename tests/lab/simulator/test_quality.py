"""Labelled sessions, the closed loop, and the measures of quality."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

import leadline.lab.simulator
from leadline.contracts.codec import decode_event, encode
from leadline.lab.quality import Quality, quality, wilson
from leadline.lab.quality_plot import plot
from leadline.lab.simulator.kinds import KINDS, labelled
from leadline.lab.simulator.obey import live
from leadline.lab.simulator.settings import LoopSettings


@pytest.fixture(scope="module")
def found() -> Quality:
    return quality(16)


@pytest.mark.parametrize("kind", KINDS)
def test_a_session_is_the_same_each_time_and_readable(kind: str) -> None:
    """Deterministic in kind and seed; every record is a valid event, in order of time."""
    one = labelled(kind, 5, rounds=6)
    assert one == labelled(kind, 5, rounds=6)
    decoded = [decode_event(encode(record)) for record in one.records]
    assert [item.event for item in decoded] == one.records
    times = [item.ts or 0 for item in decoded]
    assert times == sorted(times)


@pytest.mark.parametrize(
    ("kind", "label"),
    [("truncating", "budget-open"), ("constraint-losing", "recall-floor"), ("pinned", "depth-pin"), ("inverting", "inversion")],
)
def test_what_is_planted_is_in_the_truth(kind: str, label: str) -> None:
    """The books of the simulator, over a few seeds, name what the kind is about."""
    assert sum(label in labelled(kind, seed).truth.first for seed in range(3)) >= 2


@pytest.mark.parametrize("kind", ["healthy-noisy", "healthy-shallow", "opaque"])
def test_the_healthy_are_healthy(kind: str) -> None:
    """No label, and every claim of the final answer has support."""
    for seed in range(3):
        truth = labelled(kind, seed).truth
        assert not truth.first
        assert truth.answer.unsupported == 0


def test_labels_do_not_come_from_the_rules() -> None:
    """Nothing that makes sessions or labels imports the rules; only the closed loop hears the monitor, to obey it."""
    for path in Path(leadline.lab.simulator.__file__).parent.glob("*.py"):
        imported = [node.module or "" for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
        assert not [name for name in imported if name.startswith(("leadline.detection", "leadline.commands"))], path.name
        assert path.name == "obey.py" or not [name for name in imported if name.startswith("leadline.lab.replay")], path.name


def test_the_rules_find_what_is_true(found: Quality) -> None:
    """On the few sessions of this test without an error; shares with intervals are for larger fleets."""
    assert {rule.rule for rule in found.rules} >= {"inversion", "provenance-floor", "depth-pin", "budget-open", "recall-floor"}
    for rule in found.rules:
        assert rule.sessions > 0, rule.rule
        assert rule.recall.value == 1.0, rule.rule
        assert rule.precision.value == 1.0, rule.rule
        assert rule.delay == 0, rule.rule
    assert found.healthy >= 4
    assert found.halts.hits == 0


def test_obeying_leaves_no_unsupported_claim() -> None:
    """The same session: ignored, it ends with claims that nothing supports; obeyed, with none, at a price in tokens."""
    ignored, obeyed = (live(LoopSettings(), 2, obey=obey) for obey in (False, True))
    assert ignored.answer.unsupported > 0
    assert obeyed.answer.unsupported == 0
    assert 0 < obeyed.token_cost < 0.24
    assert ignored.restored_tokens == 0


def test_json_and_picture(found: Quality, tmp_path: Path) -> None:
    told = json.loads(json.dumps(found.as_json()))
    assert sum(told["sessions"].values()) == 16
    assert told["closed_loop"]["unsupported_obeyed"] == 0
    plot(found, tmp_path / "quality.png")
    assert (tmp_path / "quality.png").read_bytes().startswith(b"\x89PNG")


def test_wilson() -> None:
    """Inside 0 to 1, around the share, and honest about few cases and none."""
    assert wilson(0, 0).value is None
    few, many = wilson(3, 3), wilson(300, 300)
    assert few.low < many.low < 1.0
    assert few.high == pytest.approx(1.0)
    assert wilson(1, 2).low == pytest.approx(0.0945, abs=1e-3)
