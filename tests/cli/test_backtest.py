"""``leadline backtest``: what a policy would have done on a recording, and how two differ."""

from __future__ import annotations

from pathlib import Path

import pytest

from leadline.cli import exits
from leadline.detection.policy import DEFAULT_POLICY, FleetPolicy, Policy
from leadline.lab.backtest import backtest, compare
from leadline.lab.lines import Line
from leadline.lab.replay import ReplayDriver
from tests.cli.run import leadline
from tests.lab.recordings import HOSTILE, compaction, inverting, lines, start, write
from tests.scenarios.make_data import FILE

LAX = Policy(version="lax", default=FleetPolicy(raw_ratio_floor=0.1))


def healthy(session: str) -> list[dict[str, object]]:
    return [start(session), *(compaction(n, session) for n in range(1, 6))]


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """One inverting session and nine healthy ones, and a line that nobody can read."""
    return write(
        tmp_path / "events.jsonl", [*inverting("bad"), "nonsense", *(event for n in range(9) for event in healthy(f"s{n}"))]
    )


@pytest.fixture
def lax(tmp_path: Path) -> Path:
    file = tmp_path / "lax.toml"
    file.write_text('version = "lax"\n[default]\nraw_ratio_floor = 0.1\n')
    return file


def test_incidents_commands_and_rates(recording: Path) -> None:
    ran = leadline("backtest", str(recording), "--json")
    assert ran.code == exits.OK
    assert ran.json == {
        "policy": "default",
        "sessions": 10,
        "events": 58,
        "dead_letters": 1,
        "sessions_with_an_incident": 1,
        "sessions_commanded": 1,
        "incidents": {"inversion": 1},
        "commands": {"halt": 1},
        "incidents_per_1000_sessions": {"inversion": 100.0},
        "alarms_per_1000_sessions": 100.0,
        "halts_per_1000_sessions": 100.0,
    }


def test_two_policies_and_the_sessions_on_which_they_differ(recording: Path, lax: Path) -> None:
    shown = leadline("backtest", str(recording), "--against", str(lax), "--json").json
    assert shown["policy"] == "default"
    assert shown["against"]["policy"] == "lax"
    assert shown["against"]["incidents"] == {}
    assert shown["changes"] == [
        {"session_id": "bad", "agent_id": "a", "appear": [], "vanish": ["inversion", "halt"], "moved": []}
    ]
    turned = leadline("backtest", str(recording), "--policy", str(lax), "--against", str(recording.parent / "none.toml"))
    assert turned.code == exits.USAGE
    assert "none.toml" in turned.err


def test_the_page_says_the_same(recording: Path, lax: Path) -> None:
    ran = leadline("backtest", str(recording), "--against", str(lax))
    assert ran.out.startswith("10 sessions, 58 records, 1 of them unreadable\n")
    assert "1 session differs" in ran.out
    assert "  bad/a: -inversion, -halt" in ran.out


def test_ids_of_agents_are_escaped(tmp_path: Path, lax: Path) -> None:
    file = write(tmp_path / "hostile.jsonl", inverting(HOSTILE))
    ran = leadline("backtest", str(file), "--against", str(lax))
    assert "\x1b" not in ran.out
    assert "\\x1b[31m" in ran.out


def test_a_rule_that_moves_is_told_with_both_rounds() -> None:
    """The document's session: below 0.50 the inversion comes at round 11 instead of 22."""
    recorded = [Line(n, line) for n, line in enumerate(FILE.read_bytes().splitlines(), 1)]
    early = Policy(version="early", default=FleetPolicy(raw_ratio_floor=0.50, raw_ratio_exit=0.55))
    (change,) = compare(backtest(recorded, DEFAULT_POLICY), backtest(recorded, early))
    assert "inversion 22 -> 11" in change.moved


def test_a_policy_differs_in_nothing_from_itself(recording: Path) -> None:
    recorded = [Line(n, line) for n, line in enumerate(recording.read_bytes().splitlines(), 1)]
    assert compare(backtest(recorded, LAX), backtest(recorded, LAX)) == []


def test_it_counts_what_the_replay_driver_sends() -> None:
    recorded = FILE.read_bytes().splitlines()
    driver = ReplayDriver()
    for line in recorded:
        driver.feed(line)
    report = backtest([Line(n, line) for n, line in enumerate(recorded, 1)], DEFAULT_POLICY).report()
    assert sum(report["incidents"].values()) == sum(item.rule != "unheeded" for item in driver.violations)
    assert sum(report["commands"].values()) == sum(item.attempt == 1 and item.rule != "unheeded" for item in driver.commands)


def test_shadow_raises_no_alarm_and_warn_no_command(recording: Path) -> None:
    recorded = [Line(n, line) for n, line in enumerate(recording.read_bytes().splitlines(), 1)]
    shadow = backtest(recorded, Policy(default=FleetPolicy(modes={"inversion": "shadow"}))).report()
    warn = backtest(recorded, Policy(default=FleetPolicy(modes={"inversion": "warn"}))).report()
    assert (shadow["incidents"], shadow["commands"]) == ({}, {})
    assert (warn["incidents"], warn["commands"]) == ({"inversion": 1}, {})


def test_time_after_the_last_line_can_be_let_pass(recording: Path) -> None:
    """Every session is silent then. That nobody answered the halt says nothing: nobody heard it."""
    shown = leadline("backtest", str(recording), "--settle", "100000", "--json").json
    assert shown["incidents"] == {"inversion": 1, "unobserved": 10}
    assert shown["commands"] == {"halt": 1}


def test_standard_input_can_be_read_once(lax: Path) -> None:
    assert leadline("backtest", "-", "--json", stdin=lines(inverting())).json["incidents"] == {"inversion": 1}
    ran = leadline("backtest", "-", "--against", str(lax), stdin=lines(inverting()))
    assert ran.code == exits.USAGE
    assert "read twice" in ran.err


def test_an_empty_recording_has_no_rates(tmp_path: Path) -> None:
    file = tmp_path / "empty.jsonl"
    file.write_text("\n")
    shown = leadline("backtest", str(file), "--json").json
    assert (shown["sessions"], shown["alarms_per_1000_sessions"]) == (0, None)
    assert "alarms per 1,000 sessions" in leadline("backtest", str(file)).out
