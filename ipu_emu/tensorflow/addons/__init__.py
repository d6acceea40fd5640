"""Addons: ``ipu_tensorflow_addons``, layers and optimizers for the IPU beside those of TensorFlow and Keras."""
