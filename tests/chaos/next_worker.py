"""A monitor worker of the next minor version, as far as others can tell: its states have fields that
this version does not know, at every depth. ``python -m tests.chaos.next_worker``, settings as ever.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import orjson

from leadline.processors import sessions, worker
from leadline.settings import load_settings


def newer(encode: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    """``encode``, with fields that come with the next version."""

    def encoded(record: Any) -> bytes:
        raw = orjson.loads(encode(record))
        for nested in (*raw.get("incidents", ()), *raw.get("window", ()), raw):
            if isinstance(nested, dict):
                nested["of_the_next_version"] = {"hint": [1, "two", None]}
        return orjson.dumps(raw)

    return encoded


def main() -> int:
    sessions.encode_state = newer(sessions.encode_state)  # type: ignore[assignment,attr-defined]
    return worker.run(load_settings())


if __name__ == "__main__":
    sys.exit(main())
