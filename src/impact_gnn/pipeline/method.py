"""What is done about the shift, as one line of text: "pmp+center+labels"; with a model, a candidate."""

from __future__ import annotations

from dataclasses import dataclass, replace

from impact_gnn import checks
from impact_gnn.checks import InputError
from impact_gnn.heads import HEADS
from impact_gnn.nn import TERMS
from impact_gnn.weighting import BY_ROW, NAMES

ALIGNMENTS = ("center", "standardize", "jjnorm", "pny")
"""Alignments in the order in which they are applied."""

EXTRAS = (
    "joint",
    "labels",
    "snapshot",
    "lags",
    "ends",
    "recency",
    "kmm",
    "curriculum",
    "drop",
    "stages",
    "cmd",
    "vrex",
    "eerm",
    "features",
    "degrees",
    "smooth",
    "shift",
    "bbse",
)

EDITED = ("gcn", "sage")
"""Models that "eerm" goes with."""


@dataclass(frozen=True)
class Method:
    """A correction: how edges are weighted, how messages are aligned, and what else is done.

    Args:
        weighting: One of `weighting.NAMES`.
        alignment: Names of alignments, applied to every hop in the order center, standardize,
            jjnorm, pny.
        joint: With `jjnorm`: one number per period for all hops of a relation, as in the authors'
            code for ogbn-mag.
        labels: Adds label hops: the neighbours' known labels, the own one excluded.
        snapshot: Represents every labelled node on the graph as it was at its own time.
        lags: With `snapshot`: every labelled node is seen as long after its own time as some target
            node is today.
        ends: Weights a path through other node types by the times of its two ends, not edge by
            edge.
        recency: Lets recent labels count more in the loss.
        kmm: Lets labels count more whose inputs look like those of the targets (`matching`).
        curriculum: Trains on easy labels first, if that is right more often on the rows that epochs
            are chosen by.
        drop: With `curriculum`: those first whose loss falls fastest.
        stages: Trains several times; what one training is sure of, the next learns from and hears
            from neighbours.
        cmd: What a network reads last of labelled rows and of targets shall have the same moments
            (`nn.shift`).
        vrex: A network shall err the same in all labelled periods (`nn.shift`).
        eerm: A network that walks the graph shall err the same on edited graphs (`nn.editors`).
        features: The model sees the features only, no graph.
        degrees: Shows how many edges a node has, and how many lead to a known label.
        smooth: What the model says is corrected and smoothed along the edges, with the same
            weighting.
        shift: Probabilities follow the shares of classes among the targets, estimated by EM
            (`label_shift`).
        bbse: As `shift`, estimated from predictions and how they were mixed up in the periods
            chosen by.

    Examples:
        >>> Method.parse("pmp+center+labels")
        Method(pmp+center+labels)
        >>> str(Method())
        'plain'
    """

    weighting: str = "plain"
    alignment: tuple[str, ...] = ()
    joint: bool = False
    labels: bool = False
    snapshot: bool = False
    lags: bool = False
    ends: bool = False
    recency: bool = False
    kmm: bool = False
    curriculum: bool = False
    drop: bool = False
    stages: bool = False
    cmd: bool = False
    vrex: bool = False
    eerm: bool = False
    features: bool = False
    degrees: bool = False
    smooth: bool = False
    shift: bool = False
    bbse: bool = False

    @classmethod
    def of(cls, method: str | Method) -> Method:
        """A method, parsed if it is a text."""
        return method if isinstance(method, Method) else cls.parse(method)

    @classmethod
    def parse(cls, text: str) -> Method:
        """The method that a line of parts joined by "+" describes, in any order."""
        parts = [part.strip() for part in str(text).lower().split("+")]
        known = [*NAMES, *ALIGNMENTS, *EXTRAS]
        for part in parts:
            if part not in known:
                raise InputError(
                    f"method {text!r} has an unknown part {part!r}; join any of {', '.join(known)} by '+'."
                )
            if parts.count(part) > 1:
                raise InputError(f"method {text!r} names {part!r} twice; name it once.")
        weightings = [part for part in parts if part in NAMES]
        if len(weightings) > 1:
            raise InputError(
                f"method {text!r} has two weightings, {' and '.join(weightings)}; choose one."
            )
        chosen = tuple(name for name in ALIGNMENTS if name in parts)
        if "center" in chosen and "standardize" in chosen:
            raise InputError(f"method {text!r} centres twice; 'standardize' includes 'center'.")
        extras = {name: name in parts for name in EXTRAS}
        weighted = weightings not in ([], ["plain"]) and not extras["smooth"]
        messages = chosen or weighted or extras["labels"] or extras["snapshot"]
        if extras["features"] and (messages or extras["ends"] or extras["eerm"]):
            raise InputError(
                f"method {text!r} corrects messages it does not use; 'features' goes with what changes training "
                f"('recency', 'kmm', 'curriculum', 'cmd', 'vrex') or predictions ('smooth', 'shift', 'bbse') only."
            )
        if extras["shift"] and extras["bbse"]:
            raise InputError(
                f"method {text!r} estimates the shares of classes twice; drop 'shift' or 'bbse'."
            )
        if extras["eerm"] and extras["labels"]:
            raise InputError(
                f"method {text!r} would show edited graphs the labels to learn; drop 'eerm' or 'labels'."
            )
        for name, changed in (("lags", "snapshot"), ("drop", "curriculum"), ("joint", "jjnorm")):
            if name in parts and changed not in parts:
                raise InputError(
                    f"method {text!r} has {name!r} without {changed!r}; write '{changed}+{name}'."
                )
        if extras["ends"] and weightings in ([], ["plain"]):
            raise InputError(
                f"method {text!r} has no weights for 'ends'; add a weighting such as 'pmp'."
            )
        by_row = [part for part in weightings if part in BY_ROW]
        if by_row and (extras["ends"] or "pny" in chosen):
            other = "ends" if extras["ends"] else "pny"
            raise InputError(
                f"method {text!r}: {other!r} needs weights by two times, {by_row[0]!r} has none; drop one."
            )
        if extras["ends"] and "pny" in chosen:
            raise InputError(
                f"method {text!r} joins 'ends' with 'pny', which takes weights by edge; drop one."
            )
        return cls(weightings[0] if weightings else "plain", chosen, **extras)

    @property
    def terms(self) -> tuple[str, ...]:
        """The parts that are terms of a network's loss."""
        return tuple(name for name in TERMS if getattr(self, name))

    def __str__(self) -> str:
        extras = [name for name in EXTRAS if getattr(self, name)]
        head = [] if self.weighting == "plain" and (self.alignment or extras) else [self.weighting]
        return "+".join([*head, *self.alignment, *extras])

    def __repr__(self) -> str:
        return f"Method({self})"


