"""The paper's figures, drawn from arrays and records; what draws does not compute."""
