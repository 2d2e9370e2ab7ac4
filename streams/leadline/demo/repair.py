"""What a demo agent does when it is commanded: the same for every kind, since it does not know what was planted in it.

It goes by the command's own parameters alone, and keeps to them afterwards: a target that it had to be told becomes a guard of
its eviction pass, an instruction to its summarizer stays one. Pure.
"""

from __future__ import annotations

from typing import Final

from leadline.contracts.orders import Parameters
from leadline.demo.loop import Call, CompactionLoop

__all__ = ["adopt", "cap_depth", "retry_level"]

_RAW_MARGIN: Final = 0.05
"""How far above a commanded raw ratio the eviction pass stays from then on."""
_SPAN_MARGIN: Final = 1.25


def adopt(loop: CompactionLoop, parameters: Parameters) -> None:
    """Take the targets of a ``halt`` as guards of every later pass."""
    guards = loop.guards
    if parameters.target_raw_ratio is not None:
        guards.raw_floor = max(guards.raw_floor, parameters.target_raw_ratio + _RAW_MARGIN)
    if parameters.target_spans is not None:
        guards.span_floor = max(guards.span_floor, int(parameters.target_spans * _SPAN_MARGIN))
    # From now on what a summary stands on is kept, and it points at all of it.
    guards.citations = None
    guards.archive_tokens = None


def cap_depth(loop: CompactionLoop, cap: int) -> list[Call]:
    """Make summaries deeper than ``cap`` anew from their sources; nest no deeper from now on."""
    loop.guards.merge_depth = min(loop.guards.merge_depth, cap)
    calls: list[Call] = []
    for deep in [item for item in loop.items.values() if item.depth > cap]:
        ground = [loop.archive.get(leaf) or loop.items.get(leaf) for leaf in loop.ledger.leaves(deep.id)]
        inputs = [item for item in ground if item is not None]
        if inputs:
            calls += loop.summarize(1, inputs)
        loop.remove([deep])
    return calls


def retry_level(loop: CompactionLoop, parameters: Parameters) -> list[Call]:
    """Summarize a level's faulty inputs again, whole, and with the facts that were named; do so from now on."""
    level = parameters.level
    if level is None:
        return []
    guards = loop.guards
    guards.whole_levels |= {level}
    guards.pinned_facts |= frozenset(parameters.facts or ())
    past = [call for call in loop.calls if call.level == level]
    calls: list[Call] = []
    for call in [call for call in past if not call.whole or call.lost & guards.pinned_facts] or past[-1:]:
        loop.calls.remove(call)
        calls += loop.summarize(level, list(call.inputs))
        if call.output.id in loop.items:
            loop.remove([call.output])
    return calls
