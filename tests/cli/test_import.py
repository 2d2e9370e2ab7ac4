"""``leadline import claude-code`` prints events; ``leadline hook claude-code`` never fails its caller."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from leadline.cli.main import cli
from leadline.contracts.codec import decode_event
from tests.agent.adapters.claude_code.recording import compacted


def test_a_transcript_becomes_events_that_replay_takes(tmp_path: Path) -> None:
    transcript, events = tmp_path / "t.jsonl", tmp_path / "events.jsonl"
    transcript.write_text(compacted(3).text + "nonsense\n")
    ran = CliRunner().invoke(cli, ["import", "claude-code", "--fleet", "desk", "--token-budget", "200000", str(transcript)])
    assert ran.exit_code == 0
    assert "1 line of" in ran.stderr
    decoded = [decode_event(line.encode()).event for line in ran.stdout.splitlines()]
    assert [type(event).__name__ for event in decoded].count("Round") == 3
    events.write_text(ran.stdout)
    judged = CliRunner().invoke(cli, ["replay", "--json", str(events)])
    assert judged.exit_code == 0, judged.output


def test_what_is_no_transcript_is_one_sentence(tmp_path: Path) -> None:
    other = tmp_path / "other.jsonl"
    other.write_text('{"a": 1}\n')
    ran = CliRunner().invoke(cli, ["import", "claude-code", str(other)])
    assert ran.exit_code != 0
    assert "no message of Claude Code" in ran.output


@pytest.mark.parametrize("given", ["", "{", "[]", "7", '{"hook_event_name": "PreCompact"}'])
def test_a_hook_exits_0_whatever_it_is_given(given: str, tmp_path: Path) -> None:
    """An exit code of 2 would block Claude Code."""
    ran = CliRunner().invoke(cli, ["hook", "claude-code", "--state", str(tmp_path)], input=given)
    assert (ran.exit_code, ran.stdout) == (0, "")


def test_a_hook_without_a_broker_answers_and_keeps_what_it_could_not_send(tmp_path: Path) -> None:
    """Nothing listens at the address; the facts that the summary lost are put back all the same."""
    transcript, facts = tmp_path / "t.jsonl", tmp_path / "facts.json"
    transcript.write_text(compacted(facts_kept=False).text)
    facts.write_text('[{"fact_id": "c1", "text": "never rotate the credential"}]')
    given = {
        "session_id": "cc-1",
        "transcript_path": str(transcript),
        "hook_event_name": "SessionStart",
        "source": "compact",
    }
    options = ["--bootstrap", "127.0.0.1:1", "--wait", "0.05", "--state", str(tmp_path / "s"), "--facts", str(facts)]
    ran = CliRunner().invoke(cli, ["hook", "claude-code", *options], input=json.dumps(given))
    assert ran.exit_code == 0
    assert "never rotate" in json.loads(ran.stdout)["hookSpecificOutput"]["additionalContext"]
    assert any((tmp_path / "s" / "spool").iterdir())
