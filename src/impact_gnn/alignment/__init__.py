"""Alignment: messages of the past are moved until they look like those of the target period.

One formula serves numpy and torch; in torch all of it is differentiable. Statistics are sums in float64 that add
up (`Moments` over blocks of rows, `JJSums` over blocks of columns): in memory, on disk and on a cluster the same
sums are made and the same `compute` is asked.

Who is moved: `jjnorm` and `pny` move labelled nodes that are no targets and nothing else; `center` and
`standardize` need no labels and move everybody. What is too small to be measured is left alone: a period with one
labelled node, a column without spread, a community whose covariance is unknown.
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
from impact_gnn.alignment.pny import MAPS, coefficients, label_covariances, pny, pny_by, refuse_unless_fits
from impact_gnn.alignment.sums import Communities, Moments

__all__ = [
    "MAPS", "Communities", "JJSums", "Moments", "apply_center", "apply_jjnorm", "apply_standardize", "by_period",
    "center", "center_by", "coefficients", "jj_scales", "jjnorm", "jjnorm_by", "label_covariances", "pny", "pny_by",
    "refuse_unless_fits", "standardize", "standardize_by",
]  # fmt: skip
