"""The report: one file with all results that loads nothing and is drawn from the saved summary."""

import base64
import hashlib
import html
import importlib.util
import json
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from markupsafe import Markup

from impact_gnn.backtesting import (
    Advice,
    Advised,
    BacktestResult,
    CandidateResult,
    FoldCheck,
    HorizonScore,
    PeriodScore,
    Selection,
    SelectionReason,
    SimpleResult,
    Status,
)
from impact_gnn.backtesting.prior_forecast import PriorForecast
from impact_gnn.checks import InputError
from impact_gnn.diagnostics.assumption import HOLDS, NOT_TESTABLE, UNCERTAIN, VIOLATED
from impact_gnn.estimators import Calibration, Candidate, EnsembleSpec, Member
from impact_gnn.estimators.calibration import Bin
from impact_gnn.report import read_summary, svg, write_report, write_summary
from impact_gnn.report.figures import by_offset
from impact_gnn.report.glossary import GLOSSARY, anchor
from impact_gnn.report.limitations import limitations
from impact_gnn.report.numbers import duration, listed, points
from impact_gnn.report.page import render
from impact_gnn.report.sentences import by_threshold, classes, command
from impact_gnn.report.svg import PALETTE
from impact_gnn.statistics import Estimate
from places import quick_directory

EVIL = "<script>alert(1)</script>"
PLAIN, LABELS, BEST = map(Candidate.parse, ("plain", "labels", "trees:pmp+center+labels"))
BASELINE_ONLY = EnsembleSpec.single(PLAIN)


