"""What a session does until the monitor has spoken, and when it is not there; and the same in an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from leadline.agent import AsyncSession, Client, Fact, MemoryTransport, Monitor, Session, State
from leadline.agent.presence import GRACE_SECONDS, Presence, Verdict
from leadline.contracts.codec import decode_event, encode
from leadline.contracts.events import Ack, Round
from leadline.contracts.orders import Heartbeat
from leadline.contracts.times import format_ms
from leadline.errors import SessionHalted
from tests.agent.support import command, compact, eventually

EVENTS, COMMANDS = "leadline.events", "leadline.commands"
AGENT: dict[str, Any] = {"agent_id": "a-1", "token_budget": 10_000, "max_depth": 3, "epoch": 7}
CONSTRAINT = Fact("C1", "never rotate the key", fact_class="constraint")


class Other:
    """The monitor's side of the wire, in one partition."""

    def __init__(self) -> None:
        self.transport = MemoryTransport(partitions=1)
        self.client = Client(self.transport)
        self.clock = 0.0
        self.client.listener.presence._now = lambda: self.clock

    def beat(self, through: int, every_ms: int = 5_000) -> None:
        beat = Heartbeat(partition=0, at=format_ms(0), every_ms=every_ms, through=through)
        heard = self.client.listener.heard().heartbeats
        self.transport.send(COMMANDS, b"", encode(beat), partition=0)
        eventually(lambda: self.client.listener.heard().heartbeats > heard, "the heartbeat is heard")

    def say(self, value: bytes) -> None:
        self.transport.send(COMMANDS, b"s-1", value, partition=0)

    def rounds(self) -> int:
        """Offset past the last round, 0 while there is none."""
        records = self.transport.records(EVENTS)
        return max((r.offset + 1 for r in records if isinstance(decode_event(r.value).event, Round)), default=0)


@pytest.fixture
def other() -> Iterator[Other]:
    made = Other()
    yield made
    made.client.close(1.0)


def halt() -> bytes:
    return encode(command(1, expires_at=4_000_000_000_000))


def violate(one: Session | AsyncSession) -> None:
    """Ten spans become a summary of a summary, and their texts are gone: below any floor."""
    spans = compact(one.session if isinstance(one, AsyncSession) else one, leaves=10)
    one.ledger.evict(spans)


def once_reported(other: Other, then: Callable[[], None]) -> threading.Thread:
    def work() -> None:
        eventually(lambda: other.rounds() > 0, "the round")
        then()

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_a_violating_pass_waits_for_the_halt(other: Other) -> None:
    """It returns with the halt in force, long before the bound."""
    with other.client.session("s-1", **AGENT, hold="hold-on-compact", hold_seconds=3_000) as one:
        violate(one)
        thread = once_reported(other, lambda: other.say(halt()))
        one.compacted()
        assert one.state is State.HALTED
        assert one.warnings
        thread.join()


def test_it_waits_no_longer_than_until_the_monitor_has_judged_it(other: Other) -> None:
    """Its heartbeat passes the round's offset without a command: go on."""
    with other.client.session("s-1", **AGENT, hold="hold-on-compact", hold_seconds=3_000, fail_closed=["*"]) as one:
        violate(one)
        thread = once_reported(other, lambda: other.beat(through=other.rounds()))
        one.compacted()
        assert one.may_compact()
        assert one.monitor is Monitor.THERE
        thread.join()


def test_a_pass_that_the_guard_lets_through_waits_for_nobody(other: Other) -> None:
    """So does a violating one where the mode is asynchronous, which it is unless asked otherwise."""
    with other.client.session("s-1", **AGENT, hold="hold-on-compact", hold_seconds=3_000) as one:
        one.ledger.add_raw("m", 100)
        one.compacted()
    with other.client.session("s-2", **AGENT, hold_seconds=3_000) as one:
        violate(one)
        one.compacted()
        assert one.may_compact()


