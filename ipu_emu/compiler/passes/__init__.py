"""Passes: each pass of the pipeline as a function from one compile state to the next.

The folders of the compiler implement the changes; a function here takes their arguments from the state, and puts the
result into the next state. ``ipu_emu.compiler.pipeline`` lists the passes in order, with what each does.
"""
