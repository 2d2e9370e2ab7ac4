"""Claude Code's hooks over a transport in memory: each call is a process of its own, as far as the hook can tell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from leadline.agent import Client, Fact, MemoryTransport
from leadline.agent.adapters.claude_code_hook import ClaudeCodeHook, Limits, read_facts
from leadline.cli.hook import _due
from leadline.contracts.codec import decode_event, encode
from leadline.contracts.events import Ack, AgentEvent, Round, SessionEnd
from leadline.contracts.topics import COMMANDS, EVENTS
from tests.agent.adapters.claude_code.recording import SESSION, Recording, compacted
from tests.agent.support import command

FACTS = (Fact("c1", "never rotate the credential", fact_class="constraint"),)


class Desk:
    """A machine on which Claude Code runs, and the monitor's side of the wire."""

    def __init__(self, folder: Path, made: Recording) -> None:
        self.transport = MemoryTransport(1)
        self.made = made
        self.transcript = folder / "transcript.jsonl"
        self.memory = folder / "state" / "memory.json"
        self.now = 1_793_600_000_000
        self.connections = 0
        self.limits = Limits(wait_s=0.0)

    def connect(self) -> Client:
        self.connections += 1
        return Client(self.transport)

    def fire(self, event: str, **given: Any) -> dict[str, Any] | None:
        self.transcript.write_text(self.made.text)
        said = {"session_id": SESSION, "transcript_path": str(self.transcript), "cwd": "/", "hook_event_name": event, **given}
        hook = ClaudeCodeHook(self.connect, self.memory, facts=FACTS, limits=self.limits, now=lambda: self.now)
        return hook.run(said)

    @property
    def events(self) -> list[AgentEvent]:
        return [decode_event(record.value or b"").event for record in self.transport.records(EVENTS.name)]  # type: ignore[misc]

    @property
    def rounds(self) -> list[Round]:
        return [event for event in self.events if isinstance(event, Round)]

    def order(self, kind: Any = "halt", seq: int = 1, **parameters: Any) -> None:
        epoch = self.events[0].epoch
        assert epoch is not None
        given = command(
            seq, kind, session_id=SESSION, agent_id="claude-code", epoch=epoch, expires_at=4_000_000_000_000, **parameters
        )
        self.transport.send(COMMANDS.name, SESSION.encode(), encode(given), partition=0)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path, compacted())


def halted(desk: Desk, **parameters: Any) -> None:
    desk.fire("PostCompact", trigger="auto")
    desk.order(**parameters)
    desk.limits = Limits(wait_s=0.5)


def test_what_was_compacted_is_reported_once(desk: Desk) -> None:
    """Whichever hook comes first tells it; the next tells only what is new, and the session's start again, as the same event."""
    assert desk.fire("PostCompact", trigger="auto") is None
    desk.fire("SessionStart", source="compact")
    assert [done.round for done in desk.rounds] == [1]
    more = compacted(2)
    desk.made = more
    desk.fire("PreCompact", trigger="auto")
    assert [done.round for done in desk.rounds] == [1, 2]
    starts = [event.event_id for event in desk.events if type(event).__name__ == "SessionStart"]
    assert set(starts) == {starts[0]}


def test_an_automatic_compaction_is_blocked_on_a_halt_and_one_that_a_person_asks_for_is_not(desk: Desk) -> None:
    halted(desk, level=9)
    answer = desk.fire("PreCompact", trigger="auto")
    assert answer is not None
    assert answer["decision"] == "block"
    assert "inversion" in answer["reason"]
    assert desk.fire("PreCompact", trigger="manual") is None
    first = next(event for event in desk.events if isinstance(event, Ack))
    assert (first.command_id, first.outcome) == ("cmd-1", "accepted")
    assert [(done.round, done.trigger) for done in desk.rounds] == [(1, "auto"), (2, "hold")]


def test_a_block_is_remembered_without_the_command_and_ends_with_its_release(desk: Desk) -> None:
    halted(desk, level=9)
    assert desk.fire("PreCompact", trigger="auto") is not None
    desk.transport._logs.pop(COMMANDS.name)
    assert desk.fire("PreCompact", trigger="auto") is not None
    desk.order("resume", seq=2)
    assert desk.fire("PreCompact", trigger="auto") is None
    assert desk.fire("PreCompact", trigger="auto") is None


def test_blocking_ends_after_so_many_times(desk: Desk) -> None:
    """At the limit of the window a block is a deadlock: the fourth is let through; after that compaction three more."""
    halted(desk, level=9)
    assert [desk.fire("PreCompact", trigger="auto") is not None for _ in range(5)] == [True, True, True, False, False]
    desk.made = compacted(2)
    desk.fire("PostCompact", trigger="auto")
    assert desk.fire("PreCompact", trigger="auto") is not None


def test_blocking_ends_after_a_while(desk: Desk) -> None:
    halted(desk, level=9)
    assert desk.fire("PreCompact", trigger="auto") is not None
    desk.now += 900_000
    assert desk.fire("PreCompact", trigger="auto") is None


