"""Passes: each pass of the pipeline as a function from one compile state to the next.

The folder that a pass is about makes the change itself; a function here takes what that needs from the state, and
puts the result into the next one. ``ipu_emu.compiler.pipeline`` lists the passes in order, with what each does.
"""
