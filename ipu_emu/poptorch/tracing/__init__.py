"""Tracing: one run of a module on the host, recorded as a graph of the emulator."""