class Page(HTMLParser):
    """What a page consists of: tags with attributes, ids, text; refuses tags without match."""

    VOID = frozenset(
        {"meta", "link", "br", "hr", "img", "input", "path", "use", "rect", "line", "circle"}
    )

    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.text = [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.text.append(data)

    @property
    def words(self):
        return re.sub(r"\s+", " ", " ".join(self.text))

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


def changed(value, **changes):
    """`value` with fields deep inside replaced: `a__b=1` is the field b of the field a."""
    for path, new in changes.items():
        first, _, rest = path.partition("__")
        value = replace(
            value, **{first: changed(getattr(value, first), **{rest: new}) if rest else new}
        )
    return value


def check(window, accuracy, **changes):
    """A past window without anything remarkable."""
    bins = [Bin(0.4, 0.5, 0.52), Bin(0.6, 0.8, 0.79)]
    met = [(0, 0, 40), (0, 1, 10), (1, 1, 20), (2, 0, 10)]
    times = [PeriodScore(int(part), 40, accuracy, 0.61) for part in window.split("-")]
    fold_check = FoldCheck(
        window=window,
        count=80,
        unknown=0,
        accuracy=accuracy,
        fitted=accuracy,
        plain=0.61,
        confidence=accuracy,
        error_before=0.08,
        error=0.02,
        coverage=0.9,
        set_size=1.6,
        bins=bins,
        score=accuracy,
        plain_score=0.61,
        confusion=met,
        periods=times,
    )
    return replace(fold_check, **changes)


def candidate_rows(folds):
    plain = {"2004-2005": 0.63, "2005-2006": 0.62, "2006-2007": 0.59}
    best = {fold: plain[fold] + value for fold, value in folds.items()}
    dropped, failed, untried = map(Candidate.parse, ("mmp", "gcn:jjnorm", "sage:plain"))
    row = CandidateResult(
        candidate=BEST,
        accuracy=0.681,
        loss=0.82,
        difference=Estimate(0.064, 0.015, 0.034, 0.094),
        by_fold=folds,
        weight=0.75,
        status=Status.FULL,
        scores=best,
    )
    nothing = {"accuracy": None, "loss": None, "difference": None, "by_fold": {}}
    nothing |= {"weight": 0.0, "scores": {}}
    return [
        row,
        replace(
            row,
            candidate=LABELS,
            accuracy=0.66,
            loss=0.9,
            difference=Estimate(0.05, 0.015, 0.02, 0.08),
            weight=0.25,
        ),
        replace(
            row,
            candidate=PLAIN,
            accuracy=0.61,
            loss=1.1,
            difference=None,
            by_fold=dict.fromkeys(folds, 0.0),
            weight=0.0,
            scores=plain,
        ),
        replace(
            row,
            candidate=dropped,
            accuracy=0.55,
            loss=1.3,
            difference=Estimate(-0.06, 0.02, -0.1, -0.02),
            by_fold={"2006-2007": -0.06},
            weight=0.0,
            status=Status.DROPPED,
            scores={"2006-2007": 0.53},
        ),
        CandidateResult(
            candidate=failed, status=Status.FAILED, error=f"the loss is NaN {EVIL}", **nothing
        ),
        CandidateResult(candidate=untried, status=Status.UNTRIED, **nothing),
    ]


def outcome():
    folds = {"2004-2005": 0.05, "2005-2006": 0.07, "2006-2007": -0.01}
    rows = candidate_rows(folds)
    choice = EnsembleSpec((Member(BEST, 0.75), Member(LABELS, 0.25)))
    decision = Selection(
        choice, SelectionReason.BETTER, BEST, Estimate(0.018, 0.013, -0.009, 0.044), 3
    )
    checks = [
        check("2004-2005", 0.67, error=0.08),
        check("2005-2006", 0.7),
        check("2006-2007", 0.6, coverage=0.83),
    ]
    calibration, lags = (
        Calibration(1.3, 0.5, 0.21),
        [HorizonScore(1, 0.7, 80), HorizonScore(2, 0.66, 80), HorizonScore(3, 0.6, 80)],
    )
    return BacktestResult(
        rows=rows,
        selection=decision,
        folds=list(folds),
        ahead=2,
        seconds=131.0,
        finished=False,
        effort="normal",
        work=40.0,
        calibration=calibration,
        fold_checks=checks,
        by_horizon=lags,
        simplest=[
            SimpleResult("majority class", None, 0.51, 0.625),
            SimpleResult("prior:plain", 1.21, 0.51, 0.54),
            SimpleResult("prior:last", 1.1, 0.58, 0.59),
            SimpleResult("selected model", 0.85, 0.64, 0.6),
        ],
        prior_forecast=PriorForecast(
            [0.2, 0.3, 0.4, 0.1], [0.15, 0.2, 0.25, 0.05], [0.26, 0.4, 0.55, 0.2]
        ),
    )


@pytest.fixture(scope="module")
def real(finished_run):
    return finished_run[1]


@pytest.fixture(scope="module")
def whole(real):
    """A real summary whose back-test and predictions cause every kind of sentence."""
    advised = Advised(LABELS.method, 1.5, "why not"), Advised(BEST.method, 1.2, "a good reason")
    advice = Advice(advised, "labels comes first.")
    drift, shift = real.diagnosis.feature_drift, real.diagnosis.shift
    changes = {
        "advice": advice,
        "backtest": outcome(),
        "prediction_summary__labels": dict(
            zip(real.prediction_summary.labels, [60, 30, 10, 0], strict=True)
        ),
        "prediction_summary__count": 100,
        "prediction_summary__mean_probability": 0.9,
        "prediction_summary__comparable_confidence": 0.9,
        "prediction_summary__accuracy": Estimate(0.724, 0.04, 0.638, 0.81),
        "prediction_summary__set_size": 1.83,
        "prediction_summary__histogram": [0, 0, 1, 4, 10, 15, 15, 15, 15, 25],
        "graph__label_counts": [200, 190, 185, 5],
        "diagnosis__label_mix__status": HOLDS,
        "diagnosis__label_mix__sentence": "What was seen of the mix.",
        "diagnosis__label_mix__interval": (0.0, 0.05),
        "diagnosis__label_mix__statistic": 0.02,
        "diagnosis__feature_drift__status": UNCERTAIN,
        "diagnosis__feature_drift__all_drift": [0.1] * (len(drift.all_drift) - 1) + [0.4],
        "diagnosis__separability__status": VIOLATED,
        "diagnosis__decay__status": NOT_TESTABLE,
        "diagnosis__decay__statistic": None,
        "diagnosis__shift__silent": [*shift.silent[:-1], 0.3],
        "cost__seconds": 163.2,
        "cost__peak_memory_bytes": 812_000_000,
        "options__seed": 7,
    }
    return changed(real, **changes)


@pytest.fixture(scope="module")
def text(whole):
    return render(whole)


@pytest.fixture(scope="module")
def page(text):
    return Page(text)


@pytest.fixture
def without_plots(monkeypatch):
    """Empty drawings, for tests that are about everything else: drawing takes most of the time."""
    monkeypatch.setattr(svg, "render", lambda figure, title: ("", Markup("<svg></svg>")))


def test_the_summary_of_a_run_is_read_back_and_draws_the_same_bytes(finished_run):
    out, summary = finished_run
    reloaded = read_summary(out / "summary.json")
    assert reloaded == summary
    assert render(reloaded, drawings={}) == (out / "report.html").read_text(encoding="utf-8")


def test_a_changed_summary_is_read_back_too(whole, text, tmp_path):
    write_summary(whole, tmp_path / "summary.json")
    assert read_summary(tmp_path / "summary.json") == whole
    write_report(read_summary(tmp_path / "summary.json"), tmp_path / "report.html")
    written = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert (
        re.sub(r' <span class="files">.*?</span>', "", written).split("<footer>")[0]
        == text.split("<footer>")[0]
    )
    assert text.startswith("<!doctype html>")
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "figures",
        "report.html",
        "summary.json",
    ]


def test_every_figure_is_a_file(finished_run):
    out, _ = finished_run
    files = {file.name for file in (out / "figures").iterdir()}
    text = (out / "report.html").read_text(encoding="utf-8")
    linked = [
        a["href"].removeprefix("figures/")
        for a in Page(text).all("a")
        if a["href"].startswith("figures/")
    ]
    assert len(linked) == len(set(linked))
    assert {*linked, "sums.json"} == files
    drawn = (out / "figures" / "periods.svg").read_text(encoding="utf-8")
    assert drawn.startswith("<?xml")
    assert "var(--" not in drawn  # it stands alone: colours of its own, and a key
    assert ">labelled nodes<" in drawn
    assert PALETTE[0] in drawn
    # the page's light colours are those of the files
    assert all(colour in text for colour in PALETTE)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {"schema": 0},
            "summary.json has schema 0, but this release reads 11; use the release that wrote it.",
        ),
        ({"fits": {}}, "summary.json.fits is {} but should be"),
        ({"command": 3}, "summary.json.command is 3 but should be of type str"),
    ],
)
def test_another_schema_is_refused_with_a_sentence(whole, tmp_path, change, sentence):
    write_summary(whole, tmp_path / "summary.json")
    content = json.loads((tmp_path / "summary.json").read_text(encoding="utf-8"))
    assert content["schema"] == 11
    (tmp_path / "summary.json").write_text(json.dumps(content | change), encoding="utf-8")
    with pytest.raises(InputError, match=re.escape(sentence)):
        read_summary(tmp_path / "summary.json")


