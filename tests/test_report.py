"""The report: one file that loads nothing, says what was found, and stands whatever is missing."""

import copy
import html
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser

import numpy as np
import pytest
from markupsafe import Markup

from impact_gnn.backtesting import Backtest, Row
from impact_gnn.report import plots, write_report
from impact_gnn.report.figures import by_offset
from impact_gnn.report.render import render
from impact_gnn.report.svg import PALETTE, inline
from impact_gnn.report.words import command
from impact_gnn.report.worries import worries
from impact_gnn.statistics import Estimate

EVIL = "<script>alert(1)</script>"
TIMES = list(range(2001, 2009))
CUTOFF = 2008
NAMES = ["physics", EVIL, "history & art", '"quoted" $x_1$']
METHODS = ("plain", "mmp", "pmp", "genpmp", "center", "standardize", "jjnorm")


class Page(HTMLParser):
    """What a page consists of: tags with attributes, ids, text; complains when tags do not match."""

    VOID = frozenset({"meta", "link", "br", "hr", "img", "input", "path", "use", "rect", "line", "circle"})

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


def finding(number, name, verdict="holds", statistic=0.02, interval=(0.0, 0.05), **series):
    return {
        "name": name, "assumption": number, "measure": f"measure of {name}", "statistic": statistic,
        "interval": None if interval is None else list(interval), "verdict": verdict,
        "sentence": f"What was seen of {name}.", "series": series,
    }  # fmt: skip


def diagnosis():
    known, rng = TIMES[:-1], np.random.default_rng(0)
    mix = rng.dirichlet(np.full(4, 30.0), size=7)
    fading = np.exp(-0.4 * np.arange(7))
    g = {"same label": (0.5 * fading).tolist(), "other labels": (0.2 * fading).tolist()}
    curve = {
        "label": 1, "neighbour": 0, "edges": 1234, "distances": list(range(7)), "g": g["same label"],
        "own_times": known[2:5], "neighbour_times": known, "share": rng.dirichlet(np.ones(7), size=3).tolist(),
    }  # fmt: skip
    table = np.exp(-0.4 * np.abs(np.subtract.outer(range(7), range(7))))
    classes = {"measured": 0.4, "mean_gap": 0.3, "equal_means": 1.2, "theorem_4_3": 6.25, "trivial": 6.9}
    line = np.linspace(0.6, 0.2, 7)
    return {
        "cutoff": CUTOFF,
        "findings": [
            finding(1, "label mix", times=known, labelled=[90] * 7, mix=mix.tolist(), to_past=[0.1] * 6,
                    noise=[0.08] * 6, chi2=12.3, freedom=18, p=0.8, cramers_v=0.01),
            finding(2, "feature drift", "doubtful", times=known, drift=[None, *line[1:]], along_classes=0.2,
                    all_times=TIMES, all_nodes=[100.0] * 8, all_drift=[0.1] * 7 + [0.4]),
            finding(3, "separable connectivity", "fails", steps=known, distances=list(range(7)), g=g,
                    symmetry=[1, 0.9, 1], per_node=[0.9, 0.8, 1.0], same_label=table.tolist(),
                    different_label=table.tolist(), curves=[curve]),
            finding(4, "common decay", "cannot tell", None, None, distances=list(range(7)), h=g["same label"],
                    of_all=[0.9, 0.8, 1.0]),
        ],
        "shift": {
            "path": "messages of 1 hop", "times": known, "count": [90] * 7, "silent": [0.0] * 7 + [0.3],
            "noise": [0.1] * 7,
            "methods": {
                name: {"mean": line.tolist(), "second": line.tolist(), "sliced": (line / (k + 1)).tolist(),
                       "separation": 0.2, "classes": classes, "overall": 0.4 / (k + 1)}
                for k, name in enumerate(METHODS)
            },
        },
        "feature_map": {
            "embedding": "pca", "explained": [0.3, 0.2],
            "nodes": {"place": rng.normal(size=(80, 2)).tolist(), "label": [-1, 0, 1, 2] * 20, "time": [2003] * 80},
            "means": {"place": rng.normal(size=(8, 2)).tolist(), "label": [0, 1] * 4, "time": [2001, 2002] * 4},
        },
        "notes": ["Edges were taken in both directions."],
    }  # fmt: skip


