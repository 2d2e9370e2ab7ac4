"""What commands add up to, whatever order they arrive in."""

from __future__ import annotations

from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from leadline.agent import State
from leadline.agent.control import Answer, Control
from leadline.contracts.orders import Command
from tests.agent.support import START, command


def after(*commands: Command, now: int = START) -> Control:
    control = Control(7)
    for one in commands:
        control.receive(one, now)
    return control


def test_resume_before_its_halt_keeps_the_state_of_the_higher_seq() -> None:
    """Field case: halt(1) and resume(2) arrive as 2, 1. The session runs, and the halt is answered as overtaken."""
    control = after(command(2, "resume"))
    assert control.receive(command(1), START) == Answer("refused", "overtaken by seq 2")
    assert control.state is State.RUNNING


def test_a_halt_ends_only_with_the_resume_of_its_own_incident() -> None:
    """Two incidents halt; the resume of one leaves the other's halt in force."""
    commands = command(1, incident="A"), command(2, incident="B"), command(3, "resume", incident="A")
    assert after(*commands).state is State.HALTED
    assert [one.command_id for one in after(*commands).halts] == ["cmd-2"]
    assert after(*commands, command(4, "resume", incident="B")).state is State.RUNNING


def test_a_resume_can_name_the_command_that_it_releases() -> None:
    """``releases`` ends a halt of another incident, also one that arrives later."""
    assert after(command(1, incident="A"), command(2, "resume", incident="B", releases="cmd-1")).state is State.RUNNING
    assert after(command(2, "resume", incident="B", releases="cmd-1"), command(1, incident="A")).state is State.RUNNING


def test_the_depth_cap_stays_after_its_resume() -> None:
    """Capped to 2, then resumed, in either order: still capped. A later cap takes its place, an earlier one does not."""
    cap, resume = command(1, "cap-depth", max_depth=2), command(2, "resume")
    for order in permutations((cap, resume)):
        control = after(*order)
        assert (control.state, control.depth_cap) == (State.CAPPED, 2)
    control = after(cap, command(5, "cap-depth", incident="B", max_depth=1), command(4, "cap-depth", incident="C", max_depth=3))
    assert control.depth_cap == 1


def test_gravity_of_states() -> None:
    """Capped, then halted, then stopped; the gravest counts."""
    commands = command(1, "cap-depth", max_depth=2), command(2, incident="B"), command(3, "stop-agent", incident="C")
    states = [after(*commands[:count]).state for count in range(4)]
    assert states == [State.RUNNING, State.CAPPED, State.HALTED, State.STOPPED]


def test_a_duplicate_acts_once_and_gets_its_last_answer_again() -> None:
    """Accepted, then done: a second delivery is answered with done and its tokens, and is not pending."""
    control = after(command(1))
    assert control.receive(command(1), START).outcome == "accepted"
    control.settle("cmd-1", Answer("done", "ok", 900))
    assert control.receive(command(1), START) == Answer("done", "ok", 900)
    assert control.pending == ()


def test_expired_commands_do_nothing_and_are_answered_as_expired() -> None:
    """Field case: a halt from 3 hours ago. At the very millisecond of its expiry it has expired too."""
    control = Control(7)
    old = command(1, expires_at=START - 3 * 3_600_000)
    assert control.receive(old, START).outcome == "expired"
    assert control.receive(command(2, expires_at=START), START).outcome == "expired"
    assert control.receive(command(3, expires_at=START + 1), START).outcome == "accepted"
    assert [one.command_id for one in control.halts] == ["cmd-3"]


def test_another_epoch_is_refused_and_an_unreadable_expiry_too() -> None:
    control = Control(7)
    answer = control.receive(command(1, epoch=6), START)
    assert (answer.outcome, control.state) == ("refused", State.RUNNING)
    assert "epoch 6" in answer.detail
    broken = command(2)
    broken = Command(**{name: getattr(broken, name) for name in broken.__struct_fields__} | {"expires_at": "soon"})
    assert control.receive(broken, START).outcome == "refused"


def test_a_reissued_halt_takes_the_place_of_the_attempt_before() -> None:
    """Only the newer attempt is still to be acted on; one resume ends both."""
    control = after(command(1), command(3))
    assert [one.command_id for one in control.pending] == ["cmd-3"]
    assert control.receive(command(2), START) == Answer("refused", "overtaken by seq 3")
    control.receive(command(4, "resume"), START)
    assert control.state is State.RUNNING


KINDS = st.sampled_from(["halt", "cap-depth", "resume", "stop-agent", "retry-level"])


@given(
    st.lists(st.tuples(KINDS, st.sampled_from("AB")), max_size=6).flatmap(
        lambda kinds: st.tuples(st.just(kinds), st.permutations(range(len(kinds))))
    )
)
def test_the_order_of_arrival_does_not_matter(case: tuple[list[tuple[str, str]], list[int]]) -> None:
    """Any commands, in any order of arrival and some twice: the same state, cap and halts as in the order of seq."""
    kinds, order = case
    commands = [
        command(seq, kind, incident=incident, max_depth=seq % 3 + 1)  # type: ignore[arg-type]
        for seq, (kind, incident) in enumerate(kinds, start=1)
    ]
    straight, shuffled = after(*commands), after(*(commands[index] for index in order), *commands[:2])
    assert (straight.state, straight.depth_cap, straight.halts) == (shuffled.state, shuffled.depth_cap, shuffled.halts)
    assert set(straight.pending) == set(shuffled.pending)


def test_memory_of_commands_is_bounded() -> None:
    """5,000 incidents, each halted and resumed: what is kept stays at the bound."""
    control = Control(7)
    for n in range(5_000):
        control.receive(command(2 * n, incident=f"i{n}"), START)
        control.receive(command(2 * n + 1, "resume", incident=f"i{n}"), START)
        control.settle(f"cmd-{2 * n + 1}", Answer("done"))
    kept = (control._answers, control._resumed, control._orders, control._pending)
    assert max(len(memory) for memory in kept) <= 1_024
    assert control.state is State.RUNNING
