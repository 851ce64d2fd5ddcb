"""Method parts: the table of what each is, needs and does; methods are ordered sets of parts."""

from impact_gnn.methods.builtin import BUILTIN
from impact_gnn.methods.method import PLAIN, Method
from impact_gnn.methods.part import (
    NETWORKS,
    READS_HOPS,
    HopContext,
    Kind,
    ModelKind,
    Needs,
    Part,
    PriorEvidence,
    RowContext,
)
from impact_gnn.methods.registry import get, names, register, unregister

__all__ = [
    "BUILTIN",
    "NETWORKS",
    "PLAIN",
    "READS_HOPS",
    "HopContext",
    "Kind",
    "Method",
    "ModelKind",
    "Needs",
    "Part",
    "PriorEvidence",
    "RowContext",
    "get",
    "names",
    "register",
    "unregister",
]
