"""What commands ask of a session. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from leadline.agent.control import State
from leadline.agent.rehydrate import Bounds
from leadline.contracts.orders import Command

__all__ = ["answered", "asks_again", "bounds", "in_vain", "rehydrating"]


def asks_again(command: Command, level: int | None = None) -> bool:
    """Whether it wants a level (this one, if given) summarized again: a ``retry-level``, or a ``halt`` with a ``level``."""
    wanted = command.parameters.level
    if command.kind == "retry-level":
        return level is None or wanted in (None, level)
    return command.kind == "halt" and wanted is not None and level in (None, wanted)


def answered(pending: Iterable[Command], halts: Iterable[Command], level: int, retry_of: str | None) -> tuple[list[Command], str]:
    """Which ``pending`` commands a call at ``level`` answers, and the id that it names as what it obeys.

    ``retry_of``: that id, where the agent says it. ``halts``: those in force; one with this level stands until its release.
    """
    if retry_of is not None:
        return [command for command in pending if command.command_id == retry_of], retry_of
    obeyed = [command for command in pending if asks_again(command, level)]
    named = obeyed or [command for command in halts if asks_again(command, level)]
    return obeyed, named[0].command_id if named else ""


def rehydrating(halts: Iterable[Command]) -> list[Command]:
    """The halts that a rehydration answers: all but those about a level."""
    return [command for command in halts if command.kind == "halt" and command.parameters.level is None]


def in_vain(state: State, halts: Iterable[Command], changed: bool) -> str:
    """Why a rehydration answers no halt and helps nothing, as a clause that says what to do instead; empty where it may."""
    if state is State.STOPPED:
        return "the session is stopped: leave the agent's loop and end it"
    if rehydrating(halts):
        return ""
    if state is State.HALTED:
        return "the session is halted for a level: summarize what session.retries names again"
    return "" if changed else "the session is not halted, and there was nothing to bring back"


def bounds(
    halts: Iterable[Command], *, to_raw_ratio: float | None, otherwise: float, token_budget: int, least_spans: int
) -> Bounds:
    """The strictest of what ``halts`` ask for. A halt without targets asks for no more than to stop.

    ``otherwise``: the raw ratio to reach without a halt, and that room for spans must not cost.
    """
    asked = [command.parameters for command in halts]
    ratios = [one.target_raw_ratio for one in asked if one.target_raw_ratio is not None]
    spans = [one.target_spans for one in asked if one.target_spans is not None]
    allowances = [one.max_restore_tokens for one in asked if one.max_restore_tokens is not None]
    if to_raw_ratio is not None:
        ratios.append(to_raw_ratio)
    elif not asked:
        ratios.append(otherwise)
    return Bounds(
        target_raw_ratio=max(ratios, default=None),
        target_spans=max(spans, default=None),
        max_restore_tokens=min(allowances, default=None),
        token_budget=token_budget,
        least_spans=least_spans,
        least_raw_ratio=otherwise,
    )