def outcome():
    folds = {2005: 0.05, 2006: 0.07, 2007: -0.01}
    rows = [
        Row("pmp+center+labels", 0.681, Estimate(0.064, 0.015, 0.034, 0.094), folds, 6, ""),
        Row("labels", 0.66, Estimate(0.05, 0.015, 0.02, 0.08), folds, 6, ""),
        Row("plain", 0.61, None, dict.fromkeys(folds, 0.0), 6, ""),
        Row("mmp", 0.55, Estimate(-0.06, 0.02, -0.1, -0.02), {2007: -0.06}, 1, "dropped after round 1"),
        Row("jjnorm", float("nan"), None, {}, 0, "failed: the loss is NaN"),
    ]
    why = "Chosen: pmp+center+labels, +6.4 points (between +2.1 and +10.7) over plain in 3 back-tested periods."
    return Backtest(rows, "pmp+center+labels", why, list(folds), 131.0, False).as_dict()


@pytest.fixture(scope="module")
def whole():
    """A summary with every part that `job.run` writes."""
    backtest = outcome()
    return {
        "graph": {
            "num_nodes": {"node": 800}, "num_edges": {"node-to-node": 4000}, "num_features": 5, "target": "node",
            "times": TIMES, "nodes_per_time": [100] * 8, "labelled_per_time": [90] * 7 + [0],
            "label_counts": [200, 190, 185, 5], "cutoff": CUTOFF, "cross_time_share": {"node-to-node": 0.68},
        },
        "cutoff": CUTOFF,
        "options": {"model": "auto", "candidates": None, "folds": 3, "seeds": 2, "hops": 2, "undirected": True,
                    "seed": 7, "cutoff": CUTOFF, "budget": 600.0},
        "diagnosis": diagnosis(),
        "advice": {"candidates": [{"method": "labels", "score": 1.5, "reason": "why not"},
                                  {"method": "center+labels+pmp", "score": 1.2, "reason": "a good reason"}],
                   "explanation": "labels comes first."},
        "backtest": backtest,
        "choice": backtest["choice"],
        "why": backtest["why"],
        "fit": {"epochs": 40, "valid_score": None, "method": backtest["choice"]},
        "predictions": {"file": "predictions.csv", "count": 100,
                        "labels": dict(zip(NAMES, [60, 30, 10, 0], strict=True)), "mean_probability": 0.9,
                        "probability_histogram": [0, 0, 1, 4, 10, 15, 15, 15, 15, 25]},
        "cost": {"seconds": 163.2, "peak_memory_bytes": 812_000_000},
        "versions": {"impact_gnn": "0.1.0", "torch": "2.6.0"},
    }  # fmt: skip


@pytest.fixture(scope="module")
def text(whole):
    return render(whole)


@pytest.fixture(scope="module")
def page(text):
    return Page(text)


@pytest.fixture
def without_plots(monkeypatch):
    """Empty drawings, for tests that are about everything else: drawing takes most of the time."""
    drawing = [name for name, value in vars(plots).items() if hasattr(value, "__wrapped__")]
    assert len(drawing) > 9
    for name in drawing:
        monkeypatch.setattr(plots, name, lambda *args: Markup("<svg></svg>"))


def test_a_summary_read_back_from_json_gives_the_same_bytes(whole, text, tmp_path):
    write_report(json.loads(json.dumps(whole)), tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == text
    assert text.startswith("<!doctype html>")
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]


def test_sections_come_in_their_order(page):
    assert [a["id"] for a in page.all("section")] == [
        "comparison", "choice", "found", "map", "predictions", "wrong", "again",
    ]  # fmt: skip
    assert {a["href"] for a in page.all("a")} == {f"#{a['id']}" for a in page.all("section")}


def test_the_three_lines_that_matter_come_first(page):
    start = page.words[: page.words.index("The paired comparison")]
    assert "Chosen pmp+center+labels, +6.4 points (between +2.1 and +10.7) over plain" in start
    assert "100 nodes at or after 2008, in predictions.csv; most often physics (60%)" in start
    assert "68.1% were right in the back-test on 2005, 2006 and 2007 (plain: 61.0%)" in start


