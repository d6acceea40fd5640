"""Run: a trace as programs of the emulator: imported section by section, compiled, fed and run."""
