"""Whole solves in C."""