def test_what_is_not_a_number_is_not_written(whole, tmp_path):
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_summary(changed(whole, cost__seconds=float("nan")), tmp_path / "summary.json")
    assert not list(tmp_path.iterdir())


def test_sections_come_in_their_order(page):
    assert [a["id"] for a in page.all("section")] == [
        "accuracy",
        "predictions",
        "comparison",
        "time-corrections",
        "selection",
        "change",
        "assumptions",
        "limitations",
        "reproduce",
        "glossary",
    ]
    linked = {a["href"] for a in page.all("a") if a.get("class") != "term"}
    assert linked == {f"#{a['id']}" for a in page.all("section")}


def test_terms_are_linked_once_to_the_glossary(page):
    linked = [a["href"] for a in page.all("a") if a.get("class") == "term"]
    assert len(linked) == len(set(linked)) > 15
    explained = [f"#{a['id']}" for a in page.all("dt") if "id" in a]
    assert sorted(explained) == sorted(linked)
    assert set(linked) <= {f"#{anchor(term)}" for term in GLOSSARY}


def test_what_matters_comes_first(page):
    start = page.words[: page.words.index("Expected accuracy and calibration")]
    assert "Predictions for 100 nodes from 2008 on Selected model, expected accuracy and" in start
    assert "Predictions 100 nodes Most frequent class: physics (60%). One row per node in" in start
    chosen = (
        "75% trees:pmp+center+labels, 25% labels. Gain over the baseline : +1.8 points ( 95% CI"
    )
    assert f"Selected model Ensemble of 2 models {chosen}" in start
    assert "Expected accuracy 72.4% 90% interval 63.8-81.0%. Accuracy in the back-test :" in start
    assert ": 60.0% in 2006-2007 (baseline 61.0%), 70.0% in 2005-2006 (baseline 61.0%), " in start
    assert "Mean size of a prediction set : 1.8 classes (90% coverage )." in start
    assert "Limitations The time budget ended before the search was complete." in start
    assert "Accuracy by period. Predictions before the cutoff" in start  # the figure


def test_every_candidate_is_in_the_table_with_its_interval(page):
    head = (
        "candidate 2006-2007 2005-2006 2004-2005 log-loss difference to the baseline, points 95% "
        "CI better folds weight"
    )
    assert head in page.words
    best = (
        "trees:pmp+center+labels 58.0% −1.0 69.0% +7.0 68.0% +5.0 0.820 +6.4 +3.4 to +9.4 2 of 3 "
        "75% all folds"
    )
    assert best in page.words
    assert "plain 59.0% 62.0% 63.0% 1.100 baseline – – – all folds" in page.words
    assert (
        "mmp 53.0% −6.0 – – 1.300 −6.0 −10.0 to −2.0 0 of 1 – dropped after the newest fold"
        in page.words
    )
    assert "gcn:jjnorm – – – – – – – – failed: the loss is NaN" in page.words
    assert "geometric mean over folds with weights 57%, 29% and 14%" in page.words


def test_scores_in_the_table_differ_as_the_table_says(real):
    """Both columns are of the same fits and nodes, in every window."""
    plain = real.backtest.row("plain").scores
    assert plain.keys() == set(real.backtest.folds)
    for row in real.backtest.rows:
        assert row.scores.keys() == row.by_fold.keys()
        for fold, value in row.by_fold.items():
            assert row.scores[fold] - plain[fold] == pytest.approx(value)


def test_the_choice_is_explained(page):
    assert "trees:pmp+center+labels (weight 75%): boosted trees" in page.words
    assert "labels (weight 25%): a neural network" in page.words
    assert page.words.count("labels : known labels of neighbours are further features") == 1
    assert (
        "Its gain in accuracy is not significant: +1.8 points (95% CI −0.9 to +4.4)." in page.words
    )
    assert (
        "more accurate than the baseline in 2 of 3 folds (2006-2007: −1.0, 2005-2006: +9.0, "
        in page.words
    )
    assert "ranked pmp+center+labels at place 2 of 2: a good reason" in page.words


