"""The material of a session: topics of unequal relevance to the task, and raw spans about them.

The task query is the first unit vector. A topic's relevance is its direction's cosine to the query. A raw span points along
its topic plus an idiosyncratic part of its own, so a single span is a poor match even for a relevant topic (sparse), while
what several spans of one topic have in common is a better one (dense).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from leadline.lab.simulator.settings import LoopSettings

__all__ = ["Floats", "Ints", "Spans", "draw_spans", "first_corpus", "topic_directions"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Generator = np.random.Generator


class Spans(NamedTuple):
    """Raw spans: unit vectors (n x dimensions), tokens, topic numbers."""

    vectors: Floats
    tokens: Ints
    topics: Ints


def topic_directions(rng: Generator, settings: LoopSettings) -> Floats:
    """One unit vector a topic (topics x dimensions), the least relevant first."""
    steps = np.linspace(0.0, 1.0, settings.topics) ** settings.relevance_skew
    relevance = settings.relevance_low + (settings.relevance_high - settings.relevance_low) * steps
    aside = rng.normal(size=(settings.topics, settings.dimensions))
    aside[:, 0] = 0.0
    directions = _unit(aside) * np.sqrt(1.0 - relevance**2)[:, None]
    directions[:, 0] = relevance
    return directions


def draw_spans(rng: Generator, settings: LoopSettings, directions: Floats, tokens: Ints) -> Spans:
    """Spans of the given lengths. A longer span holds more that is not about its topic (``dilution``)."""
    count = len(tokens)
    shares = (1.0 + np.arange(settings.topics)) ** settings.topic_share_skew
    topics = rng.choice(settings.topics, size=count, p=shares / shares.sum())
    aside = _unit(rng.normal(size=(count, settings.dimensions)))
    strength = settings.noise * (tokens / settings.span_tokens) ** settings.dilution
    return Spans(_unit(directions[topics] + aside * strength[:, None]), tokens, topics.astype(np.int64))


def draw_tokens(rng: Generator, settings: LoopSettings, count: int) -> Ints:
    """Span lengths: log-normal around ``span_tokens``."""
    spread = settings.span_spread
    drawn = settings.span_tokens * np.exp(rng.normal(size=count) * spread - spread**2 / 2)
    return np.maximum(1, drawn).astype(np.int64)


def first_corpus(rng: Generator, settings: LoopSettings, directions: Floats) -> tuple[Spans, Ints]:
    """What the session has read when its context reaches the trigger, and how many rounds ago each span came."""
    wanted = settings.trigger_fill * settings.token_budget
    tokens = draw_tokens(rng, settings, int(wanted / settings.span_tokens * 2) + 16)
    count = int(np.searchsorted(np.cumsum(tokens), wanted)) + 1
    ages = (count - 1 - np.arange(count)) // settings.reading_pace
    return draw_spans(rng, settings, directions, tokens[:count]), ages.astype(np.int64)


def _unit(vectors: Floats) -> Floats:
    norms: Any = np.linalg.norm(vectors, axis=1, keepdims=True)
    scaled: Floats = vectors / norms
    return scaled
