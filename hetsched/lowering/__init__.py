"""Segments of a plan as what vendor runtimes load: ONNX (:mod:`hetsched.lowering.onnx_segment`) for delegates and bundles."""
