"""Addons: ``ipu_tensorflow_addons``, further layers and optimizers for TensorFlow and Keras on the IPU."""
