"""``leadline replay``: what the monitor would have said about recorded sessions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from leadline.cli import exits
from leadline.cli.policy import policy_option, read_policy
from leadline.cli.screen import emit_json, open_input
from leadline.cli.timeline import Timelines, show
from leadline.contracts.text import plural, safe
from leadline.errors import Refused
from leadline.lab import Line, ReplayDriver, read_lines, replay, report

__all__ = ["replay_verb"]


@click.command("replay", epilog=exits.EPILOG)
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(allow_dash=True))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the timelines.")
@click.option("--session", help="Show only this session.")
@click.option("--agent", help="Show only this agent's sessions.")
@click.option(
    "--settle", type=click.FloatRange(0, 10**9), default=0.0, metavar="SECONDS", help="Let time pass after the last line."
)
@policy_option
@click.option(
    "--fail-on-violation",
    is_flag=True,
    help="Exit 1 when a violation was found, those in shadow mode apart; else 2 when a line is unreadable, or none is there.",
)
def replay_verb(
    files: tuple[str, ...],
    as_json: bool,
    session: str | None,
    agent: str | None,
    settle: float,
    policy_file: str | None,
    fail_on_violation: bool,
) -> int:
    """Judge recorded sessions offline, without a broker.

    FILE holds one event a line, as on the topic leadline.events (JSON Lines; any number of sessions; `-` is standard input).
    Several files are read one after the other as one recording. The same decisions are made as by the monitor, with each
    event's own time as the time of its arrival; deadlines that pass between two events are honoured.

    A line that cannot be read becomes a dead letter with its number and reason and never stops the rest. Where none can be read
    at all, it exits 2; with --fail-on-violation also where some cannot, or there is none.

    With --json, one object: `violations` and `commands` (as they would be on the wire), `sessions` (the last state of each,
    by session id; by session/agent for all agents that share a session id), `dead_letters` (file, line, reason, detail).
    """
    driver = ReplayDriver(read_policy(policy_file))
    wanted = _Wanted(session, agent)
    timelines = None if as_json else Timelines(wanted)
    letters: list[dict[str, Any]] = []
    readable = False
    for line, step in replay(driver, _lines(files)):
        readable = readable or not step.dead_letters
        letters += [
            {"file": line.file, "line": line.number, "reason": str(letter.reason), "detail": safe(letter.error)}
            for letter in step.dead_letters
        ]
        if timelines is not None:
            timelines.add(step)
    if settle:
        for step in driver.advance(round(settle * 1000)):
            if timelines is not None:
                timelines.add(step)
    known = [state for state in driver.last_states.values() if wanted(state.session_id, state.agent_id)]
    if not known and (session is not None or agent is not None):
        asked = [f"{name} {text!r}" for name, text in (("session", session), ("agent", agent)) if text is not None]
        count = len({state.session_id for state in driver.last_states.values()})
        raise Refused(f"no {' of '.join(asked)} is in the recording, which has {plural(count, 'session')}")
    found = any(one.mode != "shadow" and wanted(one.session_id, one.agent_id) for one in driver.violations)
    if timelines is None:
        emit_json(_chosen(driver, wanted) | {"dead_letters": letters})
    else:
        show(timelines, driver, letters, several_files=len(files) > 1)
    if letters and not readable:
        # A wrong file must not pass for a healthy recording.
        raise Refused(f"no line of {', '.join(files)} is a Leadline event; the first: {letters[0]['detail']}")
    if fail_on_violation and found:
        return exits.FAILED
    if fail_on_violation and (letters or not readable):
        raise Refused(_unjudged(files, letters))
    return exits.OK


def _unjudged(files: tuple[str, ...], letters: list[dict[str, Any]]) -> str:
    """Why nobody can say that there is no violation: what was not read may hold one."""
    if not letters:
        return f"there is no event in {', '.join(files)}: nothing was judged"
    first, others = letters[0], len(letters) - 1
    where = f"{first['file']} line {first['line']}" + (f" (and {others} more)" if others else "")
    return f"{where} could not be read, so a violation may be missing: {first['detail']}"


class _Wanted:
    """Whether a session is to be shown."""

    def __init__(self, session: str | None, agent: str | None) -> None:
        self._session = session
        self._agent = agent

    def __call__(self, session_id: str, agent_id: str) -> bool:
        return self._session in (None, session_id) and self._agent in (None, agent_id)


def _chosen(driver: ReplayDriver, wanted: _Wanted) -> dict[str, Any]:
    def chosen(record: Any) -> bool:
        return wanted(record["session_id"], record["agent_id"])

    whole = report(driver)
    return {
        "violations": [one for one in whole["violations"] if chosen(one)],
        "commands": [one for one in whole["commands"] if chosen(one)],
        "sessions": {name: one for name, one in whole["sessions"].items() if chosen(one)},
    }


def _lines(files: tuple[str, ...]) -> Iterator[Line]:
    # Every file is opened before the first is read: a mistyped name costs no half-finished run.
    streams = [(name, open_input(name)) for name in files]
    for name, stream in streams:
        yield from read_lines(stream, name)
        if name != "-":
            stream.close()
