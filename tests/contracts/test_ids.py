"""Ids are derived from their cause: stable for ever, and never the same for two causes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from leadline.contracts.ids import command_id, incident_id, state_key, violation_id

parts = st.tuples(
    st.text(max_size=4), st.text(max_size=4), st.integers(0, 12), st.text(max_size=4), st.text(max_size=4), st.text(max_size=4)
)


def test_ids_keep_their_values() -> None:
    """A change would make a replay after an upgrade double every alarm and command."""
    incident = incident_id("s1", "a1", 0, "inversion", "", "r22")
    assert incident == "inc-fb1c96f1cc1a4353595d2619"
    assert violation_id(incident) == "vio-9dda5be7e18f2edadc34a765"
    assert command_id(incident, "halt", 1) == "cmd-960b19b263ae731dc67f8d88"
    assert state_key("s1", "a1") == "2:s1a1"


@given(parts, parts)
def test_two_causes_never_share_an_id(
    one: tuple[str, str, int, str, str, str], other: tuple[str, str, int, str, str, str]
) -> None:
    """Also where the parts would run together into the same text."""
    assert (incident_id(*one) == incident_id(*other)) == (one == other)


def test_parts_do_not_run_together() -> None:
    assert incident_id("ab", "c", 1, "r", "", "x") != incident_id("a", "bc", 1, "r", "", "x")
    assert incident_id("a", "b", 11, "r", "", "x") != incident_id("a", "b", 1, "1r", "", "x")
    assert command_id("i", "halt", 11) != command_id("i", "halt1", 1)


@given(st.text(max_size=6), st.text(max_size=6), st.text(max_size=6), st.text(max_size=6))
def test_two_sessions_never_share_a_state(session: str, agent: str, session2: str, agent2: str) -> None:
    assert (state_key(session, agent) == state_key(session2, agent2)) == ((session, agent) == (session2, agent2))


def test_ids_that_look_like_the_keys_own_marks_stay_apart() -> None:
    assert state_key("1:a", "b") != state_key("1", ":ab")
    assert state_key("s", "1a") != state_key("s1", "a")


def test_attempts_are_different_commands_and_an_incident_has_one_violation() -> None:
    assert len({command_id("inc-1", kind, attempt) for kind in ("halt", "resume") for attempt in (1, 2, 3)}) == 6
    assert violation_id("inc-1") == violation_id("inc-1") != violation_id("inc-2")
