"""The examples of docs/adapters run as they stand there, with each framework's fake model and a real monitor on a broker."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from leadline.agent import State
from leadline.agent.adapters.conversations import Conversations
from leadline.contracts.events import Round
from leadline.contracts.session_state import decode_state
from tests.agent.adapters.claude_code.recording import SESSION, Recording
from tests.agent.adapters.rigs import rig_of
from tests.agent.adapters.rigs.base import Brain
from tests.processors.running import REAL, RunningWorker, Topics, until
from tests.support import brokers

DOCS = Path(__file__).resolve().parents[4] / "docs" / "adapters"
EXAMPLES = {path.stem: path for path in sorted(DOCS.glob("*.md")) if "```python" in path.read_text(encoding="utf-8")}

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("examples")]


def code_of(name: str) -> str:
    return EXAMPLES[name].read_text(encoding="utf-8").partition("```python\n")[2].partition("```")[0]


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_has_at_most_20_lines(name: str) -> None:
    assert len([line for line in code_of(name).splitlines() if line.strip()]) <= 20


@pytest.fixture(scope="module")
def monitor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningWorker]:
    """A monitor at work on an embedded broker."""
    broker, ours = brokers.start("embedded", tmp_path_factory.mktemp("broker"))
    running = RunningWorker(broker.bootstrap, tmp_path_factory.mktemp("monitor"), REAL)
    try:
        yield running.ready()
    finally:
        running.stop()
        if ours is not None:
            ours.__exit__(None, None, None)


def open_incidents(topics: Topics, session: str) -> set[str]:
    """The rules that have something open, as the monitor's state tells."""
    states = [decode_state(m.value()) for m in topics.read("leadline.sessions") if m.value() is not None]
    mine = [state for state in states if state.session_id == session]
    return {incident.rule for incident in mine[-1].incidents} if mine else {"not told yet"}


def orders(topics: Topics, session: str) -> list[dict[str, Any]]:
    found = [json.loads(message.value()) for message in topics.read("leadline.commands")]
    return [one for one in found if one["session_id"] == session]


class Example:
    """An example at work. ``names``: what it defines."""

    def __init__(self, monitor: RunningWorker, name: str, **given: Any) -> None:
        self._monitor = monitor
        bootstrap = monitor.bootstrap
        self.names: dict[str, Any] = dict(given)
        exec(code_of(name).replace("localhost:9092", bootstrap), self.names)
        self.watch: Conversations = self.names["watch"]
        self.topics = Topics(bootstrap)

    def records(self, topic: str) -> list[dict[str, Any]]:
        return [json.loads(message.value()) for message in self.topics.read(topic)]

    def violations(self, session: str) -> set[tuple[str, str]]:
        found = self.records("leadline.violations")
        return {(one["rule"], one["reason"]) for one in found if one["session_id"] == session}

    def triggers(self, session: str) -> list[str]:
        """Of the rounds that the session has reported, in their order."""
        assert self.watch.client.flush() == 0
        events = [event for event in self.records("leadline.events") if event["session_id"] == session]
        return [event["trigger"] for event in events if event["schema"] == Round.__struct_config__.tag]

    @contextmanager
    def monitor_frozen(self) -> Iterator[None]:
        """Nothing comes from the monitor meanwhile: what it has said stands."""
        self._monitor.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._monitor.process.send_signal(signal.SIGCONT)

    def state(self, session: str) -> State:
        conversation = self.watch.of(session)
        conversation.session.poll()
        return conversation.session.state

    def close(self) -> None:
        self.watch.close()
        self.watch.client.close()
        self.topics.close()


@contextmanager
def example(request: pytest.FixtureRequest, name: str, rig: str, **given: Any) -> Iterator[Example]:
    rig_of(rig)  # Skips where the framework is not installed, before anything is started.
    made = Example(request.getfixturevalue("monitor"), name, **given)
    try:
        yield made
    finally:
        made.close()


