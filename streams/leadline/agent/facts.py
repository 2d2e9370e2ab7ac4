"""Facts that compaction must carry along, and whether a summary still holds them.

A fact's text and anchors stay in the agent: only its id, class and floor are declared, and its status reported.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from leadline.contracts.events import Fact as DeclaredFact
from leadline.contracts.events import FactState

__all__ = ["Fact", "assess"]

_SPACE: Final = re.compile(r"\s+")
_SENTENCE: Final = re.compile(r"(?<=[.!?;])\s+|\n+")
_WORD: Final = re.compile(r"[^\W_](?:[\w./:@%'’-]*\w)?%?")
_NEGATION: Final = re.compile(
    r"(?i)\b(?:not|never|no|none|nobody|nothing|without|cannot|neither|nor|avoid\w*|exclud\w*|except|forbid\w*|forbidden"
    r"|prohibit\w*|disallow\w*|ban(?:s|ned)?|refrain\w*|withh[eo]ld\w*|defer\w*|postpon\w*|must\s?n['’]?t|\w+n['’]t)\b"
)
_COMMON: Final = frozenset(
    _WORD.findall(
        "about after again also always because been before being between both could does doing down during each from have"
        " having here into itself just many more most must never nothing once only other over same should some such than"
        " that their them then there these they this those through under until upon very want well were what when where"
        " which while will with without would your"
    )
)


@dataclass(frozen=True, slots=True)
class Fact:
    """One fact. ``anchors``: what a paraphrase must keep for the fact to count as kept: its literal values and the words that
    say what it is about; ``rotat*`` stands for every word that begins so. None given: all values and longer words of the text,
    the words in their other forms too (``rotated`` for ``rotate``), the values as they stand.

    ``recall_floor`` (0 to 1): the least kept share of its class; ``supersedes``: the id of an earlier fact that may be lost.
    """

    fact_id: str
    text: str
    anchors: tuple[str, ...] = ()
    fact_class: str = ""
    recall_floor: float | None = None
    supersedes: str = ""

    def declared(self) -> DeclaredFact:
        """As it is declared to the monitor."""
        return DeclaredFact(
            fact_id=self.fact_id, fact_class=self.fact_class, recall_floor=self.recall_floor, supersedes=self.supersedes
        )


def assess(fact: Fact, text: str | None) -> FactState:
    """What became of ``fact`` in a summary's visible ``text``.

    ``verbatim``: its text is there, white space aside. ``abstracted``: every anchor is there, and if the fact is a negation
    there is one in a sentence with an anchor (English words; in other languages the anchors alone decide). ``absent``:
    anything else; also where a value became a label ("the port" for 8080). ``unknown``: the text is not visible (``None``:
    encrypted, server-side).
    """
    if text is None:
        return "unknown"
    summary, wanted = _flat(text), _flat(fact.text)
    if wanted and _holds(summary, re.escape(wanted), 0):
        return "verbatim"
    patterns = tuple(map(_pattern, fact.anchors)) or _patterns(fact.text)
    if not patterns or not all(_holds(summary, pattern, re.IGNORECASE) for pattern in patterns):
        return "absent"
    if _NEGATION.search(fact.text) and not _negated(text, patterns):
        return "absent"
    return "abstracted"


def _flat(text: str) -> str:
    return _SPACE.sub(" ", text).strip()


def _pattern(anchor: str) -> str:
    flat = _flat(anchor)
    return re.escape(flat[:-1]) + r"\w*" if flat.endswith("*") else re.escape(flat)


def _holds(text: str, pattern: str, flags: int) -> bool:
    """Whether ``pattern`` stands in ``text`` on its own: ``port 80`` is not in ``port 8080``, nor 4 in 1.4."""
    return re.search(rf"(?<![\w])(?<!\d[.,]){pattern}(?![\w])(?![.,]\d)", text, flags) is not None


def _negated(text: str, patterns: tuple[str, ...]) -> bool:
    return any(
        _NEGATION.search(sentence) is not None and any(_holds(_flat(sentence), pattern, re.IGNORECASE) for pattern in patterns)
        for sentence in _SENTENCE.split(text)
    )


_FORMS: Final = "(?:e|ed|es|ing|s)?"
_ENDING: Final = re.compile(r"(?<=[a-z]{4})(?:ed|es|e|(?<!s)s)\Z")


def _word_pattern(word: str) -> str:
    """A word in its other forms. What may be a name stays as it stands: whatever is written with a capital, and what ends in -ing
    (staging, billing)."""
    if not (word.isascii() and word.isalpha() and word.islower() and len(word) >= 5) or word.endswith("ing"):
        return re.escape(word)
    return _ENDING.sub("", word) + _FORMS


@lru_cache(maxsize=1_024)
def _patterns(text: str) -> tuple[str, ...]:
    """For the values (whatever holds a digit, a sign, or is all capitals) and the longer words of a fact's text."""
    found = []
    for word in _WORD.findall(text):
        value = not word.isalpha() or (len(word) > 1 and word.isupper())
        if (value or (len(word) >= 4 and word.lower() not in _COMMON)) and not _NEGATION.fullmatch(word):
            found.append(re.escape(word) if value else _word_pattern(word))
    return tuple(dict.fromkeys(found))
