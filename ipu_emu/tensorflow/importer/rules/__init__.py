"""Rules: the ops of the emulator for each op type of TensorFlow, one module per family, in one table."""