# -- LangChain, with its middleware's defaults

LONG = "u" * 1_988
"""With LangChain's estimate, four characters a token and three for each message: 500."""


def langchain_model(brain: Brain) -> Any:
    rig_of("langchain")
    from tests.agent.adapters.rigs.langchain import FakeModel

    return FakeModel(brain=brain)


class LongAnswers(Brain):
    def answer(self, request: str) -> str:
        super().answer(request[-50:])
        return "a" * 1_988


def test_langchain_the_trimmed_summary_is_found_and_the_level_summarized_again(request: pytest.FixtureRequest) -> None:
    """31 messages of 500 tokens: 11 are dropped and the summarizer sees the last 8 of them at most. The monitor names the others
    and asks for the level again; the adapter gives the summarizer everything, in parts."""
    brain = LongAnswers()
    with example(request, "langchain", "langchain", model=langchain_model(brain), tools=[]) as one:
        ask = one.names["ask"]
        while not brain.heard:
            ask("trimmed", LONG)
        until("the violation", lambda: ("budget-open", "spans-unseen") in one.violations("trimmed"))
        until("the command", lambda: one.watch.of("trimmed").session.retries)
        before = len(brain.heard)
        ask("trimmed", "and now?")
        assert len(brain.heard) - before >= 2, "in parts"


def test_langchain_a_placeholder_halts_and_its_messages_come_back(request: pytest.FixtureRequest) -> None:
    """A tool loop without a human message in the summarizer's window: a fixed sentence takes the summary's place. The monitor's
    halt comes while the loop runs: the dropped messages are back in the next request."""
    rig_of("langchain")
    from langchain_core.messages import AIMessage
    from langchain_core.tools import tool

    brain = Brain()
    requests: list[str] = []
    waits: list[Callable[[], None]] = []
    heard_while_halted: list[int] = []

    @tool
    def look(n: int) -> str:
        """Looks."""
        if waits and any("too long to summarize" in text for text in requests[-1:]):
            waits.pop()()
        return f"[tool-{n}] " + "t" * 1_978

    class Looping(type(langchain_model(brain))):  # type: ignore[misc]
        def _generate(self, messages: list[Any], *arguments: Any, **named: Any) -> Any:
            requests.append("\n".join(str(message.content) for message in messages))
            number = len(requests)
            if number > 24:
                return super()._generate(messages, *arguments, **named)
            call = {"name": "look", "args": {"n": number}, "id": f"call-{number}", "type": "tool_call"}
            from tests.agent.adapters.rigs.langchain import _result

            return _result(AIMessage("a" * 1_960, tool_calls=[call]))

    with example(request, "langchain", "langchain", model=Looping(brain=brain), tools=[look]) as one:

        def wait() -> None:
            until("the halt", lambda: one.state("loop") is State.HALTED)
            heard_while_halted.append(len(requests))

        waits.append(wait)
        one.names["ask"]("loop", "go")
        assert heard_while_halted, "the fixed sentence never stood in a request"
        at = heard_while_halted[0]
        assert "too long to summarize" in requests[at - 1]
        assert "[tool-1]" not in requests[at - 1]
        assert "[tool-1]" in requests[at], "back, in the next request"
        found = one.violations("loop")
        assert ("ungrounded-summary", "summary-without-leaf") in found
        assert ("silent-drop", "summarizer-failed") in found
        rounds = [event for event in one.records("leadline.events") if event["schema"] == Round.__struct_config__.tag]
        mine = [event["trigger"] for event in rounds if event["session_id"] == "loop"]
        assert mine.index("rehydrate") > mine.index("budget")


def test_langchain_an_empty_summary_is_named(request: pytest.FixtureRequest) -> None:
    brain = LongAnswers()
    brain.summary = ""
    with example(request, "langchain", "langchain", model=langchain_model(brain), tools=[]) as one:
        while not brain.heard:
            one.names["ask"]("empty", LONG)
        until("the violation", lambda: ("silent-drop", "empty-summary") in one.violations("empty"))


