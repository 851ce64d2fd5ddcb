"""`Method`: an ordered set of parts, written "pmp+center+labels"."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from impact_gnn.checks import InputError
from impact_gnn.methods import registry
from impact_gnn.methods.part import Kind, ModelKind, Needs, Part
from impact_gnn.weighting import Weighting

PLAIN = "plain"
MAX_ALIGNMENTS = {ModelKind.GRAPH: 1, ModelKind.USER: 0}
"""A network over the graph aligns its messages in one layer, a user model in none."""


@dataclass(frozen=True)
class Method:
    """A correction for time: names of parts in canonical order; without any it is the baseline.

    Examples:
        >>> Method.parse("labels + center+PMP")
        Method(pmp+center+labels)
        >>> "labels" in Method.parse("pmp+labels"), str(Method())
        (True, 'plain')
    """

    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, method: str | Method) -> Method:
        """A method, parsed if it is a text."""
        return method if isinstance(method, Method) else cls.parse(method)

    @classmethod
    def parse(cls, text: str) -> Method:
        """The method described by names joined by "+", in any order; refuses what does not fit."""
        # Users write parts in any order and case; the table has the canonical order.
        wanted = [name.strip() for name in str(text).lower().split("+")]
        known = registry.names()
        for name in wanted:
            if name not in known:
                raise InputError(
                    f"method {text!r} has an unknown part {name!r}; join any of "
                    f"{', '.join(known)} by '+'."
                )
            if wanted.count(name) > 1:
                raise InputError(f"method {text!r} contains {name!r} twice; use it once.")
        return cls.join(wanted)

    @classmethod
    def join(cls, wanted: Iterable[str]) -> Method:
        """The method of known parts; refuses parts that do not go together."""
        wanted = list(wanted)
        chosen = set(wanted)
        # "plain" is the absence of a weighting, so it is no part of a method.
        method = cls(tuple(name for name in registry.names() if name in chosen - {PLAIN}))
        if reason := method._conflict(PLAIN in chosen):
            raise InputError(f"method '{'+'.join(wanted)}' {reason}.")
        return method

    @property
    def parts(self) -> list[Part]:
        return [registry.get(name) for name in self.names]

    def of_kind(self, kind: Kind) -> list[Part]:
        """The parts of one kind, in order."""
        return [part for part in self.parts if part.kind is kind]

    @property
    def weighting(self) -> str:
        """Name of the weighting part; "plain" without one."""
        weightings = self.of_kind(Kind.WEIGHTING)
        return weightings[0].name if weightings else PLAIN

    @property
    def edge_weighting(self) -> Weighting:
        """The weighting as engines take it."""
        part = registry.get(self.weighting)
        return part.name if part.edge_weights is None else part.edge_weights

    def with_parts(self, *added: str) -> Method:
        """The method with further parts."""
        return Method.join([*self.names, *added])

    def without(self, *removed: str) -> Method:
        """The method without some parts, and without parts that require them."""
        # A part whose requirement is removed goes with it, or the rest would be refused.
        removed_names = {*removed}
        left = [part for part in self.parts if not {part.name, *part.requires} & removed_names]
        return Method(tuple(part.name for part in left))

    @property
    def needs(self) -> frozenset[Needs]:
        """What the parts together need of a graph."""
        needed = frozenset[Needs]().union(*(part.needs for part in self.parts))
        # One part may supply what another needs: "ends" makes any path one with two times.
        provided = frozenset[Needs]().union(*(part.provides for part in self.parts))
        return needed - provided

    def refusal(self, kind: ModelKind, model: str) -> str | None:
        """Why a model of some kind cannot take this method; None if it can."""
        for part in self.parts:
            if kind not in part.models:
                takers = ", ".join(one.value for one in ModelKind if one in part.models)
                return f"{model} does not support {part.name!r}, which is for {takers}"
        most = MAX_ALIGNMENTS.get(kind)
        alignments = self.of_kind(Kind.ALIGNMENT)
        if most is not None and len(alignments) > most:
            return f"{model} supports at most {most} alignment, not {len(alignments)}"
        return None

    def _conflict(self, names_plain: bool) -> str | None:
        """Why the parts do not go together; None if they do."""
        weightings = [part.name for part in self.of_kind(Kind.WEIGHTING)] + [PLAIN] * names_plain
        if len(weightings) > 1:
            return f"has two weightings, {' and '.join(weightings)}; choose one"
        for part in self.parts:
            for other in part.requires:
                if other not in self:
                    return f"has {part.name!r} without {other!r}; write '{other}+{part.name}'"
            for other, reason in part.conflicts.items():
                if other in self:
                    return f"combines {part.name!r} with {other!r}: {reason}; drop one of them"
            problem = None if part.check is None else part.check(self)
            if problem is not None:
                return f"has {part.name!r}, {problem}"
        return None

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def __str__(self) -> str:
        return "+".join(self.names) or PLAIN

    def __repr__(self) -> str:
        return f"Method({self})"
