"""Scripts that export real architectures with random weights (``make models``); they need torch or TensorFlow."""
