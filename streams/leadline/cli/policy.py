"""``--policy FILE``: thresholds, deadlines and modes other than the defaults."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from leadline.detection.policy import DEFAULT_POLICY, Policy
from leadline.errors import SettingsError

__all__ = ["policy_option", "read_policy"]

F = TypeVar("F", bound=Callable[..., Any])


def policy_option(function: F) -> F:
    """``--policy``; without it the defaults are in force."""
    return click.option("--policy", "policy_file", metavar="FILE", help="Thresholds and modes as TOML; else the defaults.")(
        function
    )


def read_policy(file: str | None) -> Policy:
    """The policy in ``file``. Raises ``OSError``, or :class:`SettingsError` that says what is wrong with it and where."""
    if file is None:
        return DEFAULT_POLICY
    from leadline.detection.policy_file import parse_policy

    try:
        text = Path(file).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise SettingsError(f"{file}: byte {error.start} is not valid UTF-8; write the policy as UTF-8 text") from None
    return parse_policy(text, file)
