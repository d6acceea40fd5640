"""Pipelining: the arguments of TensorFlow's pipeline call, the errors of wrong ones, and the schedule they select."""
