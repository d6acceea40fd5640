"""Pipelines in traces: when each stage worked on which micro-batch, and how well stages and IPUs are balanced."""
