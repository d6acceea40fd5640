"""ipu_emu: emulated IPUs, the compiler that targets them, and the faces that users program.

``import ipu_emu.popart as popart`` is the PopART face.
"""