@pytest.mark.parametrize(
    ("fail_closed", "facts", "state"),
    [
        ([], [CONSTRAINT], State.RUNNING),
        (["decision"], [CONSTRAINT], State.RUNNING),
        (["constraint"], [], State.RUNNING),
        (["constraint", "decision"], [CONSTRAINT], State.HELD),
        (["*"], [], State.HELD),
    ],
)
def test_where_nobody_answers_the_classes_that_fail_closed_are_held(
    other: Other, fail_closed: list[str], facts: list[Fact], state: State
) -> None:
    """A bound of no time at all. Held sessions may go on once the monitor has judged the round after all."""
    options: dict[str, Any] = {"hold": "hold-on-compact", "hold_seconds": 0, "fail_closed": fail_closed, "facts": facts}
    with other.client.session("s-1", **AGENT, **options) as one:
        violate(one)
        one.compacted()
        assert one.state is state
        assert one.may_compact() == (state is State.RUNNING)
        if state is State.HELD:
            assert "has not judged what the guard found" in one.held
            with pytest.raises(SessionHalted, match="fails closed"):
                one.raise_if_halted()
            eventually(lambda: other.rounds() > 0)
            other.beat(through=other.rounds())
            assert one.may_compact()


def test_a_later_pass_that_the_guard_lets_through_ends_the_hold(other: Other) -> None:
    """Here after a rehydration."""
    options: dict[str, Any] = {"hold": "hold-on-compact", "hold_seconds": 0, "fail_closed": ["*"]}
    with other.client.session("s-1", **AGENT, **options) as one:
        violate(one)
        one.compacted()
        assert not one.may_compact()
        one.rehydrate(lambda span: 100)
        assert one.may_compact()


def test_without_a_monitor_nothing_is_compacted_for_classes_that_fail_closed(other: Other) -> None:
    """Unknown at first, which is no reason to stop; away after 15 seconds without a heartbeat, or three missed ones; back
    with the next. Other sessions go on."""
    with (
        other.client.session("s-1", **AGENT, facts=[CONSTRAINT], fail_closed=["constraint"]) as one,
        other.client.session("s-2", **AGENT, fail_closed=["constraint"]) as free,
    ):
        assert (one.monitor, one.may_compact()) == (Monitor.UNKNOWN, True)
        other.clock = GRACE_SECONDS + 1
        assert (one.monitor, one.may_compact(), one.state) == (Monitor.AWAY, False, State.HELD)
        assert one.held == "no monitor is heard, and the fact class 'constraint' fails closed"
        assert free.may_compact()
        eventually(lambda: bool(other.client.listener.positions), "the partition")
        other.beat(0, every_ms=20_000)
        eventually(lambda: one.monitor is Monitor.THERE, "its events are placed")
        assert one.may_compact()
        other.clock += 60
        assert one.may_compact()
        other.clock += 1
        assert not one.may_compact()


def test_a_session_that_asked_for_nothing_follows_nobody(other: Other) -> None:
    with other.client.session("s-1", **AGENT, facts=[CONSTRAINT]) as one:
        other.clock = 1e9
        assert (one.monitor, one.held, one.state) == (Monitor.UNKNOWN, "", State.RUNNING)


def test_a_change_of_state_is_told_once(other: Other) -> None:
    """By a callback; one that fails costs nothing. The halt is seen at the look that follows it, its release likewise."""
    seen: list[tuple[State, State]] = []

    def changed(before: State, after: State) -> None:
        seen.append((before, after))
        raise RuntimeError("the agent's own fault")

    with other.client.session("s-1", **AGENT, on_state=changed) as one:
        eventually(lambda: bool(other.client.listener.positions), "the partition")
        other.say(halt())
        eventually(lambda: not one.may_compact(), "the halt")
        assert not one.may_compact()
        other.say(encode(command(2, "resume", expires_at=4_000_000_000_000)))
        eventually(one.may_compact, "the release")
    assert seen == [(State.RUNNING, State.HALTED), (State.HALTED, State.RUNNING)]


