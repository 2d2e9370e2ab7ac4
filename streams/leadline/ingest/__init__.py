"""Compaction telemetry that frameworks send anyway, from OTLP on Kafka to rounds. ``mapping`` is pure."""
