"""The ledger against a plain model of the definitions, over random histories."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import fsum

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from leadline.agent import Ledger


@dataclass
class Node:
    tokens: int
    salience: float | None
    sources: list[str] | None = None
    copy_of: str | None = None
    depth: int = 0
    retained: bool = True
    archived: bool = False
    fan_out: int = field(default=0)


class Model:
    """The definitions, word by word: sets and recursion, no masks."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}

    def leaf(self, node_id: str) -> str:
        """A copy is its original."""
        original = self.nodes[node_id].copy_of
        return node_id if original is None else self.leaf(original)

    def available(self) -> set[str]:
        raw = {node_id for node_id, node in self.nodes.items() if node.sources is None}
        return {self.leaf(node_id) for node_id in raw if self.nodes[node_id].retained or self.nodes[node_id].archived}

    def below(self, node_id: str) -> set[str]:
        sources = self.nodes[node_id].sources
        if sources is None:
            return {self.leaf(node_id)}
        return set().union(*(self.below(source) for source in sources))

    def retained(self) -> list[tuple[str, Node]]:
        return [(node_id, node) for node_id, node in self.nodes.items() if node.retained]

    def spans(self) -> set[str]:
        return set().union(*(self.below(node_id) for node_id, _ in self.retained())) & self.available()


TOKENS = st.integers(0, 50)
SALIENCE = st.none() | st.floats(0, 1) | st.floats(-1e9, 1e9)


class Histories(RuleBasedStateMachine):
    """Every step is done to the ledger and to the model; they agree after each."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger()
        self.model = Model()
        self.count = 0
        self.forgotten: set[str] = set()

    def new(self) -> str:
        self.count += 1
        return f"i{self.count}"

    def some(self, data: st.DataObject, *, summaries: bool | None = None) -> str:
        return data.draw(st.sampled_from(self.known(summaries)))

    def known(self, summaries: bool | None = None) -> list[str]:
        """Ids that were not forgotten."""
        return [
            node_id
            for node_id, node in self.model.nodes.items()
            if node_id not in self.forgotten and (summaries is None or (node.sources is not None) is summaries)
        ]

    @rule(tokens=TOKENS, salience=SALIENCE)
    def add(self, tokens: int, salience: float | None) -> None:
        name = self.new()
        self.ledger.add_raw(name, tokens, salience)
        self.model.nodes[name] = Node(tokens, salience)

    @precondition(lambda self: self.known(summaries=False))
    @rule(data=st.data(), tokens=TOKENS)
    def copy(self, data: st.DataObject, tokens: int) -> None:
        name, original = self.new(), self.some(data, summaries=False)
        self.ledger.add_raw(name, tokens, copy_of=original)
        self.model.nodes[name] = Node(tokens, None, copy_of=original)

    @precondition(lambda self: self.known(summaries=True))
    @rule(data=st.data(), tokens=TOKENS)
    def wrap(self, data: st.DataObject, tokens: int) -> None:
        name, summary = self.new(), self.some(data, summaries=True)
        self.ledger.add_raw(name, tokens, wraps=summary)
        self.model.nodes[name] = Node(tokens, None, sources=[summary], depth=self.model.nodes[summary].depth)

    @precondition(lambda self: self.known())
    @rule(data=st.data(), tokens=TOKENS, salience=SALIENCE)
    def summarize(self, data: st.DataObject, tokens: int, salience: float | None) -> None:
        name = self.new()
        sources = data.draw(st.lists(st.sampled_from(self.known()), max_size=4))
        self.ledger.summarize(name, sources, tokens, salience)
        depth = 1 + max((self.model.nodes[source].depth for source in sources), default=0)
        self.model.nodes[name] = Node(tokens, salience, sources=sources, depth=depth)

    @precondition(lambda self: self.known())
    @rule(data=st.data(), archived=st.booleans())
    def evict(self, data: st.DataObject, archived: bool) -> None:
        ids = data.draw(st.lists(st.sampled_from(self.known()), min_size=1, max_size=4))
        self.ledger.evict(ids, archived=archived)
        for node_id in ids:
            self.model.nodes[node_id].retained = False
            self.model.nodes[node_id].archived = archived

    @precondition(lambda self: self.known())
    @rule(data=st.data())
    def restore(self, data: st.DataObject) -> None:
        ids = data.draw(st.lists(st.sampled_from(self.known()), min_size=1, max_size=4))
        tokens = data.draw(st.dictionaries(st.sampled_from(ids), TOKENS, max_size=2))
        self.ledger.restore(ids, tokens)
        for node_id in ids:
            self.model.nodes[node_id].retained = True
            self.model.nodes[node_id].tokens = tokens.get(node_id, self.model.nodes[node_id].tokens)

    @precondition(lambda self: self.known())
    @rule(data=st.data(), salience=SALIENCE)
    def rescore(self, data: st.DataObject, salience: float | None) -> None:
        ids = data.draw(st.lists(st.sampled_from(self.known()), min_size=1, max_size=4))
        self.ledger.rescore(dict.fromkeys(ids, salience))
        for node_id in ids:
            self.model.nodes[node_id].salience = salience

    @precondition(lambda self: self.known())
    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        """Whatever is asked for, nothing that counts goes: every measurement from here on agrees with the model, which forgets
        nothing."""
        ids = data.draw(st.lists(st.sampled_from(self.known()), min_size=1, max_size=8))
        before, added = self.ledger.measure(), self.ledger.spans_added
        gone = self.ledger.forget(ids)
        assert set(gone) <= set(ids)
        assert (self.ledger.measure(), self.ledger.spans_added) == (before, added)
        assert not any(name in self.ledger for name in gone)
        self.forgotten.update(gone)

    @precondition(lambda self: self.model.retained())
    @rule(data=st.data())
    def evict_and_restore_is_nothing(self, data: st.DataObject) -> None:
        ids = data.draw(st.lists(st.sampled_from([node_id for node_id, _ in self.model.retained()]), max_size=4))
        before = self.ledger.measure()
        self.ledger.evict(ids, archived=True)
        assert self.ledger.measure().total_tokens <= before.total_tokens
        self.ledger.restore(ids)
        after = self.ledger.measure()
        assert set(map(str, after.summaries)) == set(map(str, before.summaries))
        assert (after.raw_tokens, after.summary_tokens, after.distinct_source_spans) == (
            before.raw_tokens,
            before.summary_tokens,
            before.distinct_source_spans,
        )

    @invariant()
    def agrees(self) -> None:
        now = self.ledger.measure()
        retained = [node for _, node in self.model.retained()]
        summaries = {node_id: node for node_id, node in self.model.retained() if node.sources is not None}
        assert now.raw_tokens == sum(node.tokens for node in retained if node.sources is None)
        assert now.summary_tokens == sum(node.tokens for node in summaries.values())
        assert now.distinct_source_spans == len(self.model.spans())
        assert now.distinct_source_spans <= self.ledger.spans_added
        assert now.summary_depth_max == max((node.depth for node in summaries.values()), default=0)
        available = self.model.available()
        reachable = {node_id: len(self.model.below(node_id) & available) for node_id in summaries}
        assert {summary.id: summary.reachable for summary in now.summaries} == reachable
        assert now.ungrounded_summaries == sum(count == 0 for count in reachable.values())
        scores = [node.salience for node in retained if node.salience is not None]
        if scores:
            assert now.query_cosine_retained == fsum(scores) / len(scores)
        else:
            assert now.query_cosine_retained is None
        for name in self.known(summaries=True):
            assert len(self.ledger.leaves(name)) == len(self.model.below(name))


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=40, stateful_step_count=30)
