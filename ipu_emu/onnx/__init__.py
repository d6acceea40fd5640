"""onnx: models in ONNX become graphs, with all that they say, and graphs become models in ONNX."""
