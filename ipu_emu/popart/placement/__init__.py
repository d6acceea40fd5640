"""Checks of a model against its options and device, and the IPU of every op."""
