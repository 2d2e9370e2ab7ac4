"""``leadline replay``: recorded sessions judged offline."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from leadline.cli import exits
from leadline.contracts.codec import decode_command, decode_violation
from tests.cli.run import leadline
from tests.lab.recordings import HOSTILE, compaction, inverting, lines, start, write


def test_json_is_one_object_with_the_records_as_on_the_wire(tmp_path: Path) -> None:
    ran = leadline("replay", str(write(tmp_path / "r.jsonl", inverting())), "--json")
    assert ran.code == 0
    assert sorted(ran.json) == ["commands", "dead_letters", "sessions", "violations"]
    (violation,) = [one for one in ran.json["violations"] if one["rule"] == "inversion"]
    (command,) = ran.json["commands"]
    assert decode_violation(json.dumps(violation).encode()).rule == "inversion"
    assert decode_command(json.dumps(command).encode()).incident_id == violation["incident_id"]
    session = ran.json["sessions"]["s"]
    assert (session["state"], session["agent_id"], session["epoch"], session["last_round"]) == ("inverted", "a", 0, 2)
    assert ran.json["dead_letters"] == []


def test_five_bad_lines_among_a_hundred_good_ones(tmp_path: Path) -> None:
    """The hundred are observed; the five are dead letters with their line and their reason."""
    records: list[dict[str, object] | str] = [compaction(n, ratio=0.9) for n in range(1, 101)]
    bad = {
        10: ("{", "not-json"),
        20: ("[]", "not-an-object"),
        30: (json.dumps(compaction(1) | {"raw_tokens": -3}), "out-of-range"),
        40: (json.dumps({"schema": "leadline.command/1", "session_id": "s"}), "unknown-record"),
        50: (json.dumps(compaction(1) | {"raw_tokens": True}), "boolean-for-number"),
    }
    for number, (line, _) in bad.items():
        records.insert(number - 1, line)
    ran = leadline("replay", str(write(tmp_path / "r.jsonl", records)), "--json")
    assert [(letter["line"], letter["reason"]) for letter in ran.json["dead_letters"]] == [
        (number, reason) for number, (_, reason) in bad.items()
    ]
    assert all(letter["detail"] for letter in ran.json["dead_letters"])
    session = ran.json["sessions"]["s"]
    assert session["last_round"] == 100
    assert session["counts"]["gaps"] == 0


def test_standard_input_and_blank_lines() -> None:
    ran = leadline("replay", "-", "--json", stdin="\n" + lines(inverting()) + "\n\n")
    assert {violation["caused_by"]["offset"] for violation in ran.json["violations"]} == {4}
    assert ran.json["dead_letters"] == []


def test_an_empty_recording_is_no_error() -> None:
    assert leadline("replay", "-", "--json").json == {"violations": [], "commands": [], "sessions": {}, "dead_letters": []}
    assert leadline("replay", "-").code == 0


@pytest.mark.parametrize("json", [(), ("--json",)], ids=["timelines", "json"])
def test_a_file_of_something_else_is_no_healthy_recording(tmp_path: Path, json: tuple[str, ...]) -> None:
    """A wrong file in a pipeline's gate would look healthy for ever."""
    (tmp_path / "README.md").write_text("# Some project\n\nIts text.\n")
    ran = leadline("replay", "--fail-on-violation", *json, str(tmp_path / "README.md"))
    assert ran.code == 2
    assert "no line of" in ran.err
    assert "README.md is a Leadline event" in ran.err


def test_several_files_are_one_recording(tmp_path: Path) -> None:
    """A session that goes on in the second file is the same session; dead letters name file and line."""
    records = inverting()
    first = write(tmp_path / "1.jsonl", records[:2])
    second = write(tmp_path / "2.jsonl", ["oops", *records[2:]])
    ran = leadline("replay", str(first), str(second), "--json")
    assert "inversion" in [violation["rule"] for violation in ran.json["violations"]]
    assert [(letter["file"], letter["line"]) for letter in ran.json["dead_letters"]] == [(str(second), 1)]


@pytest.mark.parametrize("name", ["missing.jsonl", "."])
def test_an_unreadable_file_is_named(tmp_path: Path, name: str) -> None:
    ran = leadline("replay", str(tmp_path / name))
    assert ran.code == exits.USAGE
    assert str(tmp_path) in ran.err
    assert ran.out == ""


def test_a_missing_second_file_prevents_a_half_finished_run(tmp_path: Path) -> None:
    ran = leadline("replay", str(write(tmp_path / "r.jsonl", inverting())), str(tmp_path / "missing"))
    assert (ran.code, ran.out) == (exits.USAGE, "")


def test_violations_fail_the_call_only_when_asked() -> None:
    recording = lines(inverting())
    assert leadline("replay", "-", stdin=recording).code == 0
    assert leadline("replay", "-", "--fail-on-violation", stdin=recording).code == exits.FAILED
    assert leadline("replay", "-", "--fail-on-violation", stdin=lines([start(), compaction(1)])).code == 0