def test_what_a_new_worker_does_not_know_takes_nothing_back() -> None:
    """A partition changes hands: its first heartbeats say -1, and what was judged before stays judged."""
    presence = Presence()
    presence.follow("s")
    presence.placed("s", "r-1", 0, 10)
    assert not presence.judged("s", "r-1")
    for through, judged in ((10, False), (11, True), (-1, True)):
        presence.heard(0, Heartbeat(partition=0, at="", every_ms=5_000, through=through))
        assert presence.judged("s", "r-1") is judged
    assert presence.wait("s", "r-1", lambda: False, 0) is Verdict.CLEAR
    assert presence.wait("s", "r-2", lambda: True, 0) is Verdict.COMMANDED
    assert presence.wait("s", "r-2", lambda: False, 0) is Verdict.SILENT


# -- in an event loop


async def test_the_loop_goes_on_while_a_session_waits(other: Other) -> None:
    """Another coroutine is the monitor: were the loop blocked, the halt would never be sent."""

    async def monitor() -> None:
        while not other.rounds():
            await asyncio.sleep(0.005)
        other.say(halt())

    async with other.client.async_session("s-1", **AGENT, hold="hold-on-compact", hold_seconds=3_000) as one:
        violate(one)
        speaking = asyncio.create_task(monitor())
        async with one.compaction():
            pass
        assert one.state is State.HALTED
        await speaking
    assert await other.client.flush_async(5) == 0


async def test_spans_are_restored_by_coroutines_of_the_agents_own_loop(other: Other) -> None:
    """A halt asks for the raw ratio 0.3; the restore callback awaits something that only this loop can do."""
    async with other.client.async_session("s-1", **AGENT) as one:
        archive = compact(one.session)
        loop = asyncio.get_running_loop()

        async def restore(span: str) -> int | None:
            await asyncio.sleep(0)
            assert asyncio.get_running_loop() is loop
            return archive.get(span)

        done = await one.rehydrate(restore, to_raw_ratio=0.3)
        assert sorted(done.restored) == sorted(archive)
        assert done.reached
        plain = await one.rehydrate(archive.get, to_raw_ratio=0.3)
        assert plain.restored == ()


async def test_a_cancelled_rehydration_brings_back_no_further_span_and_reports_what_it_did(other: Other) -> None:
    async with other.client.async_session("s-1", **AGENT) as one:
        compact(one.session)
        first = asyncio.Event()
        asked: list[str] = []

        async def restore(span: str) -> int | None:
            asked.append(span)
            first.set()
            await asyncio.sleep(0.01)
            return 100

        work = asyncio.create_task(one.rehydrate(restore, to_raw_ratio=0.9))
        await first.wait()
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        assert len(asked) == 1
        assert one.ledger.carried(asked[0])
    await other.client.flush_async(5)
    triggers = [e.trigger for r in other.transport.records(EVENTS) if isinstance(e := decode_event(r.value).event, Round)]
    assert triggers == ["rehydrate"]


async def test_a_failed_pass_is_reported_as_failed_and_its_error_goes_on(other: Other) -> None:
    async with other.client.async_session("s-1", **AGENT) as one:
        one.ledger.add_raw("m", 100)
        with pytest.raises(KeyError):
            async with one.compaction():
                raise KeyError("m")
        assert await one.checkpoint(1, text="summary") == {}
        assert (await one.compacted()).raw_tokens == 100
    await other.client.flush_async(5)
    outcomes = [e.outcome for r in other.transport.records(EVENTS) if isinstance(e := decode_event(r.value).event, Round)]
    assert outcomes == ["failed", "ok"]


async def test_a_client_is_an_asynchronous_context_too() -> None:
    transport = MemoryTransport()
    async with Client(transport) as client:
        client.emitter.emit(Ack(session_id="s", agent_id="a", command_id="c", seq=1, outcome="done"))
    assert len(transport.records(EVENTS)) == 1
