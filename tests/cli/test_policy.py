"""``leadline policy``, and the example that says the same as no policy."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from leadline.cli import exits
from leadline.detection.policy import DEFAULT_POLICY, FleetPolicy
from leadline.detection.policy_file import parse_policy
from leadline.detection.rules import RULE_NAMES
from tests.cli.run import leadline

EXAMPLE = Path(__file__).parents[2] / "docs" / "policy.example.toml"


def test_the_example_is_the_defaults_and_leaves_nothing_out() -> None:
    text = EXAMPLE.read_text(encoding="utf-8")
    assert parse_policy(text) == DEFAULT_POLICY
    for name in FleetPolicy.__struct_fields__:
        assert f"\n{name} = " in text or name == "modes"
    for rule in RULE_NAMES:
        assert f'# {rule} = "enforce"\n' in text


def test_its_commented_lines_are_policy_too() -> None:
    """Taken out of their comments they are read."""
    text = EXAMPLE.read_text(encoding="utf-8")
    found = parse_policy(re.sub(r"^# (?=\[|[a-z_-]+ = )", "", text, flags=re.MULTILINE))
    assert found.of("research").pin_rounds == 8
    assert found.of("research").mode("drift") == "off"
    assert found.of("other").mode("drift") == "enforce"


def test_check_says_that_it_is_fine() -> None:
    result = leadline("policy", "check", str(EXAMPLE))
    assert result.code == exits.OK
    assert result.out.endswith("version default: fine\n")
    assert leadline("policy", "check", str(EXAMPLE), "--json").json == {str(EXAMPLE): {"version": "default", "fleets": []}}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[default]\npin_round = 1\n", "unknown key 'pin_round'"),
        ("[default]\nraw_ratio_floor = 2\n", "must lie between 0 and 1"),
        ("[default]\nmasked_span_fall = -0.1\n", "masked_span_fall is -0.1; it must lie between 0 and 1"),
        ("[default]\nerosion_horizon = 0\n", "erosion_horizon is 0; it must be 1 or more"),
        ("[default]\nsilence_ms = 10\n", "silence_ms is 10; it must be at least 1000"),
        ("[default.modes]\nerosoin = 'warn'\n", "modes names no rule 'erosoin'"),
        ("version = 3\n", "version must be a text"),
        ("a=" + "[" * 5_000 + "]" * 5_000, "not TOML: nested too deep"),
    ],
)
def test_check_names_the_file_the_key_and_the_reason(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(text)
    result = leadline("policy", "check", str(EXAMPLE), str(file))
    assert result.code == exits.USAGE
    assert str(file) in result.err
    assert says in result.err


def test_show_marks_what_differs(tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text('version = "v7"\n[fleets.research]\npin_rounds = 8\n')
    plain = leadline("policy", "show", "--policy", str(file)).out
    assert plain.startswith("version v7\n")
    assert "(default" not in plain
    assert "pin_rounds" in plain
    fleet = leadline("policy", "show", "--policy", str(file), "--fleet", "research").out
    assert "8  (default 5)" in fleet
    shown = json.loads(leadline("policy", "show", "--json").out)
    assert shown["version"] == "default"
    assert shown["erosion_horizon"] == FleetPolicy().erosion_horizon