def test_every_candidate_is_in_the_table_with_its_interval(page):
    assert "pmp+center+labels 68.1% +6.4 +3.4 to +9.4 2 of 3 6 chosen, tried in full" in page.words
    assert "plain 61.0% baseline" in page.words
    assert "mmp 55.0% −6.0 −10.0 to −2.0 0 of 1 1 dropped after round 1" in page.words
    assert "jjnorm – – – – 0 failed: the loss is NaN" in page.words


def test_the_choice_is_explained(page):
    assert "labels : known labels of neighbours are passed along" in page.words
    assert "It was better in 2 of 3 periods (2005: +5.0, 2006: +7.0 and 2007: −1.0)" in page.words
    assert "labels did about as well" in page.words
    assert "at place 2 of 2: a good reason" in page.words


def test_every_assumption_has_a_verdict_a_statistic_and_a_plot(whole, page):
    badges = [a["class"] for a in page.all("span") if "badge" in a.get("class", "")]
    assert badges == ["badge holds", "badge doubtful", "badge fails", "badge cannot-tell"]
    for one in whole["diagnosis"]["findings"]:
        assert one["sentence"] in page.words
    assert "Measure of label mix: 0.020 (95% interval 0.000 to 0.050)" in page.words
    assert "Measure of common decay: not measured" in page.words
    drawn = [a["aria-label"] for a in page.all("svg") if "aria-label" in a]
    assert drawn.count("Shift of messages by period, before and after a correction") == len(METHODS) - 1
    for title in (
        "Share of every label by period", "Drift of the features by period", "Connections by distance in time",
        "Where the neighbours of a label are in time", "Map of the features", "How sure the predictions are",
        "Difference to plain with its interval, a row per candidate",
    ):  # fmt: skip
        assert title in drawn


def test_the_bound_is_stated_beside_the_measured_shift(page):
    assert "center: 0.400 → 0.080 (−80%)" in page.words
    assert "Theorem 4.3 allows 6.25" in page.words
    assert "Inside a class, periods are 0.40 apart" in page.words


def test_what_users_wrote_is_text_and_never_markup(whole):
    summary = copy.deepcopy(whole)
    summary["why"] = summary["diagnosis"]["notes"][0] = summary["advice"]["explanation"] = EVIL
    summary["backtest"]["rows"][0]["status"] = summary["predictions"]["file"] = summary["command"] = EVIL
    summary["graph"]["num_edges"] = {EVIL: 3, "b": 4}
    summary["diagnosis"]["findings"][0]["name"] = EVIL
    groups = summary["diagnosis"]["findings"][2]["series"]["g"]
    groups[EVIL] = groups["same label"]
    for row in summary["backtest"]["rows"]:
        row["method"] = f"{EVIL}{row['method']}"
    text = render(summary)
    assert EVIL not in text
    assert Page(text).all("script") == []
    assert Page(text).words.count(EVIL) > 10


def test_nothing_is_loaded_from_elsewhere(text):
    assert "//" not in re.sub(r"/\*.*?\*/", "", text)  # no address at all, not even of a name space
    assert "@import" not in text
    assert all(found == "#" for found in re.findall(r"url\(['\"]?(.)", text))
    for tag, attributes in Page(text).tags:
        assert tag not in ("script", "iframe", "img", "object", "embed")
        for name in ("src", "href", "xlink:href", "srcset", "action"):
            assert attributes.get(name, "#").startswith(("#", "data:,"))
    assert "default-src 'none'" in text  # and the browser is told so


def test_names_inside_the_page_are_unique_and_all_exist(page):
    ids = [a["id"] for _, a in page.tags if "id" in a]
    assert len(ids) == len(set(ids))
    used = {a["xlink:href"] for a in page.all("use")} | {a["clip-path"][4:-1] for _, a in page.tags if "clip-path" in a}
    assert {name.removeprefix("#") for name in used} <= set(ids)


