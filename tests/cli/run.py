"""Running the command line in this process, as the shell would see it."""

from __future__ import annotations

import io
import json
import sys
from typing import Any, NamedTuple

import pytest

from leadline.cli.main import main


class Ran(NamedTuple):
    """What a call left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output, which must be exactly one JSON value."""
        return json.loads(self.out)


def leadline(*arguments: str, stdin: str | bytes = b"") -> Ran:
    """``leadline ARGUMENTS...`` with its exit code and output."""
    given = stdin.encode() if isinstance(stdin, str) else stdin
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.TextIOWrapper(io.BytesIO(), "utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given), "utf-8"))
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", err)
        with pytest.raises(SystemExit) as left:
            main(arguments)
    code = left.value.code
    assert isinstance(code, int)
    return Ran(code, _text(out), _text(err))


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode()
