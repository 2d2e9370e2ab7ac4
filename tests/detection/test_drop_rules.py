"""``silent-drop``, and re-ranking: tables that reach every reason."""

from __future__ import annotations

from typing import Any

import pytest

from leadline.contracts.codec import Event
from leadline.contracts.events import Checkpoint
from leadline.detection.observe import Finding
from leadline.detection.policy import FleetPolicy
from leadline.detection.rules import silent_drop
from leadline.detection.rules.base import Decision
from tests.detection.seen import Seen, watch
from tests.support.core import checkpoint, declared, start

HALF = start(declared("C1", "C2", "C3", "C4", floor=0.5))


def call(tokens: int | None = 900, reason: str | None = None, level: int = 1, **changes: Any) -> Checkpoint:
    """A call over 8,000 tokens that wrote ``tokens``."""
    return checkpoint(level, changes.pop("facts", None), output_tokens=tokens, stop_reason=reason, **changes)


def calls(*tokens: int | None, **changes: Any) -> list[Event]:
    return [call(size, **changes) for size in tokens]


SPARE: dict[str, Any] = {"budget_tokens": 2000}
DROP: list[tuple[str, list[Event], str]] = [
    ("it ended of itself", [call(900, "end_turn", output_cap=4096)], "nothing-dropped"),
    ("nothing is reported", [call(None)], "not-reported"),
    ("stop reason length", [call(4096, "length")], "stop-reason-length!"),
    ("stop reason MAX_TOKENS", [call(4096, "MAX_TOKENS")], "stop-reason-length!"),
    ("stop reason content_filter", [call(9, "content_filter")], "summarizer-failed!"),
    ("stop reason placeholder", [call(9, "placeholder")], "summarizer-failed!"),
    ("cut off, whatever its size", [call(3, "length", output_cap=4096)], "stop-reason-length!"),
    ("exactly at its cap, no stop reason", [call(4096, output_cap=4096)], "output-at-cap!"),
    ("over its cap", [call(4100, output_cap=4096)], "output-at-cap!"),
    ("at its cap, but it ended of itself", [call(4096, "stop", output_cap=4096)], "nothing-dropped"),
    ("below its cap", [call(4095, output_cap=4096)], "nothing-dropped"),
    ("twice the same size", calls(4096, 4096), "nothing-dropped"),
    ("three times the same size, no stop reason", calls(4096, 4096, 4096), "same-output-size-repeated!"),
    ("three times a size that is no cap", calls(60, 60, 60), "nothing-dropped"),
    ("three times the least size of a cap", calls(128, 128, 128), "same-output-size-repeated!"),
    ("another size in between", calls(4096, 4096, 4095, 4096), "nothing-dropped"),
    ("three times the same size, each ended of itself", calls(4096, 4096, 4096, reason="stop"), "nothing-dropped"),
    ("the same size at other levels", [call(4096, level=n) for n in (1, 2, 3)], "nothing-dropped"),
    ("a call without a size in between", calls(4096, 4096, None, 4096), "same-output-size-repeated!"),
    ("nothing written", [call(0, "stop")], "empty-summary!"),
    ("a few words for 8,000 tokens", [call(16, "stop")], "placeholder-summary!"),
    ("a few words more", [call(17, "stop")], "nothing-dropped"),
    ("a few words for a few", [call(16, "stop", declared_input_tokens=999, consumed_input_tokens=999)], "nothing-dropped"),
    (
        "a fact vanished while its class holds its floor",
        [HALF, call(facts={"C1": "verbatim", "C2": "abstracted", "C3": "verbatim"})],
        "fact-vanished-undeclared!",
    ),
    ("it was declared", [HALF, call(facts={"C1": "verbatim", "C2": "abstracted"}, drops=["C3", "C4"])], "nothing-dropped"),
    ("below the floor it is recall-floor's", [HALF, call(facts={"C1": "verbatim"})], "nothing-dropped"),
    ("a class that may go", [start(declared("C1", "C2", floor=0.0)), call(facts={"C1": "verbatim"})], "nothing-dropped"),
    ("opaque", [HALF, call(facts={}, summary_visible=False)], "nothing-dropped"),
    (
        "lost at an earlier level",
        [HALF, *(call(level=n, facts={"C1": "verbatim", "C2": "abstracted"}) for n in (1, 2))],
        "nothing-dropped",
    ),
    (
        "some word for word, others gone, room left",
        [HALF, call(facts={"C1": "verbatim", "C2": "verbatim"}, **SPARE)],
        "facts-re-ranked!",
    ),
    (
        "no room left: it had to",
        [HALF, call(1900, facts={"C1": "verbatim", "C2": "verbatim"}, **SPARE)],
        "fact-vanished-undeclared!",
    ),
    (
        "one abstracted: it compresses",
        [HALF, call(facts={"C1": "verbatim", "C2": "abstracted"}, **SPARE)],
        "fact-vanished-undeclared!",
    ),
]