# -- all of them: an error in the place of a summary


def langchain(brain: Brain) -> tuple[dict[str, Any], Callable[[Example, str], None]]:
    return {"model": langchain_model(brain), "tools": []}, lambda one, text: one.names["ask"](
        "langchain", text.ljust(len(LONG), "u")
    )


def deepagents(brain: Brain) -> tuple[dict[str, Any], Callable[[Example, str], None]]:
    return {"model": langchain_model(brain)}, lambda one, text: one.names["ask"]("deepagents", text)


def strands(brain: Brain) -> tuple[dict[str, Any], Callable[[Example, str], None]]:
    from tests.agent.adapters.rigs.strands import FakeModel

    return {"model": FakeModel(brain)}, lambda one, text: one.names["ask"]("strands", text)


def pydantic_ai(brain: Brain) -> tuple[dict[str, Any], Callable[[Example, str], None]]:
    from pydantic_ai.messages import ModelResponse, TextPart
    from pydantic_ai.models.function import FunctionModel

    from tests.agent.adapters.rigs.pydantic_ai import said

    def reply(messages: list[Any], _: Any) -> ModelResponse:
        text = said(messages)
        return ModelResponse([TextPart(brain.summarize(text) if text.endswith("Summarize.") else brain.answer(text))])

    history: list[Any] = []

    def turn(one: Example, text: str) -> None:
        result = one.names["agent"].run_sync(text, message_history=history or None, conversation_id="pydantic-ai")
        history[:] = result.all_messages()

    return {"model": FunctionModel(reply)}, turn


def google_adk(brain: Brain) -> tuple[dict[str, Any], Callable[[Example, str], None]]:
    from google.adk.runners import Runner
    from google.adk.sessions import InMemorySessionService
    from google.genai.types import Content, Part

    from tests.agent.adapters.rigs.google_adk import FakeLlm

    sessions = InMemorySessionService()

    async def run(one: Example, text: str) -> None:
        if await sessions.get_session(app_name="helper", user_id="u", session_id="google-adk") is None:
            await sessions.create_session(app_name="helper", user_id="u", session_id="google-adk")
        runner = Runner(app=one.names["app"], session_service=sessions)
        async for _ in runner.run_async(
            user_id="u", session_id="google-adk", new_message=Content(role="user", parts=[Part(text=text)])
        ):
            pass

    return {"model": FakeLlm(model="fake", brain=brain)}, lambda one, text: asyncio.run(run(one, text))


def openhands(brain: Brain) -> tuple[dict[str, Any], Callable[[Example, str], None]]:
    from tests.agent.adapters.rigs.openhands import fake_llm

    return {"llm": fake_llm(brain), "workspace": tempfile.mkdtemp()}, lambda one, text: one.names["ask"](text)


LOOPS = {
    "langchain": langchain,
    "deepagents": deepagents,
    "strands": strands,
    "pydantic-ai": pydantic_ai,
    "google-adk": google_adk,
    "openhands": openhands,
}