@pytest.mark.usefixtures("without_plots")
@pytest.mark.parametrize(
    ("decision", "sentence"),
    [
        (
            Selection(
                EnsembleSpec.single(BEST),
                SelectionReason.BETTER,
                None,
                Estimate(0.06, 0.02, 0.02, 0.1),
                3,
            ),
            "trees:pmp+center+labels has a significant gain over the baseline: +6.0 points (95% "
            "CI +2.0 to",
        ),
        (
            Selection(
                EnsembleSpec.single(BEST),
                SelectionReason.BETTER,
                None,
                Estimate(-0.01, 0.02, -0.05, 0.03),
                3,
            ),
            "It is not more accurate: −1.0 points (95% CI",
        ),
        (
            Selection(
                BASELINE_ONLY,
                SelectionReason.NONE_BETTER,
                LABELS,
                Estimate(0.0, 0.02, -0.04, 0.04),
                3,
            ),
            "The accuracy of the best other candidate, labels, differs from the baseline by 0.0 "
            "points",
        ),
        (
            Selection(BASELINE_ONLY, SelectionReason.NONE_TRIED),
            "No candidate other than the baseline was evaluated on all folds, so the baseline is",
        ),
    ],
)
def test_every_reason_has_its_words(whole, decision, sentence):
    assert sentence in Page(render(changed(whole, backtest__selection=decision))).words


def test_expected_accuracy_and_calibration(page):
    trust = page.words[
        page.words.index("Expected accuracy and calibration") : page.words.index("100 nodes, one")
    ]
    assert (
        "Expected accuracy: 72.4% (90% interval 63.8-81.0%). The forecast averages the mean calib"
        in trust
    )
    assert "softened by temperature (1.30)." in trust
    assert "past folds : 8.0% before calibration, 4.0% after" in trust
    assert "coverage on past folds: 83-90%." in trust
    assert "2006-2007 80 60.0% 61.0% 60.0% 2.0% 8.0% 83.0% 1.60 2005-2006 80 70.0%" in trust
    assert (
        "One model (trees:pmp+center+labels, the first member of the ensemble), trained up to 2004"
        in trust
    )


@pytest.mark.usefixtures("without_plots")
def test_the_forecast_of_class_proportions_has_intervals(whole):
    drifting = changed(whole, backtest__calibration__strength=0.5)
    words = Page(render(drifting)).words
    adjusted = "adjusted by the forecast of the class proportions (90% intervals: "
    assert adjusted in words
    listed_classes = words[words.index(adjusted) :][len(adjusted) :][:120]
    assert (
        "history & art 40% (25-55%), <script>alert(1)</script> 30% (20-40%) and physics"
        in listed_classes
    )
    assert adjusted not in Page(render(whole)).words


@pytest.mark.usefixtures("without_plots")
def test_the_simplest_predictions_are_compared_with_the_selection(whole, page):
    assert (
        "The selected model has a lower log-loss than the best prediction without a model, the "
        "last known labels of entities. It is less accurate than the majority class in the most "
        "recent fold." in page.words
    )
    assert "majority class of the last labelled periods – 51.0% 62.5%" in page.words
    assert "selected model 0.850 64.0% 60.0%" in page.words
    *others, selected = whole.backtest.simplest
    behind = changed(whole, backtest__simplest=[*others, replace(selected, loss=1.11)])
    assert "has a higher log-loss than the best" in Page(render(behind)).words
    last = EnsembleSpec.single(Candidate.parse("prior:last"))
    fallen_back = changed(
        whole, backtest__selection=Selection(last, SelectionReason.LAST_LABELS, num_folds=3)
    )
    words = Page(render(fallen_back)).words
    assert "No model was better than the last known labels of entities, so these are" in words
    assert "On past folds no model was better than the last known labels of the entities" in words
    without = changed(whole, backtest__simplest=[])
    assert "Simplest predictions" not in Page(render(without)).words


@pytest.mark.usefixtures("without_plots")
def test_halves_of_a_single_window_are_distinguished(whole):
    halves = [check("2007", 0.7), check("2007", 0.68)]
    summary = changed(
        whole,
        backtest__folds=["2007"],
        backtest__fold_checks=halves,
        backtest__by_horizon=[HorizonScore(1, 0.7, 160)],
    )
    words = Page(render(summary)).words
    assert "2007 (second half) 80 68.0%" in words
    assert "each half of its nodes was predicted by the ensemble selected on the other" in words
    assert "The selection is based on a single fold" in words
    assert "One model" not in words


def test_every_assumption_has_a_status_a_statistic_and_every_kind_of_plot(whole, page):
    badges = [a["class"] for a in page.all("span") if "badge" in a.get("class", "")]
    assert badges == ["badge holds", "badge uncertain", "badge violated", "badge not-testable"]
    for finding in whole.diagnosis.findings:
        assert finding.sentence in page.words
    assert (
        "Change of class proportions from the past to a new period: 0.020 (95% CI 0.000 to 0.050)"
        in page.words
    )
    assert "one decay for all classes explains: not measured" in page.words
    drawn = [a["aria-label"] for a in page.all("svg") if "aria-label" in a]
    assert "Shift of messages by period, before and after each correction" in drawn
    assert len(drawn) == 14
    assert len(set(drawn)) == 13  # two compare candidates with the baseline


def test_labels_are_scored_one_by_one(whole, page):
    rows = {row.name: row for row in classes(whole)}
    first, second, third, last = list(whole.prediction_summary.labels)
    assert (rows[first].tested, rows[first].recall, rows[first].precision) == (150, 0.8, 0.8)
    assert (rows[second].recall, rows[second].precision) == (1.0, pytest.approx(2 / 3))
    assert (rows[third].recall, rows[third].precision) == (0.0, None)
    assert (rows[last].tested, rows[last].recall) == (0, None)
    assert f"{first} 200 150 80.0% 80.0% 60" in page.words


