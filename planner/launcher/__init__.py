"""Executes a plan with ONNX Runtime: one session a segment, one pinned worker thread a device; it decides nothing."""
