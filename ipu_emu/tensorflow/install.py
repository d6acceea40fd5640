"""Install: ``import ipu_emu.tensorflow.install`` before TensorFlow makes ``tensorflow.python.ipu`` importable."""

from ipu_emu.tensorflow.finder import install
from ipu_emu.tensorflow.versions import check_versions

check_versions()
install()