def test_predictions_above_a_threshold(whole, page):
    """Twenty steps of the fixture's histogram; right as in the bins of the newest window, and of
    all.
    """
    rows = by_threshold(whole)
    assert rows[0] == (0.0, 1.0, pytest.approx(0.682), pytest.approx(0.682))
    assert [remaining for _, remaining, *_ in rows] == sorted(
        (remaining for _, remaining, *_ in rows), reverse=True
    )
    assert rows[6][2:] == (pytest.approx(0.79), pytest.approx(0.79))
    assert rows[9][2:] == (None, None)
    (box,) = [a for a in page.all("div") if a.get("id") == "threshold"]
    assert "hidden" in box  # without the script the table has it
    assert json.loads(box["data-rows"])[6][1] == rows[6][1]


@pytest.mark.usefixtures("without_plots")
def test_retraining_interval(whole):
    def by_horizon(summary):
        return Page(render(summary)).words

    assert "Accuracy shows no significant loss over a horizon of 3 periods" in by_horizon(whole)
    fast = changed(
        whole, backtest__by_horizon=[HorizonScore(k, 0.9 - 0.05 * k, 5000) for k in range(1, 6)]
    )
    assert "Accuracy falls by 5.0 points per period" in by_horizon(fast)
    assert "retrain every 1 period." in by_horizon(fast)
    assert "not measured: the history is too short" in by_horizon(
        changed(whole, backtest__by_horizon=[HorizonScore(1, 0.7, 80)])
    )


def test_the_bound_is_stated_with_the_measured_shift(whole, page):
    plain, center = (whole.diagnosis.shift.methods[name] for name in ("plain", "center"))
    assert f"center: {plain.overall:.3f} → {center.overall:.3f} (−" in page.words


def test_what_users_wrote_is_text_and_never_markup(whole):
    summary = changed(
        whole,
        command=EVIL,
        graph__num_edges={EVIL: 3, "b": 4},
        diagnosis__notes=(EVIL,),
        prediction_summary__file=EVIL,
        advice__explanation=EVIL,
        diagnosis__decay__sentence=EVIL,
        versions={EVIL: EVIL},
    )
    text = render(summary)
    assert EVIL not in text
    assert text.count("<script") == 1  # ours
    assert Page(text).words.count(EVIL) > 10


def test_nothing_is_loaded_from_elsewhere(text):
    assert "//" not in re.sub(r"/\*.*?\*/", "", text)  # no address at all, not even of a name space
    assert "@import" not in text
    assert all(target == "#" for target in re.findall(r"url\(['\"]?(.)", text))
    for tag, attributes in Page(text).tags:
        assert tag not in ("iframe", "img", "object", "embed")
        for name in ("src", "href", "xlink:href", "srcset", "action"):
            assert attributes.get(name, "#").startswith(("#", "data:,"))
    assert "default-src 'none'" in text  # and the policy forbids it
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.S)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in text  # it runs this and nothing else


def test_names_inside_the_page_are_unique_and_all_exist(page):
    ids = [a["id"] for _, a in page.tags if "id" in a]
    assert len(ids) == len(set(ids))
    used = {a["xlink:href"] for a in page.all("use")} | {
        a["clip-path"][4:-1] for _, a in page.tags if "clip-path" in a
    }
    assert {name.removeprefix("#") for name in used} <= set(ids)


def test_figures_take_their_colours_and_fonts_from_the_page(page):
    styles = " ".join(a.get("style") or "" for _, a in page.tags)
    assert "font-family" not in styles
    assert "#000000" not in styles
    assert "#ffffff" not in styles
    assert "currentColor" in styles
    assert "var(--c0)" in styles


def test_numbers_are_written_as_people_read_them():
    assert [points(value) for value in (0.0123, -0.0123, 0, None)] == ["+1.2", "−1.2", "0.0", "–"]
    lasting = [duration(seconds) for seconds in (4.2, 130, 7500, 59.97, 3590)]
    assert lasting == ["4.2 s", "2 min 10 s", "2 h 5 min", "60.0 s", "59 min 50 s"]
    phrases = listed(["a", "b", "c"]), listed(["a", "b", "c", "d"], 2), listed(["a"])
    assert phrases == ("a, b and c", "a, b and 2 more", "a")


def test_small_ticks_keep_their_digits():
    with mpl.rc_context(svg.STYLE):
        figure = svg.canvas()
        ax = figure.add_subplot()
        ax.plot([0, 0.00425], [0, 1], color=PALETTE[2])
        ax.set_xticks([0.0025, 0.00425], ["0.0025", "$4.25$ <b>"])
        text = svg.render(figure, "ticks")[1]
    assert ">0.0025<" in text
    assert ">$4.25$ &lt;b&gt;<" in text
    assert "stroke: var(--c2)" in text


def test_one_class_and_many_classes(whole):
    one = changed(
        whole,
        graph__label_counts=[5],
        prediction_summary__labels={"0": 100},
        diagnosis__label_mix__mix=[[1.0]],
        diagnosis__label_mix__times=[2001],
        diagnosis__label_mix__to_past=[],
        diagnosis__label_mix__noise=[],
        backtest__fold_checks=[check("2006-2007", 0.6, confusion=[(0, 0, 80)])],
    )
    assert "class 0" in Page(render(one)).words
    many = changed(
        one,
        graph__label_counts=list(range(40, 0, -1)),
        diagnosis__label_mix__mix=[[1 / 40] * 40],
        prediction_summary__labels={f"topic {k}": 3 for k in range(40)},
        prediction_summary__count=120,
    )
    words = Page(render(many)).words
    assert "34 other classes" in words
    assert "28 more classes" in words


