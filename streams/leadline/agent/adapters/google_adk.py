"""Google ADK: an events summarizer under watch, and the plugin that sees sessions and requests. Extra ``leadline[google-adk]``.

::

    watch = Conversations("localhost:9092", agent_id="helper", token_budget=100_000)
    plugin = LeadlinePlugin(watch)
    config = EventsCompactionConfig(summarizer=plugin.summarizer(LlmEventSummarizer(llm)), token_threshold=..., ...)
    app = App(name=..., root_agent=..., plugins=[plugin], events_compaction_config=config)

ADK never takes an event away: a compaction event covers a range of them, and requests are made from what no range covers and
from the summaries. The summary that the next one starts from is put before the summarizer as an event with a fresh id, so it is
told by its content. What a halt brings back is put into each request in the place of the summary that covers it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from google.adk.apps.base_events_summarizer import BaseEventsSummarizer
from google.adk.apps.compaction import _get_compaction_ranges
from google.adk.apps.llm_event_summarizer import LlmEventSummarizer
from google.adk.events._rewind_events import _apply_rewinds
from google.adk.flows.llm_flows.context._compaction import _process_compaction_events
from google.adk.flows.llm_flows.context._contents import _is_auth_event
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.genai.types import Content, Part

from leadline.agent.adapters.conversation import Conversation, Look
from leadline.agent.adapters.conversations import Conversations, short_id
from leadline.agent.adapters.entries import Call, Entry, approximate_tokens

__all__ = ["LeadlinePlugin"]

_RUNS: Final = 4_096


@dataclass(slots=True)
class _Run:
    """A session that is being served, as the newest invocation sees it."""

    session: Any
    conversation: Conversation
    expanded: dict[str, list[str]] = field(default_factory=dict)
    """Summaries that gave way in requests, by id, to events, by id."""


class LeadlinePlugin(BasePlugin):
    """To be among the app's plugins. ``watch``: the process's conversations; an ADK session's id is the session id.

    ``count(text)``: tokens of a text; left out, a quarter of its characters.
    """

    def __init__(self, watch: Conversations, *, count: Callable[[str], int] = approximate_tokens, name: str = "leadline") -> None:
        super().__init__(name=name)
        self._watch = watch
        self._count = count
        self._runs: OrderedDict[str, _Run] = OrderedDict()
        self._invocations: OrderedDict[str, str] = OrderedDict()
        self._lock = threading.Lock()

    def summarizer(self, inner: BaseEventsSummarizer) -> BaseEventsSummarizer:
        """``inner`` under watch: for the app's ``EventsCompactionConfig``."""
        return _MonitoredSummarizer(inner, self)

    # -- what ADK calls

    async def before_run_callback(self, *, invocation_context: Any) -> Content | None:
        with self._watch.harmless("the start of a run"):
            session = invocation_context.session
            with self._lock:
                found = self._runs.get(session.id)
                if found is None:
                    found = self._runs[session.id] = _Run(session, self._watch.of(session.id))
                found.session = session
                found.conversation = self._watch.of(session.id)
                self._runs.move_to_end(session.id)
                self._invocations[invocation_context.invocation_id] = session.id
                for kept in (self._runs, self._invocations):
                    while len(kept) > _RUNS:
                        kept.popitem(last=False)
        return None

    async def before_model_callback(self, *, callback_context: Any, llm_request: Any) -> LlmResponse | None:
        stopped = False
        with self._watch.harmless("looking at a request"):
            run = self._run_of(callback_context.invocation_id)
            if run is not None:
                stopped = self._obey(run)
                self._expand(run, llm_request)
                await run.conversation.wait_async()
        if stopped:
            said = "The monitor stopped this session: its context can no longer be trusted."
            return LlmResponse(content=Content(role="model", parts=[Part(text=said)]), turn_complete=True)
        return None

    # -- inside

    def _obey(self, run: _Run) -> bool:
        conversation = run.conversation
        look = conversation.look(self._entries(run))
        if not conversation.may_compact():
            if conversation.rehydrate():
                self._put_back(run)
            else:
                conversation.hold(look)
        retry = conversation.retry()
        while retry is not None:  # ADK decides by itself when it summarizes: its next summarizer call is given them again.
            if conversation.reopen(retry):
                self._put_back(run)
            else:
                conversation.refuse(retry, "there is no room for the input of that level in the requests")
            retry = conversation.retry()
        return conversation.stopped

    def _put_back(self, run: _Run) -> None:
        """Notes which summaries give way to which events: requests are made anew each time."""
        held = set(run.conversation.present().ids)
        covered, _ = self._split(run)
        for summary, events in covered.items():
            back = [event for event in events if event in held]
            if back or summary not in held:
                run.expanded[summary] = back if summary not in held else [summary, *back]

    def _expand(self, run: _Run, request: Any) -> None:
        """In this request, the events that were brought back take their summary's place."""
        if not run.expanded:
            return
        compactions = {self._name(event): event for event in run.session.events if _compaction(event) is not None}
        events = {short_id(event.id): event for event in run.session.events}
        for summary, back in run.expanded.items():
            if summary not in compactions:
                continue
            text = _said(_compaction(compactions[summary]).compacted_content)
            at = next((at for at, content in enumerate(request.contents) if _said(content) == text), None)
            contents = [events[name].content for name in back if name in events and name != summary]
            if at is not None:
                kept = [request.contents[at]] if summary in back else []
                request.contents[at : at + 1] = [*kept, *contents]

    def _run_of(self, invocation: str) -> _Run | None:
        with self._lock:
            session = self._invocations.get(invocation)
            return None if session is None else self._runs.get(session)

    def run_of(self, events: Iterable[Any]) -> _Run | None:
        """The session that events belong to."""
        for event in events:
            found = self._run_of(event.invocation_id)
            if found is not None:
                return found
        return None

    def _live(self, run: _Run, more: Iterable[Any] = ()) -> list[Any]:
        events: list[Any] = _apply_rewinds([*run.session.events, *more])
        return [event for event in events if _compaction(event) is not None or _requested(event)]

    def _split(self, run: _Run, more: Iterable[Any] = ()) -> tuple[dict[str, list[str]], list[Any]]:
        """The summaries in force with the ids of the events that they cover, and the events that none covers."""
        events = self._live(run, more)
        free = [event for event in _process_compaction_events(events) if _compaction(event) is None]
        covered: dict[str, list[str]] = {}
        for at, start, end in _get_compaction_ranges(events):
            covered[self._name(events[at])] = [
                short_id(event.id) for event in events if _compaction(event) is None and start <= event.timestamp <= end
            ]
        return covered, free

    def _entries(self, run: _Run, more: Iterable[Any] = ()) -> list[Entry]:
        """What the next request is made from."""
        more = list(more)
        covered, free = self._split(run, more)
        run.expanded = {summary: back for summary, back in run.expanded.items() if summary in covered}
        known = {self._name(event): event for event in self._live(run, more)}
        names: list[str] = []
        for summary in covered:
            names += run.expanded.get(summary, [summary])
        names += [short_id(event.id) for event in free]
        askers: dict[str, str] = {}
        entries = []
        for name in dict.fromkeys(names):
            event = known[name]
            content = event.content if _compaction(event) is None else _compaction(event).compacted_content
            group = ""
            for part in content.parts or ():
                if part.function_call is not None and part.function_call.id:
                    group = askers.setdefault(part.function_call.id, group or name)
                elif part.function_response is not None and part.function_response.id in askers:
                    group = askers[part.function_response.id]
            entries.append(Entry(name, self.tokens(content), event, _compaction(event) is not None, group=group))
        return entries

    def look(self, run: _Run) -> Look:
        return run.conversation.look(self._entries(run))

    def name_of(self, run: _Run, event: Any) -> str:
        """An event's id; the seed of a rolling summary is told by its content."""
        said = _said(event.content)
        for known in reversed(run.session.events):
            if known.id == event.id:
                break
            if _compaction(known) is not None and _said(_compaction(known).compacted_content) == said:
                return self._name(known)
        return short_id(event.id)

    def unfolded(self, run: _Run, events: list[Any]) -> list[Any]:
        """What the summarizer is to be given: where the summary that it would start from gave way to its events, those."""
        if not events:
            return events
        seed = self.name_of(run, events[0])
        back = run.expanded.get(seed, [seed])
        if seed in back:
            return events
        known = {short_id(event.id): event for event in run.session.events}
        return [*(known[name] for name in back if name in known), *events[1:]]

    def report(self, run: _Run, look: Look, call: Call, made: Any) -> None:
        run.expanded = {}
        run.conversation.compacted("budget", look, self._entries(run, [made]), call)

    def tokens(self, content: Any) -> int:
        return sum(self._count(text) for text in _texts(content))

    @property
    def watch(self) -> Conversations:
        return self._watch

    @staticmethod
    def _name(event: Any) -> str:
        return short_id(event.id)


