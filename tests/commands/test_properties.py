"""What holds of the fold whatever agents send: it never raises, stays bounded, and makes the same ids and states however the
log is cut into batches, replayed or delayed.

The logs are made of few sessions, rounds and levels, so that incidents open, are answered, recover and begin anew; among them
garbage, resent records, leaps in time with ticks, epochs, ends.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st

from leadline.commands.fold import Incoming, fold
from leadline.contracts import ids, limits
from leadline.contracts.codec import decode_event, encode
from leadline.contracts.events import Ack, AckOutcome, Fact, FactState, Policy, Scorer, Summary
from leadline.contracts.ids import state_key
from leadline.contracts.orders import Command, Violation
from leadline.contracts.session_state import SessionState, decode_state, encode_state
from leadline.detection.policy import FleetPolicy
from leadline.detection.policy import Policy as Rules
from leadline.errors import Malformed
from tests.support.core import START, checkpoint, end, round_, start, tick

RULES = Rules(default=FleetPolicy(command_ttl_ms=10_000, effect_ttl_ms=20_000, attempts=2, pin_rounds=2, ended_linger_ms=60_000))
Outputs = list[Violation | Command]


class Era(NamedTuple):
    """Records that a monitor reads at one moment, in a batch or several."""

    now: int
    records: list[Incoming]


class Run(NamedTuple):
    """What came of a log: the outputs in order, the states as they are stored."""

    outputs: Outputs
    states: dict[str, bytes]

    @property
    def ids(self) -> list[str]:
        return [item.violation_id if isinstance(item, Violation) else item.command_id for item in self.outputs]


# Making logs -------------------------------------------------------------------------------------------------------------

GARBAGE: list[bytes | None] = [b"", b"null", b"{}", b"\xff", b"[" * 99, b'{"schema":"leadline.round/9","session_id":"s1"}', None]


class Agents:
    """Agents that sink, recover, answer, fail, restart and babble, all decided by one seed.

    Drawing each choice from Hypothesis would shrink better, and take ten times as long for the same number of logs.
    """

    def __init__(self, seed: int) -> None:
        self.pick = Random(seed)
        self.next_round = {(session, agent): 1 for session in ("s1", "s2") for agent in ("a1", "a2")}
        self.epoch = dict.fromkeys(self.next_round, 0)

    def event(self) -> msgspec.Struct | bytes | None:
        pick = self.pick
        session, agent = pick.choice([("s1", "a1"), ("s1", "a1"), ("s1", "a1"), ("s1", "a2"), ("s2", "a1")])
        if pick.random() < 0.02:
            self.epoch[session, agent] += 1
            self.next_round[session, agent] = 1
        who: dict[str, Any] = {"session_id": session, "agent_id": agent, "epoch": self.epoch[session, agent]}
        if pick.random() < 0.02:
            who["epoch"] = pick.randint(0, 3)
        make = pick.choices(
            [self.round, self.checkpoint, self.ack, self.start, self.tick, self.end, self.garbage], [40, 15, 25, 4, 8, 1, 4]
        )[0]
        return make(who)

    def round(self, who: dict[str, Any]) -> msgspec.Struct:
        pick, key = self.pick, (who["session_id"], who["agent_id"])
        number = self.next_round[key]
        self.next_round[key] = number + pick.choice([1, 1, 1, 1, 2, 3])
        if pick.random() < 0.15:
            number = max(0, number - pick.randint(0, 70))
        tokens = {"raw_tokens": 0, "summary_tokens": 0} if pick.random() < 0.03 else {}
        return round_(
            number,
            pick.choice([0.0, 0.1, 0.2, 0.24, 0.26, 0.3, 0.35, 0.6]),
            **{
                "distinct_source_spans": pick.choice([0, 10, 41, 42, 51, 80, 100, 150]),
                "query_cosine_retained": pick.choice([None, 0.1, 0.3, 0.5, 0.7]),
                "summary_depth_max": pick.choice([1, 2, 3, 3, 3]),
                "max_depth": 3,
                "outcome": pick.choices(["ok", "failed", "skipped"], [8, 1, 1])[0],
                "ungrounded_summaries": pick.choice([None, None, 0, 1]),
                "summaries": pick.choice([None, [Summary(id="n1", depth=1, tokens=9, fan_out=2, reachable=1)]]),
            }
            | tokens
            | who,
        )

    def checkpoint(self, who: dict[str, Any]) -> msgspec.Struct:
        pick = self.pick
        known: list[FactState] = ["verbatim", "abstracted", "absent", "unknown"]
        facts = {name: pick.choice(known) for name in pick.sample(["C1", "C2", "C3", "T1"], pick.randint(0, 4))}
        return checkpoint(
            pick.randint(1, 3),
            pick.choice([None, facts, facts]),
            pick.choice([[], [], [], ["C3"]]),
            **{
                "seen_spans": pick.choice([None, 10, 40, 40]),
                "stop_reason": pick.choice([None, "stop", "length"]),
                "output_tokens": pick.choice([None, 0, 300, 512]),
                "output_cap": 512,
                "summary_visible": pick.random() < 0.9,
                "event_id": pick.choice(["", f"e{pick.getrandbits(40)}"]),
            }
            | who,
        )

    def ack(self, who: dict[str, Any]) -> msgspec.Struct:
        """Command ids follow from their cause, so that an answer can be made up before the monitor has asked."""
        pick = self.pick
        rule = pick.choice(["inversion", "provenance-floor", "depth-pin"])
        last = self.next_round[who["session_id"], who["agent_id"]]
        opened_by = f"r{max(1, last - pick.randint(1, 4))}"
        incident = ids.incident_id(who["session_id"], who["agent_id"], who["epoch"], rule, "", opened_by)
        kind = pick.choice(["cap-depth", "resume"]) if rule == "depth-pin" else pick.choice(["halt", "resume"])
        outcome: AckOutcome = pick.choice(["accepted", "accepted", "done", "refused", "expired"])
        return Ack(command_id=ids.command_id(incident, kind, pick.randint(1, 2)), seq=1, outcome=outcome, **who)

    def start(self, who: dict[str, Any]) -> msgspec.Struct:
        pick = self.pick
        facts = [Fact(fact_id=name, fact_class=name[0], supersedes=pick.choice(["", "C1"])) for name in ("C1", "C2", "T1")]
        stated = pick.choices([Policy(), Policy(eviction="overflow"), Policy(scorer=Scorer(penalizes_depth=True))], [8, 1, 1])[0]
        return start(facts, policy=stated, **who)

    def tick(self, who: dict[str, Any]) -> msgspec.Struct:
        return tick(session_id=who["session_id"], agent_id=who["agent_id"])

    def end(self, who: dict[str, Any]) -> msgspec.Struct:
        return end(**who)

    def garbage(self, who: dict[str, Any]) -> bytes | None:
        return self.pick.choice(GARBAGE)


def log_of(seed: int) -> list[Era]:
    """A log of one to five eras, some 100 records. Some are resent, as by an agent that got no confirmation."""
    agents = Agents(seed)
    pick = agents.pick
    eras: list[Era] = []
    now, offset, sent = START, 0, list[tuple[bytes, bytes | None]]()
    for _ in range(pick.randint(1, 5)):
        records = []
        for _ in range(pick.randint(0, 45)):
            event = agents.event()
            if isinstance(event, msgspec.Struct):
                value: bytes | None = encode(event)
                key = str(getattr(event, "session_id", "")).encode()
            else:
                key, value = b"s1", event
            if sent and pick.random() < 0.1:
                key, value = pick.choice(sent[-8:])
            sent.append((key, value))
            records.append(Incoming(key, value, 0, offset, now))
            offset += pick.randint(1, 2)
        eras.append(Era(now, records))
        now += pick.choice([1000, 10_000, 15_000, 30_000, 100_000])
    return eras


logs = st.integers(0, 2**64 - 1).map(log_of)


# Running them ------------------------------------------------------------------------------------------------------------


def play(eras: list[Era], cut: Callable[[list[Incoming]], list[list[Incoming]]] = lambda records: [records]) -> Run:
    """Every era in the batches that ``cut`` makes of it; states encoded and decoded between two batches."""
    outputs: Outputs = []
    states: dict[str, bytes] = {}
    for era in eras:
        for batch in cut(era.records):
            read(batch, era.now, states, outputs)
    return Run(outputs, states)


def read(batch: list[Incoming], now: int, states: dict[str, bytes], outputs: Outputs) -> None:
    folded = fold(batch, lambda key: decode_state(states[key]) if key in states else None, RULES, now)
    assert folded.failures == {}, "a rule raised"
    outputs += folded.outputs
    for key, state in folded.states.items():
        if state is None:
            states.pop(key, None)
        else:
            states[key] = encode_state(state)


def singly(records: list[Incoming]) -> list[list[Incoming]]:
    return [[record] for record in records]


def test_the_logs_are_worth_looking_at() -> None:
    """Among a hundred of them everything happens that the properties are about."""
    seen: set[str] = set()
    for seed in range(120):
        for item in play(log_of(seed)).outputs:
            seen.add(f"{item.rule}!" if isinstance(item, Violation) else f"{item.kind}#{item.attempt}")
    assert seen >= {"inversion!", "provenance-floor!", "depth-pin!", "drift!", "budget-open!", "recall-floor!", "unheeded!"}
    assert seen >= {f"{kind}#1" for kind in ("halt", "cap-depth", "retry-level", "stop-agent", "resume")}
    assert seen >= {f"{kind}#2" for kind in ("halt", "cap-depth", "retry-level", "resume")}


# What holds --------------------------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(logs)
def test_nothing_that_is_sent_raises_and_every_record_is_accounted_for(eras: list[Era]) -> None:
    states: dict[str, SessionState | None] = {}
    for era in eras:
        folded = fold(era.records, states.get, RULES, era.now)
        states |= folded.states
        assert len(folded.dead_letters) + sum(folded.ignored.values()) <= len(era.records)
        for key, state in folded.states.items():
            assert state is None or state_key(state.session_id, state.agent_id) == key


@settings(max_examples=60)
@given(logs, st.integers(1, 5))
def test_however_a_log_is_cut_into_batches_the_outputs_and_states_are_the_same(eras: list[Era], size: int) -> None:
    """Also the order of the outputs, and every byte of them."""
    whole = play(eras)
    assert play(eras, singly) == whole
    assert play(eras, lambda records: [records[at : at + size] for at in range(0, len(records), size)]) == whole


@settings(max_examples=60)
@given(logs, st.data())
def test_replaying_what_was_applied_sends_nothing_new(eras: list[Era], data: st.DataObject) -> None:
    """Killed after the state was written and before the offset was committed: a suffix comes again, once or twice.

    Within an era no session is removed for its age, so each that was touched is still there to know its offset.
    """
    plain = play(eras)
    outputs: Outputs = []
    states: dict[str, bytes] = {}
    for era in eras:
        read(era.records, era.now, states, outputs)
        again = era.records[data.draw(st.integers(0, len(era.records))) :]
        kept = [record for record in again if _state_of(record) in states]
        read(kept, era.now, states, outputs)
    replayed = Run(outputs, states)
    assert replayed.ids == plain.ids
    assert replayed.states == plain.states


def _state_of(record: Incoming) -> str:
    try:
        event = decode_event(record.value).event
    except Malformed:
        return ""
    return state_key(event.session_id, event.agent_id)


@settings(max_examples=60)
@given(logs, st.data())
def test_killed_before_the_state_was_written_the_set_of_ids_is_the_same(eras: list[Era], data: st.DataObject) -> None:
    """Outputs of a batch went out, its state did not: the batch comes again and says the same."""
    plain = play(eras)
    outputs: Outputs = []
    states: dict[str, bytes] = {}
    for era in eras:
        if data.draw(st.booleans()):
            lost = dict(states)
            read(era.records[: data.draw(st.integers(0, len(era.records)))], era.now, lost, outputs)
        read(era.records, era.now, states, outputs)
    assert set(Run(outputs, states).ids) == set(plain.ids)
    assert states == plain.states


@settings(max_examples=40)
@given(logs, st.integers(1, 10**9))
def test_ids_never_depend_on_the_time(eras: list[Era], shift: int) -> None:
    later = [Era(era.now + shift, [record._replace(timestamp=era.now + shift) for record in era.records]) for era in eras]
    assert play(later).ids == play(eras).ids


@settings(max_examples=60)
@given(logs)
def test_each_incident_has_one_violation_and_each_session_counts_its_commands(eras: list[Era]) -> None:
    """``seq`` rises strictly in a session; no command id comes twice; each resume ends a command that was sent before."""
    run = play(eras)
    removed = removed_states(eras)
    violations = [item for item in run.outputs if isinstance(item, Violation)]
    commands = [item for item in run.outputs if isinstance(item, Command)]
    if removed:
        return  # A session that begins anew under the same epoch has the same ids again.
    assert len({item.incident_id for item in violations}) == len({item.violation_id for item in violations}) == len(violations)
    assert len({item.command_id for item in commands}) == len(commands)
    assert all(item.violation_id == ids.violation_id(item.incident_id) for item in violations)
    last: dict[str, int] = {}
    for command in commands:
        key = state_key(command.session_id, command.agent_id)
        assert command.command_id == ids.command_id(command.incident_id, command.kind, command.attempt)
        assert command.seq == last.get(key, 0) + 1
        last[key] = command.seq
        assert command.incident_id in {item.incident_id for item in violations}
        if command.kind == "resume":
            assert command.parameters.releases in {item.command_id for item in commands}


def removed_states(eras: list[Era]) -> bool:
    states: dict[str, SessionState | None] = {}
    gone = False
    for era in eras:
        for record in era.records:
            folded = fold([record], states.get, RULES, era.now)
            states |= folded.states
            gone = gone or None in folded.states.values()
    return gone


huge = st.text(st.characters(exclude_categories=["Cs"]), min_size=200, max_size=256)


@settings(max_examples=6)
@given(logs, st.lists(huge, min_size=1, max_size=8), st.integers(1, 60))
@example([Era(START, [])], ["\x01" * 250], 70)
def test_a_state_stays_bounded_whatever_is_sent(eras: list[Era], texts: list[str], many: int) -> None:
    """Also with many levels, facts and event ids of the greatest length."""
    facts = [Fact(fact_id=f"{n}{texts[n % len(texts)]}"[:256], fact_class=texts[-1][:256]) for n in range(min(many, 90))]
    floods: list[Any] = [start(facts)]
    for n in range(many):
        name = f"{n}{texts[n % len(texts)]}"[:256]
        floods += [checkpoint(many - n, {}, event_id=name, seen_spans=n % 40), round_(n + 1, 0.2, event_id=name)]
    offset = 10**6
    now = eras[-1].now
    records = [Incoming(b"s1", encode(event), 0, offset + n, now) for n, event in enumerate(floods)]
    late = [Incoming(b"s1", encode(tick()), 0, offset + 10**6 + n, now + 20_000 * n) for n in range(4)]
    run = play([*eras, Era(now, records), *(Era(record.timestamp, [record]) for record in late)])
    for value in run.states.values():
        assert len(value) < 1_000_000
        state = decode_state(value)
        assert len(state.window) <= limits.WINDOW_ROUNDS
        assert len(state.facts) <= limits.MAX_KEPT_FACTS
        assert len([item for item in state.incidents if item.rule != "unheeded"]) <= limits.MAX_OPEN_INCIDENTS
        assert len(state.incidents) <= 3 * limits.MAX_OPEN_INCIDENTS
        assert len(state.recent_events) <= limits.RECENT_EVENTS
        assert [entry.round for entry in state.window] == sorted({entry.round for entry in state.window})
        assert encode_state(state) == value
    assert all(len(encode(item)) < 200_000 for item in run.outputs)
