"""Faults that people met in the field, and the tests that keep them out. All of the catalogue's are here.

``A``: agents that compact their context; ``B``: stream processors. Each is handled as a kind, not as the one number it came with.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

TESTS = Path(__file__).parent


class Fault(NamedTuple):
    """What was met, and the tests by file and name."""

    met: str
    tests: tuple[str, ...]
    beyond: str = ""
    """What of it the records cannot say, or is not the core's to do."""


FAULTS = {
    "A01": Fault(
        "compaction thrash: four passes in a minute, nothing in between",
        (
            "scenarios/test_rules_in_time.py::test_thrash_is_one_alarm_and_one_halt_without_a_rehydration",
            "scenarios/test_rules_in_time.py::test_a_halt_for_spinning_is_obeyed_by_silence",
            "detection/test_round_rules.py::test_it_halts_past_a_count_and_only_where_stopping_helps",
        ),
    ),
    "A02": Fault(
        "every pass ends just above the level that triggers the next",
        (
            "detection/test_round_rules.py::test_the_alarm_gives_before_after_and_the_thresholds",
            "detection/test_round_rules.py::test_the_rule_says",
        ),
        "a trigger apart from the budget: token_budget is what the agent compacts to, not the model's limit",
    ),
    "A05": Fault(
        "the output reserve is as large as the limit",
        (
            "detection/test_round_rules.py::test_no_headroom_is_told_as_configuration",
            "commands/test_incidents.py::test_headroom_below_zero_restores_nothing",
        ),
    ),
    "A10": Fault(
        "a compaction is reported done, then failed",
        (
            "detection/test_rounds.py::test_a_failure_supersedes_the_success_it_corrects",
            "detection/test_rounds.py::test_a_round_taken_back_gives_the_pin_count_back",
            "commands/test_incidents.py::test_a_success_that_was_a_failure_does_not_resolve_what_follows",
            "detection/test_round_rules.py::test_the_rule_says",
        ),
    ),
    "A13": Fault(
        "the input is 1.9 times the limit and the call fails",
        (
            "commands/test_incidents.py::test_a_failed_round_leaves_the_session_as_it_was",
            "detection/test_rules.py::test_unread_spans_and_overshoot_are_counted_exactly",
            "agent/adapters/conformance/test_conformance.py::test_a_failing_summarizer_is_told_and_treated_as_the_framework_does",
        ),
    ),
    "A18": Fault(
        "the summarizer's window is smaller than its input",
        (
            "detection/test_rules.py::test_unread_spans_and_overshoot_are_counted_exactly",
            "agent/adapters/conformance/test_conformance.py::test_what_the_summarizer_was_not_given_is_named",
        ),
    ),
    "A19": Fault(
        "sent and evaluated tokens differ, status ok",
        ("detection/test_rules.py::test_unread_spans_and_overshoot_are_counted_exactly",),
    ),
    "A20": Fault(
        "426 spans never reached the prompt",
        (
            "detection/test_rules.py::test_unread_spans_and_overshoot_are_counted_exactly",
            "agent/adapters/conformance/test_conformance.py::test_what_the_summarizer_was_not_given_is_named",
        ),
    ),
    "A23": Fault(
        "the stop reason says length",
        (
            "detection/test_drop_rules.py::test_a_cut_off_summary_is_told_from_its_stop_reason_before_any_fact",
            "scenarios/test_rules_in_time.py::test_a_cut_off_summary_is_retried_and_whole_the_second_time",
        ),
    ),
    "A24": Fault(
        "exactly the cap three times, no stop reason",
        (
            "scenarios/test_rules_in_time.py::test_exactly_the_cap_three_times_is_likely_a_cut",
            "detection/test_drop_rules.py::test_the_rule_says",
        ),
    ),
    "A26": Fault(
        "empty lists after nine constraints, six times",
        (
            "detection/test_facts.py::test_empty_lists_are_loss_of_all_nine",
            "commands/test_levels.py::test_six_empty_lists_are_one_alarm",
            "scenarios/test_rules_in_time.py::test_six_empty_summaries_are_one_alarm",
            "agent/adapters/conformance/test_conformance.py::test_an_empty_summary_is_told",
            "agent/adapters/conformance/test_conformance.py::test_what_is_no_summary_leads_to_nothing_until_its_spans_are_back",
        ),
    ),
    "A28": Fault(
        "an error message in the place of the summary",
        (
            "agent/test_coverage.py::test_a_session_says_that_a_text_is_a_placeholder_whatever_its_stop_reason",
            "detection/test_drop_rules.py::test_a_placeholder_tells_how_many_spans_it_stands_for",
            "agent/adapters/examples/test_examples.py::test_langchain_a_placeholder_halts_and_its_messages_come_back",
            "agent/adapters/examples/test_examples.py::test_a_summary_that_is_none_is_halted_repaired_and_released",
            "agent/adapters/claude_code/test_transcript.py::test_what_is_no_summary_leads_to_nothing",
        ),
        "an agent without an adapter has to say itself that such a text leads to nothing",
    ),
    "A29": Fault(
        "spans that the next compaction neither reads nor keeps",
        (
            "agent/test_coverage.py::test_sources_and_retained_must_cover_everything",
            "agent/test_coverage.py::test_a_session_names_what_was_left_out_as_many_as_fit",
            "detection/test_drop_rules.py::test_what_nobody_read_is_named_by_id",
        ),
    ),
    "A31": Fault(
        "an open call is compacted away, its answer comes later",
        ("detection/test_facts.py::test_an_open_call_is_a_fact_like_another",),
    ),
    "A33": Fault(
        "two constraints lost while nine task facts survive",
        ("detection/test_facts.py::test_constraints_are_lost_although_most_facts_survive",),
    ),
    "A34": Fault(
        "constraints decline while the depth stands still",
        ("detection/test_facts.py::test_constraints_decline_while_the_depth_is_pinned",),
    ),
    "A35": Fault("facts are not reported at all", ("detection/test_facts.py::test_absent_lists_are_no_loss_but_marked",)),
    "A38": Fault(
        "summaries wrapped as raw text", ("commands/test_incidents.py::test_wrapped_summaries_are_no_raw_text_to_the_floor",)
    ),
    "A39": Fault(
        "summaries grow over constant raw text",
        ("commands/test_incidents.py::test_a_growing_summary_share_is_one_inversion_with_its_growth_shown",),
    ),
    "A41": Fault(
        "the same input compacted again and again",
        ("detection/test_facts.py::test_identical_input_three_times_is_judged_three_times",),
    ),
    "A44": Fault(
        "equal content under three ids",
        (
            "agent/test_ledger.py::test_equal_content_under_different_ids_stays_different_spans",
            "agent/test_coverage.py::test_ids_decide_not_ranges_or_copies",
        ),
    ),
    "A46": Fault(
        "no tokens at all, or fewer than none",
        (
            "detection/test_rounds.py::test_a_round_without_any_tokens_is_unknown",
            "detection/test_rules.py::test_no_tokens_at_all_is_unknown_and_never_a_violation",
            "contracts/test_codec.py::test_what_is_wrong_is_refused_with_its_named_reason",
        ),
    ),
    "A47": Fault(
        "the context grows sixfold in a pass that reports otherwise",
        ("detection/test_round_rules.py::test_growth_is_measured_and_a_divergence_of_the_counters_is_shown",),
    ),
    "A57": Fault(
        "two events of one time, one of them summarized",
        (
            "agent/test_coverage.py::test_ids_decide_not_ranges_or_copies",
            "agent/test_ledger.py::test_ids_decide_and_not_an_order_of_time",
            "detection/test_drop_rules.py::test_what_nobody_read_is_named_by_id",
        ),
    ),
    "A60": Fault(
        "two agents share a session id",
        (
            "commands/test_fold.py::test_two_agents_that_share_a_session_id_are_two_states",
            "agent/test_listener.py::test_a_command_goes_to_its_session_and_agent_only",
            "contracts/test_codec.py::test_what_is_wrong_is_refused_with_its_named_reason",
            "agent/adapters/conformance/test_conformance.py::test_concurrent_conversations_of_one_instance_do_not_mix",
        ),
    ),
    "A64": Fault(
        "what the rehydration brought back triggers the next compaction",
        (
            "detection/test_round_rules.py::test_the_rule_says",
            "commands/test_incidents.py::test_an_incident_sends_one_violation_and_one_command_however_often_its_rule_fires",
            "detection/test_rounds.py::test_a_late_round_opens_nothing_and_is_not_what_the_next_compares_with",
        ),
        "usage events: rounds carry their own counts, ordered by number, and a late one is compared with nothing",
    ),
    "A69": Fault(
        "acknowledged, yet nothing was restored",
        (
            "commands/test_answers.py::test_an_acknowledgement_proves_receipt_never_effect",
            "scenarios/test_closed_loop.py::test_an_agent_that_says_yes_and_does_nothing_is_stopped",
        ),
    ),
    "A72": Fault(
        "the halt comes in the middle of a compaction, the answer late or never",
        (
            "commands/test_answers.py::test_a_command_stays_pending_until_it_is_acknowledged_or_expires_and_is_not_sent_for_ever",
            "scenarios/test_closed_loop.py::test_an_agent_that_never_answers_is_stopped_after_three_minutes",
        ),
    ),
    "B01": Fault("one bad record in a batch of 103", ("commands/test_fold.py::test_102_good_ones_and_a_string_for_a_count",)),
    "B03": Fault(
        "a defect in the handler at an offset",
        ("processors/test_crashes.py::test_a_bug_in_the_handler_ends_the_worker_and_leaves_the_offset",),
    ),
    "B04": Fault("a newer writer's fields", ("commands/test_fold.py::test_what_is_new_is_read_and_counted",)),
    "B05": Fault(
        "a key that is no text",
        ("commands/test_fold.py::test_a_key_that_is_not_the_session_id_is_refused_and_its_neighbours_are_not",),
    ),
    "B07": Fault("a tombstone", ("commands/test_fold.py::test_a_tombstone_is_ignored_and_counted",)),
    "B09": Fault("JSON that is no object", ("commands/test_fold.py::test_one_bad_record_never_stops_its_neighbours",)),
    "B10": Fault(
        "10,000 brackets",
        (
            "commands/test_fold.py::test_one_bad_record_never_stops_its_neighbours",
            "contracts/test_codec.py::test_garbage_costs_no_more_than_its_size",
        ),
    ),
    "B12": Fault("NaN and Infinity", ("commands/test_fold.py::test_numbers_that_are_none_leave_the_session_working",)),
    "B13": Fault("1e999", ("commands/test_fold.py::test_numbers_that_are_none_leave_the_session_working",)),
    "B15": Fault("21 digits", ("commands/test_fold.py::test_numbers_that_are_none_leave_the_session_working",)),
    "B16": Fault(
        "booleans, texts and 12.0 for counts", ("contracts/test_codec.py::test_what_is_wrong_is_refused_with_its_named_reason",)
    ),
    "B17": Fault(
        "a ratio of exactly 0.0",
        ("commands/test_incidents.py::test_a_ratio_of_exactly_zero_keeps_the_alarm_and_no_tokens_never_ends_it",),
    ),
    "B18": Fault("0 of 0 tokens", ("commands/test_incidents.py::test_no_tokens_alone_is_unknown_without_an_alarm",)),
    "B20": Fault("a clock two days ahead", ("commands/test_fold.py::test_a_time_far_ahead_is_refused_alone",)),
    "B22": Fault(
        "no broker time, seconds for milliseconds, no zone",
        (
            "commands/test_fold.py::test_a_broker_time_that_is_none_gives_way_to_the_receive_time",
            "commands/test_fold.py::test_a_wrong_unit_or_a_missing_zone_is_flagged_and_stops_nothing",
        ),
    ),
    "B23": Fault(
        "a restart in the middle of a session",
        ("commands/test_properties.py::test_however_a_log_is_cut_into_batches_the_outputs_and_states_are_the_same",),
    ),
    "B24": Fault(
        "killed halfway",
        (
            "commands/test_properties.py::test_replaying_what_was_applied_sends_nothing_new",
            "commands/test_properties.py::test_killed_before_the_state_was_written_the_set_of_ids_is_the_same",
        ),
    ),
    "B27": Fault(
        "topics of 8 and of 5 partitions",
        (
            "processors/test_topics.py::test_unequal_counts_are_refused_with_both_numbers",
            "processors/test_topics.py::test_another_count_than_was_asked_for_is_told",
        ),
    ),
    "B31": Fault("sessions that never go away", ("commands/test_fold.py::test_100_sessions_that_ended_leave_nothing_behind",)),
    "B32": Fault(
        "a deadline that passes while the monitor is away",
        (
            "commands/test_answers.py::test_a_monitor_that_was_away_finds_the_deadline_passed",
            "detection/test_presence.py::test_a_deadline_that_passed_while_the_monitor_was_away_is_told_on_its_return",
        ),
    ),
    "B35": Fault(
        "who is told over HTTP accepts the connection and never answers",
        ("telemetry/test_collector_away.py::test_verdicts_come_one_warning_is_told_and_the_end_is_in_time",),
        "alarms themselves go to Kafka alone; who takes them from there to people is not part of this",
    ),
    "B36": Fault(
        "offsets applied before the crash come again",
        ("commands/test_fold.py::test_what_was_applied_before_is_dropped_by_its_offset_yet_written_again",),
    ),
    "B38": Fault(
        "killed between the state and the command",
        ("commands/test_fold.py::test_a_crash_before_the_state_was_written_makes_the_same_ids_again",),
    ),
    "B41": Fault(
        "the broker is away for a minute",
        (
            "processors/test_kafka.py::test_a_broker_that_is_killed_and_comes_back",
            "agent/test_spooling.py::test_with_the_broker_away_events_go_to_disk_and_later_out_in_order",
            "agent/test_soak.py::test_no_event_is_lost_and_none_is_out_of_order",
        ),
    ),
    "B43": Fault(
        "200,000 events, the broker away",
        (
            "agent/test_emitter.py::test_200000_emits_without_a_broker_neither_block_nor_raise",
            "agent/test_emitter.py::test_emitting_to_a_closed_port_is_quiet_and_closing_is_bounded",
            "agent/test_spooling.py::test_with_the_broker_away_events_go_to_disk_and_later_out_in_order",
            "agent/test_outbox.py::test_what_matters_least_gives_way_first_the_oldest_of_it_before_the_newer",
            "agent/test_spooling.py::test_past_the_bound_alarms_and_the_newest_arrive_and_what_gave_way_is_told",
        ),
    ),
    "B44": Fault(
        "made in the parent, used in the forked child",
        (
            "agent/test_process.py::test_a_forked_child_delivers_with_a_client_of_its_own",
            "agent/test_process.py::test_a_forked_child_without_a_broker_ends_too",
            "agent/test_spooling.py::test_a_fork_in_the_middle_of_trouble_leaves_each_process_its_own_spool",
        ),
    ),
    "B46": Fault(
        "500 queued when the signal to end comes",
        (
            "agent/test_process.py::test_an_agent_that_is_terminated_has_all_500_events_sent",
            "agent/test_process.py::test_an_agent_that_is_terminated_without_a_broker_says_how_many_were_lost",
            "agent/test_process.py::test_an_agent_that_is_terminated_without_a_broker_keeps_its_events_for_the_next",
            "agent/test_process.py::test_sigterm_that_nobody_handles_sends_what_is_left_and_still_ends_the_process_as_it_would",
            "agent/test_process.py::test_a_worker_of_a_process_pool_has_its_last_events_sent",
            "agent/test_emitter.py::test_what_is_in_flight_at_the_end_is_counted_as_lost",
        ),
    ),
    "B47": Fault(
        "one event of more than a megabyte, then ten small ones",
        (
            "agent/test_emitter.py::test_an_event_over_the_size_is_dropped_once_and_its_neighbours_arrive",
            "agent/test_emitter.py::test_a_round_that_is_too_long_is_sent_without_its_list_of_summaries",
            "agent/test_emitter.py::test_a_record_that_the_transport_refuses_does_not_hold_up_the_next",
        ),
    ),
    "B49": Fault(
        "a collector that is not there, or never answers",
        (
            "telemetry/test_export.py::test_a_collector_that_is_not_there_costs_one_warning_and_no_more_than_its_limit_at_the_end",
            "telemetry/test_collector_away.py::test_verdicts_come_one_warning_is_told_and_the_end_is_in_time",
        ),
        "the throughput, which is measured in benchmarks/throughput.py",
    ),
    "B52": Fault(
        "100,000 session ids",
        (
            "telemetry/test_metrics.py::test_many_sessions_are_as_many_series_as_100",
            "telemetry/test_metrics.py::test_labels_and_attributes_are_listed_and_ids_are_no_labels",
        ),
    ),
    "B53": Fault(
        "trace contexts that are none",
        (
            "commands/test_fold.py::test_a_bad_trace_context_never_costs_the_event",
            "contracts/test_trace.py::test_an_invalid_context_is_ignored_and_told",
        ),
    ),
    "B54": Fault("a trace context of zeros", ("contracts/test_trace.py::test_an_invalid_context_is_ignored_and_told",)),
    "B55": Fault(
        "200,000 headers without a value", ("contracts/test_trace.py::test_many_headers_without_a_value_are_quickly_ignored",)
    ),
    "B59": Fault(
        "a halt of three hours ago",
        (
            "agent/test_listener.py::test_an_old_halt_is_acknowledged_as_expired",
            "agent/test_listener.py::test_reading_starts_a_commands_lifetime_ago",
            "agent/test_control.py::test_expired_commands_do_nothing_and_are_answered_as_expired",
        ),
    ),
    "B60": Fault(
        "one command delivered twice, six queued for the reconnect",
        (
            "agent/test_listener.py::test_each_id_acts_once_and_every_result_is_reported",
            "agent/test_control.py::test_a_duplicate_acts_once_and_gets_its_last_answer_again",
        ),
    ),
    "B61": Fault(
        "a resume overtakes its halt",
        (
            "agent/test_listener.py::test_resume_and_halt_in_the_wrong_order_leave_the_session_running",
            "agent/test_control.py::test_resume_before_its_halt_keeps_the_state_of_the_higher_seq",
            "agent/test_control.py::test_the_order_of_arrival_does_not_matter",
        ),
    ),
    "B62": Fault(
        "a value that hovers around the threshold", ("commands/test_incidents.py::test_a_value_that_hovers_does_not_flap",)
    ),
    "B63": Fault(
        "500 sessions cross the threshold within ten seconds",
        ("commands/test_fold.py::test_a_bad_release_halts_each_of_its_sessions",),
        "one notification with a count: grouping is what sends notifications does, each violation names fleet and rule for it",
    ),
    "B65": Fault(
        "silence after an alarm",
        (
            "commands/test_answers.py::test_silence_never_resolves",
            "scenarios/test_rules_in_time.py::test_silence_is_told_and_the_open_alarm_stays",
        ),
    ),
    "B66": Fault(
        "the same events after a restart",
        ("commands/test_incidents.py::test_replaying_everything_after_a_restart_sends_nothing",),
    ),
    "B67": Fault(
        "the threshold is crossed while the monitor is down",
        ("commands/test_incidents.py::test_a_monitor_that_was_down_while_the_threshold_was_crossed_sends_the_alarm",),
    ),
    "B69": Fault(
        "markup and terminal codes in names",
        (
            "detection/test_facts.py::test_what_is_named_is_bounded_masked_and_on_one_line",
            "dashboard/test_session_page.py::test_what_an_agent_wrote_is_made_printable_and_bounded",
            "cli/test_kafka_verbs.py::test_tail_shows_violations_from_the_beginning_as_on_the_wire",
        ),
    ),
    "B70": Fault(
        "secrets in names and in what is refused",
        (
            "detection/test_facts.py::test_what_is_named_is_bounded_masked_and_on_one_line",
            "contracts/test_codec.py::test_a_quoted_text_in_the_refusal_is_bounded_masked_and_on_one_line",
            "telemetry/test_tracing.py::test_hostile_ids_are_bounded_and_cleaned",
            "cli/test_kafka_verbs.py::test_tail_shows_dead_letters_with_secrets_masked_and_bytes_kept_in_json",
            "agent/test_facts.py::test_only_id_class_and_floor_are_declared",
        ),
        "a dead letter's own bytes, which stay untouched so that they can be sent again",
    ),
    "B71": Fault(
        "the dead-letter topic is missing, or may not be written",
        (
            "processors/test_kafka.py::test_without_its_dead_letter_topic_detection_goes_on",
            "processors/test_outputs.py::test_a_dead_letter_topic_that_stays_down_is_loud_and_counted",
            "processors/test_monitor.py::test_a_dead_letter_that_is_refused_does_not_stop_detection",
        ),
    ),
    "B73": Fault(
        "the broker stops right after a dead letter was handed over",
        (
            "processors/test_outputs.py::test_with_the_broker_away_dead_letters_wait_for_it",
            "processors/test_outputs.py::test_where_nothing_else_is_confirmed_either_dead_letters_wait_too",
        ),
    ),
}


CATALOGUE = {
    *(f"A{n:02}" for n in (1, 2, 5, 10, 13, 18, 19, 20, 23, 24, 26, 28, 29, 31, 33, 34, 35, 38, 39, 41, 44, 46, 47, 57, 60, 64)),
    *(f"A{n:02}" for n in (69, 72)),
    *(f"B{n:02}" for n in (1, 3, 4, 5, 7, 9, 10, 12, 13, 15, 16, 17, 18, 20, 22, 23, 24, 27, 31, 32, 35, 36, 38, 41, 43, 44, 46)),
    *(f"B{n:02}" for n in (47, 49, 52, 53, 54, 55, 59, 60, 61, 62, 63, 65, 66, 67, 69, 70, 71, 73)),
}
"""Every case of it, by its id."""


@cache
def names_in(file: str) -> frozenset[str]:
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


@pytest.mark.parametrize("fault", FAULTS)
def test_the_tests_that_keep_it_out_exist(fault: str) -> None:
    assert FAULTS[fault].tests
    for name in FAULTS[fault].tests:
        file, _, test = name.partition("::")
        assert test in names_in(file), name


def test_no_case_of_the_catalogue_is_missing() -> None:
    assert FAULTS.keys() == CATALOGUE
