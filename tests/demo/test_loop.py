"""The demo's compaction loop against the monitor's own fold: what is planted leads to its rule, by its own mechanism."""

from __future__ import annotations

import pytest

from leadline.contracts.codec import decode_event
from leadline.contracts.events import Checkpoint
from leadline.demo.kinds import KINDS, Kind, kind_named
from leadline.demo.loop import CompactionLoop
from tests.demo.closed_loop import ClosedLoop, closed_loops

# A few seeds each time, the others where there is time for them.
SEEDS = pytest.mark.parametrize("seeds", [range(4), pytest.param(range(4, 20), marks=pytest.mark.long)], ids=["few", "more"])
ROUNDS = 45
PLANTED = [kind for kind in KINDS if kind.planted]
HEALTHY = [kind for kind in KINDS if not kind.planted]
COMMANDED = [kind for kind in KINDS if kind.command]


def named(kind: Kind) -> str:
    return kind.name


@SEEDS
@pytest.mark.parametrize("kind", PLANTED, ids=named)
def test_planted_kinds_lead_to_their_rule(kind: Kind, seeds: range) -> None:
    """With the commands never heard, each kind's own mechanism leads to its rule, and the first order is the expected one."""
    for run in closed_loops(kind, seeds, ROUNDS):
        assert kind.rule in run.rules()
        first = next((command for command in run.driver.commands), None)
        assert (first.rule, first.kind) == (kind.rule, kind.command) if first else not kind.command


@SEEDS
@pytest.mark.parametrize("kind", HEALTHY, ids=named)
def test_healthy_kinds_are_never_commanded(kind: Kind, seeds: range) -> None:
    """However long they run and whatever noise there is."""
    for run in closed_loops(kind, seeds, 3 * ROUNDS):
        assert run.commanded() == []


@SEEDS
@pytest.mark.parametrize("delay", [1, 5])
@pytest.mark.parametrize("kind", COMMANDED, ids=named)
def test_commands_repair(kind: Kind, delay: int, seeds: range) -> None:
    """With the commands obeyed ``delay`` rounds late, measurements end every incident, each is released, and it compacts on."""
    for run in closed_loops(kind, seeds, 2 * ROUNDS, delay=delay):
        assert run.open_incidents() == []
        assert {command.kind for command in run.heard} >= {kind.command, "resume"}
        assert run.agent.session.may_compact()
        released = {command.parameters.releases for command in run.heard if command.kind == "resume"}
        assert {command.command_id for command in run.heard if command.kind != "resume"} <= released
        assert "unheeded" not in run.rules()


@pytest.mark.parametrize("kind", KINDS, ids=named)
def test_budget_holds(kind: Kind) -> None:
    """After every pass that did not fail the working set fits the budget, in spite of what was commanded."""
    if kind.mechanism.failure:
        pytest.skip("a failed pass leaves the working set as it was")
    for run in closed_loops(kind, range(5), ROUNDS, delay=1):
        assert max(signals.total_tokens for signals in run.measured) <= kind.mechanism.token_budget


@pytest.mark.parametrize("kind", KINDS, ids=named)
def test_same_seed_same_numbers(kind: Kind) -> None:
    """Two runs of one seed measure the same, another seed does not."""
    one, same, other = (ClosedLoop(kind, seed, delay=1).run(ROUNDS).measured for seed in (7, 7, 8))
    assert one == same
    assert one != other


def test_density_follows_from_combining() -> None:
    """Nobody scripted it: summaries lie nearer to the query than what they were made from."""
    loop = CompactionLoop(kind_named("healthy").mechanism, 3)
    while len(loop.calls) < 12:
        loop.step()
    for call in loop.calls:
        assert call.output.cosine > sum(item.cosine for item in call.inputs) / len(call.inputs)


def test_truncation_is_what_the_summarizer_did_not_read() -> None:
    """The checkpoint's counters come from the call: tokens consumed and spans seen are those of the head that was read."""
    run = ClosedLoop(kind_named("truncating"), 0).run(ROUNDS)
    sent = [event for event in (decode_event(value).event for value in run.sent) if isinstance(event, Checkpoint)]
    cut = [one for one in sent if one.consumed_input_tokens != one.declared_input_tokens]
    assert cut
    cap = kind_named("truncating").mechanism.input_cap
    assert cap is not None
    assert all((one.consumed_input_tokens or 0) <= cap and (one.seen_spans or 0) < (one.source_spans or 0) for one in cut)


def test_repaired_truncation_reads_everything() -> None:
    """After the retry no call at that level leaves anything unread, and what was cut before was read again."""
    run = ClosedLoop(kind_named("truncating"), 0, delay=1).run(2 * ROUNDS)
    assert all(call.whole for call in run.agent.loop.calls if call.level == 1)


def test_kept_facts_stay_kept() -> None:
    """After the retry every fact of the task is still stated by some summary at the end."""
    run = ClosedLoop(kind_named("constraint-losing"), 0, delay=1).run(2 * ROUNDS)
    lost = [name for call in run.agent.loop.calls if call.level == 2 for name in call.lost]
    assert lost == []
