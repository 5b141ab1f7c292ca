"""Policies for runtimes without this package: ONNX and StableHLO."""
