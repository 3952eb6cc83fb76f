"""Measuring what operators and hand-overs cost, in the context in which they will run.

Whole models, and the lanes of split ones, run as the launcher would run them; ONNX Runtime's profiler tells how their
time divides among operators, and the true step, measured without it, sets the scale. CPU and GPU share this code.
"""
