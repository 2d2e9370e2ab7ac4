"""What no record can carry is refused where it is said, in one sentence, and nothing of it is sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from leadline.agent import Fact, Ledger, LedgerError, connect
from leadline.errors import LeadlineError
from tests.agent.support import Clock, Sink, session


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"session_id": 5}, "session_id must be a string, not 5"),
        ({"session_id": ""}, "session_id must have 1 to 256 characters, not 0"),
        ({"session_id": "x" * 257}, "session_id must have 1 to 256 characters, not 257"),
        (
            {"session_id": "\ud800"},
            "session_id must be text that can be written as UTF-8, not '\\ud800': it holds half a surrogate pair",
        ),
        ({"agent_id": None}, "agent_id must be a string, not None"),
        ({"fleet": b"f"}, "fleet must be a string, not b'f'"),
        ({"token_budget": 10.5}, "token_budget must be a whole number from 0 to 9007199254740991, not 10.5"),
        ({"token_budget": "10"}, "token_budget must be a whole number from 0 to 9007199254740991, not '10'"),
        ({"token_budget": True}, "token_budget must be a whole number from 0 to 9007199254740991, not True"),
        ({"max_depth": -1}, "max_depth must be a whole number from 0 to 1024, not -1"),
        ({"epoch": 2**60}, f"epoch must be a whole number from 0 to 9007199254740991, not {2**60}"),
        ({"first_round": 0}, "first_round must be a whole number from 1 to 9007199254740991, not 0"),
        ({"fixed_tokens": -1}, "fixed_tokens must be a whole number from 0 to 9007199254740991, not -1"),
        ({"decay": float("nan")}, "decay must be a number from 0 to 1e+09, not nan"),
        ({"eviction": "lru"}, "eviction must be None or 'continuous' or 'overflow', not 'lru'"),
        ({"guard": "loud"}, "guard must be 'off' or 'report' or 'raise', not 'loud'"),
        ({"hold": "always"}, "hold must be 'asynchronous' or 'hold-on-compact', not 'always'"),
        ({"fail_closed": "constraint"}, "fail_closed must be a list of fact classes, not 'constraint'"),
        ({"scorer": "bm25"}, "scorer must be a Scorer, not 'bm25'"),
        ({"facts": ["C1"]}, "facts must be a list of Fact; one of them is 'C1'"),
        ({"facts": [Fact("C1", "x", recall_floor=2.0)]}, "recall_floor of fact 'C1' must be a number from 0 to 1, not 2.0"),
        ({"facts": [Fact("\udfff", "x")]}, "a fact's fact_id must be text that can be written as UTF-8"),
        ({"fact": []}, "a session has no option 'fact'; there are clock, decay, epoch, eviction, facts, fail_closed"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_session_says_at_once_what_is_wrong_with_it(given: dict[str, Any], says: str) -> None:
    sink = Sink()
    with pytest.raises(LeadlineError) as told:
        session(sink, Clock(), **given)
    assert says in str(told.value)
    assert "\n" not in str(told.value)
    assert sink.events == []


@pytest.mark.parametrize(
    ("deed", "says"),
    [
        (lambda one: one.checkpoint("1"), "level must be a whole number from 0 to 1024, not '1'"),
        (lambda one: one.checkpoint(1, text=b"x"), "text must be a string, or None where it is not visible, not bytes"),
        (lambda one: one.checkpoint(1, source_spans=-1), "the summarizer call cannot be reported: "),
        (lambda one: one.checkpoint(1, source_spans="3"), "- at `source_spans`"),
        (lambda one: one.checkpoint(1, stop_reason="\ud800"), "stop_reason holds half a surrogate pair"),
        (lambda one: one.checkpoint(1, unseen_span_ids=["ok", "\ud800"]), "unseen_span_ids.1 holds half a surrogate pair"),
        (lambda one: one.checkpoint(1, statuses={"C1": "gone"}), "Invalid enum value 'gone'"),
        (lambda one: one.compacted(5), "trigger must be a string, not 5"),
        (lambda one: one.compacted("\ud800"), "trigger must be text that can be written as UTF-8"),
        (lambda one: one.compacted(outcome="fine"), "outcome must be 'ok' or 'failed' or 'skipped', not 'fine'"),
        (lambda one: one.compacted(dropped_spans=-2), "dropped_spans must be a whole number from 0"),
        (lambda one: one.declare([Fact("", "x")]), "a fact's fact_id must have 1 to 256 characters, not 0"),
        (lambda one: one.ledger.add_raw("\ud800", 1), "half a surrogate pair"),
        (lambda one: one.ledger.add_raw(5, 1), "an id is a string of 1 to 256 characters, not 5"),
    ],
)
def test_so_does_each_method_and_the_session_goes_on(deed: Callable[[Any], object], says: str) -> None:
    """After the refusal the next round is reported as the first one."""
    sink = Sink()
    one = session(sink)
    one.start()
    with pytest.raises(LeadlineError) as told:
        deed(one)
    assert says in str(told.value)
    assert len(sink.events) == 1
    one.compacted()
    assert [event.round for event in sink.rounds] == [1]


def test_free_text_is_made_fit_instead() -> None:
    """A reason that a model wrote is no id: half a surrogate pair in it is written out, and the drop is reported."""
    sink = Sink()
    one = session(sink)
    one.start()
    one.checkpoint(1, declared_drops={"C1": "done \ud800"}, statuses={"C1": "absent"})
    [drop] = sink.events[-1].declared_drops  # type: ignore[union-attr]
    assert drop.reason == "done \\ud800"


def test_a_ledgers_refusal_is_of_its_own_kind() -> None:
    with pytest.raises(LedgerError, match="surrogate"):
        Ledger().summarize("\udc00", [], 1)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"bootstrap": 9092}, "bootstrap must be a string, not 9092"),
        ({"bootstrap": ""}, "bootstrap must have 1 to 8192 characters, not 0"),
        ({"bootstrap": "127.0.0.1:1", "spool": 5}, "spool must be True, False or a directory, not 5"),
        ({"bootstrap": "127.0.0.1:1", "spool": "a\0b"}, r"spool must be a path without NUL characters, not 'a\\x00b'"),
        ({"bootstrap": "127.0.0.1:1", "spool": "a\ud800"}, "spool must be a path that can be encoded"),
        ({"bootstrap": "127.0.0.1:1", "spool_bytes": 0}, "spool_bytes must be a whole number from 1"),
    ],
)
def test_connecting_says_what_is_wrong(options: dict[str, Any], says: str) -> None:
    with pytest.raises(LeadlineError, match=says):
        connect(**options)
