"""Samplers that are tuned through their few steps: a study of ours, of the paper's question asked of today's models."""