def test_figures_take_their_colours_and_fonts_from_the_page(page):
    styles = " ".join(a.get("style") or "" for _, a in page.tags)
    assert "font-family" not in styles
    assert "#000000" not in styles
    assert "#ffffff" not in styles
    assert "currentColor" in styles
    assert "var(--c0)" in styles


def test_small_ticks_keep_their_digits():
    @inline("ticks")
    def draw(ax):
        ax.plot([0, 0.00425], [0, 1], color=PALETTE[2])
        ax.set_xticks([0.0025, 0.00425], ["0.0025", "$4.25$ <b>"])

    assert ">0.0025<" in draw()
    assert ">$4.25$ &lt;b&gt;<" in draw()
    assert "stroke: var(--c2)" in draw()


def test_an_empty_summary_gives_a_page():
    words = Page(render({})).words
    assert "Nothing was back-tested" in words
    assert "there was no diagnosis" in words
    assert "No predictions were made" in words


PATHS = [
    (), ("graph",), ("options",), ("diagnosis",), ("diagnosis", "shift"), ("diagnosis", "feature_map"), ("advice",),
    ("diagnosis", "findings"), ("diagnosis", "notes"), ("backtest",), ("backtest", "rows"), ("backtest", "folds"),
    ("fit",), ("predictions",), ("predictions", "labels"), ("predictions", "probability_histogram"), ("cost",),
    ("versions",), ("choice",), ("why",), ("cutoff",), ("diagnosis", "shift", "noise"), ("graph", "times"),
    ("diagnosis", "shift", "methods"), ("diagnosis", "shift", "methods", "plain"),
    ("diagnosis", "feature_map", "means"),
    *(("diagnosis", "findings", k, "series") for k in range(4)), *(("backtest", "rows", k) for k in range(3)),
]  # fmt: skip


@pytest.mark.usefixtures("without_plots")
@pytest.mark.parametrize("empty", [None, "gone"])
@pytest.mark.parametrize("path", PATHS, ids=lambda path: ".".join(map(str, path)))
def test_any_part_may_be_missing(whole, path, empty):
    summary = copy.deepcopy(whole)
    inside = summary
    for name in path[:-1]:
        inside = inside[name]
    if path and isinstance(inside, list):
        del inside[path[-1]]
    elif path and empty is None:
        inside[path[-1]] = None
    elif path:
        del inside[path[-1]]
    assert Page(render(summary)).all("section")


def spoilt(value, bad):
    """The same with every number that is not a count of something replaced."""
    if isinstance(value, dict):
        return {name: spoilt(part, bad) for name, part in value.items()}
    if isinstance(value, list):
        return [spoilt(part, bad) for part in value]
    return bad if isinstance(value, float) else value


@pytest.mark.parametrize("bad", [None, float("inf")])
def test_numbers_that_are_none_are_shown_as_a_dash(whole, bad, request):
    if bad is not None:
        request.getfixturevalue("without_plots")  # they get NaN in both cases
    words = Page(render(spoilt(whole, bad))).words
    assert "plain –" in words
    assert not re.search(r"\b(nan|inf|None)\b", words)


@pytest.mark.usefixtures("without_plots")
def test_one_class_and_many_classes(whole):
    summary = copy.deepcopy(whole)
    series = summary["diagnosis"]["findings"][0]["series"]
    series.update(times=[2001], mix=[[1.0]], to_past=[], noise=[])
    summary["graph"].update(times=[2001, 2008], nodes_per_time=[5, 5], labelled_per_time=[5, 0], label_counts=[5])
    summary["predictions"]["labels"] = {"0": 5}
    assert "label 0" in Page(render(summary)).words
    many = [f"topic {k}" for k in range(40)]
    summary["graph"]["label_counts"] = list(range(40, 0, -1))
    summary["predictions"]["labels"] = dict.fromkeys(many, 3)
    series.update(times=TIMES, mix=[[1 / 40] * 40] * 8)
    words = Page(render(summary)).words
    assert "34 other labels" in words
    assert "28 more labels" in words


