"""Whole solves as one piece, for any network."""