@pytest.mark.usefixtures("without_plots")
def test_the_report_says_that_networks_were_not_tried_further(whole):
    def mentions_networks(summary):
        sentence = "Neural networks were far behind cheaper models, so no further ones were tried."
        return sentence in Page(render(summary)).words

    searched = changed(whole, options__candidates=None)
    trees, labels, plain, *rest = searched.backtest.rows
    rows = [trees, replace(labels, loss=1.9), replace(plain, loss=2.1), *rest]
    behind = changed(searched, backtest__rows=rows)
    assert not mentions_networks(searched)
    assert mentions_networks(behind)
    # All candidates that a user names are tried.
    assert not mentions_networks(changed(behind, options__candidates=(PLAIN, LABELS, BEST)))


@pytest.mark.usefixtures("without_plots")
def test_a_back_test_that_was_impossible(whole):
    summary = changed(
        whole, backtest=BacktestResult.without_folds("quick"), prediction_summary__accuracy=None
    )
    words = Page(render(summary)).words
    assert "There are no out-of-fold predictions" in words
    assert "The history is too short for a back-test" in words
    assert "no candidate could be back-tested" in words
    assert "No back-test was possible, so the accuracy and the use of corrections" in words
    assert "The time budget ended" not in words


@pytest.mark.usefixtures("without_plots")
def test_time_that_ran_out_before_any_correction_was_tried_in_full(whole):
    part = {
        "by_fold": {"2005-2006": 0.07, "2006-2007": -0.01},
        "status": Status.PART,
        "weight": 0.0,
    }
    rows = [
        replace(row, **part) if row.status is Status.FULL else row for row in whole.backtest.rows
    ]
    rows = [
        replace(row, scores={fold: row.scores[fold] for fold in row.scores if fold in row.by_fold})
        for row in rows
    ]
    none = {
        "backtest__fold_checks": [],
        "backtest__by_horizon": [],
        "prediction_summary__accuracy": None,
    }
    decision = Selection(BASELINE_ONLY, SelectionReason.OUT_OF_TIME)
    words = Page(
        render(changed(whole, backtest__rows=rows, backtest__selection=decision, **none))
    ).words
    tried = "labels 58.0% −1.0 69.0% +7.0 – 0.900 +5.0 +2.0 to +8.0 1 of 2 – stopped: out of time"
    assert tried in words
    assert (
        "No candidate other than the baseline was evaluated on all folds within the budget, so"
        in words
    )
    assert (
        "Not evaluated on all folds: trees:pmp+center+labels, labels, plain and sage:plain."
        in words
    )
    assert "– all folds" not in words


@pytest.mark.usefixtures("without_plots")
@pytest.mark.parametrize("bare", ["edges", "one period", "constant features", "late classes"])
def test_graphs_that_show_little_give_a_page(bare):
    """Reports of real runs on graphs that show little, and JSON in which every number is one."""
    import impact_gnn as ig

    g = ig.tsbm(
        num_nodes=160,
        num_times=2 if bare == "one period" else 4,
        num_labels=2,
        mean_degree=8,
        seed=0,
    )
    edges = np.zeros((2, 0), int) if bare == "edges" else g.edge_index
    x = np.ones_like(g.x) if bare == "constant features" else g.x
    # late: in the last fold only
    y = np.where(g.time < {"late classes": 2}.get(bare, 0), 0, g.y)
    thin = ig.TemporalGraph(x=x, y=y, time=g.time, edge_index=edges)
    with quick_directory() as out:
        summary = ig.run(
            thin, out, candidates=["plain"], folds=1, seeds=1, budget=60, model="linear"
        )
        assert read_summary(out / "summary.json") == summary
        for file in out.rglob("*.json"):
            json.loads(file.read_text(encoding="utf-8"), parse_constant=pytest.fail)
        words = Page((out / "report.html").read_text(encoding="utf-8")).words
    expected = {
        "edges": "Not measured, because this requires features and edges.",
        "one period": "The history is too short for a back-test",
        "late classes": "Nodes of classes without earlier labels count as errors",
    }
    assert expected.get(bare, "") in words
    assert not re.search(r"\b(nan|inf|None)\b", words)


@pytest.mark.usefixtures("without_plots")
def test_a_graph_without_features_has_no_shift(whole):
    words = Page(render(changed(whole, diagnosis__shift=None))).words
    assert "Not measured, because this requires features and edges." in words


