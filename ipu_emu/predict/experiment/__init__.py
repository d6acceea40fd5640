"""Experiment: a program measured with several instances and replicas, and what limits its scaling."""