@pytest.mark.usefixtures("without_plots")
def test_a_back_test_that_could_not_be_made(whole):
    why = "Chosen: plain. The past is too short for a back-test: no labelled period has 20 labelled nodes."
    none = {"rows": [], "choice": "plain", "why": why, "folds": [], "seconds": 0.0, "finished": False}
    words = Page(render({**whole, "backtest": none, "choice": "plain", "why": why})).words
    assert "The past is too short for a back-test" in words
    assert "no candidate could be back-tested" in words
    assert "Nothing could be back-tested, so neither the accuracy" in words
    assert "Time ran out" not in words


@pytest.mark.usefixtures("without_plots")
def test_time_that_ran_out_before_any_correction_was_tried_in_full(whole):
    summary = copy.deepcopy(whole)
    summary["choice"], summary["why"] = "plain", "Chosen: plain. Time ran out."
    for row in summary["backtest"]["rows"][:3]:
        del row["by_fold"]["2005"]
    words = Page(render(summary)).words
    assert "labels 66.0% +5.0 +2.0 to +8.0 1 of 2 6 tried on 2 of 3 periods" in words
    assert "None was, so plain stays" in words
    assert "tried in full" not in words


def test_worries_are_drawn_from_the_evidence(whole):
    found = " ".join(worries(whole))
    for sentence in (
        "Time ran out before the back-test was complete",
        "jjnorm could not be fitted",
        "better than plain in 2 of 3 periods",
        "Features of a class drift",
        "pmp supposes that connections depend on the distance in time only, which fails here",
        "Could not be judged on this graph: common decay",
        "Features of the nodes to predict lie further from the labelled ones (0.40 class distances)",
        "30% of the nodes to predict have no neighbour",
        "The mix of the predicted labels differs by",
        "15% of the predictions have a probability below one half",
        "The probabilities average 90.0%, but 68.1% were right",
        'fewer than 20 known nodes are hard to learn: "quoted" $x_1$',
        'Never predicted for any of the 100 nodes: "quoted" $x_1$',
    ):
        assert sentence in found
    assert "label mix" not in found  # it holds
    assert "periods to predict, from" not in found  # there is one


def test_worries_about_labels_and_the_horizon(whole):
    summary = copy.deepcopy(whole)
    summary["diagnosis"]["findings"][0]["verdict"] = "fails"
    summary["cutoff"] = 2007
    summary["graph"]["labelled_per_time"] = [90] * 4 + [9, 0, 0, 0]
    summary["backtest"]["folds"] = [2005]
    found = " ".join(worries(summary))
    assert "The label mix changes from period to period; the mix of the predictions may lag behind." in found
    assert "center supposes that it does not" in found
    assert "There are 2 periods to predict, from 2007 to 2008" in found
    assert "The last 1 period before the cutoff has no labels" in found
    assert "fewer than 20 known labels: 2005" in found
    assert "The choice rests on 1 back-tested period only" in found


def test_a_sound_run_has_no_worry_but_the_last():
    folds = {"2005": 0.05, "2006": 0.07, "2007": 0.06}
    row = {"method": "pmp", "accuracy": 0.8, "difference": {"value": 0.06}, "by_fold": folds, "fits": 6, "status": ""}
    summary = {
        "choice": "pmp", "cutoff": 2008,
        "backtest": {"rows": [row], "finished": True, "folds": [2005, 2006, 2007]},
        "graph": {"times": TIMES, "labelled_per_time": [90] * 7 + [0], "label_counts": [300, 330]},
        "diagnosis": {"findings": [finding(k, "name") for k in range(1, 5)], "shift": {"silent": [0.0, 0.0]}},
        "predictions": {"count": 2, "labels": {"a": 1, "b": 1}, "mean_probability": 0.8,
                        "probability_histogram": [0, 2]},
    }  # fmt: skip
    assert len(worries(summary)) == 1


def test_the_command_has_all_options(whole, page):
    asked = "--cutoff 2008 --model auto --folds 3 --seeds 2 --budget 600s --seed 7"
    assert command(whole) == f"impact run GRAPH --out DIR {asked}"
    assert command({"options": {"candidates": ["a b", "c"]}}).endswith("--candidates 'a b,c'")
    assert asked in page.words
    assert "time 2 min 43 s largest memory 812 MB" in page.words


