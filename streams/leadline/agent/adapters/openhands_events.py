"""OpenHands' events as texts, and in the order of a working set; and what is known of a conversation between its steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from openhands.sdk.event import Condensation, LLMConvertibleEvent
from openhands.sdk.event.condenser import CondensationSummaryEvent
from openhands.sdk.event.llm_convertible import SystemPromptEvent
from openhands.sdk.llm import TextContent

from leadline.agent.adapters.conversation import Conversation, Retry
from leadline.agent.adapters.conversations import short_id
from leadline.agent.adapters.entries import Origin

__all__ = ["Run", "calls_of", "laid_out", "origins_in", "shown_of", "texts_of", "whole"]


@dataclass(slots=True)
class Run:
    """A conversation that is being served."""

    conversation: Conversation
    layout: list[Any] | None = None
    """The working set, where it is not the view; what is in the view and not in ``known`` came later."""
    known: frozenset[str] = frozenset()
    sent: list[str] = field(default_factory=list)
    """Ids of the last working set that went to the model while the session was halted."""
    origins: dict[str, Origin] = field(default_factory=dict)

    def working(self, view: Any) -> list[Any]:
        if self.layout is not None and not self.known <= {event.id for event in view.events}:
            self.layout = None  # Another branch of the conversation, or a view that was made anew.
        if self.layout is None:
            return list(view.events)
        return [*self.layout, *(event for event in view.events if event.id not in self.known)]


class Whole:
    """An event that the summarizer is shown uncut."""

    def __init__(self, event: Any) -> None:
        self.id = event.id
        self._event = event

    def __str__(self) -> str:
        texts = [*texts_of(self._event), *calls_of(self._event)]
        return "\n  ".join([f"{type(self._event).__name__} ({self._event.source})", *texts])


def whole(retry: Retry) -> list[Any]:
    return [Whole(event) for event in retry.payloads]


def texts_of(event: Any) -> list[str]:
    return [part.text for part in event.to_llm_message().content if isinstance(part, TextContent)]


def calls_of(event: Any) -> list[str]:
    return [f"{call.name}({call.arguments})" for call in event.to_llm_message().tool_calls or ()]


def _beginning_in(text: str, rendered: str) -> str:
    """The longest beginning of a text that is in a rendering."""
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if text[:middle] in rendered else (low, middle - 1)
    return text[:low]


def laid_out(before: Sequence[Any], held: Sequence[Any]) -> list[Any]:
    """What is held, in order: what is verbatim as it came in, each summary behind what it stood behind."""
    present = {event.id for event in held}
    after = [event for event in held if not isinstance(event, CondensationSummaryEvent)]
    behind: str | None = None
    for event in before:
        if isinstance(event, SystemPromptEvent) or (isinstance(event, CondensationSummaryEvent) and event.id in present):
            at = next((at for at, one in enumerate(after) if one.id == behind), -1)
            after.insert(at + 1, event)
            behind = event.id
        elif event.id in present:
            behind = event.id
    return after


def shown_of(event: Any, rendered: str) -> list[str] | None:
    """What of an event is in its rendering, which cuts texts and leaves out what tools were given; ``None``: all is left out."""
    texts, calls = texts_of(event), calls_of(event)
    parts = [_beginning_in(text, rendered) for text in texts] + [call for call in calls if call in rendered]
    pictures = len(event.to_llm_message().content) > len(texts)
    # Of an action its kind is there at least; an empty text is there as it is.
    return parts if calls or any(parts) or not pictures else None


def origins_in(events: Iterable[Any]) -> dict[str, Origin]:
    """Where the summaries of a log came from, by their ids."""
    places: dict[str, int] = {}
    found: dict[str, Origin] = {}
    for event in events:
        if isinstance(event, LLMConvertibleEvent):
            places[short_id(event.id)] = len(places)
        elif isinstance(event, Condensation) and event.has_summary_metadata:
            forgotten = {short_id(one) for one in event.forgotten_event_ids}
            older = [found[one] for one in forgotten & found.keys()]
            leaves = (forgotten & places.keys()) | {leaf for one in older for leaf in one.leaves}
            depth = 1 + max((one.depth for one in older), default=0)
            found[short_id(event.summary_event.id)] = Origin(tuple(sorted(leaves, key=places.__getitem__)), depth)
    return found
