"""ONNX Runtime as fddps uses it: sessions, values handed between them, devices of this machine, random inputs.

The launcher runs plans with it, profiling measures with it; both meet ONNX Runtime here and nowhere else.
"""
