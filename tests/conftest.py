"""One torch thread for all tests: small models gain nothing from a second, and lose much side by side."""

import torch

torch.set_num_threads(1)
