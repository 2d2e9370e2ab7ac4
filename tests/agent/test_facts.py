"""Whether a summary still holds a fact."""

from __future__ import annotations

import pytest

from leadline.agent import Fact, assess
from leadline.contracts.events import FactState

CREDENTIAL = Fact("f1", "do not rotate the credential after step 4", anchors=("rotat*", "credential"))
PORT = Fact("f2", "The service listens on port 8080.", anchors=("8080",))


@pytest.mark.parametrize(
    ("fact", "text", "status"),
    [
        (CREDENTIAL, "Rule: do not rotate the credential after step 4. Then deploy.", "verbatim"),
        (CREDENTIAL, "Rule: do  not rotate\n the credential after step 4.", "verbatim"),
        # The founding document's own levels: verbatim at L1, abstracted at L2, absent at L3.
        (CREDENTIAL, "Credential rotation deferred.", "abstracted"),
        (CREDENTIAL, "Deployment is under way; all checks are green.", "absent"),
        # Without its negation the fact has turned into its opposite.
        (CREDENTIAL, "Rotate the credential after step 4.", "absent"),
        # A negation somewhere else is not this fact's.
        (CREDENTIAL, "Credential rotation is done. There are no other tasks.", "absent"),
        (CREDENTIAL, None, "unknown"),
        (PORT, "It is reached at port 8080", "abstracted"),
        # A value that became a label is gone.
        (PORT, "It is reached at the configured port.", "absent"),
        # Part of another number is not the value.
        (PORT, "It is reached at port 18080, version 2.8080.", "absent"),
        (Fact("f", "port 80"), "port 8080 is open", "absent"),
        (Fact("f", "Keep p99 under 250 ms"), "Latency budget: p99 250 ms, keep", "abstracted"),
        (Fact("f", "Keep p99 under 250 ms"), "Latency matters.", "absent"),
        (Fact("f", ""), "anything", "absent"),
        (Fact("f", "[rule] is (a+b)", anchors=("(a+b)",)), "the rule (a+b) holds", "abstracted"),
    ],
)
def test_status_of_a_fact_in_a_text(fact: Fact, text: str | None, status: FactState) -> None:
    """Verbatim by its text, abstracted by its anchors and its negation, absent otherwise, unknown when not visible."""
    assert assess(fact, text) == status


def test_only_id_class_and_floor_are_declared() -> None:
    """A fact's text and anchors stay in the agent."""
    declared = Fact("f1", "the password is hunter2", fact_class="secret", recall_floor=0.5, supersedes="f0").declared()
    assert (declared.fact_id, declared.fact_class, declared.recall_floor, declared.supersedes) == ("f1", "secret", 0.5, "f0")
    assert "hunter2" not in repr(declared)
