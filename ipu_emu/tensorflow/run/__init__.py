"""Run: a trace as programs of the emulator: its sections compiled, fed and run one after the other."""
