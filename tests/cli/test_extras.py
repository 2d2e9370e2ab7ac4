"""What `pip install leadline` alone gives: the SDK at once, the offline verbs, and one sentence for everything else."""

from __future__ import annotations

import subprocess
import sys

import pytest

WITHOUT = ("faust", "mode", "aiokafka", "rocksdict", "numpy", "matplotlib", "noida_db", "hypothesis", "jsonschema")
RECORDING = "tests/scenarios/data/salience-inversion-40.jsonl"


def bare(code: str) -> subprocess.CompletedProcess[str]:
    """Python without any extra."""
    block = f"import sys; sys.modules.update(dict.fromkeys({WITHOUT!r}))\n"
    return subprocess.run([sys.executable, "-c", block + code], capture_output=True, text=True, timeout=60, check=False)


def verb(*arguments: str) -> subprocess.CompletedProcess[str]:
    return bare(f"from leadline.cli.main import main; main({list(arguments)!r})")


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (["demo"], "demo"),
        (["monitor"], "monitor"),
        (["lab", "reproduce", "--seeds", "1"], "lab"),
        (["lab", "quality"], "lab"),
    ],
    ids=["demo", "monitor", "lab reproduce", "lab quality"],
)
def test_a_verb_without_its_extra_says_in_one_sentence_what_to_install(arguments: list[str], extra: str) -> None:
    ran = verb(*arguments)
    assert (ran.returncode, ran.stdout) == (2, "")
    (sentence,) = ran.stderr.splitlines()
    assert f"pip install 'leadline[{extra}]'" in sentence


@pytest.mark.parametrize(
    "arguments", [["replay", RECORDING], ["backtest", RECORDING], ["policy", "show"], ["topology"], ["--help"]], ids=" ".join
)
def test_what_needs_no_extra_works_without(arguments: list[str]) -> None:
    ran = verb(*arguments)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout


def test_the_sdk_is_imported_without_any_client_or_screen() -> None:
    """Neither Kafka's client, nor the command line's libraries, nor an event loop: an agent that never connects pays for none."""
    ran = bare("import leadline.agent; print(*sorted({'confluent_kafka', 'rich', 'click', 'asyncio'} & sys.modules.keys()))")
    assert (ran.stdout.strip(), ran.stderr) == ("", "")
