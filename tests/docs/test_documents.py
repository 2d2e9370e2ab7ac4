"""What the documents say is what the program does."""

from __future__ import annotations

import ast
import inspect
import re
import shlex
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from leadline import settings
from leadline.cli import exits
from leadline.cli.main import VERBS, cli
from leadline.contracts import limits
from leadline.contracts.reasons import Reason
from leadline.contracts.topics import TOPICS
from leadline.detection.rules import RULE_NAMES
from leadline.security import Security

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
CLI = Path(inspect.getfile(exits)).parent
_BLOCK = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def _shell_lines(page: Path, *, run: bool) -> list[str]:
    """Lines of the ``sh`` blocks; those marked ``run`` only, or all."""
    blocks = [(info, body) for kind, info, body in _BLOCK.findall(page.read_text()) if kind == "sh"]
    return [line for info, body in blocks if not run or "run" in info for line in body.splitlines() if line.strip()]


def _source(verb: str) -> str:
    return (CLI / f"{VERBS[verb].where.partition(':')[0].rpartition('.')[2]}.py").read_text()


LEADLINE_LINES = [(page.name, line) for page in PAGES for line in _shell_lines(page, run=False) if line.startswith("leadline ")]
RUN_LINES = [line for page in PAGES for line in _shell_lines(page, run=True)]


@pytest.mark.parametrize(("page", "line"), LEADLINE_LINES, ids=lambda value: value)
def test_each_command_names_a_verb_and_options_that_exist(
    page: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    monkeypatch.chdir(tmp_path)  # A verb may open the file that it is to write.
    words = shlex.split(line, comments=True)[1:]
    command: click.Command = cli
    context = click.Context(cli, info_name="leadline")
    while isinstance(command, click.Group):
        found = command.get_command(context, words[0])
        assert found is not None, f"{page}: no verb {words[0]!r}"
        command, words = found, words[1:]
    command.make_context(command.name, words, resilient_parsing=False)


@pytest.mark.parametrize("line", RUN_LINES)
def test_the_commands_marked_to_be_run_succeed(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    result = CliRunner().invoke(cli, shlex.split(line)[1:])
    assert result.exit_code == 0, result.output
    assert "inversion" in result.output


def test_the_readme_runs_something() -> None:
    """Guards the two tests above against finding nothing to look at."""
    assert len(RUN_LINES) >= 2
    assert len(LEADLINE_LINES) >= 7


def test_make_targets_named_in_the_documents_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {line.split()[1] for page in PAGES for line in _shell_lines(page, run=False) if line.startswith("make ")}
    assert {"demo", "test"} <= named <= targets


def test_each_verb_is_in_the_readme() -> None:
    text = (ROOT / "README.md").read_text()
    assert [verb for verb in VERBS if f"`leadline {verb}" not in text] == []


def test_the_exit_codes_are_those_of_the_program() -> None:
    rows = dict(re.findall(r"^\| (\d+) \| (.+) \|$", (ROOT / "README.md").read_text(), re.MULTILINE))
    assert rows == {str(code): meaning for code, meaning in exits.CODES.items()}


@pytest.mark.parametrize("verb", [verb for verb in VERBS if "exits.FAILED" in _source(verb)])
def test_each_verb_that_can_say_no_is_named_at_exit_code_1(verb: str) -> None:
    said = {"replay": "--fail-on-violation", "send": "records not sent"}
    assert said.get(verb, verb) in exits.CODES[exits.FAILED]


def test_the_settings_table_is_the_code() -> None:
    """Names, defaults and meanings, the meanings from the docstrings."""
    rows = re.findall(
        r"^\| `(LEADLINE_\w+)` \| (?:`(.*?)`)? ?\| (.+) \|$", (ROOT / "docs" / "operating.md").read_text(), re.MULTILINE
    )
    meanings: dict[str, str] = {}
    for each in (Security, settings.Settings):
        body = ast.parse(inspect.getsource(each)).body[0]
        assert isinstance(body, ast.ClassDef)
        name = ""
        for node in body.body:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                name = node.target.id
                meanings[name] = ""
            elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and name:
                meanings[name] = " ".join(str(node.value.value).replace("``", "`").split())
    described = settings.describe_settings()
    assert [(variable, default) for variable, default, _ in rows] == described
    for variable, _, meaning in rows:
        said = meanings[variable.removeprefix("LEADLINE_").lower()]
        assert meaning == said, variable


def test_the_options_of_the_monitor_are_named_beside_its_settings() -> None:
    """Each that stands for a variable is named, with the variable where it has another name."""
    monitor = cli.get_command(click.Context(cli), "monitor")
    assert monitor is not None
    helps = {option.opts[0]: option.help or "" for option in monitor.params if isinstance(option, click.Option)}
    stand_for = {name: re.findall(r"env: (LEADLINE_\w+)", said) for name, said in helps.items()} | {
        "--policy": ["LEADLINE_POLICY_FILE"]  # also an option of verbs that read no environment
    }
    text = (ROOT / "docs" / "operating.md").read_text().split("## Settings")[1].split("<!--")[0]
    assert set(re.findall(r"`(--[a-z-]+)`(?! prints)", text)) == {name for name, variables in stand_for.items() if variables}
    for name, variables in stand_for.items():
        for variable in variables:
            assert variable == f"LEADLINE_{name[2:].upper().replace('-', '_')}" or f"`{variable}`" in text


def test_the_reasons_topics_rules_and_bounds_are_named() -> None:
    wire = (ROOT / "docs" / "wire.md").read_text()
    assert set(re.findall(r"^\| `([a-z0-9-]+)` \| [^|]+ \|$", wire, re.MULTILINE)) == {reason.value for reason in Reason}
    assert [topic.name for topic in TOPICS if f"| `{topic.name}` |" not in wire] == []
    assert f"{limits.MAX_RECORD_BYTES:,} bytes" in wire
    assert f"{limits.MAX_NESTING} levels" in wire
    concepts = (ROOT / "docs" / "concepts.md").read_text()
    assert set(re.findall(r"^\| `([a-z-]+)` \| [^|]+ \| [^|]+ \|$", concepts, re.MULTILINE)) >= set(RULE_NAMES)


def test_links_between_documents_lead_somewhere() -> None:
    broken = [
        f"{page.name}: {target}"
        for page in PAGES
        for target in re.findall(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)", page.read_text())
        if not (page.parent / target).exists()
    ]
    assert broken == []
