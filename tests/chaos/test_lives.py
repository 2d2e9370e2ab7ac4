"""The records that the chaos suite sends: seeded, varied, and as disordered as told."""

from __future__ import annotations

import json
from collections import Counter
from itertools import islice
from random import Random

from leadline.commands.fold import Incoming
from leadline.detection.policy_file import parse_policy
from tests.chaos.arena import POLICY
from tests.chaos.lives import POISON, duplicated_and_reordered, life, poison
from tests.chaos.traffic import interleaved
from tests.support.core import START
from tests.support.oracle import Oracle


def test_the_same_seed_makes_the_same_records() -> None:
    assert list(islice(interleaved(7, 0.05, 0.05), 500)) == list(islice(interleaved(7, 0.05, 0.05), 500))
    assert list(life("s", "one")) != list(life("s", "two"))


def test_every_kind_of_trouble_that_the_clock_does_not_make_is_met() -> None:
    """2,000 records at 150 a second: the rules that the lives are made for fire, and commands of each kind go out."""
    oracle = Oracle(parse_policy(POLICY), now=lambda: START)
    records = islice(interleaved(1, 0.0, 0.0), 2000)
    oracle.feed(Incoming(key, value, 0, at, START + at * 7) for at, (key, value) in enumerate(records))
    rules = Counter(json.loads(body)["rule"] for body in oracle.violations.values())
    assert rules.keys() >= {"inversion", "depth-pin", "budget-open", "recall-floor", "unobserved"}
    kinds = {json.loads(body)["kind"] for body in oracle.commands.values()}
    assert kinds >= {"halt", "cap-depth", "retry-level", "resume"}
    assert oracle.dead == set()


def test_all_poison_is_refused_and_nothing_else() -> None:
    oracle = Oracle(parse_policy(POLICY), now=lambda: START)
    dice = Random(1)
    records = [poison("s1", dice) for _ in range(200)]
    oracle.feed(Incoming(key, value, 0, at, START) for at, (key, value) in enumerate(records))
    assert oracle.dead == {(0, at) for at in range(200)}
    assert {value for _, value in records} >= set(POISON)


def test_disorder_loses_no_record() -> None:
    """Each record is there, a tenth twice; some come behind a later one."""
    records = [record for number in range(20) for record in life(f"s{number}", f"s{number}")]
    disordered = list(duplicated_and_reordered(iter(records), Random(3), 0.1))
    times = Counter(disordered)
    assert times.keys() == set(records)
    assert 0.05 * len(records) < sum(count - 1 for count in times.values()) < 0.15 * len(records)
    assert [record for record in disordered if times[record] == 1] != [record for record in records if times[record] == 1]
