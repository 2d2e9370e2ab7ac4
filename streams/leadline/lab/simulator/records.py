"""The simulator's sessions as the wire records that an agent would send (:mod:`leadline.contracts.events`)."""

from __future__ import annotations

from leadline.contracts import limits
from leadline.contracts.events import Checkpoint, FactStatus, Measures, Policy, Round, Scorer, SessionStart, Summary
from leadline.contracts.times import format_ms
from leadline.lab.simulator.checkpoints import Level
from leadline.lab.simulator.loop import Loop, Pass
from leadline.lab.simulator.settings import LoopSettings
from leadline.lab.simulator.workingset import Measure

__all__ = ["ROUND_MS", "checkpoint_record", "round_record", "start_record", "summary_name"]

AGENT = "lab"
ROUND_MS = 60_000
"""Simulated time from one round to the next."""


def start_record(session_id: str, loop: Loop, fleet: str = "", at: int = 0) -> SessionStart:
    """``at``: milliseconds since 1970."""
    settings = loop.settings
    return SessionStart(
        session_id=session_id,
        agent_id=AGENT,
        fleet=fleet,
        epoch=0,
        ts=format_ms(at),
        event_id="start",
        policy=_policy(settings),
        session_start_spans=loop.start_spans,
    )


def round_record(session_id: str, loop: Loop, one: Pass, fleet: str = "", at: int = 0) -> Round:
    """One pass, as measured after it; ``fleet`` and ``at`` as in :func:`start_record`."""
    after = one.after
    return Round(
        session_id=session_id,
        agent_id=AGENT,
        fleet=fleet,
        epoch=0,
        ts=format_ms(at),
        event_id=f"r{one.round}",
        round=one.round,
        trigger="budget",
        raw_tokens=after.raw_tokens,
        summary_tokens=after.summary_tokens,
        distinct_source_spans=after.distinct_source_spans,
        query_cosine_retained=after.query_cosine_retained,
        summary_depth_max=after.summary_depth_max,
        max_depth=loop.settings.max_depth,
        session_start_spans=loop.start_spans,
        token_budget=loop.settings.token_budget,
        before=_measures(one.before),
        dropped_spans=one.dropped_spans,
        ungrounded_summaries=after.ungrounded_summaries,
        summaries=_summaries(loop),
    )


def checkpoint_record(session_id: str, level: Level, at: int, *, counted: bool, visible: bool = True) -> Checkpoint:
    """One level. ``counted``: the agent measures what its summarizer was given and read; else it says nothing of it."""
    return Checkpoint(
        session_id=session_id,
        agent_id=AGENT,
        epoch=0,
        ts=format_ms(at),
        event_id=f"L{level.level}-{at}",
        level=level.level,
        budget_tokens=level.budget_tokens,
        declared_input_tokens=level.declared_tokens if counted else None,
        consumed_input_tokens=level.consumed_tokens if counted else None,
        source_spans=level.source if counted else None,
        seen_spans=level.seen if counted else None,
        output_tokens=level.tokens,
        facts=[FactStatus(fact_id=fact_id, status=state if visible else "unknown") for fact_id, state in level.states.items()],
        summary_visible=visible,
    )


def summary_name(row: int) -> str:
    """The wire id of a summary."""
    return f"s{row}"


def _policy(settings: LoopSettings) -> Policy:
    return Policy(
        token_budget=settings.token_budget,
        max_depth=settings.max_depth,
        scorer=Scorer(kind="cosine", penalizes_depth=settings.depth_penalty > 0),
        eviction="continuous",
        decay=settings.decay_weight,
    )


def _measures(found: Measure) -> Measures:
    return Measures(
        raw_tokens=found.raw_tokens,
        summary_tokens=found.summary_tokens,
        distinct_source_spans=found.distinct_source_spans,
        query_cosine_retained=found.query_cosine_retained,
    )


def _summaries(loop: Loop) -> list[Summary]:
    """Those without ground first, then lowest depth, then highest fan-out: as the agent's ledger lists them."""
    context = loop.context
    rows = context.kept()
    rows = rows[context.depth[rows] > 0]
    listed = [
        Summary(
            id=summary_name(row),
            depth=int(context.depth[row]),
            tokens=int(context.tokens[row]),
            fan_out=len(context.children[row]),
            reachable=int(reach),
        )
        for row, reach in zip(rows.tolist(), context.reach(rows).tolist(), strict=True)
    ]
    listed.sort(key=lambda item: (bool(item.reachable), item.depth, -item.fan_out))
    return listed[: limits.MAX_SUMMARIES]
