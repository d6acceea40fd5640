"""reading: a model in ONNX becomes the graph that the passes start from."""
