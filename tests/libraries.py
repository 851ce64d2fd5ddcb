"""The array libraries under test."""

from dataclasses import dataclass

import numpy as np
import torch


@dataclass(frozen=True)
class Library:
    """An array library under test."""

    name: str

    def array(self, values, dtype=None):
        values = np.array(values, dtype=dtype)  # a copy of its own
        if self.name == "numpy":
            return values
        return torch.from_numpy(values)

    def owns(self, values):
        return type(values).__module__.split(".")[0] == self.name
