"""The life of one command: every cell of the table, written out anew."""

from __future__ import annotations

import pytest

from leadline.commands.lifecycle import FINAL, TABLE, IllegalTransition, Instruction, Signal, advance
from leadline.contracts.session_state import CommandState, Stage
from leadline.detection.policy import FleetPolicy

POLICY = FleetPolicy(attempts=3, effect_ttl_ms=1000)
NOW = 5000

EXPECTED = """
            accepted   done       refused     expired    deadline   no-effect  improved   recovered  released   withdrawn
issued      accepted   accepted   retry       retry      retry      retry      issued     resolved*  resolved*  resolved*
accepted    accepted   accepted   retry       accepted   retry      retry      effective  resolved*  resolved*  resolved*
effective   effective  effective  effective   effective  retry      retry      effective  resolved*  resolved*  resolved*
escalated   escalated  escalated  escalated   escalated  escalated  escalated  escalated  resolved*  resolved*  resolved*
"""
"""``!`` escalate, ``*`` release; ``retry`` reissues while attempts are left and escalates when they are used up."""


def cells() -> list[tuple[Stage, Signal, str]]:
    head, *rows = [line.split() for line in EXPECTED.strip().splitlines()]
    return [(Stage(row[0]), Signal(signal), cell) for row in rows for signal, cell in zip(head, row[1:], strict=True)]


def command(stage: Stage, attempt: int = 1) -> CommandState:
    return CommandState("cmd-1", 7, "halt", stage, attempt, issued_at=0, deadline=60, misses=2, repeats=1)


@pytest.mark.parametrize(("stage", "signal", "cell"), cells(), ids=lambda item: getattr(item, "value", item))
@pytest.mark.parametrize("attempt", [1, 2, 3])
def test_a_cell_of_the_table(stage: Stage, signal: Signal, cell: str, attempt: int) -> None:
    given = command(stage, attempt)
    after, instruction = advance(given, signal, NOW, POLICY)
    if cell == "retry":
        used_up = attempt == POLICY.attempts
        assert instruction is (Instruction.ESCALATE if used_up else Instruction.REISSUE)
        assert after.stage is (Stage.ESCALATED if used_up else stage)
    else:
        assert after.stage is Stage(cell.rstrip("!*"))
        assert instruction is {"!": Instruction.ESCALATE, "*": Instruction.RELEASE}.get(cell[-1], Instruction.NONE)
    assert (after.command_id, after.seq, after.kind, after.attempt) == ("cmd-1", 7, "halt", attempt)


def test_the_table_has_every_cell_and_no_other() -> None:
    assert set(TABLE) == {(stage, signal) for stage, signal, _ in cells()}
    assert {stage for stage, _ in TABLE} | FINAL == set(Stage)


@pytest.mark.parametrize("signal", Signal, ids=lambda signal: signal.value)
def test_nothing_follows_a_final_stage_and_the_error_tells_the_story(signal: Signal) -> None:
    with pytest.raises(IllegalTransition) as refused:
        advance(command(Stage.RESOLVED, 2), signal, NOW, POLICY)
    for part in ("cmd-1", "halt", "attempt 2", "resolved", signal.value):
        assert part in str(refused.value)


@pytest.mark.parametrize(
    ("stage", "signal"),
    [
        (Stage.ISSUED, Signal.ACCEPTED),
        (Stage.ISSUED, Signal.DONE),
        (Stage.ACCEPTED, Signal.IMPROVED),
        (Stage.EFFECTIVE, Signal.IMPROVED),
    ],
)
def test_progress_gives_time_to_show_effect(stage: Stage, signal: Signal) -> None:
    after, _ = advance(command(stage), signal, NOW, POLICY)
    assert after.deadline == NOW + POLICY.effect_ttl_ms
    assert after.misses == 0


@pytest.mark.parametrize("signal", [Signal.ACCEPTED, Signal.DONE])
def test_saying_it_again_gains_no_time(signal: Signal) -> None:
    """An agent that acknowledges every minute and does nothing is still found out."""
    after, _ = advance(command(Stage.ACCEPTED), signal, NOW, POLICY)
    assert (after.deadline, after.misses) == (60, 2)


def test_no_acknowledgement_ever_counts_as_effect() -> None:
    for stage in (Stage.ISSUED, Stage.ACCEPTED):
        for signal in (Signal.ACCEPTED, Signal.DONE, Signal.EXPIRED):
            assert TABLE[stage, signal] not in (Stage.EFFECTIVE, Stage.RESOLVED)