def test_connections_are_averaged_over_pairs_of_equal_distance():
    steps = np.array([1.0, 2.0, 4.0])
    table = np.array([[4.0, 1.0, 0.0], [2.0, 2.0, 6.0], [1.0, 0.0, 0.0]])
    offsets, (scaled,) = by_offset(steps, table)
    assert offsets.tolist() == [-3, -2, -1, 0, 1, 2, 3]
    assert scaled.tolist() == (np.array([1, 0, 2, 2, 1, 6, 0]) / 6).tolist()


def test_it_understands_what_diagnose_and_advise_return(whole):
    from dataclasses import asdict

    from impact_gnn.data.tsbm import tsbm
    from impact_gnn.diagnostics import advise, diagnose

    view = tsbm(num_nodes=300, num_times=6, num_labels=3, feature_std=1, seed=0).masked(5)
    found = diagnose(view)
    summary = {
        **whole, "graph": asdict(view.summary()), "cutoff": 5, "diagnosis": found.as_dict(),
        "advice": advise(found, view).as_dict(),
    }  # fmt: skip
    page = Page(render(summary))
    for one in found.findings:
        assert one.sentence in page.words
    drawn = {a["aria-label"] for a in page.all("svg") if "aria-label" in a}
    assert len(drawn) == 11  # every kind of plot


CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FRAMES = [(width, scheme) for width in (400, 1400) for scheme in ("light", "dark")]
MEASURE = """
const found = [...document.querySelectorAll("iframe")].map(frame => {
  const page = frame.contentDocument, root = page.documentElement;
  const ink = [...page.querySelectorAll("figure svg text")].filter(text => !text.closest("details"));
  const style = element => frame.contentWindow.getComputedStyle(element);
  const right = element => element.closest(".scroll, svg") ? 0 : element.getBoundingClientRect().right;
  return {
    width: root.clientWidth, wide: root.scrollWidth, paper: style(page.body).backgroundColor, ink: style(ink[0]).fill,
    least: Math.min(...ink.map(text => {
      const turned = text.getScreenCTM();
      return Math.hypot(turned.a, turned.b) * parseFloat(style(text).fontSize);
    })),
    beyond: [...page.querySelectorAll("main *")].filter(element => right(element) > root.clientWidth + 1)
      .map(element => element.outerHTML.slice(0, 200)),
  };
});
document.getElementById("found").textContent = JSON.stringify(found);
"""


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed, so the report was not opened in a browser")
def test_a_browser_shows_it_without_errors_narrow_and_wide_light_and_dark(text, tmp_path):
    frames = "".join(
        f'<iframe srcdoc="{html.escape(text)}" style="width: {width}px; height: 900px; border: 0; '
        f'color-scheme: {scheme}"></iframe>' for width, scheme in FRAMES
    )  # fmt: skip
    outside = f'<body>{frames}<pre id="found"></pre><script>window.onload = () => {{ {MEASURE} }}</script></body>'
    (tmp_path / "frames.html").write_text(f"<!doctype html><meta charset=utf-8>{outside}", encoding="utf-8")
    options = [
        "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
        "--disable-background-networking", "--disable-component-update", f"--user-data-dir={tmp_path / 'profile'}",
        "--enable-logging=stderr", "--window-size=1500,900", "--dump-dom",
    ]  # fmt: skip
    called = [CHROMIUM, *options, (tmp_path / "frames.html").as_uri()]
    done = subprocess.run(called, capture_output=True, text=True, timeout=300, check=True)
    assert [line for line in done.stderr.splitlines() if "CONSOLE" in line] == []  # refused loads would be here too
    measured = json.loads(html.unescape(re.search(r'<pre id="found">(.+?)</pre>', done.stdout)[1]))
    assert len(measured) == len(FRAMES)
    for found, (width, scheme) in zip(measured, FRAMES, strict=True):
        assert width - 20 <= found["width"] <= width  # a scroll bar may take some
        assert found["wide"] <= found["width"]
        assert found["beyond"] == []
        assert found["least"] >= 9
        paper, ink = (sum(map(int, re.findall(r"\d+", found[name])[:3])) / 3 for name in ("paper", "ink"))
        assert (paper < 60 and ink > 180) if scheme == "dark" else (paper > 240 and ink < 80)
