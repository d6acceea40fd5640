"""Layers of ``ipu_tensorflow_addons`` for graphs of TensorFlow 1."""

from ipu_emu.tensorflow.api.ops.rnn_ops import PopnnGRU, PopnnLSTM

__all__ = ["PopnnGRU", "PopnnLSTM"]
