"""State records written by a newer worker, as an upgrade or a rollback brings them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from leadline.contracts.events import Fact, Summary
from leadline.contracts.session_state import decode_state, encode_state
from leadline.errors import Malformed
from tests.commands.test_incidents import only, sink
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
