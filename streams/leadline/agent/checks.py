"""What an agent says is checked where it says it: one clear sentence at once, never a lost event later. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from math import isfinite
from operator import index
from typing import Any, TypeVar

import msgspec
import orjson

from leadline.agent.facts import Fact
from leadline.contracts import limits
from leadline.contracts.codec import decode_event, encode
from leadline.contracts.events import AgentEvent, Scorer
from leadline.errors import Malformed, Refused

__all__ = [
    "choice",
    "classes",
    "fact_list",
    "fraction",
    "known_only",
    "optional_whole",
    "scorer",
    "sendable",
    "text",
    "whole",
]

T = TypeVar("T")


def text(name: str, value: object, least: int = 1, most: int = limits.MAX_ID) -> str:
    """A string that every record can carry. Raises :class:`Refused`."""
    if not isinstance(value, str):
        raise Refused(f"{name} must be a string, not {_shown(value)}")
    if not least <= len(value) <= most:
        raise Refused(f"{name} must have {least} to {most} characters, not {len(value)}")
    if not _encodable(value):
        raise Refused(f"{name} must be text that can be written as UTF-8, not {_shown(value)}: it holds half a surrogate pair")
    return value


def whole(name: str, value: object, least: int = 0, most: int = limits.MAX_COUNT) -> int:
    """A whole number (also numpy's). Raises :class:`Refused`."""
    try:
        number = None if isinstance(value, bool) else index(value)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None or not least <= number <= most:
        raise Refused(f"{name} must be a whole number from {least} to {most}, not {_shown(value)}")
    return number


def optional_whole(name: str, value: object) -> int | None:
    """The same, or nothing. Raises :class:`Refused`."""
    return None if value is None else whole(name, value)


def classes(name: str, value: Iterable[str]) -> list[str]:
    """Classes of facts. Raises :class:`Refused`."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise Refused(f"{name} must be a list of fact classes, not {_shown(value)}")
    return [text(f"a class in {name}", one, 0) for one in value]


def fraction(name: str, value: object, least: float, most: float) -> float:
    """A finite number within bounds. Raises :class:`Refused`."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value) or not least <= value <= most:
        raise Refused(f"{name} must be a number from {least:g} to {most:g}, not {_shown(value)}")
    return float(value)


def choice(name: str, value: Any, allowed: Collection[T]) -> T:
    """One of few words. Raises :class:`Refused`."""
    try:
        for one in allowed:
            if value == one:
                return one
    except Exception:  # It cannot even be compared.
        pass
    raise Refused(f"{name} must be {' or '.join(map(repr, allowed))}, not {_shown(value)}")


def known_only(given: Mapping[str, Any], known: Collection[str]) -> None:
    """Options that nobody reads are typing errors. Raises :class:`Refused`."""
    for name in given:
        if name not in known:
            raise Refused(f"a session has no option {name!r}; there are {', '.join(sorted(known))}")


def fact_list(facts: object) -> list[Fact]:
    """Declared facts. Raises :class:`Refused`, naming the fact and what is wrong with it."""
    if isinstance(facts, str | bytes) or not isinstance(facts, Iterable):
        raise Refused(f"facts must be a list of Fact, not {_shown(facts)}")
    listed = list(facts)
    for fact in listed:
        if not isinstance(fact, Fact):
            raise Refused(f"facts must be a list of Fact; one of them is {_shown(fact)}")
        text("a fact's fact_id", fact.fact_id)
        where = f"of fact {fact.fact_id!r:.80}"
        text(f"fact_class {where}", fact.fact_class, 0)
        text(f"supersedes {where}", fact.supersedes, 0)
        if fact.recall_floor is not None:
            fraction(f"recall_floor {where}", fact.recall_floor, 0.0, 1.0)
        if not isinstance(fact.text, str) or not all(isinstance(anchor, str) for anchor in fact.anchors):
            raise Refused(f"the text and the anchors {where} must be strings")
    return listed


def scorer(value: object) -> Scorer | None:
    """What is stated of a scorer. Raises :class:`Refused`."""
    if value is not None and not isinstance(value, Scorer):
        raise Refused(f"scorer must be a Scorer, not {_shown(value)}")
    if value is not None:
        text("the scorer's kind", value.kind, 0)
    return value


def sendable(event: AgentEvent, name: str) -> None:
    """The record can be sent, and the monitor will read it. Raises :class:`Refused` with the field and what is wrong with it."""
    try:
        decode_event(encode(event))
    except Malformed as error:
        if error.reason != "over-size":  # Whoever sends it counts that.
            raise Refused(f"{name} cannot be reported: {error.detail}") from None
    except (TypeError, ValueError, AttributeError, msgspec.MsgspecError, orjson.JSONEncodeError) as error:
        where = _surrogate(msgspec.to_builtins(event), "")
        raise Refused(f"{name} cannot be reported: {f'{where} holds half a surrogate pair' if where else error}") from None


def _surrogate(value: object, path: str) -> str:
    """Where a string that cannot be encoded stands."""
    if isinstance(value, str):
        return "" if _encodable(value) else path
    items: Iterable[tuple[object, object]] = ()
    if isinstance(value, Mapping):
        items = value.items()
    elif isinstance(value, list | tuple):
        items = enumerate(value)
    return next((found for key, item in items if (found := _surrogate(item, f"{path}.{key}".lstrip(".")))), "")


def _encodable(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _shown(value: object) -> str:
    return ascii(value)[:80]
