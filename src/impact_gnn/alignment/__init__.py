"""Alignment: messages of the past are moved until they look like those of the target period.

One formula serves numpy and torch (then differentiable), memory, disk and cluster: statistics are
float64 sums that add up. `jjnorm` and `pny` move labelled nodes that are no targets, `center` and
`standardize` everybody.
"""

from impact_gnn.alignment.center import (
    by_period,
    center,
    center_by,
    standardize,
    standardize_by,
)
from impact_gnn.alignment.jjnorm import JJSums, jj_scales, jjnorm, jjnorm_by
from impact_gnn.alignment.pny import (
    coefficients,
    pny,
    pny_by,
    refuse_unless_fits,
)
from impact_gnn.alignment.sums import Communities, Moments

__all__ = [
    "Communities",
    "JJSums",
    "Moments",
    "by_period",
    "center",
    "center_by",
    "coefficients",
    "jj_scales",
    "jjnorm",
    "jjnorm_by",
    "pny",
    "pny_by",
    "refuse_unless_fits",
    "standardize",
    "standardize_by",
]