@pytest.mark.parametrize("name", LOOPS)
def test_a_summary_that_is_none_is_halted_repaired_and_released(request: pytest.FixtureRequest, name: str) -> None:
    """The summarizer answers with an error that the framework takes for a summary. The monitor names it and halts the session;
    the dropped messages are back in the next request, and no pass runs although one is due at each turn; the monitor's release
    lets the next one run, which has all of them before it."""
    rig = name.replace("-", "_")
    rig_of(rig)
    brain = Brain()
    brain.summary = "Error generating summary: the model is overloaded"
    given, turn = LOOPS[name](brain)
    with example(request, name, rig, **given) as one:
        number = 0
        while not brain.heard:
            number += 1
            turn(one, f"q{number} u u u u u u u u u")
        [session] = list(one.watch._open)
        until("the halt", lambda: one.state(session) is State.HALTED)
        assert {("silent-drop", "summarizer-failed"), ("ungrounded-summary", "summary-without-leaf")} <= one.violations(session)
        brain.summary = None
        with one.monitor_frozen():
            for more in range(4):
                turn(one, f"more{more} u u u u u u u u u")
                assert all(f"q{at} " in brain.requests[-1] for at in range(1, number + 1))
                assert "Error generating" not in brain.requests[-1]
            assert len(brain.heard) == 1
        assert one.triggers(session)[:2] == ["budget", "rehydrate"]
        assert {"hold"} == set(one.triggers(session)[2:])
        until("the release", lambda: one.state(session) is State.RUNNING)
        while len(brain.heard) == 1:
            turn(one, "last u u u u u u u u u")
        assert "q1 " in brain.heard[1]
        until("the end of its trouble", lambda: not open_incidents(one.topics, session))
        assert "unheeded" not in {rule for rule, _ in one.violations(session)}
        assert one.watch.failures == 0


@pytest.mark.long
def test_claude_codes_next_compaction_is_blocked_and_what_was_lost_is_put_back(monitor: RunningWorker, tmp_path: Path) -> None:
    """The command of the page's settings, a process for each hook. The summary is an error: the monitor's halt blocks the next
    automatic compaction, though not one that a person asks for; the next prompt puts the originals back, and the release lets
    compaction go on, after which nothing is open."""
    settings = json.loads((DOCS / "claude-code.md").read_text(encoding="utf-8").partition("```json\n")[2].partition("```")[0])
    topics = Topics(monitor.bootstrap)

    def fire(event: str, **more: Any) -> dict[str, Any]:
        transcript = tmp_path / "transcript.jsonl"
        transcript.write_text(made.text)
        given = {"hook_event_name": event, "session_id": SESSION, "transcript_path": str(transcript), **more}
        [entry] = settings["hooks"][event][0]["hooks"]
        command = entry["command"].replace("kafka:9092", monitor.bootstrap).split()[1:]
        environ = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
        done = subprocess.run(
            [sys.executable, "-m", "leadline", *command],
            input=json.dumps(given),
            capture_output=True,
            text=True,
            env=environ,
            check=True,
        )
        assert done.stderr == ""
        answer: dict[str, Any] = json.loads(done.stdout or "{}")
        return answer

    made = Recording()
    for turn in range(3):
        made.user(f"question {turn} ")
        last = made.assistant(f"answer {turn} ")
    made.boundary(preservedMessages={"uuids": [last]})
    made.summary("Error generating summary: the model is overloaded")
    fire("PostCompact", trigger="auto")
    blocked = until("the halt", lambda: fire("PreCompact", trigger="auto"))
    assert blocked["decision"] == "block"
    assert "ungrounded-summary" in blocked["reason"]
    assert fire("PreCompact", trigger="manual") == {}
    context = fire("UserPromptSubmit", prompt="go on")["hookSpecificOutput"]["additionalContext"]
    assert [f"question {turn}" in context for turn in range(3)] == [True, True, True]
    until("the release", lambda: "resume" in [one["kind"] for one in orders(topics, SESSION)])
    assert fire("PreCompact", trigger="auto") == {}
    kept = made.user("go on " * 20)
    made.boundary(preservedMessages={"uuids": [kept]})
    made.summary("summary " + "s" * 60)
    fire("PostCompact", trigger="auto")
    until("the end of its trouble", lambda: not open_incidents(topics, SESSION))
    assert {one["kind"] for one in orders(topics, SESSION)} == {"halt", "retry-level", "resume"}
    topics.close()


def test_every_adapter_has_its_page() -> None:
    assert set(LOOPS) == set(EXAMPLES)
    assert re.search(r"leadline hook claude-code", (DOCS / "claude-code.md").read_text(encoding="utf-8"))
