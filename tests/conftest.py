"""What many tests share: the two array libraries and one hypothesis profile."""

import os

import numba
import pytest
import torch
from hypothesis import HealthCheck, settings

from libraries import Library

numba.set_num_threads(1)
torch.set_num_threads(1)  # tests run side by side, and threads that wait for each other burn both cores
os.environ.setdefault("OMP_NUM_THREADS", "1")  # for the processes that tests start

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
