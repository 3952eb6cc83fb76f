"""From a plan to what runs: the split graph, and one ONNX model a segment.

``split_graph`` rewrites the operator graph by the plan's splits, ``glue`` adds the slices, concats and sums
between unlike pieces, ``segments`` turns each segment into a model, ``coverage`` checks a plan against its model.
Planner and launcher use the same code, so that what was scheduled is what runs.
"""
