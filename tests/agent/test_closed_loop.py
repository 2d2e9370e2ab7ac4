"""The SDK and the monitor's own decisions face to face: no broker, a clock moved by hand."""

from __future__ import annotations

from leadline.agent import Fact, Session, State
from leadline.lab.replay import ReplayDriver
from tests.agent.support import START, Clock, Sink, session


class Loop(Sink):
    """Feeds what the session emits to the monitor's fold, and its commands back to the session."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock
        self.driver = ReplayDriver(start=START)
        self.sent = self.heard = 0

    def turn(self, one: Session) -> None:
        """Carry events and commands to and fro until there are none under way; a second passes."""
        self.clock.now += 1_000
        while self.sent < len(self.events) or self.heard < len(self.driver.commands):
            for event in self.events[self.sent :]:
                self.sent += 1
                self.driver.feed(event, at=self.clock.now)
            for given in self.driver.commands[self.heard :]:
                self.heard += 1
                one.receive(given)

    @property
    def kinds(self) -> list[str]:
        return [given.kind for given in self.driver.commands]

    @property
    def open_incidents(self) -> list[str]:
        return [incident.rule for state in self.driver.states.values() for incident in state.incidents]


def test_an_inversion_is_halted_rehydrated_and_resumed() -> None:
    """Summaries of summaries grow more salient while their sources are dropped. The monitor halts the session once; it
    rehydrates from its archive; the next measurements end the incident, and the resume lets it compact again."""
    clock = Clock()
    loop = Loop(clock)
    archive: dict[str, int] = {}
    with session(loop, clock, token_budget=4_000, eviction="continuous") as one:
        for n in range(30):
            one.ledger.add_raw(f"m{n}", 100, 0.3)
            archive[f"m{n}"] = 100
        one.compacted("start")
        below: list[str] = list(archive)
        for number in range(1, 12):
            loop.turn(one)
            if not one.may_compact():
                break
            with one.compaction("budget"):
                one.ledger.summarize(f"S{number}", below, 300, 0.3 + 0.05 * number)
                one.ledger.evict(below, archived=True)
                # The oldest three sources are dropped for good: as far as the agent's own compaction knows.
                one.ledger.evict([f"m{n}" for n in range(3 * number - 3, 3 * number)])
                one.ledger.add_raw(f"new{number}", 60, 0.3)
                archive[f"new{number}"] = 60
            below = [f"S{number}", f"new{number}"]
        assert loop.kinds == ["halt"]
        assert one.state is State.HALTED
        done = one.rehydrate(archive.get)
        assert done.reached
        loop.turn(one)
        assert loop.kinds == ["halt", "resume"]
        assert one.may_compact()
        loop.turn(one)
        assert loop.open_incidents == []
    loop.turn(one)
    assert [violation.rule for violation in loop.driver.violations] == ["inversion"]
    assert loop.driver.dead_letters == []


def test_a_lost_constraint_is_retried_and_kept() -> None:
    """The first summary drops the constraint; the monitor asks for the level again, naming it; the second one keeps it."""
    clock = Clock()
    loop = Loop(clock)
    facts = [Fact("c1", "never rotate the credential", anchors=("rotat*", "credential"), fact_class="constraint")]
    with session(loop, clock, facts=facts) as one:
        one.checkpoint(1, text="All went well.")
        loop.turn(one)
        [asked] = one.poll()
        assert (asked.kind, asked.parameters.level, asked.parameters.facts) == ("retry-level", 1, ["c1"])
        one.checkpoint(1, text="All went well. Do not rotate the credential.")
        loop.turn(one)
        one.poll()
        loop.turn(one)
        assert loop.open_incidents == []
        assert one.pending == ()
    assert loop.driver.dead_letters == []


def test_a_truncated_level_is_retried_halted_and_released_by_the_calls_that_name_their_command() -> None:
    """Half of level 1's input is unread; the retry fails in the same way, so the session is halted but for that level; the next
    retry reads everything. Clean calls over other, smaller input in between release nothing."""
    clock = Clock()
    loop = Loop(clock)
    with session(loop, clock) as one:
        one.checkpoint(1, declared_input_tokens=1_000, consumed_input_tokens=500)
        loop.turn(one)
        one.checkpoint(1, declared_input_tokens=200, consumed_input_tokens=200)
        loop.turn(one)
        assert loop.kinds == ["retry-level"], "the call before the agent looked was an ordinary one"
        assert [asked.kind for asked in one.retries] == ["retry-level"]
        one.checkpoint(1, declared_input_tokens=1_000, consumed_input_tokens=500)
        loop.turn(one)
        assert loop.kinds == ["retry-level", "halt"]
        assert not one.may_compact()
        assert one.may_summarize(1)
        assert [asked.kind for asked in one.retries] == ["halt"]
        one.checkpoint(1, declared_input_tokens=1_000, consumed_input_tokens=1_000)
        loop.turn(one)
        assert loop.kinds[-1] == "resume"
        assert one.may_compact()
        loop.turn(one)
        assert loop.open_incidents == []
    assert loop.driver.dead_letters == []


def test_a_floor_that_is_breached_on_a_full_budget_is_repaired() -> None:
    """The budget of 1,000 is full of three large results, one of them twice, and a summary that points at one span of twenty. The
    halt is served out of what can be spared, and released."""
    clock = Clock()
    loop = Loop(clock)
    with session(loop, clock, token_budget=1_000) as one:
        spans = [f"m{n}" for n in range(20)]
        for name in spans:
            one.ledger.add_raw(name, 50, 0.3)
        one.compacted("start")
        loop.turn(one)
        one.ledger.summarize("S1", spans[:1], 60, 0.5)
        one.ledger.summarize("S2", ["S1"], 40, 0.6)
        one.ledger.evict([*spans, "S1"])
        one.ledger.add_raw("large", 480, 0.4)
        one.ledger.add_raw("large again", 480, 0.4, copy_of="large")
        one.compacted()
        loop.turn(one)
        assert "provenance-floor" in {violation.rule for violation in loop.driver.violations}
        done = one.rehydrate(lambda span: 50)
        assert done.reached
        assert done.after.total_tokens <= 1_000
        for _ in range(6):
            loop.turn(one)
            if one.may_compact():
                break
            one.compacted("hold")
        assert one.may_compact()
        assert "stop-agent" not in loop.kinds
    assert loop.driver.dead_letters == []
