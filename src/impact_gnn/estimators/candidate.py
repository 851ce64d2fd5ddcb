"""`Candidate`: a method with the model that learns from its hops."""

from __future__ import annotations

from dataclasses import dataclass

from impact_gnn import checks
from impact_gnn.estimators.model_table import MODELS
from impact_gnn.methods import Method


@dataclass(frozen=True)
class Candidate:
    """A method and a model, written "trees:pmp+labels"; without a model, the pipeline's own.

    Examples:
        >>> Candidate.parse("trees:labels").model, str(Candidate.parse("center"))
        ('trees', 'center')
    """

    method: Method = Method()  # noqa: RUF009 - it is immutable
    model: str | None = None

    @classmethod
    def of(cls, candidate: str | Method | Candidate) -> Candidate:
        """Return a candidate; texts are parsed."""
        if isinstance(candidate, Candidate):
            return candidate
        return cls(candidate) if isinstance(candidate, Method) else cls.parse(candidate)

    @classmethod
    def parse(cls, text: str) -> Candidate:
        """Return the candidate that "model:method" or "method" describes."""
        model, colon, method = str(text).strip().rpartition(":")
        if colon:
            checks.choice("model", model.strip(), MODELS)
        return cls(Method.parse(method), model.strip() or None)

    def smoothed(self, smooth: bool = True) -> Candidate:
        """Return the candidate with or without "smooth", which does not change the fit."""
        method = self.method.without("smooth")
        if smooth:
            method = method.with_parts("smooth")
        return Candidate(method, self.model)

    @property
    def num_parts(self) -> int:
        """The number of parts of the method, plus 1 for a model of its own."""
        return len(self.method.names) + (self.model is not None)

    def __str__(self) -> str:
        return str(self.method) if self.model is None else f"{self.model}:{self.method}"

    def __repr__(self) -> str:
        return f"Candidate({self})"
