"""What a rule says, cut to a size that fits a state, a command and a page, whatever the agent named its facts. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from msgspec.structs import replace

from leadline.contracts import limits
from leadline.contracts.orders import Parameters
from leadline.contracts.text import safe
from leadline.detection.rules.base import Evidence

__all__ = ["named", "said", "shown", "thresholds", "told"]

_MAX_ENTRIES = 32


def named(facts: Iterable[str]) -> tuple[str, ...]:
    """The first of ``facts``, each once: as many as one record names."""
    kept: list[str] = []
    room = limits.MAX_NAMED_BYTES
    for fact in dict.fromkeys(facts):
        room -= len(fact.encode())
        if kept and (room < 0 or len(kept) >= limits.MAX_NAMED_FACTS):
            break
        kept.append(fact)
    return tuple(kept)


def said(message: str) -> str:
    """A sentence with names in it that agents chose: on one line, secrets masked."""
    return safe(message, limits.MAX_DETAIL)


def shown(evidence: Evidence) -> Evidence:
    """Lists of facts become as long as :func:`named` makes them."""
    return {name: list(named(value)) if isinstance(value, list) else value for name, value in evidence.items()}


def thresholds(threshold: dict[str, float]) -> dict[str, float]:
    """At most 32 of them: there may be one for each class of facts."""
    return dict(islice(threshold.items(), _MAX_ENTRIES))


def told(parameters: Parameters) -> Parameters:
    """A command's parameters, naming no more facts than :func:`named` allows."""
    return parameters if parameters.facts is None else replace(parameters, facts=list(named(parameters.facts)))
