"""Exit codes, and which error leads to which; the table in the README is this one."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import Final

import click

from leadline.contracts.text import safe
from leadline.errors import LeadlineError, Refused, Retryable

__all__ = ["ALL_CODES", "BRIEF", "CODES", "EPILOG", "MissingExtra", "code_of", "not_installed", "sentence"]

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2
UNREACHABLE: Final = 3
NOT_DRAINED: Final = 4
INTERNAL: Final = 70
INTERRUPTED: Final = 130
PIPE_CLOSED: Final = 141

CODES: Final[dict[int, str]] = {
    OK: "done",
    FAILED: "the answer is no: violations with --fail-on-violation, topics that differ, records not sent, a monitor that failed, "
    "a demo whose verdict is not ok, a check whose halt does not come, a lab experiment that did not come out",
    USAGE: "wrong use: an unknown option, an unreadable file (with --fail-on-violation also an unreadable line or no "
    "event at all), a wrong setting, an extra that is not installed",
    UNREACHABLE: "the broker cannot be reached or asked; the same call may succeed later",
    NOT_DRAINED: "the monitor was stopped with work in flight, which comes again",
    INTERNAL: "a defect of Leadline itself; run again as `leadline --debug ...` for the traceback",
    INTERRUPTED: "interrupted (Ctrl-C)",
    PIPE_CLOSED: "the reader of standard output went away",
}

BRIEF: Final[dict[int, str]] = {
    OK: "done",
    FAILED: "the answer is no",
    USAGE: "wrong use: an option, a file, a setting, an extra",
    UNREACHABLE: "no broker; the same call may succeed later",
    NOT_DRAINED: "stopped with work in flight, which comes again",
    INTERNAL: "a defect of Leadline itself",
    INTERRUPTED: "interrupted (Ctrl-C)",
    PIPE_CLOSED: "the reader of standard output went away",
}
"""For the help page of ``leadline``, a short line each."""

ALL_CODES: Final = "\b\nExit codes:\n" + "\n".join(f"  {code:<4} {meaning}" for code, meaning in BRIEF.items())
EPILOG: Final = "Exit codes: see `leadline --help`."
"""For the help page of each verb."""


class MissingExtra(Refused):
    """A verb needs packages that are not installed; the message names the extra."""

    def __init__(self, verb: str, extra: str, *missing: str) -> None:
        *others, last = missing
        named = f"{', '.join(others)} and {last}, which are" if others else f"{last}, which is"
        remedy = f"pip install 'leadline[{extra}]' (in a clone: pip install '.[{extra}]')"
        super().__init__(f"`leadline {verb}` needs {named} not installed: {remedy}")


def not_installed(needed: Mapping[str, str]) -> list[str]:
    """Of ``needed``, packages by module, those that are not installed. Imports none."""
    return [package for module, package in needed.items() if not _installed(module)]


def _installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ValueError:
        return True  # Imported already, by one that put a module without a spec in its own place, as Faust does.


def code_of(error: BaseException) -> int:
    """The exit code for an error."""
    if isinstance(error, click.ClickException):
        return error.exit_code if isinstance(error, click.UsageError) else USAGE
    if isinstance(error, Retryable):
        return UNREACHABLE
    if isinstance(error, LeadlineError | OSError):
        return USAGE
    return INTERNAL


def sentence(error: BaseException) -> str:
    """What is wrong, where, and what to do, on one line."""
    if isinstance(error, click.ClickException):
        return error.format_message()
    if isinstance(error, LeadlineError):
        return str(error)
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename!r} cannot be used: {(error.strerror or 'unknown error').lower()}"
    said = safe(" ".join(str(error).split()))
    return f"internal error, {type(error).__name__}: {said} (run `leadline --debug ...` for the traceback)"
