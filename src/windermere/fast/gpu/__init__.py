"""Whole solves of row programs on a GPU, each in one kernel: an interpreter in CUDA C, compiled by NVRTC."""
