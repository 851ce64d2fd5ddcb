"""The report: one file that loads nothing, says what the run found out, and can be drawn from the summary on disk."""

import html
import json
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from markupsafe import Markup

from impact_gnn.backtesting import Backtest, Decision, Reason, Status, Trial
from impact_gnn.backtesting.candidates import Advice, Candidate
from impact_gnn.checks import InputError
from impact_gnn.diagnostics.finding import CANNOT_TELL, DOUBTFUL, FAILS, HOLDS
from impact_gnn.pipeline import Method
from impact_gnn.report import read_summary, svg, write_report, write_summary
from impact_gnn.report.figures import by_offset
from impact_gnn.report.numbers import duration, listed, points
from impact_gnn.report.page import render
from impact_gnn.report.svg import PALETTE
from impact_gnn.report.words import command
from impact_gnn.report.worries import worries
from impact_gnn.statistics import Estimate
from places import quick_directory

EVIL = "<script>alert(1)</script>"
PLAIN, LABELS, BEST = Method(), Method.parse("labels"), Method.parse("pmp+center+labels")


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


def changed(value, **changes):
    """`value` with fields deep inside replaced: `a__b=1` is the field b of the field a."""
    for path, new in changes.items():
        first, _, rest = path.partition("__")
        value = replace(value, **{first: changed(getattr(value, first), **{rest: new}) if rest else new})
    return value


def outcome():
    folds = {2005: 0.05, 2006: 0.07, 2007: -0.01}
    rows = [
        Trial(BEST, 0.681, Estimate(0.064, 0.015, 0.034, 0.094), folds, 6, Status.FULL),
        Trial(LABELS, 0.66, Estimate(0.05, 0.015, 0.02, 0.08), folds, 6, Status.FULL),
        Trial(PLAIN, 0.61, None, dict.fromkeys(folds, 0.0), 6, Status.FULL),
        Trial(Method.parse("mmp"), 0.55, Estimate(-0.06, 0.02, -0.1, -0.02), {2007: -0.06}, 1, Status.DROPPED, 1),
        Trial(Method.parse("jjnorm"), None, None, {}, 0, Status.FAILED, None, f"the loss is NaN {EVIL}"),
    ]
    decision = Decision(BEST, Reason.BETTER, None, Estimate(0.064, 0.02, 0.021, 0.107), 3)
    return Backtest(rows, decision, list(folds), 131.0, False)


@pytest.fixture(scope="module")
def real(finished_run):
    return finished_run[1]


@pytest.fixture(scope="module")
def whole(real):
    """A real summary whose back-test and predictions are such that every kind of sentence is due."""
    advice = Advice((Candidate(LABELS, 1.5, "why not"), Candidate(BEST, 1.2, "a good reason")), "labels comes first.")
    drift, shift = real.diagnosis.feature_drift, real.diagnosis.shift
    changes = {
        "advice": advice,
        "backtest": outcome(),
        "predictions__labels": dict(zip(real.predictions.labels, [60, 30, 10, 0], strict=True)),
        "predictions__count": 100,
        "predictions__mean_probability": 0.9,
        "predictions__histogram": [0, 0, 1, 4, 10, 15, 15, 15, 15, 25],
        "graph__label_counts": [200, 190, 185, 5],
        "diagnosis__label_mix__verdict": HOLDS,
        "diagnosis__label_mix__sentence": "What was seen of the mix.",
        "diagnosis__label_mix__interval": (0.0, 0.05),
        "diagnosis__label_mix__statistic": 0.02,
        "diagnosis__feature_drift__verdict": DOUBTFUL,
        "diagnosis__feature_drift__all_drift": [0.1] * (len(drift.all_drift) - 1) + [0.4],
        "diagnosis__separability__verdict": FAILS,
        "diagnosis__decay__verdict": CANNOT_TELL,
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
    monkeypatch.setattr(svg, "drawn", lambda ax, title: Markup("<svg></svg>"))


def test_the_summary_of_a_run_is_read_back_and_draws_the_same_bytes(finished_run):
    out, summary = finished_run
    reloaded = read_summary(out / "summary.json")
    assert reloaded == summary
    assert render(reloaded) == (out / "report.html").read_text(encoding="utf-8")


def test_a_changed_summary_is_read_back_too(whole, text, tmp_path):
    write_summary(whole, tmp_path / "summary.json")
    assert read_summary(tmp_path / "summary.json") == whole
    write_report(read_summary(tmp_path / "summary.json"), tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == text
    assert text.startswith("<!doctype html>")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["report.html", "summary.json"]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"schema": 0}, "summary.json has schema 0, this release reads 1; use the release that wrote it."),
        ({"fit": {}}, "summary.json.fit is {} but should be an object with"),
        ({"command": 3}, "summary.json.command is 3 but should be of type str"),
    ],
)
def test_another_form_is_refused_by_a_sentence(whole, tmp_path, change, sentence):
    write_summary(whole, tmp_path / "summary.json")
    content = json.loads((tmp_path / "summary.json").read_text(encoding="utf-8"))
    assert content["schema"] == 1
    (tmp_path / "summary.json").write_text(json.dumps(content | change), encoding="utf-8")
    with pytest.raises(InputError, match=re.escape(sentence)):
        read_summary(tmp_path / "summary.json")


