"""The examples of docs/agent.md run as they stand there, and what it says of bounds and words is what the code has."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any, get_args

from leadline.agent import Client, GroundedEviction, MemoryTransport, Session, State, presence, sender
from leadline.agent.options import HoldMode, Options

PAGE = (Path(__file__).parents[2] / "docs" / "agent.md").read_text(encoding="utf-8")
CONNECT, ASYNCHRONOUS, GROUNDED = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_connecting_with_a_spool_runs() -> None:
    given: dict[str, Any] = {}

    def connect(bootstrap: str, **options: Any) -> None:
        given.update(options)

    exec(CONNECT, {"connect": connect})
    assert given == {"spool": "/var/lib/agent/spool"}


async def test_the_session_in_an_event_loop_runs() -> None:
    """Both its branches: a pass, and a rehydration with a coroutine function."""
    transport = MemoryTransport()
    async with Client(transport) as client:

        async def restore(span: str) -> int | None:
            return None

        for source in (ASYNCHRONOUS, ASYNCHRONOUS.replace("session.may_compact()", "False")):
            names: dict[str, Any] = {"client": client, "restore": restore}
            exec("async def example():\n" + textwrap.indent(source, "    "), names)
            await names["example"]()
    assert len(transport.records("leadline.events")) == 6


def test_the_planned_eviction_runs() -> None:
    with Client(MemoryTransport()) as client, client.session("s", agent_id="a", token_budget=180_000, max_depth=3) as session:
        exec(GROUNDED, {"GroundedEviction": GroundedEviction, "session": session})


def test_words_and_numbers_are_those_of_the_code() -> None:
    assert {state.value for state in State} == set(
        re.findall(r"`(\w+)`", PAGE.split("`session.state` is ")[1].split(". Take")[0])
    )
    assert {f'hold="{mode}"' for mode in get_args(HoldMode)} <= set(re.findall(r"\| `([^`]+)` \|", PAGE))
    assert {"hold", "hold_seconds", "fail_closed", "on_state", "on_command"} <= set(Options.__annotations__)
    assert f"{sender._SPILL_QUEUED:,} events wait" in PAGE
    assert f"first {presence.GRACE_SECONDS:g} seconds" in PAGE
    assert f"every {sender._BLOCKED_SECONDS:g} seconds" in " ".join(PAGE.split())
    assert all(hasattr(Session, name) for name in set(re.findall(r"`session\.(\w+)", PAGE)))