def test_limitations_follow_from_the_evidence(whole):
    text = " ".join(limitations(whole))
    for sentence in (
        "The time budget ended before the search was complete. Not evaluated on all folds: "
        "sage:plain.",
        "Edges have no timestamps. The back-test assumes that an edge exists as soon as both of "
        "its",
        "gcn:jjnorm could not be fitted",
        "The gain over the baseline is not significant: +1.8 points (95% CI −0.9 to +4.4).",
        "was more accurate than the baseline in only 2 of 3 folds",
        "Prediction sets with 90% nominal coverage had 83% in 2006-2007",
        "The expected accuracy is imprecise: 90% interval 64-81%",
        "The features of a class drift",
        "pmp assumes that connections depend only on the distance in time. This is violated here",
        "Not testable on this graph: common decay",
        "Features of the targets differ more from the labelled nodes (0.40 class distances)",
        "30% of the targets receive no message from neighbours",
        "The predicted class proportions differ by",
        "15% of the predictions have a probability below 50%",
        "The mean calibrated probability is 90.0%, but the accuracy in the back-test was 65.7%",
        'fewer than 20 labels are hard to learn: "quoted" $x_1$',
        'predicted for none of the 100 targets: "quoted" $x_1$',
    ):
        assert sentence in text
    assert "Class proportions change" not in text  # the assumption holds
    assert "Even after calibration" not in text  # 4% is not much
    worse = changed(whole, backtest__fold_checks=[check("2006-2007", 0.7, error=0.061)])
    assert "the calibration error on past folds is 6.1%." in " ".join(limitations(worse))
    too_good = changed(whole, backtest__fold_checks=[check("2006-2007", 0.997)])
    assert limitations(too_good)[0].startswith("99.7% of the past labels were predicted")
    assert "periods to predict, from" not in text  # there is one
    assert "without earlier labels" not in text
    new = changed(
        whole, backtest__fold_checks=[check("2005", 0.7), check("2006-2007", 0.7, unknown=8)]
    )
    assert (
        "without earlier labels count as errors for every candidate: 10.0% of 2006-2007."
        in " ".join(limitations(new))
    )


def test_limitations_of_labels_and_the_horizon(whole):
    labelled = [90] * 4 + [9, 0, 0, 0]
    summary = changed(
        whole,
        diagnosis__label_mix__status=VIOLATED,
        options__cutoff=2007,
        graph__labelled_per_time=labelled,
        backtest__folds=["2005"],
        backtest__ahead=1,
        backtest__fold_checks=[check("2005", 0.7), check("2005", 0.7)],
    )
    text = " ".join(limitations(summary))
    assert "Class proportions change over time; those of the predictions may lag behind." in text
    assert "center assumes constant proportions" in text
    assert (
        "There are 2 periods to predict, from 2007 to 2008, but the history allows a back-test of 1"
        in text
    )
    assert "The last 1 period before the cutoff has no labels" in text
    assert "fewer than 20 labels: 2005" in text


def test_a_sound_run_has_only_the_last_limitation(whole):
    counts = dict(zip(whole.prediction_summary.labels, [25] * 4, strict=True))
    summary = changed(
        whole,
        backtest__rows=whole.backtest.rows[:3],
        backtest__finished=True,
        backtest__fold_checks=[check(fold, 0.85) for fold in whole.backtest.folds],
        backtest__selection__gain=Estimate(0.06, 0.02, 0.02, 0.1),
        prediction_summary__accuracy=Estimate(0.86, 0.03, 0.8, 0.92),
        graph__label_counts=[150] * 4,
        graph__edge_times=dict.fromkeys(whole.graph.num_edges, (2001, 2008)),
        prediction_summary__labels=counts,
        prediction_summary__histogram=[0] * 9 + [100],
        diagnosis__shift__silent=[0.0],
        diagnosis__label_mix__mix=[[0.25] * 4],
        diagnosis__feature_drift__status=HOLDS,
        diagnosis__feature_drift__all_drift=[0.1] * 8,
        diagnosis__separability__status=HOLDS,
        diagnosis__decay__status=HOLDS,
    )
    assert len(limitations(summary)) == 1


@pytest.mark.usefixtures("without_plots")
def test_the_report_says_whether_edge_times_were_known(whole):
    def words(summary):
        return Page(render(summary)).words

    assert "edge times unknown; assumed to exist as soon as both nodes do" in words(whole)
    some = changed(
        whole, graph__num_edges={"a": 3, "b": 4, "c": 0}, graph__edge_times={"a": (1, 2)}
    )
    assert "edge times unknown for b; assumed to exist as soon as" in words(some)
    assert "Edges of b have no timestamps" in " ".join(limitations(some))
    untested = changed(some, backtest=BacktestResult.without_folds("quick"))
    assert "Edges of b have no timestamps" in " ".join(limitations(untested))
    known = changed(some, graph__edge_times={"a": (1, 2), "b": (1, 1)})
    assert "edge times known features" in words(known)
    assert "no timestamps" not in " ".join(limitations(known))
    assert "edge times" not in words(changed(some, graph__num_edges={"a": 0}))


def test_the_command_has_all_options(whole, page):
    asked = (
        "impact_gnn.run(graph, out, cutoff='2008', model='sign', "
        "candidates=['labels', 'pmp+center+labels', 'mmp'], effort='normal', folds=2, seeds=1, "
    )
    assert command(whole).startswith(asked)
    assert "seed=7, " in command(whole)
    assert "undirected=False" in command(changed(whole, options__undirected=False))
    assert "budget=90.0" in command(changed(whole, options__budget=90.0))
    assert "budget" not in command(changed(whole, options__budget=None))
    assert command(replace(whole, command="impact run 'a b'")) == "impact run 'a b'"
    assert asked.strip() in page.words
    assert "run time 2 min 43 s peak memory 812.0 MB" in page.words


