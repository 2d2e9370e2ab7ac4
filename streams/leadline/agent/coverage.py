"""What a summarizer call left out, told by ids; and whether its text is a summary at all. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

__all__ = ["is_placeholder", "uncovered"]

_PLACEHOLDER: Final = re.compile(
    r"""(?ix) \W* (?:
      (?: error \W+ )? (?: error | failed | failure | unable | could \s not | couldn['’]t | cannot | can['’]t )
        \s+ (?: (?: to | in | while ) \s+ )?
        (?: generat\w* | creat\w* | produc\w* | summari[sz]\w* | compact\w* )
      | (?: no | empty ) \s+ summary
      | summary \s+ (?: unavailable | not \s+ available | failed | pending | goes \s+ here )
      | (?: n/?a | null | none | undefined | todo ) \W* $
      )"""
)
_HEAD: Final = 200


def uncovered(existing: Iterable[str], sources: Iterable[str], retained: Iterable[str] = ()) -> list[str]:
    """Ids in ``existing`` that are neither among a call's ``sources`` nor ``retained``: gone without a word, in their order.

    Ids decide: neither positions nor times can show that nothing is missing. Report it as ``unseen_span_ids``.
    """
    kept = {*sources, *retained}
    return [span for span in dict.fromkeys(existing) if span not in kept]


def is_placeholder(text: str) -> bool:
    """Whether a text only stands for a summary that was not written ("Error generating summary ...")."""
    return _PLACEHOLDER.match(text[:_HEAD]) is not None
