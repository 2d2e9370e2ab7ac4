"""State records written by a newer worker, as an upgrade or a rollback brings them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from leadline.contracts.events import Fact, Summary
from leadline.contracts.session_state import decode_state, encode_state
from leadline.errors import Malformed
from tests.commands.support import only, sink
from tests.support.core import Monitor, checkpoint, start


def full_state() -> dict[str, Any]:
    """A record with something nested in every place: facts, an incident, its command, parameters, a plan, a cause."""
    monitor = Monitor(only("inversion", "recall-floor"))
    monitor.send(start([Fact(fact_id="f1", fact_class="c", recall_floor=1.0)]), checkpoint(1, {"f1": "absent"}))
    plan = [Summary(id="S1", depth=1, tokens=9, fan_out=2, reachable=2)]
    monitor.send(sink(1, 0.26), sink(2, 0.20, 99, 0.51, summaries=plan))
    raw: dict[str, Any] = json.loads(encode_state(monitor.state()))
    assert raw["incidents"][-1]["command"]["parameters"]["plan"]
    return raw


def places(raw: Any, path: str = "") -> list[tuple[str, dict[str, Any]]]:
    """Every object in the record that is a record itself, not a map with free names."""
    found: list[tuple[str, dict[str, Any]]] = []
    if isinstance(raw, dict):
        if not path.endswith(("/facts", "/output_sizes")):
            found.append((path, raw))
        for name, value in raw.items():
            found += places(value, f"{path}/{name}")
    elif isinstance(raw, list):
        for item in raw:
            found += places(item, f"{path}[]")
    return found


def test_a_field_of_a_newer_worker_is_ignored_at_every_depth() -> None:
    raw = full_state()
    plain = decode_state(json.dumps(raw).encode())
    seen = places(raw)
    assert {"", "/facts/f1", "/incidents[]/command/parameters/plan[]", "/incidents[]/cause", "/counts"} >= {
        path for path, _ in seen
    } - {"/incidents[]", "/incidents[]/command", "/incidents[]/command/parameters"}
    for path, place in seen:
        place["newer"] = {"deep": [1]}
        assert decode_state(json.dumps(raw).encode()) == plain, path


@pytest.mark.parametrize("value", [b"", b"null", b"[]", b"{", b'{"schema":"leadline.session/2"}', b"\xff", b'{"session_id":1}'])
def test_what_is_no_state_is_refused_by_one_error(value: bytes) -> None:
    with pytest.raises(Malformed):
        decode_state(value)


RECORDED = (
    b'{"schema":"leadline.session/1","session_id":"session-0000080","agent_id":"agent-80","fleet":"research","offset":6807,'
    b'"last_seen":1794472640000,"started":true,"token_budget":180000,"fixed_tokens":8000,"max_depth":4,"eviction":"continuous",'
    b'"baseline_spans":214,"last_round":22,"seen_mask":4194303,"stalled_rounds":1,"window":[[7,67200,86800,214,0.47844,2],'
    b"[8,64281,103509,213,0.50721,2],[9,67557,92224,215,0.47553,2],[10,66712,90303,213,0.50193,2],[11,69937,90388,212,0.47157,2],"
    b"[12,72275,96408,211,0.4782,2],[13,70888,93514,213,0.48648,2],[14,68296,95691,214,0.47107,2],[15,71477,92309,212,0.50577,2],"
    b"[16,66204,89085,214,0.50496,2],[17,65015,89843,212,0.46971,2],[18,65864,86754,214,0.47867,2],[19,66287,100191,212,0.495,2],"
    b'[20,65565,89025,212,0.5079,2],[21,60499,91939,212,0.49254,2],[22,33391,133565,172,0.68809,3]],"incidents":[{"incident_id":'
    b'"inc-26a4ee76cc389bf3d3a912b9","rule":"inversion","subject":"","mode":"enforce","opened_at":1794472640000,"opened_round":22,'
    b'"opening":[22,33391,133565,172,0.68809,3],"command":{"command_id":"cmd-2bb08dfed97460e8090d7eaf","seq":1,"kind":"halt",'
    b'"stage":"accepted","attempt":1,"issued_at":1794472640000,"deadline":1794472940000,"parameters":{"target_raw_ratio":0.3,'
    b'"target_spans":42,"max_restore_tokens":138609},"reason":"salience inversion: raw ratio 0.20 is below 0.25, source spans '
    b'fell 212 -> 172 while salience rose 0.49 -> 0.69; halt compaction and rehydrate"},"cause":{"event_id":'
    b'"session-0000080/0/22","partition":0,"offset":6806},"traceparent":"00-00000000000000000000000000000051-0000000000000051-01"}],"next_seq":2,'
    b'"opened":1,"traceparent":"00-00000000000000000000000000000051-0000000000000051-01","deadline":1794472940000}'
)
"""Written when a record still held everything that follows from the rest of it: 1,676 bytes."""


def test_a_record_that_says_everything_is_read_and_written_again_in_less() -> None:
    state = decode_state(RECORDED)
    (incident,) = state.incidents
    command = incident.command
    assert command is not None
    assert (incident.subject, incident.mode, incident.opened_round) == ("", "enforce", 22)
    assert (command.command_id, command.kind, command.attempt) == ("cmd-2bb08dfed97460e8090d7eaf", "halt", 1)
    assert command.issued_at == incident.opened_at == 1_794_472_640_000
    again = encode_state(state)
    assert decode_state(again) == state
    assert state.incidents == (incident,)
    assert len(again) <= 1_500


def test_what_does_not_follow_from_the_rest_is_written_as_it_is() -> None:
    """A later attempt at another time, an incident of another trace, one that was opened by what was measured before it."""
    state = decode_state(RECORDED)
    (incident,) = state.incidents
    assert incident.command is not None
    command = replace(incident.command, attempt=2, issued_at=incident.opened_at + 60_000, command_id="cmd-of-another-build")
    state.incidents = (
        replace(
            incident, command=command, traceparent="00-00000000000000000000000000000052-0000000000000052-01", opened_round=23
        ),
        replace(incident, command=None, opening=None, opened_round=0, traceparent="", subject="L2", mode="warn"),
    )
    assert decode_state(encode_state(state)) == state
