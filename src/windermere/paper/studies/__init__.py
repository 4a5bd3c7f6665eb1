"""The paper's experiments, and the demo."""
