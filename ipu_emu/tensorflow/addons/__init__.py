"""Addons: ``ipu_tensorflow_addons``, further layers and optimisers for TensorFlow and Keras on the IPU."""
