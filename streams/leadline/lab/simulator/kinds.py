"""Kinds of sessions for a labelled fleet: what is built into each, and the records that its agent would send."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
from msgspec import structs

from leadline.agent.facts import Fact
from leadline.contracts.events import AgentEvent, Round, SessionEnd
from leadline.contracts.times import format_ms
from leadline.lab.simulator.checkpoints import CONSTRAINT, FAITHFUL, ChainSettings, Statement, build_chain
from leadline.lab.simulator.corpus import Generator
from leadline.lab.simulator.loop import Loop
from leadline.lab.simulator.records import AGENT, ROUND_MS, checkpoint_record, round_record, start_record
from leadline.lab.simulator.settings import LoopSettings
from leadline.lab.simulator.truth import Truth, first_levels, first_rounds

__all__ = ["KINDS", "Labelled", "Plan", "labelled", "plan"]


class Plan(NamedTuple):
    """One session to be. ``noise``, ``jitter``: relative error of reported tokens, of reported salience."""

    loop: LoopSettings
    chain: ChainSettings
    planted: Statement
    noise: float = 0.0
    jitter: float = 0.0
    listed: bool = True
    """Each round lists its summaries."""
    visible: bool = True


class Labelled(NamedTuple):
    """A recorded session and what really happened in it."""

    kind: str
    session_id: str
    records: list[AgentEvent]
    truth: Truth


_ROOMY: Final = ChainSettings(budgets=(8_000, 2_000, 1_024, 1_024))
"""Every statement fits at every level."""
_STEADY: Final = LoopSettings(arrivals=8.0, calls=(1, 1, 0), archived=True)
"""Reading keeps pace with summarizing, so raw text stays the greater part; what is evicted can still be produced."""
_ANCHORS: Final = ("credential", "rotat*", "4")


def _varied(rng: Generator, base: LoopSettings) -> LoopSettings:
    """Another scorer and another summarizer, drawn."""
    weight = base.decay_weight * float(rng.choice([0.0, 0.7, 1.0, 1.3]))
    pick = rng.choice(["endangered", "endangered", "oldest", "random"])
    caps = tuple(int(cap * rng.uniform(0.8, 1.2)) for cap in base.output_caps)
    return replace(base, decay_weight=weight, picks=(pick, *base.picks[1:]), output_caps=caps)


def _estimated(rng: Generator) -> float:
    """Half of the agents count tokens exactly; the others estimate them."""
    return float(rng.choice([0.0, 0.01]))


def _inverting(rng: Generator) -> Plan:
    return Plan(_varied(rng, LoopSettings()), _ROOMY, FAITHFUL, noise=_estimated(rng))


def _drifting(rng: Generator) -> Plan:
    return Plan(replace(_varied(rng, LoopSettings()), archived=True), _ROOMY, FAITHFUL, noise=_estimated(rng))


def _pinned(rng: Generator) -> Plan:
    return Plan(replace(_varied(rng, _STEADY), calls=(2, 1, 1), group_sizes=(3, 4, 3)), _ROOMY, FAITHFUL, noise=_estimated(rng))


def _truncating(rng: Generator) -> Plan:
    last = ChainSettings()
    turn = int(rng.choice([7, last.turns]))
    return Plan(_varied(rng, _STEADY), replace(last, statement_turn=turn), FAITHFUL)


def _losing(rng: Generator) -> Plan:
    chain = ChainSettings(budgets=(8_000, 2_000, 512, 512), statement_turn=int(rng.integers(1, 41)))
    return Plan(_varied(rng, _STEADY), chain, CONSTRAINT)


def _noisy(rng: Generator) -> Plan:
    return Plan(_varied(rng, replace(_STEADY, arrivals=rng.uniform(5, 10))), _ROOMY, FAITHFUL, noise=0.02, jitter=0.02)


def _shallow(rng: Generator) -> Plan:
    return Plan(replace(_varied(rng, replace(_STEADY, arrivals=4.0)), max_depth=1, calls=(3,)), _ROOMY, FAITHFUL)


def _opaque(rng: Generator) -> Plan:
    return Plan(_varied(rng, _STEADY), _ROOMY, CONSTRAINT, listed=False, visible=False)


KINDS: Final[dict[str, Callable[[Generator], Plan]]] = {
    "inverting": _inverting,
    "drifting": _drifting,
    "pinned": _pinned,
    "truncating": _truncating,
    "constraint-losing": _losing,
    "healthy-noisy": _noisy,
    "healthy-shallow": _shallow,
    "opaque": _opaque,
}
"""By name; whether a session is healthy is for its truth to say, not for its kind."""


def plan(kind: str, seed: int) -> Plan:
    """Deterministic in kind and seed."""
    return KINDS[kind](np.random.default_rng([seed, *kind.encode()]))


def labelled(kind: str, seed: int, rounds: int | None = None) -> Labelled:
    """One session of this kind. ``rounds``: fewer than its settings say."""
    made = plan(kind, seed)
    settings = made.loop if rounds is None else replace(made.loop, rounds=rounds)
    rng = np.random.default_rng(seed)
    session_id = f"{kind}-{seed}"
    loop = Loop(settings, seed)
    fact = Fact("constraint", made.planted.text, _ANCHORS, fact_class="constraint", recall_floor=1.0)
    chain = build_chain(made.chain, seed, (fact,), made.planted)
    records: list[AgentEvent] = [structs.replace(start_record(session_id, loop), facts=[fact.declared()])]
    passes = []
    for _ in range(settings.rounds):
        passes.append(loop.step())
        record = round_record(session_id, loop, passes[-1], at=loop.round * ROUND_MS)
        records.append(_reported(record, made, rng))
    at = settings.rounds * ROUND_MS
    for level in chain.levels:
        at += 1_000
        records.append(checkpoint_record(session_id, level, at, counted=True, visible=made.visible))
    records.append(SessionEnd(session_id=session_id, agent_id=AGENT, epoch=0, ts=format_ms(at + 1_000), event_id="end"))
    first = first_rounds(passes, settings, loop.start_spans) | (first_levels(chain) if made.visible else {})
    return Labelled(kind, session_id, records, Truth(first, loop.answer()))


def _reported(record: Round, made: Plan, rng: Generator) -> Round:
    if not made.listed:
        record = structs.replace(record, summaries=None)
    if not made.noise and not made.jitter:
        return record
    # The same wrong tokenizer counts before and after the pass.
    raw, summary = rng.normal(1.0, made.noise, size=2).tolist()
    salience = rng.normal(1.0, made.jitter)
    assert record.before is not None
    before = structs.replace(
        record.before,
        raw_tokens=round(record.before.raw_tokens * raw),
        summary_tokens=round(record.before.summary_tokens * summary),
    )
    return structs.replace(
        record,
        before=before,
        raw_tokens=round(record.raw_tokens * raw),
        summary_tokens=round(record.summary_tokens * summary),
        query_cosine_retained=(record.query_cosine_retained or 0.0) * salience,
    )
