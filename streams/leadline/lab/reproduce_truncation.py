"""The truncation-collapse document's case, told to the monitor through the real path: which level does ``recall-floor`` blame?"""

from __future__ import annotations

from typing import NamedTuple

from leadline.agent.facts import Fact
from leadline.contracts.events import SessionStart
from leadline.contracts.times import format_ms
from leadline.lab.replay import ReplayDriver
from leadline.lab.simulator.checkpoints import CONSTRAINT, Chain, ChainSettings, build_chain
from leadline.lab.simulator.records import checkpoint_record

__all__ = ["Blame", "Collapse", "collapse"]

_TOPIC_ONLY = ("credential", "rotat*")


class Blame(NamedTuple):
    """What one way of reporting leads to. ``levels``: by rule, the levels it blamed."""

    reporting: str
    levels: dict[str, list[int]]


class Collapse(NamedTuple):
    """``values``: by the name of a published figure."""

    chain: Chain
    values: dict[str, float]
    blames: list[Blame]


def collapse(seed: int = 0) -> Collapse:
    """One constraint from turn 7 through four levels. Silent agents say nothing of what they did not read."""
    values_too = Fact("constraint", CONSTRAINT.text, fact_class="constraint", recall_floor=1.0)
    topic_only = Fact("constraint", CONSTRAINT.text, anchors=_TOPIC_ONLY, fact_class="constraint", recall_floor=1.0)
    chain = build_chain(ChainSettings(), seed, (values_too,))
    loose = build_chain(ChainSettings(), seed, (topic_only,))
    kept = [level.level for level in chain.levels if level.states["constraint"] == "verbatim"]
    labelled = [level.level for level in chain.levels if CONSTRAINT.label in level.text or level.level in kept]
    gone = [level.level for level in chain.levels if level.level not in labelled]
    return Collapse(
        chain,
        {
            "truncation.over_budget": chain.over_budget(),
            # Nothing in a silent agent's records says that a level was not read to its end.
            "truncation.reported": 0,
            "truncation.last_verbatim": kept[-1] if kept else -1,
            "truncation.last_label": labelled[-1] if labelled else -1,
            "truncation.absent": gone[0] if gone else -1,
        },
        [
            Blame("silent; fact by its topic only (credential, rotation)", _judge(loose, topic_only, counted=False)),
            Blame("silent; fact with its values (step 4) and its prohibition", _judge(chain, values_too, counted=False)),
            Blame("with input counted: declared, consumed, spans seen", _judge(chain, values_too, counted=True)),
        ],
    )


def _judge(chain: Chain, fact: Fact, counted: bool) -> dict[str, list[int]]:
    driver = ReplayDriver()
    start = SessionStart(
        session_id="lab-truncation", agent_id="lab", event_id="start", ts=format_ms(0), epoch=0, facts=[fact.declared()]
    )
    driver.feed(start)
    for level in chain.levels:
        driver.feed(checkpoint_record("lab-truncation", level, at=1_000 * (level.level + 1), counted=counted))
    blamed: dict[str, list[int]] = {}
    for violation in driver.violations:
        if violation.level is not None:
            blamed.setdefault(violation.rule, []).append(violation.level)
    return blamed