@dataclass(frozen=True)
class Candidate:
    """A method with the model that learns from its hops: "trees:pmp+labels"; without one, the pipeline's own.

    Examples:
        >>> Candidate.parse("trees:labels").model, str(Candidate.parse("center"))
        ('trees', 'center')
    """

    method: Method = Method()
    model: str | None = None

    @classmethod
    def of(cls, candidate: str | Method | Candidate) -> Candidate:
        """A candidate, parsed if it is a text."""
        if isinstance(candidate, Candidate):
            return candidate
        return cls(candidate) if isinstance(candidate, Method) else cls.parse(candidate)

    @classmethod
    def parse(cls, text: str) -> Candidate:
        """The candidate that a line "model:method" or "method" describes."""
        model, colon, method = str(text).strip().rpartition(":")
        if colon:
            checks.choice("model", model.strip(), HEADS)
        return cls(Method.parse(method), model.strip() or None)

    def smoothed(self, smooth: bool = True) -> Candidate:
        """The same candidate with or without "smooth", which changes nothing about what is fitted."""
        return Candidate(replace(self.method, smooth=smooth), self.model)

    @property
    def num_parts(self) -> int:
        """How much there is to explain: parts of the method that are not plain, and a model of its own."""
        return (self.method != Method()) * len(str(self.method).split("+")) + (
            self.model is not None
        )

    def __str__(self) -> str:
        return str(self.method) if self.model is None else f"{self.model}:{self.method}"

    def __repr__(self) -> str:
        return f"Candidate({self})"