def test_what_is_not_a_number_is_not_written(whole, tmp_path):
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_summary(changed(whole, cost__seconds=float("nan")), tmp_path / "summary.json")
    assert not list(tmp_path.iterdir())


def test_sections_come_in_their_order(page):
    assert [a["id"] for a in page.all("section")] == [
        "comparison", "choice", "evidence", "map", "predictions", "wrong", "repeat",
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


def test_every_assumption_has_a_verdict_a_statistic_and_every_kind_of_plot_is_there(whole, page):
    badges = [a["class"] for a in page.all("span") if "badge" in a.get("class", "")]
    assert badges == ["badge holds", "badge doubtful", "badge fails", "badge cannot-tell"]
    for finding in whole.diagnosis.findings:
        assert finding.sentence in page.words
    assert (
        "Share of labels that changes from the past to a new period: 0.020 (95% interval 0.000 to 0.050)" in page.words
    )
    assert "one decay for all labels explains: not measured" in page.words
    drawn = [a["aria-label"] for a in page.all("svg") if "aria-label" in a]
    assert drawn.count("Shift of messages by period, before and after a correction") == 6
    assert len(set(drawn)) == 11


def test_the_bound_is_stated_beside_the_measured_shift(whole, page):
    plain, center = (whole.diagnosis.shift.methods[name] for name in ("plain", "center"))
    assert f"center: {plain.overall:.3f} → {center.overall:.3f} (−" in page.words
    assert f"Theorem 4.3 allows {plain.classes.theorem_4_3:.2f}" in page.words
    assert f"Inside a class, periods are {plain.classes.measured:.2f} apart" in page.words


def test_what_users_wrote_is_text_and_never_markup(whole):
    summary = changed(
        whole, command=EVIL, graph__num_edges={EVIL: 3, "b": 4}, diagnosis__notes=(EVIL,), predictions__file=EVIL,
        advice__explanation=EVIL, diagnosis__decay__sentence=EVIL, versions={EVIL: EVIL},
    )  # fmt: skip
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


def test_numbers_are_written_as_people_read_them():
    assert [points(value) for value in (0.0123, -0.0123, 0, None)] == ["+1.2", "−1.2", "0.0", "–"]
    lasting = [duration(seconds) for seconds in (4.2, 130, 7500, 59.97, 3590)]
    assert lasting == ["4.2 s", "2 min 10 s", "2 h 5 min", "60.0 s", "59 min 50 s"]
    phrases = listed(["a", "b", "c"]), listed(["a", "b", "c", "d"], 2), listed(["a"])
    assert phrases == ("a, b and c", "a, b and 2 more", "a")


def test_small_ticks_keep_their_digits():
    with svg.axes(360, 220) as ax:
        ax.plot([0, 0.00425], [0, 1], color=PALETTE[2])
        ax.set_xticks([0.0025, 0.00425], ["0.0025", "$4.25$ <b>"])
        text = svg.drawn(ax, "ticks")
    assert ">0.0025<" in text
    assert ">$4.25$ &lt;b&gt;<" in text
    assert "stroke: var(--c2)" in text


@pytest.mark.usefixtures("without_plots")
def test_one_class_and_many_classes(whole):
    one = changed(
        whole, graph__label_counts=[5], predictions__labels={"0": 100}, diagnosis__label_mix__mix=[[1.0]],
        diagnosis__label_mix__times=[2001], diagnosis__label_mix__to_past=[], diagnosis__label_mix__noise=[],
        diagnosis__separability__curves=[],
    )  # fmt: skip
    assert "label 0" in Page(render(one)).words
    many = changed(
        one, graph__label_counts=list(range(40, 0, -1)), diagnosis__label_mix__mix=[[1 / 40] * 40],
        predictions__labels={f"topic {k}": 3 for k in range(40)}, predictions__count=120,
    )  # fmt: skip
    words = Page(render(many)).words
    assert "34 other labels" in words
    assert "28 more labels" in words


@pytest.mark.usefixtures("without_plots")
def test_a_back_test_that_could_not_be_made(whole):
    none = Backtest([], Decision(PLAIN, Reason.TOO_SHORT), [], 0.0, False)
    words = Page(render(replace(whole, backtest=none))).words
    assert "The past is too short for a back-test" in words
    assert "no candidate could be back-tested" in words
    assert "Nothing could be back-tested, so neither the accuracy" in words
    assert "Time ran out" not in words


@pytest.mark.usefixtures("without_plots")
def test_time_that_ran_out_before_any_correction_was_tried_in_full(whole):
    rows = [
        replace(row, by_fold={2006: 0.07, 2007: -0.01}, status=Status.PART) if row.status is Status.FULL else row
        for row in whole.backtest.rows
    ]
    decision = Decision(PLAIN, Reason.OUT_OF_TIME)
    words = Page(render(changed(whole, backtest__rows=rows, backtest__decision=decision))).words
    assert "labels 66.0% +5.0 +2.0 to +8.0 1 of 2 6 stopped: out of time" in words
    assert "None was, so plain stays" in words
    assert "tried in full" not in words


@pytest.mark.usefixtures("without_plots")
@pytest.mark.parametrize("bare", ["edges", "one period"])
def test_graphs_that_show_little_give_a_page(bare):
    """Reports of real runs on graphs without edges, and with one labelled period."""
    import impact_gnn as ig

    g = ig.tsbm(num_nodes=160, num_times=2 if bare == "one period" else 4, num_labels=2, mean_degree=8, seed=0)
    edges = np.zeros((2, 0), int) if bare == "edges" else g.edge_index
    thin = ig.TemporalGraph(x=g.x, y=g.y, time=g.time, edge_index=edges)
    with quick_directory() as out:
        summary = ig.run(thin, out, candidates=["plain"], folds=1, seeds=1, budget=60)
        assert read_summary(out / "summary.json") == summary
        words = Page((out / "report.html").read_text(encoding="utf-8")).words
    expected = {
        "edges": "Not measured: it takes features and edges.",
        "one period": "The past is too short for a back-test",
    }
    assert expected[bare] in words
    assert not re.search(r"\b(nan|inf|None)\b", words.replace("None was", ""))


@pytest.mark.usefixtures("without_plots")
def test_a_graph_without_features_has_no_map_and_no_shift(whole):
    words = Page(render(changed(whole, diagnosis__feature_map=None, diagnosis__shift=None))).words
    assert "There is no map: the graph has no features." in words
    assert "Not measured: it takes features and edges." in words


def test_worries_are_drawn_from_the_evidence(whole):
    text = " ".join(worries(whole))
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
        assert sentence in text
    assert "label mix" not in text  # it holds
    assert "periods to predict, from" not in text  # there is one


def test_worries_about_labels_and_the_horizon(whole):
    labelled = [90] * 4 + [9, 0, 0, 0]
    summary = changed(
        whole, diagnosis__label_mix__verdict=FAILS, options__cutoff=2007, graph__labelled_per_time=labelled,
        backtest__folds=[2005],
    )  # fmt: skip
    text = " ".join(worries(summary))
    assert "The label mix changes from period to period; the mix of the predictions may lag behind." in text
    assert "center supposes that it does not" in text
    assert "There are 2 periods to predict, from 2007 to 2008" in text
    assert "The last 1 period before the cutoff has no labels" in text
    assert "fewer than 20 known labels: 2005" in text
    assert "The choice rests on 1 back-tested period only" in text


def test_a_sound_run_has_no_worry_but_the_last(whole):
    counts = dict(zip(whole.predictions.labels, [25] * 4, strict=True))
    row = replace(whole.backtest.rows[0], accuracy=0.85, by_fold={2005: 0.05, 2006: 0.07, 2007: 0.06})
    summary = changed(
        whole, backtest__rows=[row], backtest__finished=True, graph__label_counts=[150] * 4,
        predictions__labels=counts, predictions__histogram=[0] * 9 + [100], diagnosis__shift__silent=[0.0],
        diagnosis__label_mix__mix=[[0.25] * 4], diagnosis__feature_drift__verdict=HOLDS,
        diagnosis__feature_drift__all_drift=[0.1] * 8, diagnosis__separability__verdict=HOLDS,
        diagnosis__decay__verdict=HOLDS,
    )  # fmt: skip
    assert len(worries(summary)) == 1


def test_the_command_has_all_options(whole, page):
    asked = "--cutoff 2008 --model sign --candidates labels,pmp+center+labels,mmp --folds 3 --seeds 1 --budget 600s"
    assert command(whole) == f"impact run GRAPH --out DIR {asked} --hops 2 --seed 7"
    assert command(changed(whole, options__undirected=False, options__budget=None)).endswith("--directed")
    assert command(replace(whole, command="impact run 'a b'")) == "impact run 'a b'"
    assert asked in page.words
    assert "time 2 min 43 s largest memory 812.0 MB" in page.words


def test_connections_are_averaged_over_pairs_of_equal_distance():
    steps = np.array([1.0, 2.0, 4.0])
    table = np.array([[4.0, 1.0, 0.0], [2.0, 2.0, 6.0], [1.0, 0.0, 0.0]])
    offsets, (scaled,) = by_offset(steps, table)
    assert offsets.tolist() == [-3, -2, -1, 0, 1, 2, 3]
    assert scaled.tolist() == (np.array([1, 0, 2, 2, 1, 6, 0]) / 6).tolist()


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