def test_what_a_halt_asks_for_is_put_back_verbatim(desk: Desk) -> None:
    """The three originals below the summary come back, in their order; the round after says so, and the next one counts them."""
    halted(desk, target_raw_ratio=0.7)
    answer = desk.fire("SessionStart", source="compact")
    assert answer is not None
    text = answer["hookSpecificOutput"]["additionalContext"]
    assert answer["hookSpecificOutput"]["hookEventName"] == "SessionStart"
    assert text.index("question 0-0") < text.index("answer 0-0") < text.index("question 0-1")
    last = desk.rounds[-1]
    assert (last.round, last.trigger, last.raw_tokens, last.summary_tokens) == (2, "rehydrate", 40, 15)
    acks = [(event.command_id, event.outcome, event.raw_tokens_restored) for event in desk.events if isinstance(event, Ack)]
    assert acks[-1] == ("cmd-1", "done", 30)
    assert desk.fire("SessionStart", source="compact") is None, "once"
    desk.made = compacted(2)
    desk.fire("PostCompact", trigger="auto")
    assert desk.rounds[-1].round == 3
    assert desk.rounds[-1].before is not None
    assert desk.rounds[-1].before.raw_tokens == 80


def test_no_more_is_put_back_than_fits(desk: Desk) -> None:
    halted(desk, target_raw_ratio=1.0, max_restore_tokens=25)
    answer = desk.fire("SessionStart", source="resume")
    assert answer is not None
    assert answer["hookSpecificOutput"]["additionalContext"].count("-0 ") == 2


def test_what_is_due_is_put_back_at_the_next_prompt(desk: Desk) -> None:
    """After a blocked compaction there is no SessionStart to do it."""
    halted(desk, target_raw_ratio=0.7)
    assert desk.fire("PreCompact", trigger="auto") is not None
    assert _due(desk.memory)
    answer = desk.fire("UserPromptSubmit", prompt="go on")
    assert answer is not None
    assert "question 0-0" in answer["hookSpecificOutput"]["additionalContext"]
    assert not _due(desk.memory)


def test_facts_that_the_summary_left_out_are_put_back(tmp_path: Path) -> None:
    desk = Desk(tmp_path, compacted(facts_kept=False))
    answer = desk.fire("SessionStart", source="compact")
    assert answer is not None
    assert "- never rotate the credential" in answer["hookSpecificOutput"]["additionalContext"]
    desk.made = compacted()
    assert desk.fire("SessionStart", source="compact") is None


def test_a_session_ends(desk: Desk) -> None:
    desk.fire("SessionEnd", reason="exit")
    assert isinstance(desk.events[-1], SessionEnd)


@pytest.mark.parametrize("given", [{}, {"session_id": 7}, {"session_id": "x", "transcript_path": "/nowhere"}])
def test_an_input_without_a_transcript_is_answered_with_nothing(tmp_path: Path, given: dict[str, Any]) -> None:
    def connect() -> Client:
        raise AssertionError("there is nothing to tell")

    assert ClaudeCodeHook(connect, tmp_path / "memory.json").run({"hook_event_name": "PreCompact", **given}) is None


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"{", "no JSON"),
        (b"{}", "list of facts"),
        (b"[1]", "fact 1 needs"),
        (b'[{"fact_id": "a", "text": "b", "anchors": "c"}]', "anchors"),
        (b'[{"fact_id": "a", "text": "b", "recall_floor": 7}]', "recall_floor"),
    ],
)
def test_wrong_facts_are_refused_in_a_sentence(raw: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read_facts(raw)


def test_facts_are_read() -> None:
    [fact] = read_facts(b'[{"fact_id": "a", "text": "b", "anchors": ["c"], "fact_class": "d", "recall_floor": 0.5}]')
    assert fact == Fact("a", "b", ("c",), "d", 0.5)


@pytest.mark.parametrize(
    "wrong",
    [
        '{"halts": null, "sent": "x"}',
        '{"halts": {"a": 1}, "blocks": "z"}',
        '{"halts": {"a": {"seq": 1}}}',
        '{"sent": -1}',
        "[" * 5_000,
        b"\xff",
        None,
    ],
)
def test_a_memory_that_is_none_is_an_empty_one(desk: Desk, wrong: str | bytes | None) -> None:
    """A directory in its place (``None``) too: what was compacted is told, and the next hook remembers it."""
    if wrong is None:
        (desk.memory / "inside").mkdir(parents=True)
    else:
        desk.memory.parent.mkdir()
        desk.memory.write_bytes(wrong if isinstance(wrong, bytes) else wrong.encode())
    for event in ("PreCompact", "PostCompact"):
        assert desk.fire(event, trigger="auto") is None
    assert [done.round for done in desk.rounds] == [1]


def test_a_memory_that_may_not_be_read_is_an_empty_one(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.fire("PostCompact", trigger="auto")

    def refused(path: Path) -> bytes:
        raise PermissionError(path)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_bytes", refused)
        desk.fire("PostCompact", trigger="auto")
    assert [done.event_id for done in desk.rounds] == [desk.rounds[0].event_id] * 2
