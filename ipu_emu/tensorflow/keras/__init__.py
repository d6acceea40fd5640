"""keras: Keras models under an IPU strategy; the module ``tensorflow.python.ipu.keras``."""
