"""OpenHands SDK: its ``LLMSummarizingCondenser``, reporting and obedient. Extra ``leadline[openhands]``, Python 3.12 or later.

::

    watch = Conversations("localhost:9092", agent_id="helper", token_budget=100_000)
    agent = Agent(llm=llm, tools=tools, condenser=MonitoredSummarizingCondenser(llm=llm, watch=watch))

The event log never loses anything: a ``Condensation`` names the events to forget and where its summary goes, and the view is what
the log leaves over. Nothing can be put back into that view; so what a halt brings back stands in the working set that each step
makes its request from, and the next condensation is brought down to the view's own ids again.
"""

from __future__ import annotations

import threading
import uuid
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

from openhands.sdk.context.condenser import LLMSummarizingCondenser, NoCondensationAvailableException
from openhands.sdk.context.view import View
from openhands.sdk.event import ActionEvent, Condensation, LLMConvertibleEvent, ObservationBaseEvent
from openhands.sdk.event.condenser import CondensationSummaryEvent
from openhands.sdk.event.llm_convertible import SystemPromptEvent
from openhands.sdk.llm.call_context import resolve_llm_call_context
from openhands.sdk.utils import maybe_truncate
from pydantic import Field, PrivateAttr

from leadline.agent.adapters.conversation import Conversation, Look, Retry
from leadline.agent.adapters.conversations import Conversations, short_id
from leadline.agent.adapters.entries import Call, Entry, approximate_tokens
from leadline.agent.adapters.openhands_events import Run, calls_of, laid_out, origins_in, shown_of, texts_of, whole
from leadline.errors import SessionHalted

__all__ = ["MonitoredSummarizingCondenser"]

_RUNS: Final = 4_096


@dataclass(slots=True)
class _Turn:
    run: Run
    view: Any
    """The framework's own."""
    working: list[Any]
    look: Look
    call: Call = field(default_factory=Call)
    retry: Retry | None = None
    failed: bool = False
    vetoed: bool = False
    refused: bool = False
    """The model refused this very working set, and nothing may be condensed."""

    @property
    def conversation(self) -> Conversation:
        return self.run.conversation

    def shown(self) -> Any:
        """What the framework is to go on with."""
        if self.run.layout is None:
            return self.view
        return View(events=self.working, unhandled_condensation_request=self.view.unhandled_condensation_request)


_TURN: ContextVar[_Turn | None] = ContextVar("leadline_openhands_turn", default=None)


class _Watching:
    """What the copies that the framework makes of a condenser share."""

    def __init__(self, watch: Conversations, count: Callable[[str], int], name: Callable[[str], str]) -> None:
        self.watch = watch
        self.count = count
        self._name = name
        self._runs: OrderedDict[str, Run] = OrderedDict()
        self._lock = threading.Lock()

    def run_of(self, conversation_id: str) -> Run:
        session_id = short_id(self._name(conversation_id))
        conversation = self.watch.of(session_id)
        with self._lock:
            found = self._runs.get(session_id)
            if found is None or found.conversation is not conversation:
                found = self._runs[session_id] = Run(conversation)
            self._runs.move_to_end(session_id)
            while len(self._runs) > _RUNS:
                self._runs.popitem(last=False)
            return found

    def __deepcopy__(self, _: Any) -> _Watching:
        return self


_WATCHING: weakref.WeakValueDictionary[str, _Watching] = weakref.WeakValueDictionary()
"""By the name that a condenser is serialized with: a fork's condenser is made from its source's JSON."""


