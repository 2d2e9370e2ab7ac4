"""The simulated loop: what holds of every session, whatever its parameters."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

from leadline.lab.simulator.loop import Loop, Pass, onset, run
from leadline.lab.simulator.settings import REASONS, LoopSettings
from leadline.lab.simulator.workingset import Measure

PLAIN = LoopSettings()


def test_the_same_seed_makes_the_same_session() -> None:
    """Everything random comes from the seed."""
    assert run(PLAIN, 3) == run(PLAIN, 3)


def test_another_seed_makes_another_session() -> None:
    assert run(PLAIN, 3)[0] != run(PLAIN, 4)[0]


def test_the_budget_holds_after_every_pass() -> None:
    """Eviction is driven by the budget and continuous: never over it, and never far below."""
    passes, _ = run(PLAIN, 0)
    assert all(0.96 * PLAIN.token_budget <= one.after.total_tokens <= PLAIN.token_budget for one in passes)


def test_salience_rises_while_spans_fall() -> None:
    """The inversion signature comes out of the loop."""
    passes, _ = run(PLAIN, 1)
    first, last = passes[0].after, passes[-1].after
    assert last.query_cosine_retained > first.query_cosine_retained
    assert last.distinct_source_spans < first.distinct_source_spans
    assert (last.raw_ratio or 0.0) < 0.25 < (first.raw_ratio or 0.0)


def test_the_decay_brings_the_inversion_forward() -> None:
    """Over a few seeds, the onset without the recency decay is later by several rounds."""
    gaps = []
    for seed in range(5):
        with_decay, without = (onset(run(one, seed)[0]) for one in (PLAIN, replace(PLAIN, decay_weight=0.0)))
        assert with_decay is not None
        gaps.append((without or PLAIN.rounds + 1) - with_decay)
    assert np.median(gaps) >= 4


@pytest.mark.parametrize("seed", range(3))
def test_grounding_holds_in_every_round(seed: int) -> None:
    """Enforced: no retained summary without a reachable leaf, spans at the floor or above, and no unsupported claim."""
    passes, answer = run(replace(PLAIN, grounding=True), seed)
    assert all(one.after.ungrounded_summaries == 0 for one in passes)
    least = int(PLAIN.span_floor * Loop(PLAIN, seed).start_spans)
    assert all(one.after.distinct_source_spans >= least for one in passes)
    assert answer.unsupported == 0


def test_grounding_is_paid_in_tokens() -> None:
    """What is held for its sake is what exceeds the budget."""
    passes, _ = run(replace(PLAIN, grounding=True), 0)
    held = [one for one in passes if one.held_tokens]
    assert held
    assert all(one.after.total_tokens <= PLAIN.token_budget + one.held_tokens for one in passes)


def test_an_archive_keeps_the_spans_reachable() -> None:
    """Drift, not inversion: the raw ratio falls, and nothing becomes unfalsifiable."""
    passes, answer = run(replace(PLAIN, archived=True), 0)
    spans = [one.after.distinct_source_spans for one in passes]
    assert (passes[-1].after.raw_ratio or 0.0) < 0.25
    assert min(spans) >= 0.9 * spans[0]
    assert answer.unsupported == 0


def test_a_depth_penalty_keeps_the_raw_text() -> None:
    """The second condition of validity: a scorer that penalizes depth leaves far more raw text in the context."""
    plain, _ = run(PLAIN, 0)
    penalized, _ = run(replace(PLAIN, depth_penalty=1.0), 0)
    assert (penalized[-1].after.raw_ratio or 0.0) > 2 * (plain[-1].after.raw_ratio or 0.0)


def test_a_summary_is_nearer_to_the_query_than_its_children() -> None:
    """Combining cancels what is idiosyncratic: on average a summary has more cosine than what it was made of."""
    loop = Loop(PLAIN, 0)
    loop.step()
    gains = [
        loop.context.vectors[row, 0] - loop.context.vectors[list(children), 0].mean()
        for row, children in loop.context.children.items()
        if len(children) > 1
    ]
    assert np.mean(gains) > 0


def test_reachability_counts_distinct_leaves() -> None:
    """The measured spans are those retained, or below a retained summary in an archive; copies of a path count once."""
    loop = Loop(replace(PLAIN, archived=True), 0)
    loop.step()
    below = set()
    for row in loop.context.kept().tolist():
        below |= _leaves(loop, row)
    assert loop.measure().distinct_source_spans == len(below)


def test_onset_needs_both_signs() -> None:
    """Summaries outweighing raw text is no onset while spans stand."""
    assert onset(_passes([(60, 40, 9), (40, 60, 9), (40, 60, 8)])) == 3
    assert onset(_passes([(60, 40, 9), (40, 60, 9)])) is None


def test_every_parameter_has_its_reason() -> None:
    assert set(REASONS) == {field.name for field in fields(LoopSettings)}
    assert all(len(reason) > 20 for reason in REASONS.values())


def _leaves(loop: Loop, row: int) -> set[int]:
    children = loop.context.children.get(row)
    return {row} if children is None else set().union(*(_leaves(loop, child) for child in children))


def _passes(signals: list[tuple[int, int, int]]) -> list[Pass]:
    made = [Measure(raw, summary, spans, 0.5, 2, 0) for raw, summary, spans in signals]
    return [Pass(number, one, one, 0) for number, one in enumerate(made, 1)]
