"""What many tests share: the two array libraries, small random graphs, and one hypothesis profile."""

import os
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

collect_ignore = ["without_torch.py"]  # a script for an environment that has no torch

settings.register_profile(
    "tests", deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
settings.register_profile("deep", settings.get_profile("tests"), max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "tests"))


@dataclass(frozen=True)
class Library:
    """An array library under test."""

    name: str

    def array(self, values, dtype=None):
        values = np.array(values, dtype=dtype)  # a copy of its own
        if self.name == "numpy":
            return values
        import torch

        return torch.from_numpy(values)

    def owns(self, values):
        return type(values).__module__.split(".")[0] == self.name


@pytest.fixture(params=["numpy", "torch"])
def xp(request):
    """numpy, then torch."""
    return Library(request.param)
