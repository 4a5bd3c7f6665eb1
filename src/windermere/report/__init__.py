"""Figures of audits, drawn from arrays and records when they are asked for; what draws does not compute."""
