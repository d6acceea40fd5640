"""ipu_emu: emulated IPUs, the compiler that targets them, and the front ends for user programs.

ipu_emu.popart              the interface of PopART: ``import ipu_emu.popart as popart``
ipu_emu.tensorflow.install  imported before TensorFlow, makes ``tensorflow.python.ipu`` importable
"""
