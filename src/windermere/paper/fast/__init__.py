"""Kernels that only the paper's networks use."""
