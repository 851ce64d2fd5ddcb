"""Alignment: messages of the past are moved until they look like those of the target period.

One formula serves numpy and torch (then differentiable), memory, disk and cluster: statistics are
float64 sums that add up. `jjnorm` and `pny` move labelled nodes that are no targets, `center` and
`standardize` everybody.
"""

from impact_gnn.alignment.center import (
    apply_center,
    apply_standardize,
    by_period,
    center,
    center_by,
    standardize,
    standardize_by,
)
from impact_gnn.alignment.jjnorm import JJSums, apply_jjnorm, jj_scales, jjnorm, jjnorm_by
from impact_gnn.alignment.pny import (
    coefficients,
    label_covariances,
    pny,
    pny_by,
    refuse_unless_fits,
)
from impact_gnn.alignment.sums import Communities, Moments

__all__ = [
    "Communities",
    "JJSums",
    "Moments",
    "apply_center",
    "apply_jjnorm",
    "apply_standardize",
    "by_period",
    "center",
    "center_by",
    "coefficients",
    "jj_scales",
    "jjnorm",
    "jjnorm_by",
    "label_covariances",
    "pny",
    "pny_by",
    "refuse_unless_fits",
    "standardize",
    "standardize_by",
]