class _MonitoredSummarizer(BaseEventsSummarizer):
    """Reports what its inner summarizer does, and does not call it while the session is halted."""

    def __init__(self, inner: BaseEventsSummarizer, plugin: LeadlinePlugin) -> None:
        self._inner = inner
        self._plugin = plugin

    async def maybe_summarize_events(self, *, events: list[Any]) -> Any:
        plugin = self._plugin
        run, look, call, vetoed, given = None, None, Call(), False, events
        with plugin.watch.harmless("looking at what is to be summarized"):
            run = plugin.run_of(events)
            if run is not None:
                look = plugin.look(run)
                vetoed = not run.conversation.may_compact()
                if vetoed:
                    run.conversation.hold(look)
                else:
                    given = plugin.unfolded(run, events)
                    self._note(run, call, given)
        if vetoed:
            return None
        try:
            made = await self._inner.maybe_summarize_events(events=given)
        except Exception:
            if run is not None and look is not None:
                with plugin.watch.harmless("reporting a failed compaction"):
                    run.conversation.failed("budget", look)
            raise
        if run is not None and look is not None:
            with plugin.watch.harmless("reporting a compaction"):
                if made is not None and given is not events:  # It covers all that it was to be made of.
                    _compaction(made).start_timestamp = min(_compaction(made).start_timestamp, events[0].timestamp)
                self._report(run, look, call, made)
                await run.conversation.wait_async()
        return made

    def _note(self, run: _Run, call: Call, events: list[Any]) -> None:
        names = {self._plugin.name_of(run, event): event for event in events}
        call.given = list(names)
        call.declared_tokens = sum(self._plugin.tokens(event.content) for event in events)
        if isinstance(self._inner, LlmEventSummarizer):
            call.seen = [name for name, event in names.items() if _rendered(event)]
            call.consumed_tokens = sum(self._plugin.tokens(_capped(event)) for event in events if _rendered(event))

    def _report(self, run: _Run, look: Look, call: Call, made: Any) -> None:
        if made is None:
            run.conversation.failed("budget", look)
            return
        content = _compaction(made).compacted_content
        text = "\n".join(part.text for part in content.parts or () if part.text)
        call.text, call.opaque = text, not text and bool(content.parts) and not any(part.text == "" for part in content.parts)
        call.output_tokens = self._plugin.tokens(content) if text.strip() else 0
        self._plugin.report(run, look, call, made)


def _compaction(event: Any) -> Any:
    return event.actions.compaction if event.actions else None


def _requested(event: Any) -> bool:
    """Whether its content goes into requests."""
    return bool(event.content and event.content.parts) and not _is_auth_event(event)


def _rendered(event: Any) -> bool:
    """Whether ADK's own summarizer is shown anything of it."""
    return _requested(event) and any(part.text or part.function_call or part.function_response for part in event.content.parts)


def _texts(content: Any) -> list[str]:
    found = []
    for part in (content.parts if content is not None else None) or ():
        if part.text:
            found.append(part.text)
        if part.function_call is not None:
            found.append(f"{part.function_call.name}({part.function_call.args})")
        if part.function_response is not None:
            found.append(str(part.function_response.response))
    return found


def _said(content: Any) -> list[str]:
    return _texts(content)


def _capped(event: Any) -> Any:
    """The content as ADK's own summarizer renders it: arguments and results of tools are cut at a fixed length."""
    most = LlmEventSummarizer._MAX_TOOL_CONTENT_CHARS
    parts = []
    for part in event.content.parts:
        texts = _texts(Content(parts=[part]))
        parts += [Part(text=text if part.text else text[:most]) for text in texts]
    return Content(parts=parts)
