"""Generated lives of sessions through the fold, each invariant checked after each event; the long run is ``benchmarks.fuzz``."""

from __future__ import annotations

import json

import pytest

from benchmarks import fuzz
from leadline.commands.fold import Folded, fold
from leadline.detection.rules import RULE_NAMES


def test_no_sequence_breaks_an_invariant_and_every_rule_is_met() -> None:
    tally = fuzz.run(0, 150, seed=1)
    assert tally.sequences == 150
    assert tally.largest_state < 100_000
    assert tally.rules.keys() == set(RULE_NAMES)
    assert tally.commands.keys() == {"halt", "cap-depth", "retry-level", "stop-agent", "resume"}


def test_the_same_seed_makes_the_same_sequences() -> None:
    assert fuzz.run(7, 20, seed=3) == fuzz.run(7, 20, seed=3)
    assert fuzz.run(7, 20, seed=3) != fuzz.run(7, 20, seed=4)


def test_what_is_broken_is_found_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the tests above against checking nothing: a fold that sends everything twice."""
    honest = fold

    def doubled(*given: object, explain: bool = False) -> Folded:
        folded = honest(*given, explain=explain)  # type: ignore[arg-type]
        folded.outputs *= 2
        return folded

    monkeypatch.setattr(fuzz, "fold", doubled)
    with pytest.raises(fuzz.Broken, match=r"sequence '1/\d+', event \d+: Broken"):
        fuzz.run(0, 50, seed=1)


def test_the_runner_prints_what_it_saw(capsys: pytest.CaptureFixture[str]) -> None:
    assert fuzz.main(["--sequences", "20", "--seed", "5", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["sequences"], shown["seed"], shown["broken"]) == (20, 5, 0)
