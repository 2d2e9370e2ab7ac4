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


@pytest.mark.parametrize(
    ("fact", "summary", "state"),
    [
        ("rotate the signing key every week", "the signing key is rotated every week", "abstracted"),
        ("all rotated keys expire after 30 days", "rotate keys; they expired after 30 days", "abstracted"),
        ("deploy releases on Fridays", "releasing: deployed on Fridays", "abstracted"),
        # Values stay literal: a number, a name, what ends in -ing, capitals.
        ("rotate the key on port 8080", "the key on port 808 is rotated", "absent"),
        ("deploys go to staging first", "deploy in stages first", "absent"),
        ("deploys go to Hannover", "deploys go to Hannovers", "absent"),
        ("Jones approves", "Jone approved", "absent"),
        ("the limit is 30s", "the limit is 30", "absent"),
        ("use the SSD pools", "use the SSDs pool", "absent"),
        # Another word is not another form: at least four letters of it are the same to the letter.
        ("never share the notes", "never shed the notes", "absent"),
    ],
)
def test_words_count_in_their_other_forms_and_values_as_they_stand(fact: str, summary: str, state: str) -> None:
    assert assess(Fact("f", fact), summary) == state


def test_an_anchor_that_was_given_is_taken_as_it_was_given() -> None:
    """Whoever chose it can say ``rotat*``."""
    assert assess(Fact("f", "x", ("rotate",)), "it is rotated") == "absent"
    assert assess(Fact("f", "x", ("rotat*",)), "it is rotated") == "abstracted"
