"""The glossary of the report: a page links each term where it is first used."""

from __future__ import annotations

import re

from markupsafe import Markup, escape

GLOSSARY = {
    "back-test": "Evaluation on the past: labels of recent periods are masked and predicted.",
    "baseline": "The method plain: the default model without any correction.",
    "calibration": "Makes a probability of 80% correct in 80% of the cases.",
    "calibration error": "|probability − accuracy|, averaged over bins of the probability.",
    "candidate": "A method with a model, written model:method.",
    "class proportions": "The share of every class among the nodes of a period.",
    "coverage": "The share of prediction sets that contain the true class.",
    "cutoff": "The first period whose labels are unknown.",
    "decay": "How the number of connections falls with the distance in time.",
    "ensemble": "The weighted mean of the probabilities of several candidates.",
    "fold": "A split of the past. Its window is the set of periods to predict.",
    "hop": "One step of propagation along the edges.",
    "log-loss": "Minus the mean logarithm of the probability of the true class.",
    "message": "The aggregated features of the neighbours of a node.",
    "method": "What is done about the shift over time, as parts joined by +.",
    "out-of-fold": "Predicted by a model that was not fitted or selected on this fold.",
    "outlier score": "Distance of the features from the class mean; 1 is a typical node.",
    "period": "A bin of time, such as a year or a quarter.",
    "points": "Percentage points, the unit of a difference between two shares.",
    "prediction set": "The classes that together contain the true one with a stated coverage.",
    "sliced Wasserstein distance": "Mean distance of two distributions along random directions.",
    "target": "A node to predict: its time is the cutoff or later.",
    "temperature": "Above 1 it softens probabilities, below 1 it sharpens them.",
    "95% CI": "Confidence interval: 95% of such intervals contain the true value.",
}
LONGEST_FIRST = sorted(GLOSSARY, key=lambda term: -len(term))
PATTERN = re.compile(rf"(?<![\w-])({'|'.join(map(re.escape, LONGEST_FIRST))})s?(?![\w-])")


class TermLinks:
    """Links every term of the glossary where a page uses it first."""

    def __init__(self) -> None:
        self.used: set[str] = set()

    def __call__(self, text: str) -> Markup:
        linked = PATTERN.sub(self._link, str(escape(text)))
        return Markup(linked)  # noqa: S704 # nosec B704 - escaped above

    def _link(self, match: re.Match[str]) -> str:
        term = match[1]
        if term in self.used:
            return match[0]
        self.used.add(term)
        return f'<a class="term" href="#{anchor(term)}">{match[0]}</a>'

    @property
    def entries(self) -> list[tuple[str, str, str]]:
        """Anchor, term and meaning of every term used so far."""
        used = [term for term in GLOSSARY if term in self.used]
        return [(anchor(term), term, GLOSSARY[term]) for term in used]


def anchor(term: str) -> str:
    """The id of a term in the page."""
    return "term-" + re.sub(r"[^a-z0-9]+", "-", term.lower())
