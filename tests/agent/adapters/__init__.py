"""Adapters against the real frameworks, with fake models, offline. A framework that is not installed is skipped by its name."""