def test_connections_are_averaged_over_pairs_of_equal_distance():
    steps = np.array([1.0, 2.0, 4.0])
    table = np.array([[4.0, 1.0, 0.0], [2.0, 2.0, 6.0], [1.0, 0.0, 0.0]])
    offsets, (scaled,) = by_offset(steps, table)
    assert offsets.tolist() == [-3, -2, -1, 0, 1, 2, 3]
    assert scaled.tolist() == (np.array([1, 0, 2, 2, 1, 6, 0]) / 6).tolist()


CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
FRAMES = [(width, scheme) for width in (400, 1400) for scheme in ("light", "dark")]
MEASURE = """
const found = [...document.querySelectorAll("iframe")].map(frame => {
  const page = frame.contentDocument, root = page.documentElement;
  const texts = [...page.querySelectorAll("figure svg text")];
  const ink = texts.filter(text => !text.closest("details"));
  const style = element => frame.contentWindow.getComputedStyle(element);
  const right = element =>
    element.closest(".scroll, svg") ? 0 : element.getBoundingClientRect().right;
  return {
    width: root.clientWidth,
    wide: root.scrollWidth,
    paper: style(page.body).backgroundColor,
    ink: style(ink[0]).fill,
    least: Math.min(...ink.map(text => {
      const turned = text.getScreenCTM();
      return Math.hypot(turned.a, turned.b) * parseFloat(style(text).fontSize);
    })),
    beyond: [...page.querySelectorAll("main *")]
      .filter(element => right(element) > root.clientWidth + 1)
      .map(element => element.outerHTML.slice(0, 200)),
  };
});
document.getElementById("found").textContent = JSON.stringify(found);
"""


def frames(text, kinds, script):
    """A page with another in frames of these widths and colour schemes, and results of a script."""
    pages = "".join(
        f'<iframe srcdoc="{html.escape(text)}" style="width: {width}px; height: 900px; border: 0; '
        f'color-scheme: {scheme}"></iframe>'
        for width, scheme in kinds
    )
    return (
        f"<!doctype html><meta charset=utf-8><body>{pages}<pre "
        f'id="found"></pre><script>{script}</script></body>'
    )


def opened(page, folder):
    """The results of the scripts of a page, and the messages of the browser's console."""
    (folder / "frames.html").write_text(page, encoding="utf-8")
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-sync",
        "--disable-background-networking",
        "--disable-component-update",
        f"--user-data-dir={folder / 'profile'}",
        "--enable-logging=stderr",
        "--window-size=1500,900",
        "--virtual-time-budget=60000",
        "--dump-dom",
    ]
    called = [CHROMIUM, *options, (folder / "frames.html").as_uri()]
    done = subprocess.run(called, capture_output=True, text=True, timeout=300, check=True)
    output = html.unescape(re.search(r'<pre id="found">(.*?)</pre>', done.stdout, re.S)[1])
    return output, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


@pytest.mark.skipif(
    CHROMIUM is None, reason="chromium is not installed, so the report was not opened in a browser"
)
def test_a_browser_shows_it_without_errors_narrow_and_wide_light_and_dark(text, tmp_path):
    outside = frames(
        text,
        [(width, scheme) for width, scheme in FRAMES],
        f"window.onload = () => {{ {MEASURE} }}",
    )
    output, errors = opened(outside, tmp_path)
    assert errors == []  # refused loads would be here too
    measured = json.loads(output)
    assert len(measured) == len(FRAMES)
    for output, (width, scheme) in zip(measured, FRAMES, strict=True):
        assert width - 20 <= output["width"] <= width  # a scroll bar may take some
        assert output["wide"] <= output["width"]
        assert output["beyond"] == []
        assert output["least"] >= 9
        paper, ink = (
            sum(map(int, re.findall(r"\d+", output[name])[:3])) / 3 for name in ("paper", "ink")
        )
        assert (paper < 60 and ink > 180) if scheme == "dark" else (paper > 240 and ink < 80)


AXE = """
Promise.all([...document.querySelectorAll("iframe")].map(frame => frame.contentWindow.axe.run({
  runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"],
  resultTypes: ["violations"],  // otherwise every passed element is described, which is slow
}))).then(all => {
  const seen = all.map(one => one.violations.map(
    rule => [rule.id, rule.nodes.slice(0, 3).map(node => node.html)]));
  const passes = all.map(one => one.passes.length);
  document.getElementById("found").textContent = JSON.stringify([seen, passes]);
});
"""


@pytest.mark.skipif(
    CHROMIUM is None, reason="chromium is not installed, so axe could not look at the report"
)
def test_axe_finds_no_violation_of_accessibility_rules(text, tmp_path):
    """Contrast, names, headings, tables, landmarks: light and dark, all unfolded."""
    axe = Path(
        importlib.util.find_spec("axe_core_python").submodule_search_locations[0], "axe.min.js"
    ).read_text()
    bare = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text).replace(
        "<details", "<details open"
    )
    page = bare.replace("</head>", f"<script>{axe}</script></head>")
    output, _ = opened(
        frames(page, [(400, "light"), (1400, "dark")], f"window.onload = () => {{ {AXE} }}"),
        tmp_path,
    )
    violations, passes = json.loads(output)
    assert min(passes) > 20
    assert violations == [[], []]
