"""The group of verbs: help, errors as sentences, exit codes, and how little it imports."""

from __future__ import annotations

import importlib
import re
import socket
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import click
import pytest

from leadline.cli import exits
from leadline.cli import main as group
from leadline.errors import BrokerError, SettingsError, TopicMismatch
from tests.cli.run import leadline
from tests.lab.recordings import inverting, write

HERE = [name for name, verb in group.VERBS.items() if importlib.util.find_spec(verb.where.partition(":")[0])]


def test_help_lists_every_verb_and_the_exit_codes() -> None:
    ran = leadline("--help")
    assert ran.code == 0
    for verb in group.VERBS:
        assert f"\n  {verb} " in ran.out
    assert exits.BRIEF.keys() == exits.CODES.keys()
    for code, meaning in exits.BRIEF.items():
        assert f"\n    {code:<4} {meaning}\n" in ran.out
    assert max(map(len, ran.out.splitlines())) <= 80


@pytest.mark.parametrize("verb", HERE)
def test_each_verb_explains_itself(verb: str) -> None:
    ran = leadline(verb, "--help")
    assert ran.code == 0
    assert ran.out.startswith(f"Usage: leadline {verb}")
    assert "Exit codes:" in ran.out


@pytest.mark.parametrize("verb", ["", *HERE])
def test_each_list_of_verbs_has_whole_sentences_of_one_line(verb: str) -> None:
    """On a terminal of 80 columns: none is cut off, none goes on in a second line."""
    ran = leadline(*verb.split(), "--help")
    listed = ran.out.partition("Commands:\n")[2].partition("\n\n")[0].splitlines()
    assert [line for line in listed if not re.fullmatch(r"  [a-z]\S* +[A-Z].*[^.]\.", line)] == []


def test_the_demo_names_no_variable_that_it_does_not_obey() -> None:
    """Wherever LEADLINE_BOOTSTRAP points, the demo without ``--bootstrap`` has a broker of its own."""
    assert "LEADLINE_BOOTSTRAP" not in leadline("demo", "--help").out


@pytest.mark.parametrize("verb", HERE)
def test_each_verb_can_speak_json(verb: str) -> None:
    where, _, attribute = group.VERBS[verb].where.partition(":")
    command = getattr(importlib.import_module(where), attribute)
    leaves = command.commands.values() if isinstance(command, click.Group) else [command]
    for leaf in leaves:
        assert "--json" in [name for parameter in leaf.params for name in parameter.opts], leaf.name


def test_help_and_replay_load_no_kafka_client_and_no_stream_engine(tmp_path: Path) -> None:
    """Looked at in a fresh interpreter: a heavy import would make every call slow."""
    recording = write(tmp_path / "one.jsonl", inverting())
    for arguments in (["--help"], ["replay", str(recording), "--json"]):
        code = (
            "import sys\nfrom leadline.cli.main import main\n"
            f"try:\n    main({arguments!r})\nexcept SystemExit:\n    pass\n"
            "heavy = [name for name in ('faust', 'confluent_kafka', 'aiokafka', 'rocksdict') if name in sys.modules]\n"
            "print(heavy, file=sys.stderr)"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stderr.strip() == "[]"


def test_an_unknown_verb_is_a_usage_error() -> None:
    ran = leadline("sail")
    assert ran.code == exits.USAGE
    assert "leadline: No such command 'sail'" in ran.err


@pytest.mark.parametrize("verbs", [(), ("lab",), ("topics",), ("policy",)], ids=str)
def test_a_group_without_a_verb_shows_its_help(verbs: tuple[str, ...]) -> None:
    """Once, as it is, and nothing on standard output."""
    ran = leadline(*verbs)
    assert (ran.code, ran.out) == (exits.USAGE, "")
    assert ran.err == leadline(*verbs, "--help").out


def test_missing_extras_are_told_for_a_clone_too() -> None:
    assert str(exits.MissingExtra("monitor", "monitor", "a", "b", "c")) == (
        "`leadline monitor` needs a, b and c, which are not installed: pip install 'leadline[monitor]' "
        "(in a clone: pip install '.[monitor]')"
    )


def test_what_was_imported_already_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Faust stands in for itself without saying where it came from."""
    monkeypatch.setitem(sys.modules, "made_up", ModuleType("made_up"))
    monkeypatch.setitem(sys.modules, "hidden", None)
    assert exits.not_installed({"made_up": "made-up", "hidden": "not-there", "no_such_module": "nor-this"}) == [
        "not-there",
        "nor-this",
    ]


def test_a_broker_on_a_taken_port_is_wrong_use() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        ran = leadline("broker", "--port", str(taken.getsockname()[1]))
    assert (ran.code, ran.out) == (exits.USAGE, "")
    assert "is taken" in ran.err


def test_an_unknown_option_is_a_usage_error() -> None:
    ran = leadline("replay", "--frobnicate", "x")
    assert ran.code == exits.USAGE
    assert "--frobnicate" in ran.err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (BrokerError("no broker answered at x:1"), exits.UNREACHABLE),
        (SettingsError("LEADLINE_X is 1"), exits.USAGE),
        (TopicMismatch("8 and 5"), exits.USAGE),
        (FileNotFoundError(2, "No such file or directory", "x"), exits.USAGE),
        (exits.MissingExtra("monitor", "monitor", "faust-streaming"), exits.USAGE),
        (RuntimeError("two\nlines"), exits.INTERNAL),
        (KeyboardInterrupt(), exits.INTERRUPTED),
        (BrokenPipeError(), exits.PIPE_CLOSED),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else str(value),
)
def test_each_error_has_its_code_and_is_one_sentence(error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_given: object) -> None:
        raise error

    monkeypatch.setattr(group, "_silence_stdout", lambda: None)
    monkeypatch.setattr(group.cli, "main", fail)
    ran = leadline("replay", "x")
    assert ran.code == code
    assert "Traceback" not in ran.err
    assert len(ran.err.strip().splitlines()) == (0 if code in (exits.INTERRUPTED, exits.PIPE_CLOSED) else 1)


def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_given: object) -> None:
        raise RuntimeError("inside")

    monkeypatch.setattr(group.cli, "main", fail)
    with pytest.raises(RuntimeError, match="inside"):
        group.main(["--debug", "replay", "x"])


def test_a_reader_that_goes_away_ends_it_quietly(tmp_path: Path) -> None:
    """``leadline replay FILE | head -1``."""
    recording = write(tmp_path / "one.jsonl", [record for n in range(300) for record in inverting(f"s{n}")])
    done = subprocess.run(
        ["bash", "-c", f'set -o pipefail; "{sys.executable}" -m leadline.cli.main replay "{recording}" | head -1'],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, exits.PIPE_CLOSED)
    assert done.stderr == ""


def _shell(line: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", "-c", line, "bash", sys.executable], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("verb", ["--help", "policy show", "topology --json"])
def test_a_reader_that_goes_away_is_told_by_the_exit_code_alone(verb: str) -> None:
    ran = _shell(f'("$1" -m leadline {verb}; echo $? >&2) | true')
    assert ran.stderr == f"{exits.PIPE_CLOSED}\n"


def test_closed_standard_streams_are_nothing_to_read_and_nobody_to_tell() -> None:
    assert _shell('"$1" -m leadline policy show >&-').returncode == exits.OK
    assert _shell('"$1" -m leadline --nonsense 2>&-').returncode == exits.USAGE
    ran = _shell('"$1" -m leadline replay - <&-')
    assert (ran.returncode, ran.stderr) == (exits.OK, "")
    assert "0 records" in ran.stdout