@pytest.mark.parametrize("json", [(), ("--json",)], ids=["timelines", "json"])
def test_an_unreadable_line_is_no_success_where_violations_would_fail_the_call(json: tuple[str, ...]) -> None:
    """The violation may be on that line. What was found is printed all the same, and a violation goes before."""
    ran = leadline("replay", "-", "--fail-on-violation", *json, stdin=lines([start(), compaction(1), "oops", "{"]))
    assert ran.code == exits.USAGE
    assert "- line 3 (and 1 more) could not be read, so a violation may be missing: " in ran.err
    assert "not-json" in ran.out
    assert leadline("replay", "-", *json, stdin=lines([start(), "oops"])).code == 0
    assert leadline("replay", "-", "--fail-on-violation", *json, stdin=lines([*inverting(), "oops"])).code == exits.FAILED


@pytest.mark.parametrize("recording", ["", "\n\n"], ids=["empty", "blank"])
def test_a_recording_without_an_event_is_no_success_where_violations_would_fail_the_call(recording: str) -> None:
    ran = leadline("replay", "-", "--fail-on-violation", stdin=recording)
    assert (ran.code, "there is no event in -" in ran.err) == (exits.USAGE, True)


def test_the_timeline_shows_rounds_what_fired_and_the_verdict() -> None:
    ran = leadline("replay", "-", stdin=lines(inverting()))
    (round_two,) = [line for line in ran.out.splitlines() if line.startswith("      2 ")]
    assert "0.20" in round_two
    assert "inversion: boundary-crossed" in round_two
    assert "→ halt" in round_two
    assert "✗ critical inversion  s round 2: " in ran.out
    assert ran.out.endswith("; 1 command; 0 dead letters\n")


def test_no_colours_and_no_wrapping_where_output_is_no_terminal() -> None:
    ran = leadline("replay", "-", stdin=lines(inverting()))
    assert "\x1b" not in ran.out
    assert max(map(len, ran.out.splitlines())) > 100


def test_time_that_passes_without_an_acknowledgement_is_shown() -> None:
    ran = leadline("replay", "-", "--settle", "70", stdin=lines(inverting()))
    assert "a deadline passed  → halt (attempt 2)" in ran.out


def test_a_hostile_session_id_is_shown_escaped() -> None:
    """Escape sequences, markup and mentions are shown as text and do nothing."""
    records = inverting(HOSTILE)
    ran = leadline("replay", "-", stdin=lines([*records, b'{"\x1b[2J'.decode()]))
    assert "\x1b" not in ran.out
    assert "<!channel> \\x1b[31m[bold]x" in ran.out


def test_json_output_carries_no_raw_terminal_controls() -> None:
    """C1 controls are legal inside JSON strings but obeyed by some terminals: they are written as escapes."""
    ran = leadline("replay", "-", "--json", stdin=lines([start("a\x9b31m\u202eb")]))
    assert "\x9b" not in ran.out
    assert list(ran.json["sessions"]) == ["a\x9b31m\u202eb"]


def test_only_the_chosen_session_is_shown() -> None:
    recording = lines([*inverting("one"), *inverting("two")])
    human = leadline("replay", "-", "--session", "two", stdin=recording)
    assert "session two" in human.out
    assert "one" not in human.out
    found = leadline("replay", "-", "--session", "two", "--json", stdin=recording).json
    assert list(found["sessions"]) == ["two"]
    assert {violation["session_id"] for violation in found["violations"]} == {"two"}


@pytest.mark.parametrize("json", [(), ("--json",)])
def test_a_session_that_is_not_there_is_wrong_use(json: tuple[str, ...]) -> None:
    ran = leadline("replay", "-", "--session", "nope", *json, stdin=lines(inverting()))
    assert (ran.code, ran.out) == (exits.USAGE, "")
    assert ran.err == "leadline: no session 'nope' is in the recording, which has 1 session\n"
    both = leadline("replay", "-", "--session", "s", "--agent", "b", *json, stdin=lines(inverting()))
    assert (both.code, both.out) == (exits.USAGE, "")


def test_only_the_chosen_agent_is_shown() -> None:
    recording = lines([start("s", agent_id="x"), start("s", agent_id="y")])
    found = leadline("replay", "-", "--agent", "y", "--json", stdin=recording).json
    assert list(found["sessions"]) == ["s/y"]


def test_many_sessions_are_shown_in_part_the_troubled_ones_first() -> None:
    records = [start(f"calm-{number}") for number in range(100)] + inverting("wild")
    ran = leadline("replay", "-", stdin=lines(records))
    assert ran.out.index("session wild") < ran.out.index("session calm-0")
    assert "… and 61 more sessions" in ran.out


def test_a_policy_file_changes_thresholds_and_modes(tmp_path: Path) -> None:
    """In shadow mode the violation is listed, commands nothing and does not fail the call."""
    policy = tmp_path / "policy.toml"
    policy.write_text('[default.modes]\ninversion = "shadow"\n', encoding="utf-8")
    recording = lines(inverting())
    found = leadline("replay", "-", "--policy", str(policy), "--json", stdin=recording).json
    assert [one["mode"] for one in found["violations"] if one["rule"] == "inversion"] == ["shadow"]
    assert found["commands"] == []


@pytest.mark.parametrize("content", [b"[default]\nfrobnicate = 1\n", b"not toml", b"\xff"])
def test_a_wrong_policy_file_is_refused_with_its_name(tmp_path: Path, content: bytes) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_bytes(content)
    ran = leadline("replay", "-", "--policy", str(policy), stdin=lines(inverting()))
    assert (ran.code, ran.out) == (exits.USAGE, "")
    assert "policy.toml: " in ran.err
