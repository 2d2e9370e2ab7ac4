"""Leadline: the fleet-wide monitor of context compaction in LLM agents."""

__version__ = "0.1.0"
