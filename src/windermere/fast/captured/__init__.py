"""Any field on a GPU: one step is captured as a CUDA graph, there and back, and replayed for all the others."""
