"""Late, doubled, reordered, missing and taken-back rounds: one documented outcome each, counted."""

from __future__ import annotations

from typing import Any

import pytest

from leadline.contracts import limits
from leadline.contracts.codec import Event
from leadline.contracts.orders import Command
from leadline.contracts.session_state import Counts
from leadline.detection.rounds import REACH, Arrival
from tests.detection.seen import Seen, watch
from tests.support.core import ack, checkpoint, declared, end, round_, start


def numbers(seen: Seen) -> list[int]:
    return [entry.round for entry in seen.state.window]


def rounds(*given: int, **changes: Any) -> list[Event]:
    return [round_(number, **changes) for number in given]


LAST = [
    ("next", [1, 2], Arrival.NEXT, Counts(), [1, 2]),
    ("the first one seen, without a start: what came before is unknown", [7], Arrival.NEXT, Counts(), [7]),
    ("a gap", [1, 5], Arrival.NEXT, Counts(gaps=3), [1, 5]),
    ("doubled", [1, 2, 2], Arrival.DUPLICATE, Counts(duplicates=1), [1, 2]),
    ("doubled later", [1, 2, 3, 1], Arrival.DUPLICATE, Counts(duplicates=1), [1, 2, 3]),
    ("reordered", [1, 3, 2], Arrival.REORDERED, Counts(reordered=1), [1, 2, 3]),
    ("one of several missing arrives", [1, 5, 3], Arrival.REORDERED, Counts(reordered=1, gaps=2), [1, 3, 5]),
    ("doubled after it was reordered", [1, 3, 2, 2], Arrival.DUPLICATE, Counts(reordered=1, duplicates=1), [1, 2, 3]),
    ("at the end of the reach", [1, 1 + REACH, 1], Arrival.DUPLICATE, Counts(gaps=REACH - 1, duplicates=1), [1, 1 + REACH]),
    ("past the reach", [1, 2 + REACH, 1], Arrival.LATE, Counts(gaps=REACH, late=1), [1, 2 + REACH]),
    ("a leap", [1, 10**15, 3], Arrival.LATE, Counts(gaps=10**15 - 2, late=1), [1, 10**15]),
    (
        "a leap, then just before it",
        [1, 10**15, 10**15 - 1],
        Arrival.REORDERED,
        Counts(gaps=10**15 - 3, reordered=1),
        [1, 10**15 - 1, 10**15],
    ),
]


@pytest.mark.parametrize(("given", "arrival", "counts", "window"), [case[1:] for case in LAST], ids=[case[0] for case in LAST])
def test_a_round_arrives(given: list[int], arrival: Arrival, counts: Counts, window: list[int]) -> None:
    seen = watch(*rounds(*given))
    assert seen.last.arrival is arrival
    assert seen.state.counts == counts
    assert numbers(seen) == window


def test_rounds_missing_from_the_start_are_counted_where_the_start_was_seen() -> None:
    assert watch(start(), *rounds(4)).state.counts.gaps == 3
    assert watch(start(), *rounds(1)).state.counts.gaps == 0


def test_a_doubled_round_changes_nothing_whatever_it_says() -> None:
    once = watch(*rounds(1, 2)).state
    twice = watch(*rounds(1, 2), round_(2, 0.01, event_id="other")).state
    assert (twice.window, twice.pinned_rounds, twice.incidents) == (once.window, once.pinned_rounds, once.incidents)


def test_a_late_round_opens_nothing_and_is_not_what_the_next_compares_with() -> None:
    """Round 3 is judged against round 2 only if round 2 was there; once it comes late, round 4 still compares with 3."""
    worse = round_(2, 0.01, summary_depth_max=2, distinct_source_spans=1, query_cosine_retained=0.9)
    seen = watch(*rounds(1, 3), worse)
    assert seen.last.findings == ()
    assert seen.reasons == {"unobserved": "observed"}
    after = watch(round_(4, 0.2, summary_depth_max=2, distinct_source_spans=199, query_cosine_retained=0.6), state=seen.state)
    assert "inversion" in after.fired


def test_the_window_keeps_the_last_16_rounds_in_order() -> None:
    seen = watch(*rounds(*range(1, 20), 22, 21, 20))
    assert len(seen.state.window) == limits.WINDOW_ROUNDS
    assert numbers(seen) == list(range(7, 23))


def test_a_late_round_older_than_the_whole_window_is_not_kept() -> None:
    seen = watch(*rounds(1, *range(3, 21), 2))
    assert seen.last.arrival is Arrival.REORDERED
    assert numbers(seen) == list(range(5, 21))


def test_a_failed_round_measures_nothing() -> None:
    seen = watch(round_(1), round_(2, 0.0, outcome="failed", distinct_source_spans=0, summary_depth_max=9))
    assert numbers(seen) == [1]
    assert seen.reasons == {"unobserved": "observed", "no-progress": "stalled-within-allowance"}
    assert seen.state.counts == Counts(failed=1)
    assert seen.state.last_round == 2


def test_a_skipped_round_is_measured() -> None:
    assert numbers(watch(round_(1), round_(2, outcome="skipped"))) == [1, 2]


def test_a_failure_supersedes_the_success_it_corrects() -> None:
    """Reported ok, two seconds later failed: the measurements are taken back, and the next round compares with the one before."""
    taken = round_(2, 0.01, summary_depth_max=2, distinct_source_spans=100, query_cosine_retained=0.2)
    seen = watch(round_(1), taken, round_(2, outcome="failed"))
    assert seen.last.arrival is Arrival.SUPERSEDES
    assert seen.state.counts == Counts(superseded=1, failed=1)
    assert numbers(seen) == [1]
    after = watch(round_(3, 0.2, summary_depth_max=2, distinct_source_spans=150, query_cosine_retained=0.6), state=seen.state)
    assert "inversion" in after.fired, "spans fell from 200 to 150, though the failed round had said 100"