class MonitoredSummarizingCondenser(LLMSummarizingCondenser):
    """``LLMSummarizingCondenser`` (arguments as there) under watch, in sync and async runs; one may serve several conversations.

    ``watch``: the process's conversations. ``session_id(conversation_id)``: left out, a conversation's id is its session id.
    ``count(text)``: tokens of a text; left out, a quarter of its characters. Read back from what another process wrote it is
    not under watch: OpenHands goes on with the agent that a conversation is taken up with.
    """

    watched_as: str = Field(default="")
    _watching: _Watching | None = PrivateAttr(default=None)

    def __init__(
        self,
        *,
        watch: Conversations | None = None,
        session_id: Callable[[str], str] = str,
        count: Callable[[str], int] = approximate_tokens,
        **arguments: Any,
    ) -> None:
        super().__init__(**arguments)
        if watch is not None:
            self.watched_as = uuid.uuid4().hex
            self._watching = _WATCHING[self.watched_as] = _Watching(watch, count, session_id)
        else:
            self._watching = _WATCHING.get(self.watched_as)

    def remember(self, conversation: Any) -> None:
        """Read a saved conversation's log, before it runs on: where its summaries came from, and the originals to bring back."""
        watching = self._watching
        if watching is None:
            return
        with watching.watch.harmless("reading a conversation's log"):
            run = watching.run_of(str(conversation.id))
            events = list(conversation.state.events)
            originals = [event for event in events if isinstance(event, LLMConvertibleEvent)]
            run.origins |= origins_in(events)
            run.conversation.look(self._entries(run, originals))
            run.conversation.look(self._entries(run, conversation.state.view.events))

    # -- what the framework calls

    def condense(self, view: Any, agent_llm: Any = None) -> Any:
        turn = self._begin(view, agent_llm)
        if turn is None:
            return super().condense(view, agent_llm=agent_llm)
        result = self._condensed(turn, agent_llm)
        with self._harmless("waiting for a verdict"):
            turn.conversation.wait()
        return result

    def _condensed(self, turn: _Turn, agent_llm: Any) -> Any:
        if turn.retry is not None:
            made = None
            with self._noting(turn), self._redoing(turn, turn.retry):
                made = super()._generate_condensation(whole(turn.retry), 0)
            made = self._redone(turn, turn.retry, made)
            if made is not None:
                return made
        if turn.vetoed:
            return turn.shown()
        with self._noting(turn):
            result = super().condense(turn.shown(), agent_llm=agent_llm)
        return self._done(turn, result)

    async def acondense(self, view: Any, agent_llm: Any = None) -> Any:
        turn = self._begin(view, agent_llm)
        if turn is None:
            return await super().acondense(view, agent_llm=agent_llm)
        result = await self._acondensed(turn, agent_llm)
        with self._harmless("waiting for a verdict"):
            await turn.conversation.wait_async()
        return result

    async def _acondensed(self, turn: _Turn, agent_llm: Any) -> Any:
        if turn.retry is not None:
            made = None
            with self._noting(turn), self._redoing(turn, turn.retry):
                made = await super()._agenerate_condensation(whole(turn.retry), 0)
            made = self._redone(turn, turn.retry, made)
            if made is not None:
                return made
        if turn.vetoed:
            return turn.shown()
        with self._noting(turn):
            result = await super().acondense(turn.shown(), agent_llm=agent_llm)
        return self._done(turn, result)

    def _generate_condensation(
        self, forgotten_events: Sequence[Any], summary_offset: int, max_event_str_length: int | None = None
    ) -> Any:
        given = self._given(forgotten_events, max_event_str_length)
        made = super()._generate_condensation(given, summary_offset, max_event_str_length)
        return self._wrote(forgotten_events, made)

    async def _agenerate_condensation(
        self, forgotten_events: Sequence[Any], summary_offset: int, max_event_str_length: int | None = None
    ) -> Any:
        given = self._given(forgotten_events, max_event_str_length)
        made = await super()._agenerate_condensation(given, summary_offset, max_event_str_length)
        return self._wrote(forgotten_events, made)

    # -- before a pass

    def _begin(self, view: Any, agent_llm: Any) -> _Turn | None:
        """What came in and what the monitor wants; ``None`` where Leadline itself fails or does not watch.

        :raises SessionHalted: the monitor stopped the session.
        :raises NoCondensationAvailableException: the model refused what it was given, and nothing may be condensed.
        """
        watching, turn, stopped = self._watching, None, False
        if watching is None:
            return None
        with watching.watch.harmless("looking at the events"):
            looked = self._look(watching, view)
            stopped = self._obey(looked, agent_llm)
            turn = looked
        if stopped:
            raise SessionHalted("The monitor stopped this session: its context can no longer be trusted.")
        if turn is not None and turn.refused:
            raise NoCondensationAvailableException("The monitor allows no condensation now, and the model refused the context.")
        return turn

    def _look(self, watching: _Watching, view: Any) -> _Turn:
        first = view.events[0].id if view.events else "run"
        run = watching.run_of(resolve_llm_call_context(None).session_id or first)
        working = run.working(view)
        return _Turn(run, view, working, run.conversation.look(self._entries(run, working)))

    def _obey(self, turn: _Turn, agent_llm: Any) -> bool:
        """Whether the agent is to stop."""
        run, conversation = turn.run, turn.conversation
        if conversation.may_compact():
            turn.retry = conversation.retry()
            run.sent = []
            return conversation.stopped
        turn.vetoed = True
        if conversation.rehydrate():
            turn.working = run.layout = laid_out(turn.working, conversation.working())
            run.known = frozenset(event.id for event in turn.view.events)
        else:
            turn.retry = conversation.retry()  # Allowed while halted for this level.
            if turn.retry is None and self.condensation_requirement(turn.shown(), agent_llm) is not None:
                conversation.hold(turn.look)
        now = [event.id for event in turn.working]
        turn.refused = turn.view.unhandled_condensation_request and now == run.sent and turn.retry is None
        run.sent = now
        return conversation.stopped

    # -- the summarizer call

    @contextmanager
    def _noting(self, turn: _Turn) -> Iterator[None]:
        token = _TURN.set(turn)
        try:
            yield
        finally:
            _TURN.reset(token)
            if turn.failed and turn.retry is None:
                with self._harmless("reporting a failed condensation"):
                    turn.conversation.failed("budget", turn.look)

    def _given(self, events: Sequence[Any], most: int | None) -> Sequence[Any]:
        """What the summarizer is to be given, noted with how much of it the framework will show."""
        turn = _TURN.get()
        if turn is None:
            return events
        turn.failed = True  # Until it has written something.
        with self._harmless("looking at what is to be summarized"):
            entries = turn.conversation.shallow(short_id(event.id) for event in events)
            if all(entry.payload is not None for entry in entries) and entries:
                events = [entry.payload for entry in entries]
            shown = {short_id(event.id): shown_of(event, maybe_truncate(str(event), truncate_after=most)) for event in events}
            turn.call.given = list(shown)
            turn.call.seen = [name for name, parts in shown.items() if parts is not None]
            turn.call.declared_tokens = sum(map(self._tokens, events))
            turn.call.consumed_tokens = sum(self._count(part) for parts in shown.values() for part in parts or ())
        return events

    def _wrote(self, events: Sequence[Any], made: Any) -> Any:
        turn = _TURN.get()
        if turn is None:
            return made
        turn.failed = False
        with self._harmless("looking at a summary"):
            self._note(turn.call, made)
        return made.model_copy(update={"forgotten_event_ids": {event.id for event in events}})

    def _note(self, call: Call, made: Any) -> None:
        call.text = made.summary
        if made.summary is None:
            call.seen = []  # Nothing takes the place of what is forgotten.
            return
        call.output_tokens = self._count(made.summary) if made.summary.strip() else 0
        used = next((one for one in reversed(self.llm.metrics.token_usages) if one.response_id == made.llm_response_id), None)
        if used is not None and made.summary.strip():
            call.output_tokens, call.output_cap = used.completion_tokens, self.llm.max_output_tokens

    # -- after a pass

    def _done(self, turn: _Turn, result: Any) -> Any:
        if not isinstance(result, Condensation):
            return result
        settled, after = result, list[Any]()
        with self._harmless("bringing a condensation down to the view"):
            forgotten = set(result.forgotten_event_ids)
            settled, after = self._settle(turn, forgotten, result.summary_offset or 0, result)
        if not after:  # Of a working set that is not the view it would forget the wrong events.
            return result if turn.run.layout is None else turn.shown()
        with self._harmless("reporting a condensation"):
            turn.conversation.compacted("budget", turn.look, self._entries(turn.run, after), turn.call)
        return settled

    def _settle(self, turn: _Turn, forgotten: set[str], offset: int, made: Any) -> tuple[Any, list[Any]]:
        """``made``, told of the working set, as one of the view; and the working set after it."""
        rest = [event for event in turn.working if event.id not in forgotten]
        after = [*rest[:offset], *([made.summary_event] if made.has_summary_metadata else ()), *rest[offset:]]
        held = {event.id for event in rest}
        own = {event.id for event in turn.view.events}
        at = sum(event.id in own for event in rest[:offset])
        settled = made.model_copy(update={"forgotten_event_ids": own - held, "summary_offset": at})
        plain = [event.id for event in settled.apply(list(turn.view.events))]
        turn.run.layout = None if plain == [event.id for event in after] else after
        turn.run.known = frozenset(plain)
        return settled, after

    @contextmanager
    def _redoing(self, turn: _Turn, retry: Retry) -> Iterator[None]:
        """A failure is refused to the monitor instead of raised."""
        try:
            yield
        except Exception as error:
            with self._harmless("refusing a level"):
                turn.conversation.refuse(retry, f"{type(error).__name__} while the level was summarized again")

    def _redone(self, turn: _Turn, retry: Retry, made: Any) -> Any:
        """The level was summarized again; ``None`` where it was not, and then the pass goes on as usual."""
        settled, turn.retry = None, None
        if made is None:
            return None
        with self._harmless("summarizing a level again"):
            names = {retry.replaces} if retry.replaces else {entry.id for entry in retry.entries}
            at = [at for at, event in enumerate(turn.working) if short_id(event.id) in names]
            if not at or not (made.summary or "").strip():
                turn.conversation.refuse(retry, "the summarizer wrote nothing that can take the summary's place")
                return None
            tokens = sum(map(self._tokens, retry.payloads))
            call = Call(declared_tokens=tokens, consumed_tokens=tokens)
            self._note(call, made)
            settled, _ = self._settle(turn, {turn.working[one].id for one in at}, at[0], made)
            turn.conversation.retried(retry, self._entry(turn.run, settled.summary_event), call)
        return settled

    # -- events as entries

    def _entries(self, run: Run, events: Iterable[Any]) -> list[Entry]:
        """System prompts are neither raw nor summary. Groups are what the framework keeps together: the calls of one response,
        their results, and a loop of calls that began with thinking."""
        found: list[Entry] = []
        askers: dict[str, str] = {}
        responses: dict[str, str] = {}
        loop = ""
        for event in events:
            group = ""
            if isinstance(event, ActionEvent):
                loop = short_id(event.id) if event.thinking_blocks else loop
                group = responses.setdefault(event.llm_response_id, loop or short_id(event.id))
                askers[event.tool_call_id] = group
            elif isinstance(event, ObservationBaseEvent):
                group = askers.get(event.tool_call_id, loop)
            else:
                loop = ""
            if not isinstance(event, SystemPromptEvent):
                found.append(self._entry(run, event, group))
        return found

    def _entry(self, run: Run, event: Any, group: str = "") -> Entry:
        name, summary = short_id(event.id), isinstance(event, CondensationSummaryEvent)
        return Entry(name, self._tokens(event), event, summary, run.origins.get(name) if summary else None, group)

    def _count(self, text: str) -> int:
        return approximate_tokens(text) if self._watching is None else self._watching.count(text)

    def _tokens(self, event: Any) -> int:
        return sum(map(self._count, (*texts_of(event), *calls_of(event))))

    @contextmanager
    def _harmless(self, what: str) -> Iterator[None]:
        assert self._watching is not None
        with self._watching.watch.harmless(what):
            yield