@pytest.mark.parametrize(("events", "said"), [case[1:] for case in DROP], ids=[case[0] for case in DROP])
def test_the_rule_says(events: list[Event], said: str) -> None:
    assert watch(*events).reasons.get("silent-drop", "") == said


def test_the_table_reaches_every_reason() -> None:
    known = {item.reason + "!" * item.fired for item in vars(silent_drop).values() if isinstance(item, Decision)}
    assert known == {said for _, _, said in DROP}


def finding(seen: Seen, rule: str = "silent-drop") -> Finding:
    (found,) = [item for item in seen.last.findings if item.rule == rule]
    return found


def test_a_cut_off_summary_is_told_from_its_stop_reason_before_any_fact() -> None:
    """Also where facts are not reported at all."""
    found = finding(watch(call(4096, "length", output_cap=4096)))
    assert found.evidence == {"output_tokens": 4096, "stop_reason": "length", "source_spans": 40}
    assert found.threshold["output_cap"] == 4096
    assert found.action == "retry-level"
    assert "was cut off (stop reason 'length')" in found.message


def test_a_placeholder_tells_how_many_spans_it_stands_for() -> None:
    found = finding(watch(call(6, "placeholder", source_spans=195, seen_spans=195)))
    assert found.decision.reason == "summarizer-failed"
    assert found.evidence["source_spans"] == 195
    assert found.parameters.level == 1


def test_vanished_facts_are_named_and_asked_for() -> None:
    found = finding(watch(HALF, call(facts={"C1": "verbatim", "C2": "abstracted"})))
    assert found.evidence["lost_facts"] == ["C3", "C4"]
    assert found.parameters.facts == ["C3", "C4"]
    assert "C3, C4" in found.message


def test_re_ranking_below_the_floor_is_told_by_recall_floor() -> None:
    """Truncation-collapse document: re-ranking selects a subset; only compression is safe."""
    seen = watch(start(declared("C1", "C2")), call(facts={"C1": "verbatim"}, **SPARE))
    found = finding(seen, "recall-floor")
    assert found.decision.reason == "re-ranked-below-floor"
    assert found.evidence["tokens_to_spare"] == 1100
    assert "1100 tokens to spare: it selected, it did not abstract" in found.message
    assert "shorten every part rather than choose" in (found.parameters.instruction or "")
    assert "silent-drop" not in seen.fired


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"budget_tokens": 2000}, True),
        ({"output_cap": 2000}, True),
        ({}, False),
        ({"budget_tokens": 1000}, True),
        ({"budget_tokens": 999}, False),
        ({"budget_tokens": 900}, False),
    ],
    ids=["budget", "cap", "neither", "a tenth to spare", "less than a tenth", "nothing"],
)
def test_room_to_spare_must_be_known(changes: dict[str, Any], told: bool) -> None:
    found = finding(watch(start(declared("C1", "C2")), call(facts={"C1": "verbatim"}, **changes)), "recall-floor")
    assert (found.decision.reason == "re-ranked-below-floor") is told


def test_thresholds_are_the_fleets_own() -> None:
    assert "silent-drop" in watch(*calls(4096, 4096), policy=FleetPolicy(same_size_calls=2)).fired
    assert "silent-drop" not in watch(call(10, "stop"), policy=FleetPolicy(placeholder_tokens=9)).fired
    assert "silent-drop" not in watch(call(10, "stop"), policy=FleetPolicy(placeholder_input_tokens=8001)).fired


def test_what_nobody_read_is_named_by_id() -> None:
    """C1 summarized m1 and m2; C2 reads C1, m7 and m8 and retains nothing: m3 to m6 are gone. Ids decide, not ranges."""
    names = ["m3", "m4", "m5", "m6"]
    reported: list[dict[str, Any]] = [{}, {"source_spans": 8, "seen_spans": 4}, {"source_spans": 8, "seen_spans": 8}]
    for counts in reported:
        found = finding(watch(checkpoint(2, unseen_span_ids=names, **counts)), "budget-open")
        assert found.decision.reason == "spans-unseen"
        assert found.evidence["unseen_spans"] == 4
        assert found.evidence["unseen_span_ids"] == names
        assert "m3, m4, m5, m6" in found.message
    assert watch(checkpoint(2, unseen_span_ids=[])).reasons["budget-open"] == "budget-closed"
