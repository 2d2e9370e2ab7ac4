"""What every rig offers. Tokens are words; each message of user and model has ten, each summary text five."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import ClassVar

from leadline.agent.adapters.conversations import Conversations

__all__ = ["Brain", "Rig", "words"]


def words(text: str) -> int:
    return len(text.split())


class Brain:
    """The fake model's mind, shared by all calls of one rig."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._answers = 0
        self.heard: list[str] = []
        """The whole input of each summarizer call."""
        self.requests: list[str] = []
        """The whole input of each other call."""
        self.fails: Exception | None = None
        """What the summarizer raises."""
        self.summary: str | None = None
        """The summary's text, where it is not the usual one of five words."""

    def answer(self, request: str) -> str:
        with self._lock:
            self.requests.append(request)
            self._answers += 1
            return f"answer-{self._answers} w w w w w w w w w"

    def summarize(self, request: str) -> str:
        with self._lock:
            self.heard.append(request)
            if self.fails is not None:
                raise self.fails
            return f"summary-{len(self.heard)} s s s s" if self.summary is None else self.summary


class Rig(ABC):
    """One agent instance that serves any number of conversations.

    ``held`` messages of ten words are in the context when its first compaction runs, which keeps ``kept`` of them;
    ``summary_tokens``: words of the message that the framework makes of a summary. ``unseen``: how many of what the first
    compaction drops the summarizer is not given, in a rig made with ``trimmed=True``; ``None``: this framework can't do that.
    """

    held: ClassVar[int]
    kept: ClassVar[int]
    summary_tokens: ClassVar[int]
    unseen: ClassVar[int | None] = None
    retries: ClassVar[bool] = True
    """Whether the framework can be asked to summarize a level again; otherwise its own next pass does it."""
    opaque: ClassVar[bool] = True
    """Whether a summary can be unreadable in this framework."""
    fails_quietly: ClassVar[bool] = False
    """Whether a summarizer's error is swallowed by the framework."""

    uses_shallow: ClassVar[bool] = True
    """Whether a cap of the depth is obeyed by giving the summarizer originals."""
    refuses_empty: ClassVar[bool] = False
    """Whether the framework takes an empty summary for an error."""

    def __init__(self, watch: Conversations, *, trimmed: bool = False) -> None:
        self.watch = watch
        self.brain = Brain()
        self.trimmed = trimmed

    def say(self, conversation: str, tag: str) -> None:
        """One turn of the user, with a message of ten words that begins with ``tag``."""
        self.turn(conversation, f"{tag} u u u u u u u u u")

    @abstractmethod
    def turn(self, conversation: str, text: str) -> None:
        """One turn of the user."""

    def compact_opaquely(self, conversation: str) -> None:
        """A compaction whose summary nobody can read; then one more turn."""
        raise NotImplementedError

    def fill(self, conversation: str, tag: str = "q") -> int:
        """Turns until the first compaction; how many there were."""
        turns = 0
        while not self.brain.heard:
            turns += 1
            assert turns < 30, "no compaction"
            self.say(conversation, f"{tag}{turns}")
        return turns
