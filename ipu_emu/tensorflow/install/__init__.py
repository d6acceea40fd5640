"""Install: ``import ipu_emu.tensorflow.install`` before TensorFlow makes ``tensorflow.python.ipu`` importable."""

from ipu_emu.tensorflow.install.finder import install

install()
