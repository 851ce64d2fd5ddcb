"""What many tests share: the two array libraries and one hypothesis profile."""

import os

import pytest
from hypothesis import HealthCheck, settings

from libraries import Library

collect_ignore = ["without_torch.py"]  # a script for an environment that has no torch

settings.register_profile(
    "tests", deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
settings.register_profile("deep", settings.get_profile("tests"), max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "tests"))


@pytest.fixture(params=["numpy", "torch"])
def xp(request):
    """numpy, then torch."""
    return Library(request.param)
