"""Deep Agents: their ``SummarizationMiddleware``, reporting and obedient. Extra ``leadline[deepagents]``.

::

    watch = Conversations("localhost:9092", agent_id="researcher", token_budget=170_000)
    middleware = MonitoredSummarizationMiddleware(model, watch=watch, backend=backend)
    agent = create_deep_agent(model, backend=backend, middleware=[middleware])  # takes the default's place

Deep Agents leave the messages in the state as they are and keep a summarization event beside them; what the model is given is
made from both. That is what is measured here. Rehydration takes the event back: wholly where all of the originals fit, and
otherwise by writing what fits into the messages.

Not under the veto: ``SummarizationToolMiddleware``, with which the model itself compacts; its passes are noticed afterwards.
"""

from __future__ import annotations

import uuid
from typing import Any

from deepagents.middleware.summarization import SummarizationMiddleware as DeepSummarization
from deepagents.middleware.summarization import SummarizationState
from langchain.agents.middleware.types import hook_config
from langchain_core.messages import AnyMessage

from leadline.agent.adapters.conversations import Conversations
from leadline.agent.adapters.langchain import MessageWatch, MonitoredState, OnHalt
from leadline.agent.adapters.langchain_summarizer import NotingSummarizer, Turn, current_turn, ids_of, passing, redoing

__all__ = ["MonitoredSummarizationMiddleware"]

_EVENT = "_summarization_event"


class _State(SummarizationState, MonitoredState):
    """The framework's state and ours."""


class MonitoredSummarizationMiddleware(DeepSummarization):
    """``SummarizationMiddleware`` of Deep Agents (arguments as there) under watch; ``watch`` and ``on_halt`` as in
    :class:`leadline.agent.adapters.langchain.MonitoredSummarizationMiddleware`."""

    state_schema = _State

    def __init__(self, model: Any, *, watch: Conversations, on_halt: OnHalt = "veto", **arguments: Any) -> None:
        super().__init__(model, **arguments)
        # It is made inside the base's constructor; there is no other way to have it listen.
        self._lc_helper.__class__ = NotingSummarizer
        self._lc_helper.listen(watch)
        self._watch = watch
        self._messages = MessageWatch(watch, self._lc_helper._partial_token_counter, on_halt)

    @property
    def name(self) -> str:
        """The default's, so that it takes the default's place."""
        return "SummarizationMiddleware"

    def before_agent(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        return self._messages.begin_run(runtime)

    def after_agent(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        self._messages.end_run(state)
        return None

    @hook_config(can_jump_to=["end"])
    def before_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        turn = self._messages.begin(state, runtime, self._effective(state))
        if turn is not None and turn.retry is not None:
            with redoing(self._watch, turn):
                self._messages.redone(turn, self._create_summary(turn.retry.payloads))
        if turn is not None:
            with self._watch.harmless("waiting for a verdict"):
                turn.conversation.wait()
        return self._without_event(turn, state)

    @hook_config(can_jump_to=["end"])
    async def abefore_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        turn = self._messages.begin(state, runtime, self._effective(state))
        if turn is not None and turn.retry is not None:
            with redoing(self._watch, turn):
                self._messages.redone(turn, await self._acreate_summary(turn.retry.payloads))
        if turn is not None:
            with self._watch.harmless("waiting for a verdict"):
                await turn.conversation.wait_async()
        return self._without_event(turn, state)

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        turn = self._look(request)
        with passing(self._watch, turn):
            response = super().wrap_model_call(request, handler)
        self._done(turn, request, response)
        if turn is not None:
            with self._watch.harmless("waiting for a verdict"):
                turn.conversation.wait()
        return response

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        turn = self._look(request)
        with passing(self._watch, turn):
            response = await super().awrap_model_call(request, handler)
        self._done(turn, request, response)
        if turn is not None:
            with self._watch.harmless("waiting for a verdict"):
                await turn.conversation.wait_async()
        return response

    def _determine_cutoff_index(self, messages: list[AnyMessage]) -> int:
        turn = current_turn()
        if turn is not None and turn.decided:
            return 0  # The veto: nothing is cut off.
        return int(super()._determine_cutoff_index(messages))

    def _build_new_messages_with_path(self, summary: str, file_path: str | None) -> list[AnyMessage]:
        messages: list[AnyMessage] = super()._build_new_messages_with_path(summary, file_path)
        for message in messages:
            message.id = message.id or str(uuid.uuid4())
        return messages

    def _effective(self, state: Any) -> list[AnyMessage]:
        """What the model would be given now."""
        found: list[AnyMessage] = self._apply_event_to_messages(state["messages"], state.get(_EVENT))
        return found

    def _look(self, request: Any) -> Turn | None:
        turn = None
        with self._watch.harmless("looking at the messages"):
            turn = self._messages.turn(request.state, request.runtime, self._get_effective_messages(request))
            turn.decided = not turn.conversation.may_compact()
        return turn

    def _without_event(self, turn: Turn | None, state: Any) -> dict[str, Any] | None:
        """What was put back, as the state holds it: beside messages that are complete, no event."""
        if turn is None or turn.update is None or "messages" not in turn.update:
            return None if turn is None else turn.update
        update = {**turn.update, _EVENT: None}
        if ids_of(turn.conversation.working()) == ids_of(state["messages"]):
            del update["messages"]
        return update

    def _done(self, turn: Turn | None, request: Any, response: Any) -> None:
        if turn is not None:
            with self._watch.harmless("reporting a compaction"):
                command = getattr(response, "command", None)
                event = (getattr(command, "update", None) or {}).get(_EVENT)
                self._messages.report(turn, None if event is None else self._apply_event_to_messages(request.messages, event))