def test_a_failure_of_an_older_round_changes_nothing() -> None:
    seen = watch(*rounds(1, 2, 3), round_(2, outcome="failed"))
    assert seen.last.arrival is Arrival.DUPLICATE
    assert numbers(seen) == [1, 2, 3]


def test_a_failure_told_twice_takes_back_once() -> None:
    seen = watch(*rounds(1, 2), round_(2, outcome="failed"), round_(2, outcome="failed"))
    assert numbers(seen) == [1]
    assert seen.state.counts.superseded == 1


@pytest.mark.parametrize(("depth", "pinned"), [(3, 4), (1, 4)], ids=["it was pinned", "it was not"])
def test_a_round_taken_back_gives_the_pin_count_back(depth: int, pinned: int) -> None:
    pinned_rounds = rounds(1, 2, 3, 4, summary_depth_max=3, max_depth=3)
    seen = watch(*pinned_rounds, round_(5, summary_depth_max=depth, max_depth=3), round_(5, outcome="failed"))
    assert seen.state.pinned_rounds == pinned


def test_a_round_without_any_tokens_is_unknown() -> None:
    """0 of 0 is no ratio of 0: nothing is said, nothing compared with it, and it is counted."""
    seen = watch(*rounds(1), round_(2, raw_tokens=0, summary_tokens=0, distinct_source_spans=0, summary_depth_max=3))
    assert seen.reasons == {"unobserved": "observed"}
    assert seen.state.counts == Counts(unknown=1)
    assert numbers(seen) == [1]


def test_a_new_epoch_forgets_what_was_measured() -> None:
    before = watch(start(declared("C1")), *rounds(1, 2, 9, summary_depth_max=4), checkpoint(1, {"C1": "verbatim"})).state
    after = watch(round_(1, epoch=1), state=before)
    assert after.last.restarted
    state = after.state
    assert (state.epoch, state.last_round, state.pinned_rounds, state.facts, state.depth_cap) == (1, 1, 0, {}, None)
    assert numbers(after) == [1]
    assert state.counts.gaps == 0, "the rounds of a context that is gone are not missing now"
    assert not state.started


def test_an_epoch_that_has_ended_is_ignored() -> None:
    seen = watch(round_(1, epoch=2), round_(2, epoch=1), start(declared("C1"), epoch=0))
    assert seen.state.counts == Counts(stale_epoch=2)
    assert numbers(seen) == [1]
    assert seen.state.facts == {}


def test_events_without_an_epoch_belong_to_the_one_in_force() -> None:
    seen = watch(start(declared("C1"), epoch=3), checkpoint(1, {"C1": "verbatim"}))
    assert seen.state.epoch == 3
    assert seen.state.facts["C1"].kept_level == 1


def test_a_first_event_with_an_epoch_of_its_own_is_no_restart() -> None:
    assert not watch(round_(1, epoch=4)).last.restarted


def test_gaps_never_outgrow_the_state_however_many_epochs_leap() -> None:
    """2^53 missing rounds in each of 2,000 epochs would be more than a 64-bit number holds."""
    seen = watch(*(round_(number, epoch=epoch) for epoch in range(2000) for number in (1, limits.MAX_COUNT)))
    assert seen.state.counts.gaps == limits.MAX_COUNT - 2


def test_a_doubled_checkpoint_is_told_by_its_event_id() -> None:
    call = checkpoint(1, {"C1": "absent"}, event_id="e1")
    seen = watch(start(declared("C1")), call, call)
    assert seen.last.reasons == ()
    assert seen.state.counts == Counts(duplicates=1)


def test_a_checkpoint_without_an_event_id_is_never_taken_for_another() -> None:
    """Identical content is no duplicate: three equal calls are three calls."""
    call = checkpoint(1, {"C1": "absent"})
    seen = watch(start(declared("C1")), call, call, call)
    assert seen.state.counts == Counts()
    assert "recall-floor" in seen.fired


def test_events_after_the_end_are_counted_and_ignored() -> None:
    seen = watch(round_(1), end(), round_(2, 0.0), checkpoint(1, {}), start(declared("C1")))
    assert seen.state.counts == Counts(after_end=3)
    assert numbers(seen) == [1]
    assert seen.state.facts == {}


def test_a_new_epoch_begins_a_session_that_had_ended() -> None:
    seen = watch(round_(1), end(), start(epoch=1), round_(1, epoch=1))
    assert seen.state.ended_at is None
    assert numbers(seen) == [1]


def test_observing_never_changes_the_state_it_was_given() -> None:
    before = watch(start(declared("C1")), *rounds(1, 2, 4)).state
    for event in (round_(5), round_(3), round_(4, outcome="failed"), checkpoint(1, {}), start(declared("C2"), epoch=1), end()):
        kept = watch(state=before).state.working_copy()
        watch(event, state=before)
        assert kept == before


def test_an_acknowledgement_is_no_measurement() -> None:
    command = Command(
        command_id="c",
        seq=1,
        incident_id="i",
        kind="halt",
        session_id="s1",
        agent_id="a1",
        fleet="f1",
        epoch=0,
        issued_at="",
        expires_at="",
        attempt=1,
        rule="inversion",
        reason="r",
    )
    seen = watch(round_(1), ack(command, "done", raw_tokens_restored=10**9))
    assert seen.last.findings == ()
    assert seen.last.reasons == ()
    assert numbers(seen) == [1]
