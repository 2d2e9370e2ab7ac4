"""How good the rules are: labelled fleets through the monitor's own decisions, and the closed loop."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from statistics import median
from typing import Any, NamedTuple

from leadline.contracts.orders import Command, Violation
from leadline.detection.rules import CHECKPOINT_RULES, ROUND_RULES
from leadline.lab.replay import ReplayDriver
from leadline.lab.simulator.kinds import KINDS, Labelled, labelled
from leadline.lab.simulator.obey import Lived, live
from leadline.lab.simulator.settings import LoopSettings

__all__ = ["RULES", "ClosedLoop", "Judged", "Quality", "RuleQuality", "Share", "quality", "wilson"]

RULES = ("inversion", "provenance-floor", "depth-pin", "ungrounded-summary", "budget-open", "recall-floor")
"""The rules for which the simulator has a truth of its own."""

Progress = Callable[[int, int], None]


class Share(NamedTuple):
    """A share with its 95 % Wilson interval. ``of`` 0: nothing can be said, and the value is ``None``."""

    hits: int
    of: int
    value: float | None
    low: float
    high: float


class RuleQuality(NamedTuple):
    """Over sessions. ``delay``: median rounds (for checkpoint rules, levels) from the truth's first to the rule's first."""

    rule: str
    sessions: int
    precision: Share
    recall: Share
    delay: float | None


class ClosedLoop(NamedTuple):
    """The same inverting sessions, obeying and ignoring. Costs are medians over the obeying sessions."""

    sessions: int
    unsupported_obeyed: int
    unsupported_ignored: int
    halts: float
    token_cost: float
    """Tokens read again, as a share of the budget."""
    waited: float
    """Rounds spent under a halt."""


class Judged(NamedTuple):
    """A labelled session and what the monitor said. ``first``: by rule, the first round or level of a violation."""

    session: Labelled
    first: dict[str, int]
    halted: bool


class Quality(NamedTuple):
    """``healthy``: sessions whose truth names no trouble. ``lead``: rounds by which ``erosion`` came before ``inversion``."""

    judged: list[Judged]
    rules: list[RuleQuality]
    healthy: int
    alarms: Share
    alarms_by_rule: dict[str, Share]
    halts: Share
    grave_unsupported: Share
    lead: float | None
    closed: ClosedLoop

    def as_json(self) -> dict[str, Any]:
        """One object: ``rules``, ``healthy`` (alarms and halts per 1,000), ``closed_loop``, ``sessions`` by kind."""
        kinds: dict[str, int] = {}
        for one in self.judged:
            kinds[one.session.kind] = kinds.get(one.session.kind, 0) + 1
        return {
            "sessions": kinds,
            "rules": [
                {**one._asdict(), "precision": one.precision._asdict(), "recall": one.recall._asdict()} for one in self.rules
            ],
            "healthy": {
                "sessions": self.healthy,
                "alarms_per_1000": _per_1000(self.alarms),
                "halts_per_1000": _per_1000(self.halts),
                "alarms_by_rule_per_1000": {rule: _per_1000(share) for rule, share in self.alarms_by_rule.items()},
            },
            "unsupported_flagged": self.grave_unsupported._asdict(),
            "erosion_lead_rounds": self.lead,
            "closed_loop": self.closed._asdict(),
        }


def quality(sessions: int, progress: Progress | None = None) -> Quality:
    """``sessions`` in equal parts of every kind (at least one each), and a tenth as many in the closed loop. Deterministic."""
    each = max(1, sessions // len(KINDS))
    pairs = max(1, sessions // 10)
    total = each * len(KINDS) + pairs
    judged: list[Judged] = []
    for kind in KINDS:
        for seed in range(each):
            judged.append(_judge(labelled(kind, seed)))
            if progress is not None:
                progress(len(judged), total)
    closed = _closed(pairs, lambda done: progress(len(judged) + done, total) if progress is not None else None)
    built = {rule.name for rule in ROUND_RULES} | {rule.name for rule in CHECKPOINT_RULES}
    healthy = [one for one in judged if not one.session.truth.first]
    grave = [one for one in judged if one.session.truth.answer.unsupported]
    leads = [one.first["inversion"] - one.first["erosion"] for one in judged if {"inversion", "erosion"} <= one.first.keys()]
    return Quality(
        judged=judged,
        rules=[_rule(rule, judged) for rule in RULES if rule in built],
        healthy=len(healthy),
        alarms=wilson(sum(bool(one.first) for one in healthy), len(healthy)),
        alarms_by_rule={
            rule: wilson(sum(rule in one.first for one in healthy), len(healthy))
            for rule in sorted({rule for one in healthy for rule in one.first})
        },
        halts=wilson(sum(one.halted for one in healthy), len(healthy)),
        grave_unsupported=wilson(sum("inversion" in one.first or "provenance-floor" in one.first for one in grave), len(grave)),
        lead=median(leads) if leads else None,
        closed=closed,
    )


def wilson(hits: int, of: int, z: float = 1.96) -> Share:
    """Wilson's score interval."""
    if of == 0:
        return Share(0, 0, None, 0.0, 1.0)
    share = hits / of
    scale = 1 + z * z / of
    middle = (share + z * z / (2 * of)) / scale
    reach = z * sqrt(share * (1 - share) / of + z * z / (4 * of * of)) / scale
    return Share(hits, of, share, max(0.0, min(share, middle - reach)), min(1.0, max(share, middle + reach)))


def _judge(session: Labelled) -> Judged:
    driver = ReplayDriver()
    for record in session.records:
        driver.feed(record)
    first: dict[str, int] = {}
    for violation in driver.violations:
        if violation.severity != "info":
            first.setdefault(violation.rule, _where(violation))
    # Nobody acknowledges in a recording: what follows from silence is not the rules' doing.
    first.pop("unheeded", None)
    return Judged(session, first, any(_halts(command) for command in driver.commands))


def _where(violation: Violation) -> int:
    return violation.level if violation.level is not None else (violation.round or 0)


def _halts(command: Command) -> bool:
    return command.kind == "halt"


def _rule(rule: str, judged: list[Judged]) -> RuleQuality:
    true = {id(one) for one in judged if rule in one.session.truth.first}
    said = {id(one) for one in judged if rule in one.first}
    both = [one for one in judged if id(one) in true and id(one) in said]
    delays = [one.first[rule] - one.session.truth.first[rule] for one in both]
    return RuleQuality(
        rule,
        len(true),
        precision=wilson(len(both), len(said)),
        recall=wilson(len(both), len(true)),
        delay=median(delays) if delays else None,
    )


def _closed(pairs: int, done: Callable[[int], None]) -> ClosedLoop:
    obeyed: list[Lived] = []
    ignored: list[Lived] = []
    for seed in range(pairs):
        obeyed.append(live(LoopSettings(), 10_000 + seed, obey=True))
        ignored.append(live(LoopSettings(), 10_000 + seed, obey=False))
        done(seed + 1)
    return ClosedLoop(
        sessions=pairs,
        unsupported_obeyed=sum(one.answer.unsupported for one in obeyed),
        unsupported_ignored=sum(one.answer.unsupported for one in ignored),
        halts=median(one.halts for one in obeyed),
        token_cost=median(one.token_cost for one in obeyed),
        waited=median(one.waited for one in obeyed),
    )


def _per_1000(share: Share) -> dict[str, float | None]:
    return {
        "value": None if share.value is None else round(1000 * share.value, 2),
        "low": round(1000 * share.low, 2),
        "high": round(1000 * share.high, 2),
    }
