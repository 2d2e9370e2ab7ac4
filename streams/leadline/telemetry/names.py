"""THE list of what Leadline tells about itself: every span, attribute and metric, and the values a label may have.

``docs/telemetry.md`` is written from it (``python -m leadline.telemetry.document``); tests check spans, rules and dashboards
against it. Needs nothing but the standard library, so that an agent may import it.

Names of others' conventions are used where there are any: OpenTelemetry's for messaging (semantic conventions 1.43) and for
generative AI; our own begin with ``leadline.``. A metric's Prometheus name follows from its name, unit and kind by
OpenTelemetry's rules: ``leadline.incident.duration`` in ``s`` is ``leadline_incident_duration_seconds``.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from leadline.telemetry.labels import LABELS, OTHER, Label

__all__ = [
    "ATTRIBUTES",
    "LABELS",
    "METRICS",
    "OTHER",
    "SPANS",
    "Attribute",
    "Label",
    "Metric",
    "Span",
    "metric",
    "prometheus_name",
]

Kind = Literal["CONSUMER", "PRODUCER", "INTERNAL"]

# -- attributes of spans

MESSAGING_SYSTEM: Final = "messaging.system"
OPERATION_NAME: Final = "messaging.operation.name"
OPERATION_TYPE: Final = "messaging.operation.type"
DESTINATION: Final = "messaging.destination.name"
PARTITION: Final = "messaging.destination.partition.id"
GROUP: Final = "messaging.consumer.group.name"
BATCH_COUNT: Final = "messaging.batch.message_count"
MESSAGE_ID: Final = "messaging.message.id"
OFFSET: Final = "messaging.kafka.offset"
CONVERSATION: Final = "gen_ai.conversation.id"
AGENT_ID: Final = "gen_ai.agent.id"
AGENT_NAME: Final = "gen_ai.agent.name"
COMPACTED: Final = "gen_ai.conversation.compacted"
EVALUATION: Final = "gen_ai.evaluation.result"
EVALUATION_NAME: Final = "gen_ai.evaluation.name"
EVALUATION_LABEL: Final = "gen_ai.evaluation.score.label"
EVALUATION_VALUE: Final = "gen_ai.evaluation.score.value"
EVALUATION_WHY: Final = "gen_ai.evaluation.explanation"
ERROR_TYPE: Final = "error.type"
FLEET: Final = "leadline.fleet"
EPOCH: Final = "leadline.epoch"
ROUND: Final = "leadline.round"
LEVEL: Final = "leadline.level"
TRIGGER: Final = "leadline.trigger"
OUTCOME: Final = "leadline.outcome"
RAW_TOKENS: Final = "leadline.raw_tokens"
SUMMARY_TOKENS: Final = "leadline.summary_tokens"
RAW_RATIO: Final = "leadline.raw_ratio"
SPANS_LEFT: Final = "leadline.distinct_source_spans"
SALIENCE: Final = "leadline.query_cosine_retained"
DEPTH: Final = "leadline.summary_depth_max"
RULE: Final = "leadline.rule"
REASON: Final = "leadline.reason"
SEVERITY: Final = "leadline.severity"
MODE: Final = "leadline.mode"
ACTION: Final = "leadline.action"
CAUSE: Final = "leadline.cause"
VIOLATION: Final = "leadline.violation"
VIOLATION_ID: Final = "leadline.violation.id"
INCIDENT_ID: Final = "leadline.incident.id"
INCIDENT_MS: Final = "leadline.incident.duration_ms"
COMMAND_ID: Final = "leadline.command.id"
COMMAND_KIND: Final = "leadline.command.kind"
COMMAND_SEQ: Final = "leadline.command.seq"
ATTEMPT: Final = "leadline.command.attempt"
STAGE: Final = "leadline.command.stage"
SIGNAL: Final = "leadline.command.signal"
POLICY: Final = "leadline.policy.version"
VERDICTS: Final = "leadline.batch.verdicts"
DEAD_LETTERS: Final = "leadline.batch.dead_letters"
PART: Final = "leadline.batch.part"


class Attribute(NamedTuple):
    """``type`` as OpenTelemetry has it; ids and free text are bounded and cleaned before they become a value."""

    name: str
    type: Literal["string", "int", "double", "boolean"]
    meaning: str


ATTRIBUTES: Final = (
    Attribute(MESSAGING_SYSTEM, "string", "`kafka`"),
    Attribute(OPERATION_NAME, "string", "`process` or `send`"),
    Attribute(OPERATION_TYPE, "string", "`process` or `send`"),
    Attribute(DESTINATION, "string", "topic"),
    Attribute(PARTITION, "string", "partition number"),
    Attribute(GROUP, "string", "consumer group of the monitor"),
    Attribute(BATCH_COUNT, "int", "records in the batch"),
    Attribute(MESSAGE_ID, "string", "command id, or id of the event"),
    Attribute(OFFSET, "int", "offset of the record that led here; of a batch its last"),
    Attribute(CONVERSATION, "string", "session id"),
    Attribute(AGENT_ID, "string", "agent id"),
    Attribute(AGENT_NAME, "string", "fleet, the name under which the agent runs"),
    Attribute(COMPACTED, "boolean", "true on each compaction round"),
    Attribute(EVALUATION_NAME, "string", "rule"),
    Attribute(EVALUATION_LABEL, "string", "severity"),
    Attribute(EVALUATION_VALUE, "double", "raw ratio at the verdict, where it is known"),
    Attribute(EVALUATION_WHY, "string", "the violation's sentence"),
    Attribute(ERROR_TYPE, "string", "class of the exception that a compaction ended with"),
    Attribute(FLEET, "string", "fleet"),
    Attribute(EPOCH, "int", "epoch of the session"),
    Attribute(ROUND, "int", "compaction round"),
    Attribute(LEVEL, "int", "checkpoint level"),
    Attribute(TRIGGER, "string", "why the agent compacted"),
    Attribute(OUTCOME, "string", "of a round `ok`, `failed` or `skipped`; of an acknowledgement what it says"),
    Attribute(RAW_TOKENS, "int", "tokens that are still verbatim source, after the pass"),
    Attribute(SUMMARY_TOKENS, "int", "tokens that a summarizer wrote, after the pass"),
    Attribute(RAW_RATIO, "double", "raw / (raw + summary); absent where it is unknown"),
    Attribute(SPANS_LEFT, "int", "distinct source spans that are still reachable"),
    Attribute(SALIENCE, "double", "mean salience of what is retained"),
    Attribute(DEPTH, "int", "deepest summary of summaries"),
    Attribute(RULE, "string", "rule"),
    Attribute(REASON, "string", "the rule's named reason"),
    Attribute(SEVERITY, "string", "`info`, `warning` or `critical`"),
    Attribute(MODE, "string", "`shadow`, `warn` or `enforce`"),
    Attribute(ACTION, "string", "what is done about it"),
    Attribute(CAUSE, "string", "record that led to the verdict: `round`, `checkpoint`, `tick` for a timer, ..."),
    Attribute(
        VIOLATION, "boolean", "true on every span of a verdict and of what follows from it: tail sampling keeps these traces"
    ),
    Attribute(VIOLATION_ID, "string", "violation id"),
    Attribute(INCIDENT_ID, "string", "incident id"),
    Attribute(INCIDENT_MS, "int", "from opening to recovery, in ms"),
    Attribute(COMMAND_ID, "string", "command id"),
    Attribute(COMMAND_KIND, "string", "`halt`, `cap-depth`, `retry-level`, `stop-agent` or `resume`"),
    Attribute(COMMAND_SEQ, "int", "number of the command in its session"),
    Attribute(ATTEMPT, "int", "1 for the first command of its kind in an incident"),
    Attribute(STAGE, "string", "where the command stands now"),
    Attribute(SIGNAL, "string", "what happened to the command"),
    Attribute(POLICY, "string", "version of the policy"),
    Attribute(VERDICTS, "int", "violations and commands that the batch led to"),
    Attribute(DEAD_LETTERS, "int", "records of the batch that could not be read"),
    Attribute(PART, "int", "0 for a batch's span, then 1, 2, ... for the spans that hold the links that did not fit into it"),
)

# -- spans


class Span(NamedTuple):
    """``parent`` and ``links`` in words; ``attributes`` are all that it may have."""

    name: str
    kind: Kind
    process: Literal["agent", "monitor"]
    parent: str
    links: str
    attributes: tuple[str, ...]


_WHO: Final = (CONVERSATION, AGENT_ID, AGENT_NAME, FLEET, EPOCH)
_HOP: Final = (MESSAGING_SYSTEM, OPERATION_NAME, OPERATION_TYPE, DESTINATION, MESSAGE_ID)
_MEASURED: Final = (RAW_TOKENS, SUMMARY_TOKENS, RAW_RATIO, SPANS_LEFT, SALIENCE, DEPTH)
_COMMAND: Final = (VIOLATION, INCIDENT_ID, RULE, COMMAND_ID, COMMAND_KIND, COMMAND_SEQ, ATTEMPT)

_VERDICT: Final = (RULE, REASON, SEVERITY, MODE, ACTION, CAUSE, ROUND, LEVEL, POLICY)

COMPACT: Final = "compact context"
RECEIVE: Final = "process leadline.commands"
ACK: Final = "send leadline.events"
PROCESS: Final = "process leadline.events"
VERDICT: Final = "evaluate session"
COMMAND: Final = "send leadline.commands"
ANSWERED: Final = "command answered"
RECOVERED: Final = "incident recovered"

SPANS: Final = (
    Span(
        COMPACT,
        "INTERNAL",
        "agent",
        "the agent's own active span, if any",
        "",
        (*_WHO, COMPACTED, ROUND, TRIGGER, OUTCOME, *_MEASURED, ERROR_TYPE),
    ),
    Span(
        PROCESS,
        "CONSUMER",
        "monitor",
        "none: a trace of its own",
        "the events of the batch that led to something, at most 100 a span",
        (*_HOP[:4], PARTITION, GROUP, BATCH_COUNT, OFFSET, VERDICTS, DEAD_LETTERS, PART),
    ),
    Span(
        VERDICT,
        "INTERNAL",
        "monitor",
        "the event that led to it; for a timer's verdict the last event of the session that had a context",
        f"the `{PROCESS}` span of its batch",
        (*_WHO, VIOLATION, VIOLATION_ID, INCIDENT_ID, *_VERDICT, *_MEASURED, PARTITION, OFFSET, MESSAGE_ID),
    ),
    Span(
        COMMAND,
        "PRODUCER",
        "monitor",
        f"the `{VERDICT}` span of its incident",
        "the event that led to it, where that is another than the incident's",
        (*_HOP, *_WHO, *_COMMAND, REASON, PARTITION, POLICY),
    ),
    Span(RECEIVE, "CONSUMER", "agent", f"`{COMMAND}`", "", (*_HOP, *_WHO, *_COMMAND)),
    Span(
        ACK,
        "PRODUCER",
        "agent",
        f"`{RECEIVE}` for the receipt, `{COMMAND}` for what is said later",
        "the agent's own active span, if any",
        (*_HOP, *_WHO, *_COMMAND, OUTCOME),
    ),
    Span(
        ANSWERED,
        "INTERNAL",
        "monitor",
        "the acknowledgement; without one the command",
        f"`{COMMAND}`",
        (*_WHO, *_COMMAND, SIGNAL, STAGE),
    ),
    Span(
        RECOVERED,
        "INTERNAL",
        "monitor",
        f"the `{VERDICT}` span of its incident",
        "the event that showed it",
        (*_WHO, VIOLATION, INCIDENT_ID, RULE, INCIDENT_MS, *_MEASURED),
    ),
)
"""A verdict's span has one event, :data:`EVALUATION`, with the ``gen_ai.evaluation.*`` attributes."""

