"""Solves on a GPU in one kernel."""
