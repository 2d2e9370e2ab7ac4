"""What ``leadline hook claude-code`` does for each of Claude Code's hooks. Needs no extra.

A hook's process lives for a moment, so what one must know of the others is in a small file a session: how far the transcript is
reported, which halts stand, how often a compaction was blocked, what was put back. The transcript itself is the spool: what could
not be sent is told again by the next hook, under the same ids.

PreCompact
    On a halt an automatic compaction is blocked: never one that a person asked for, at most so often, and not for ever, as a
    session that is full cannot go on without one.
PostCompact, SessionStart, UserPromptSubmit
    What the transcript tells of compactions is reported; what a halt asks to bring back, and facts that the summary lost, are
    put back into the context (all but PostCompact: nothing can be put in there).
SessionEnd
    The session ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypedDict

import msgspec
import orjson

from leadline.agent.adapters.claude_code import AGENT, Message, Transcript
from leadline.agent.facts import Fact, assess

if TYPE_CHECKING:
    from leadline.agent.client import Client
    from leadline.agent.session import Session
    from leadline.contracts.events import AgentEvent
    from leadline.contracts.orders import Command

__all__ = ["ClaudeCodeHook", "Limits", "read_facts"]

_PUT_IN: Final = ("SessionStart", "UserPromptSubmit")


@dataclass(frozen=True, slots=True)
class Limits:
    """``block_ms``, ``blocks``: for how long and how often an automatic compaction is blocked in a row. ``restore_tokens``: most
    that is put back at once. ``wait_s``: how long a hook waits for commands; ``send_s``: at most for its own
    events to be sent."""

    block_ms: int = 900_000
    blocks: int = 3
    restore_tokens: int = 2_000
    wait_s: float = 1.5
    send_s: float = 3.0


_Natural = Annotated[int, msgspec.Meta(ge=0)]


class _Halt(TypedDict):
    """``rehydrate``: still to be done."""

    seq: int
    command_id: str
    rule: str
    rehydrate: bool
    ratio: float | None
    plan: list[str]
    most: int | None


@dataclass(slots=True)
class _Memory:
    """What one hook leaves to the next."""

    sent: _Natural = 0
    """Events of the transcript that were sent."""
    extra: _Natural = 0
    """Rounds that were reported beyond those of the transcript."""
    halts: dict[str, _Halt] = field(default_factory=dict)
    """The halts that stand, by incident."""
    blocks: _Natural = 0
    blocked_since: int | None = None
    restored: dict[str, list[str]] = field(default_factory=dict)
    """Spans that were put back, by the compaction that they were lost in."""


class ClaudeCodeHook:
    """``connect`` makes the client, only where one is needed; ``memory`` is the file where the session's memory is kept.

    ``now``: ms since 1970.
    """

    def __init__(
        self,
        connect: Callable[[], Client],
        memory: Path,
        *,
        facts: Sequence[Fact] = (),
        fleet: str = "",
        token_budget: int = 0,
        limits: Limits = Limits(),
        now: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._connect = connect
        self._path = memory
        self._facts = facts
        self._fleet = fleet
        self._token_budget = token_budget
        self._limits = limits
        self._now = now

    def run(self, given: dict[str, Any]) -> dict[str, Any] | None:
        """What the hook answers on standard output, ``None`` for nothing. ``given``: its input, as Claude Code writes it."""
        event, session_id, path = given.get("hook_event_name"), given.get("session_id"), given.get("transcript_path")
        if not isinstance(session_id, str) or not isinstance(path, str) or not session_id:
            return None
        memory = self._load()
        transcript = Transcript(
            session_id=session_id,
            fleet=self._fleet,
            token_budget=self._token_budget,
            facts=self._facts,
            restored=memory.restored,
        )
        try:
            with Path(path).open("rb") as lines:
                events = list(transcript.read(lines))
        except FileNotFoundError:
            return None
        if transcript.conversation is None:
            return None
        client = self._connect()
        try:
            work = _Work(self, client, transcript, memory, self._limits)
            work.tell(events)
            if event == "SessionEnd":
                work.tell_more(transcript.finish())
            else:
                work.listen()
            answer = work.answer(str(event), given)
        finally:
            client.close(self._limits.send_s)  # What is left then waits on disk.
        self._save(memory)
        return answer

    @property
    def now(self) -> int:
        return self._now()

    @property
    def facts(self) -> Sequence[Fact]:
        return self._facts

    def _load(self) -> _Memory:
        """What is no memory is an empty one: all is told again, under the same ids, and commands are read anew."""
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=_Memory)
        except (OSError, ValueError, RecursionError):
            return _Memory()

    def _save(self, memory: _Memory) -> None:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = self._path.with_suffix(".new")
        fresh.write_bytes(orjson.dumps(memory))
        if self._path.is_dir():
            self._path.rename(self._path.with_suffix(".damaged"))
        fresh.replace(self._path)


class _Work:
    """One hook at work."""

    def __init__(self, hook: ClaudeCodeHook, client: Client, transcript: Transcript, memory: _Memory, limits: Limits) -> None:
        assert transcript.conversation is not None
        self._hook = hook
        self._client = client
        self._transcript = transcript
        self._memory = memory
        self._limits = limits
        self._conversation = transcript.conversation
        offline = self._conversation.session
        self._live: Session = client.session(
            offline.session_id,
            agent_id=AGENT,
            token_budget=0,
            max_depth=1024,
            epoch=offline.epoch,
            facts=hook.facts,
        )

    def tell(self, events: Sequence[AgentEvent]) -> None:
        """What of the transcript was not told yet."""
        fresh = events[self._memory.sent :]
        # The session's start goes out each time, under its one id: its delivery tells where commands are to be read.
        for event in fresh if self._memory.sent == 0 else [events[0], *fresh]:
            self._emit(event)
        self._memory.sent = max(self._memory.sent, len(events))
        if any(type(event).__name__ == "Round" for event in fresh):
            self._memory.blocks, self._memory.blocked_since = 0, None

    def tell_more(self, events: Iterable[AgentEvent]) -> None:
        """What the transcript does not tell by itself."""
        for event in events:
            self._emit(event)

    def listen(self) -> None:
        """The commands since the last time; those that were read before are recognized."""
        self._client.listener.register(self._live)
        deadline = time.monotonic() + self._limits.wait_s
        while time.monotonic() < deadline:
            for command in self._live.poll():
                self._remember(command)
            time.sleep(0.02)

    def answer(self, event: str, given: dict[str, Any]) -> dict[str, Any] | None:
        if event == "PreCompact":
            return self._before_compaction(given.get("trigger"))
        if event in _PUT_IN:
            texts = [*self._lost_facts(event, given), *self._put_back()]
            if texts:
                return {"hookSpecificOutput": {"hookEventName": event, "additionalContext": "\n\n".join(texts)}}
        return None

    # -- inside

    def _emit(self, event: AgentEvent) -> None:
        from msgspec.structs import replace

        from leadline.contracts.events import Checkpoint, Round

        if isinstance(event, Round | Checkpoint) and event.round is not None:
            event = replace(event, round=event.round + self._memory.extra)
        self._client.emitter.emit(event)

    def _remember(self, command: Command) -> None:
        halts, asked = self._memory.halts, command.parameters
        known = halts.get(command.incident_id)
        if command.kind == "resume":
            if known is not None and known["seq"] < command.seq:
                del halts[command.incident_id]
        elif command.kind in ("halt", "stop-agent"):
            if known is None or known["seq"] < command.seq:
                halts[command.incident_id] = {
                    "seq": command.seq,
                    "command_id": command.command_id,
                    "rule": command.rule,
                    "rehydrate": command.kind == "halt" and asked.level is None,
                    "ratio": asked.target_raw_ratio,
                    "plan": [target.summary_id for target in asked.plan or ()],
                    "most": asked.max_restore_tokens,
                }
        elif command.kind != "retry-level":  # The next compaction is that: what was lost is in the context by then.
            self._live.refuse(command, "Claude Code's compaction takes no such order from a hook")

    def _before_compaction(self, trigger: object) -> dict[str, Any] | None:
        memory, now = self._memory, self._hook.now
        if trigger != "auto" or not memory.halts:
            return None
        since = memory.blocked_since
        if memory.blocks >= self._limits.blocks or (since is not None and now - since >= self._limits.block_ms):
            return None
        memory.blocks += 1
        memory.blocked_since = now if since is None else since
        look = self._transcript.look()
        assert look is not None
        self._conversation.hold(look)
        self._extra_round()
        rules = ", ".join(sorted({str(halt["rule"]) for halt in memory.halts.values()}))
        return {
            "decision": "block",
            "reason": f"Leadline's monitor halted compaction in this session ({rules}): its summaries lost their ground. "
            "Run /compact yourself to compact all the same.",
        }

    def _extra_round(self) -> None:
        told = list(self._transcript.drain())
        self.tell_more(told)
        self._memory.extra += sum(type(event).__name__ == "Round" for event in told)

    def _lost_facts(self, event: str, given: dict[str, Any]) -> list[str]:
        """Facts that the newest summary does not hold any more."""
        working = self._transcript.working
        if event != "SessionStart" or given.get("source") != "compact" or not working or not working[0].summary:
            return []
        lost = [fact for fact in self._hook.facts if assess(fact, working[0].text) == "absent"]
        return ["These still hold; the summary left them out:\n" + "\n".join(f"- {fact.text}" for fact in lost)] if lost else []

    def _put_back(self) -> list[str]:
        """What the halts ask to bring back: the originals' texts, for the context."""
        from leadline.agent.rehydrate import Bounds, rehydrate

        asked = [halt for halt in self._memory.halts.values() if halt["rehydrate"]]
        look = self._transcript.look()
        if not asked or look is None or not self._transcript.boundaries:
            return []
        most = min([self._limits.restore_tokens, *(halt["most"] for halt in asked if halt["most"] is not None)])
        back: list[Message] = []

        def restore(span: str) -> int | None:
            message = self._conversation.archive.get(span)
            if message is None:
                return None
            back.append(message)
            return int(message.tokens)

        bounds = Bounds(
            target_raw_ratio=max((halt["ratio"] for halt in asked if halt["ratio"] is not None), default=1.0),
            max_restore_tokens=most,
        )
        plan = [summary for halt in asked for summary in halt["plan"]]
        result = rehydrate(self._conversation.session.ledger, restore, bounds, plan=plan, archives=True)
        # Claude Code's own summary stays in its context whatever a hook says.
        self._conversation.session.ledger.restore([gone for gone in result.dropped if gone in look.ids])
        if back:
            self._memory.restored.setdefault(self._transcript.boundaries[-1], []).extend(one.uuid for one in back)
            self._conversation.session.compacted("rehydrate", before=look.signals)
            self._extra_round()
        for command in self._live.pending:
            if command.command_id in {halt["command_id"] for halt in asked}:
                if back:
                    self._live.done(command, result.detail, sum(one.tokens for one in back))
                else:
                    self._live.refuse(command, result.detail)
        for halt in asked:
            halt["rehydrate"] = not back
        if not back:
            return []
        order = sorted(back, key=lambda message: message.time or 0)
        told = "\n\n".join(f"[{message.role}] {message.text}" for message in order)
        return [f"Leadline brings back what the summary no longer leads to, verbatim:\n\n{told}"]


def read_facts(raw: bytes) -> list[Fact]:
    """Facts from a JSON list of objects with ``fact_id``, ``text``, and where wanted ``anchors``, ``fact_class``,
    ``recall_floor``. Raises ``ValueError`` with a sentence."""
    try:
        given = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"is no JSON: {error}") from None
    if not isinstance(given, list):
        raise ValueError("must hold a list of facts")
    facts = []
    for number, one in enumerate(given, 1):
        if not isinstance(one, dict) or not isinstance(one.get("fact_id"), str) or not isinstance(one.get("text"), str):
            raise ValueError(f"fact {number} needs a fact_id and a text")
        anchors = one.get("anchors", [])
        if not isinstance(anchors, list) or not all(isinstance(anchor, str) for anchor in anchors):
            raise ValueError(f"fact {number} has anchors that are no list of texts")
        floor = one.get("recall_floor")
        if floor is not None and (isinstance(floor, bool) or not isinstance(floor, int | float) or not 0 <= floor <= 1):
            raise ValueError(f"fact {number} has a recall_floor that is no number from 0 to 1")
        facts.append(Fact(one["fact_id"], one["text"], tuple(anchors), str(one.get("fact_class", "")), floor))
    return facts