# -- metrics


class Metric(NamedTuple):
    """``unit`` as in UCUM: ``s``, ``By``, ``{thing}``, or empty: a gauge of unit ``1`` would be a ratio to Prometheus."""

    name: str
    kind: Literal["counter", "gauge", "histogram", "info"]
    unit: str
    meaning: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


_FAST: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_SLOW: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0)
_LONG: Final = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3_600.0, 14_400.0, 86_400.0)
_BATCH: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

METRICS: Final = (
    Metric("leadline.events", "counter", "{event}", "Records of leadline.events that were judged."),
    Metric("leadline.batches", "counter", "{batch}", "Batches that were judged and whose outputs are confirmed."),
    Metric(
        "leadline.rounds",
        "counter",
        "{round}",
        "Compaction rounds that were judged: none twice, too late or after the end.",
        ("fleet",),
    ),
    Metric("leadline.irregular", "counter", "{event}", "What was not simply the session's next event.", ("how",)),
    Metric("leadline.ignored", "counter", "{event}", "Records that led to nothing.", ("why",)),
    Metric("leadline.tolerated", "counter", "{event}", "Oddities that records were read in spite of.", ("what",)),
    Metric("leadline.dead_letters", "counter", "{event}", "Records that could not be read.", ("reason",)),
    Metric("leadline.dead_letters.lost", "counter", "{event}", "Dead letters that could not be delivered."),
    Metric("leadline.violations", "counter", "{violation}", "Incidents that opened.", ("rule", "severity", "mode", "fleet")),
    Metric("leadline.incidents.open", "gauge", "{incident}", "Incidents that are open.", ("rule", "mode")),
    Metric("leadline.incident.duration", "histogram", "s", "From opening to recovery.", ("rule",), _LONG),
    Metric("leadline.commands", "counter", "{command}", "Commands that were sent.", ("kind", "attempt")),
    Metric(
        "leadline.commands.open", "gauge", "{command}", "Commands that stand open; `issued` are in flight.", ("kind", "stage")
    ),
    Metric("leadline.command.outcomes", "counter", "{command}", "What became of commands.", ("kind", "outcome")),
    Metric(
        "leadline.event_to_verdict",
        "histogram",
        "s",
        "From the broker's receipt of the event to the confirmed violation.",
        ("cause",),
        _FAST,
    ),
    Metric("leadline.verdict_to_command", "histogram", "s", "From the verdict to the confirmed command.", (), _FAST),
    Metric("leadline.command_to_ack", "histogram", "s", "From a command to the agent's first answer.", ("kind",), _SLOW),
    Metric("messaging.process.duration", "histogram", "s", "One batch, from the fold to its confirmed outputs.", (), _BATCH),
    Metric(
        "leadline.lag.records", "gauge", "{event}", "Records of leadline.events behind the end, all partitions of the worker."
    ),
    Metric("leadline.lag", "gauge", "s", "Age of the oldest record that waits, by the last one judged; 0 without lag."),
    Metric("leadline.sessions", "gauge", "{session}", "Sessions whose state this worker keeps."),
    Metric("leadline.state.size", "gauge", "By", "Local copy of the sessions on disk."),
    Metric("leadline.partitions", "gauge", "{partition}", "Partitions of leadline.events that are this worker's."),
    Metric("leadline.ready", "gauge", "", "1 while partitions are assigned, restored and read."),
    Metric("leadline.rebalances", "counter", "{rebalance}", "Rebalances that ended."),
    Metric("leadline.restore.remaining", "gauge", "{record}", "Changelog records that are still to be restored."),
    Metric("leadline.rule.failures", "counter", "{failure}", "Rules that raised instead of deciding.", ("rule",)),
    Metric("leadline.delivery.retries", "counter", "{record}", "Records that had to be sent again."),
    Metric("leadline.policy.refused", "counter", "{policy}", "Policy files that were wrong and changed nothing."),
    Metric("leadline.fleets.overflow", "counter", "{event}", "Rounds and violations of fleets past the cap, told as `other`."),
    Metric("leadline.loop.delay", "gauge", "s", "How late the event loop came to a timer last."),
    Metric("leadline.spans.dropped", "counter", "{span}", "Spans that were not made or not exported, to keep the worker fast."),
    Metric("leadline.export.failures", "counter", "{export}", "Exports over OTLP that failed.", ("signal",)),
    Metric("leadline.build.info", "info", "", "Leadline and Python that run.", ("version", "python")),
    Metric("leadline.policy.info", "info", "", "Policy in force.", ("version",)),
)

_BY_NAME: Final = {one.name: one for one in METRICS}
_UNITS: Final = {"s": "_seconds", "By": "_bytes"}


def metric(name: str) -> Metric:
    """Raises KeyError for a name that is not in the list."""
    return _BY_NAME[name]


def prometheus_name(one: Metric) -> str:
    """As the exposition has it, and as a collector makes it of what is pushed: ``_total`` for a counter."""
    base = one.name.replace(".", "_") + _UNITS.get(one.unit, "")
    return base + ("_total" if one.kind == "counter" else "")
