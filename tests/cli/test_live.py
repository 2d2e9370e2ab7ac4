"""The live view: fed with plain records, drawn on a terminal, plain lines elsewhere."""

from __future__ import annotations

import io
import json
import re
from typing import Any

import msgspec
import pytest
from rich.console import Console

from leadline.cli.live import LiveView
from leadline.contracts.codec import decode_event
from leadline.contracts.events import Ack, Round
from leadline.contracts.orders import Command, Violation
from leadline.detection.condition import condition
from leadline.lab import ReplayDriver
from tests.lab.recordings import HOSTILE, compaction, inverting


def round_of(record: dict[str, Any]) -> Round:
    event = decode_event(json.dumps(record).encode()).event
    assert isinstance(event, Round)
    return event


def found(session: str = "s") -> tuple[Violation, Command]:
    driver = ReplayDriver()
    for record in inverting(session):
        driver.feed(json.dumps(record).encode())
    return next(one for one in driver.violations if one.rule == "inversion"), driver.commands[0]


def drawn(view: LiveView, width: int = 160) -> str:
    """The view as a wide screen shows it."""
    screen = Console(file=io.StringIO(), width=width, height=30, force_terminal=True, color_system=None)
    view._console = screen
    screen.print(view.render())
    assert isinstance(screen.file, io.StringIO)
    return screen.file.getvalue()


def plain() -> tuple[LiveView, io.StringIO]:
    out = io.StringIO()
    return LiveView("fleet", Console(file=out, markup=False, highlight=False, soft_wrap=True)), out


def row(screen: str, session: str = "s") -> str:
    return next(line for line in screen.splitlines() if line.startswith(f"│ {session} "))


def test_the_condition_is_the_monitors_word_and_nothing_is_guessed_from_the_records() -> None:
    """A round, a violation, its command, its acknowledgement: unknown, not healthy, until the monitor's record says."""
    violation, command = found()
    ack = Ack(session_id="s", agent_id="a", command_id=command.command_id, seq=1, outcome="accepted")
    view, _ = plain()
    view.on_round(round_of(compaction(1)))
    view.on_violation(violation)
    view.on_command(command)
    view.on_ack(ack)
    assert "unknown" in row(drawn(view))
    driver = ReplayDriver()
    for record, word in zip([*inverting(), msgspec.to_builtins(ack)], ["unknown", "healthy", "inverted", "halted"], strict=True):
        driver.feed(json.dumps(record).encode())
        [state] = driver.states.values()
        view.set_condition("s", "a", condition(state))
        assert word in row(drawn(view))


def test_a_session_shows_its_latest_measurements() -> None:
    view, _ = plain()
    view.set_kind("s", "a", "inverting")
    for number, ratio in enumerate((0.9, 0.5, 0.1), 1):
        view.on_round(round_of(compaction(number, ratio=ratio, summary_depth_max=number)))
    line = row(drawn(view))
    assert "inverting" in line
    assert "█▅▁" in line
    assert "0.10" in line
    assert "200" in line


def test_a_round_without_tokens_is_unknown_and_breaks_nothing() -> None:
    view, _ = plain()
    view.on_round(round_of(compaction(1, raw_tokens=0, summary_tokens=0)))
    assert "?" in row(drawn(view))


def test_elsewhere_each_event_is_one_line() -> None:
    violation, command = found()
    view, out = plain()
    with view:
        view.on_round(round_of(compaction(1)))
        view.on_violation(violation)
        view.on_command(command)
        view.note("done")
    assert [line[:10].strip() for line in out.getvalue().splitlines()] == [
        "fleet",
        "s  round",
        "✗ inversio",
        "→ halt  s",
        "· done",
        "1 session,",
    ]
    assert "\x1b" not in out.getvalue()


def test_a_hostile_session_id_is_shown_escaped_both_ways() -> None:
    violation, command = found(HOSTILE)
    view, out = plain()
    view.on_round(round_of(compaction(1, HOSTILE)))
    view.on_violation(violation)
    view.on_command(command)
    for shown in (out.getvalue(), drawn(view)):
        assert "\x1b[31m" not in shown
        assert "<!channel> \\x1b[31m[bo" in shown


def fleet_of(count: int) -> LiveView:
    """Sessions with ids that differ at their ends, and twenty rounds each."""
    view, _ = plain()
    for number in range(count):
        session = f"production-research-7f3a9c-{number:03d}"
        view.set_kind(session, "a", "floor-breaching")
        for at in range(20):
            view.on_round(round_of(compaction(at + 1, session, distinct_source_spans=12_345)))
        view.set_condition(session, "a", "ungrounded")
    return view


@pytest.mark.parametrize("width", [80, 100, 120, 139, 140, 170, 220])
def test_numbers_and_the_ends_of_ids_are_never_cut(width: int) -> None:
    """Whatever the width: ratio, spans and depth whole; what tells the sessions apart is there."""
    screen = drawn(fleet_of(3), width)
    for number in range(3):
        line = next(line for line in screen.splitlines() if f"-{number:03d} " in line)
        assert "ungrounded" in line
        assert re.search(r"0\.\d\d .*12345 +\d ", line)
        assert "floor-breaching" in line


@pytest.mark.parametrize("width", [100, 170])
def test_sparklines_take_what_room_there_is(width: int) -> None:
    """Four cells at least at 100 columns, more at 170, where the events stand beside."""
    [line] = [line for line in drawn(fleet_of(1), width).splitlines() if "-000 " in line]
    longest = max(map(len, re.findall("[▁▂▃▄▅▆▇█]+", line)))
    assert longest >= (4 if width == 100 else 7)


def test_a_failure_before_anything_was_heard_is_not_summed_up() -> None:
    view, out = plain()
    view.set_kind("s", "a", "healthy")
    with pytest.raises(OSError), view:
        raise OSError
    assert out.getvalue() == "fleet\n"


def test_what_was_not_fed_is_not_counted() -> None:
    """No rounds were fed: the total does not say that there were none."""
    violation, _ = found()
    view, out = plain()
    with view:
        view.on_violation(violation)
    assert out.getvalue().splitlines()[-1] == "1 session, 0 in trouble, 1 unknown; 1 violation"


def test_it_is_bounded_whatever_comes() -> None:
    violation, _ = found()
    view, _ = plain()
    for number in range(1000):
        view.on_round(round_of(compaction(1, f"s{number}")))
        view.on_violation(violation)
    assert len(view._sessions) <= 501
    assert len(view._events) <= 200
    assert "more" in drawn(view)


def test_a_live_terminal_is_left_clean() -> None:
    screen = Console(file=io.StringIO(), width=120, height=30, force_terminal=True)
    with LiveView("fleet", screen) as view:
        assert view.interactive
        view.on_round(round_of(compaction(1)))
    assert isinstance(screen.file, io.StringIO)
    assert screen.file.getvalue().endswith("\x1b[?25h"), "the cursor is shown again"
