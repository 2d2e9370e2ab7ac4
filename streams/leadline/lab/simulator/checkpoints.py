"""A chain of checkpoints, L0 raw turns to L3 task summary, each level written within its own token budget.

The mechanism of silent truncation collapse: a level takes the statements of the level below, the newest first, in the shortest
form that its budget asks for, and simply stops when the budget is full. What was not reached is the dropped tail; nobody reports
it. What becomes of a fact is read from the text that was really written (:func:`leadline.agent.facts.assess`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from leadline.agent.facts import Fact, assess
from leadline.contracts.events import FactState

__all__ = ["CONSTRAINT", "FAITHFUL", "Chain", "ChainSettings", "Level", "Statement", "build_chain", "count_tokens", "turns"]


@dataclass(frozen=True, slots=True)
class Statement:
    """What one turn says that matters: in full, and as a summary shortens it.

    ``faithful``: the short form still says all of it; else it is a label that has lost the values.
    """

    text: str
    label: str
    faithful: bool = False


FAITHFUL: Final = Statement(
    "do not rotate the credential after step 4", "the credential must not be rotated after step 4 has begun", faithful=True
)
CONSTRAINT: Final = Statement("do not rotate the credential after step 4", "credential rotation deferred")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainSettings:
    """``carried``: facts that the summarizer was told to carry: they come first, in full (the remedy of ``retry-level``)."""

    budgets: tuple[int, ...] = (8_000, 2_000, 512, 128)
    turns: int = 40
    turn_tokens: int = 190
    statement_turn: int = 7
    carried: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Level:
    """One summarizer call as it really was. ``seen``: how many of the ``source`` statements were reached."""

    level: int
    budget_tokens: int
    declared_tokens: int
    consumed_tokens: int
    source: int
    seen: int
    text: str
    tokens: int
    states: dict[str, FactState]
    holds_planted: bool = True
    """Whether the planted statement is still there with all that it says: by the summarizer's own bookkeeping, not its text."""


@dataclass(frozen=True, slots=True)
class Chain:
    """``levels`` from L0 up."""

    levels: tuple[Level, ...]

    def over_budget(self) -> int:
        """Levels whose text is longer than their budget."""
        return sum(level.tokens > level.budget_tokens for level in self.levels)

    def dropped(self) -> int:
        """Levels that did not reach all of their input."""
        return sum(level.seen < level.source for level in self.levels)


_THINGS: Final = (
    "cache",
    "index",
    "schema",
    "quota",
    "region",
    "replica",
    "backup",
    "queue",
    "timeout",
    "router",
    "bucket",
    "report",
)
_ACTIONS: Final = (
    "rebuilt",
    "verified",
    "resized",
    "migrated",
    "measured",
    "renamed",
    "archived",
    "restored",
    "compared",
    "paused",
)


def count_tokens(text: str) -> int:
    """Words and marks: near enough to a tokenizer's count for budgets to mean something."""
    return len(text.split())


def turns(settings: ChainSettings, seed: int, planted: Statement | None = CONSTRAINT) -> list[tuple[str, Statement]]:
    """Turn by turn: the whole text, and the statement in it. ``planted`` is what turn ``statement_turn`` says."""
    rng = np.random.default_rng(seed)
    made = []
    for number in range(1, settings.turns + 1):
        thing, action = _THINGS[rng.integers(len(_THINGS))], _ACTIONS[rng.integers(len(_ACTIONS))]
        value = int(rng.integers(10, 990))
        filler = int(rng.integers(18, 34))
        text = f"the {thing} {value} was {action} in turn {number} and " + " ".join(["its log was read"] * (filler // 4))
        statement = Statement(text, f"{thing} {value} was {action} as was planned for this part of it")
        if number == settings.statement_turn and planted is not None:
            statement = planted
        chatter = max(0, settings.turn_tokens - count_tokens(statement.text) - 1)
        made.append((f"{statement.text} . " + " ".join(["chatter"] * chatter), statement))
    return made


def build_chain(settings: ChainSettings, seed: int, facts: tuple[Fact, ...], planted: Statement | None = CONSTRAINT) -> Chain:
    """All levels, each from the one below."""
    script = turns(settings, seed, planted)
    texts = [text for text, _ in script]
    whole = " \n".join(texts)
    total = count_tokens(whole)
    levels = [
        Level(
            0,
            settings.budgets[0],
            total,
            total,
            len(texts),
            len(texts),
            whole,
            total,
            {f.fact_id: assess(f, whole) for f in facts},
        )
    ]
    items = [statement for _, statement in script]
    for level, budget in enumerate(settings.budgets[1:], 1):
        level_made, items = _summarize(level, budget, items, levels[-1].tokens, facts, settings.carried)
        level_made = replace(level_made, holds_planted=planted is None or any(_says(item, planted) for item in items))
        levels.append(level_made)
    return Chain(tuple(levels))


def _summarize(
    level: int, budget: int, items: list[Statement], declared: int, facts: tuple[Fact, ...], carried: tuple[str, ...]
) -> tuple[Level, list[Statement]]:
    """One call. In full where everything fits in full; else as labels, the newest first, until the budget is full."""
    first = [Statement(fact.text, fact.text) for fact in facts if fact.fact_id in carried]
    in_full = sum(count_tokens(item.text) + 1 for item in items) <= budget
    written: list[str] = [f"{item.text} ." for item in first]
    kept: list[Statement] = []
    used = sum(count_tokens(line) for line in written)
    for item in reversed(items):
        line = f"{item.text if in_full else item.label} ."
        if used + count_tokens(line) > budget:
            break
        used += count_tokens(line)
        written.append(line)
        kept.append(item if in_full else Statement(item.label, item.label, item.faithful))
    text = " \n".join(written)
    consumed = declared if len(kept) == len(items) else int(declared * len(kept) / max(1, len(items)))
    states = {fact.fact_id: assess(fact, text) for fact in facts}
    made = Level(level, budget, declared, consumed, len(items), len(kept), text, count_tokens(text), states)
    return made, kept[::-1]


def _says(item: Statement, planted: Statement) -> bool:
    return item.text == planted.text or (planted.faithful and item.text == planted.label)
