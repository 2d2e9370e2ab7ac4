"""Writing to the terminal: agents' text made harmless, JSON on one line, bars and sparklines."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from typing import Any, BinaryIO, Final

import click
import orjson
from rich.console import Console
from rich.text import Text

from leadline.contracts.text import safe as made_safe

__all__ = ["SEVERITY_STYLE", "bar", "console", "emit_json", "ending", "is_terminal", "open_input", "ratio_style", "safe", "spark"]

SEVERITY_STYLE: Final = {"critical": "bold red", "warning": "yellow", "info": "cyan"}
_BLOCKS: Final = "▁▂▃▄▅▆▇█"
_EIGHTHS: Final = " ▏▎▍▌▋▊▉"
# DEL, C1 controls, line separators and direction marks: legal in JSON text, but a terminal obeys some of them.
_OBEYED: Final = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Rich would exit with 1, which here means something else."""
        raise BrokenPipeError


def console(stderr: bool = False) -> Console:
    """Colours only on a terminal; no markup and no highlighting, so that text is shown as it is."""
    return _Console(stderr=stderr, markup=False, highlight=False, emoji=False, soft_wrap=True)


def is_terminal() -> bool:
    """Whether standard output is a terminal."""
    return sys.stdout.isatty()


def safe(text: str, limit: int = 200) -> Text:
    """Text that an agent wrote, to be shown: secrets masked, control characters visible, never markup, bounded."""
    return Text(made_safe(text, limit))


def ending(text: str, width: int) -> str:
    """An id that is too long loses its beginning: what tells two of a fleet apart is usually at the end."""
    return text if len(text) <= width else "…" + text[len(text) - width + 1 :]


def emit_json(value: Any) -> None:
    """One JSON value on one line of standard output. Ready-made JSON comes as ``orjson.Fragment``."""
    text = orjson.dumps(value).decode()
    # Such characters can only stand inside strings, where the escaped form means the same.
    click.echo(_OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", text))


def open_input(name: str) -> BinaryIO:
    """A file to be read as bytes; ``-`` is standard input. A directory or an unreadable file raises ``OSError``."""
    if name == "-":
        return click.get_binary_stream("stdin")
    return open(name, "rb")


def bar(share: float | None, width: int = 16) -> str:
    """A share from 0 to 1 as a bar of ``width`` cells; blank where it is unknown."""
    if share is None:
        return "?".ljust(width)
    eighths = round(min(1.0, max(0.0, share)) * width * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (_EIGHTHS[rest] if rest else "")).ljust(width, "·")


def spark(values: Iterable[float | None], low: float | None = None, high: float | None = None) -> str:
    """A sparkline, oldest first; ``·`` where a value is unknown. Without bounds it is scaled to the values."""
    given = list(values)
    known = [value for value in given if value is not None]
    if not known:
        return "·" * len(given)
    least = min(known) if low is None else low
    reach = (max(known) if high is None else high) - least
    return "".join("·" if value is None else _block(value - least, reach) for value in given)


def _block(above: float, reach: float) -> str:
    if reach <= 0:
        return _BLOCKS[3]
    return _BLOCKS[min(7, max(0, int(above / reach * 8)))]


def ratio_style(ratio: float | None) -> str:
    """Green, yellow below one half, red below the grounding floor's default."""
    if ratio is None:
        return "dim"
    return "red" if ratio < 0.25 else "yellow" if ratio < 0.5 else "green"
