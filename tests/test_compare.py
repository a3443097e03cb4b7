"""The element-wise rule, and how it reports."""

import json

import numpy as np
import pytest

from leapp._spec import NodeSpec, Port, TensorSpec
from leapp.compare import Tally, compare
from leapp.replay import FormatReport, NodeReport, PortTally, replay
from leapp.report.checks import CheckRow, check_rows, checks_json, rows_of_checks


def f(*values):
    return np.array(values, dtype=np.float32)


INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize(
    ("actual", "expected", "ok", "largest"),
    [
        (f(1, 2), f(1, 2), True, 0.0),
        (f(1, 2.0005), f(1, 2), True, pytest.approx(0.0005, rel=1e-2)),
        (f(1, 2.1), f(1, 2), False, pytest.approx(0.1, rel=1e-4)),
        (f(NAN, 1), f(NAN, 1), True, 0.0),
        (f(NAN, 1), f(0, 1), False, INF),
        (f(0, 1), f(NAN, 1), False, INF),
        (f(INF), f(INF), True, 0.0),
        (f(-INF), f(INF), False, INF),
        (f(1e30), f(INF), False, INF),
        (f(INF), f(1e30), False, INF),
        (np.array([1, 2]), np.array([1, 2]), True, 0.0),
        (np.array([1000000, 2]), np.array([1000001, 2]), False, 1.0),
        (np.array([2**62 + 1]), np.array([2**62]), False, 1.0),
        (np.array([True]), np.array([False]), False, 1.0),
        (np.array([1 + 1j]), np.array([1 + 1j]), True, 0.0),
        (f(), f(), True, 0.0),
    ],
)
def test_element_wise(actual, expected, ok, largest):
    found = compare(actual, expected, rtol=1e-3, atol=1e-5)
    assert found.ok is ok
    assert found.largest == largest


def test_form_differs():
    found = compare(f(1, 2), np.array([1.0, 2.0]), rtol=1, atol=1)
    assert (found.ok, found.note, found.expected, found.actual) == (False, "dtype differs", "float64", "float32")
    found = compare(f(1, 2), f(1), rtol=1, atol=1)
    assert (found.ok, found.note) == (False, "shape differs")


def test_the_worst_offender_is_reported():
    expected = np.zeros((2, 3), dtype=np.float32)
    actual = expected.copy()
    actual[1, 2] = 0.5
    actual[0, 1] = 0.1
    found = compare(actual, expected, rtol=0, atol=1e-3)
    assert (found.where, found.actual, found.expected) == ((1, 2), "0.5", "0.0")


def test_replay_keeps_the_worst_sample_per_port():
    spec = NodeSpec("n", (Port("x", TensorSpec("float32", (1,))),), (Port("y", TensorSpec("float32", (1,))),))
    samples = [({"x": f(i)}, {"y": f(2 * i)}) for i in range(4)]
    (good,) = replay(lambda inputs: {"y": inputs["x"] * 2}, spec, samples)
    assert good.ok
    assert good.samples == 4
    (bad,) = replay(lambda inputs: {"y": inputs["x"] * f(2.5)}, spec, samples)
    assert not bad.ok
    assert bad.sample == 3
    assert bad.failed == (1, 2, 3)
    assert bad.label == "entry 4"
    report = NodeReport("n", (FormatReport("onnx", (bad,)),))
    assert not report
    found, advice = report.lines()
    assert found == (
        "n (onnx): output 'y': element [0] of entry 4: recorded 6.0, the model gives 7.5: apart by 1.5, "
        "allowed 0.00601 (atol 1e-05 + rtol 0.001 x |recorded|); 3 of 4 elements out of tolerance, "
        "largest difference 1.5, mean 0.75, 50% 0.5, 95% 1.5, 99% 1.5"
    )
    assert "a value of the first entry was frozen" in advice


# --- statistics ----------------------------------------------------------------------------------------------------


def tallied(pairs, **limits):
    tally = Tally()
    found = [compare(a, e, **{"rtol": 0.0, "atol": 1e-3, **limits}, tally=tally) for a, e in pairs]
    return tally.statistics(), found


def test_statistics_over_several_arrays_are_those_of_all_elements():
    rng = np.random.default_rng(5)
    pairs = [(e + rng.normal(size=e.shape) * (rng.random(e.shape) < 0.3), e) for e in rng.normal(size=(6, 30, 7))]
    stats, _ = tallied(pairs)
    apart = np.abs(np.concatenate([(a - e).ravel() for a, e in pairs]))
    assert (stats.elements, stats.beyond) == (apart.size, np.count_nonzero(apart > 1e-3))
    assert stats.largest == apart.max()
    assert stats.mean == pytest.approx(apart.mean())
    wanted = np.percentile(apart, (50, 95, 99), method="inverted_cdf")
    assert (stats.p50, stats.p95, stats.p99) == tuple(wanted)


@pytest.mark.parametrize("pieces", [1, 3])
def test_percentiles_of_very_many_differences_are_within_a_hundredth(pieces):
    rng = np.random.default_rng(6)
    expected = np.zeros((pieces, 120_000))
    actual = 10.0 ** rng.uniform(-12, 3, expected.shape) * (rng.random(expected.shape) < 0.9)
    stats, _ = tallied(zip(actual, expected, strict=True))
    wanted = np.percentile(np.abs(actual), (50, 95, 99), method="inverted_cdf")
    np.testing.assert_allclose((stats.p50, stats.p95, stats.p99), wanted, rtol=0.01)
    assert stats.largest == actual.max()
    assert stats.beyond == np.count_nonzero(actual > 1e-3)


def test_a_large_array_is_compared_in_pieces():
    import tracemalloc

    expected = np.zeros((4, 1 << 20), dtype=np.float32)
    actual = expected.copy()
    actual[3, 12345] = 2.0
    actual[1, 7] = 1.0
    tracemalloc.start()
    try:
        stats, (found,) = tallied([(actual, expected)])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (found.where, found.apart, stats.beyond, stats.p99) == ((3, 12345), 2.0, 2, 0.0)
    assert peak < expected.nbytes / 2


def test_what_is_not_finite_is_counted_by_side_and_left_out_of_the_mean():
    stats, (found,) = tallied([(f(NAN, NAN, INF, 1, 2, -INF), f(NAN, 0, 3, 1, 2.5, -INF))])
    assert (stats.nan_recorded, stats.nan_model, stats.inf_recorded, stats.inf_model) == (1, 2, 1, 2)
    assert (stats.elements, stats.beyond, stats.largest, stats.mean) == (6, 3, 0.5, 0.25)
    assert (found.where, found.expected, found.actual) == ((1,), "0.0", "nan")


def test_integers_and_flags_have_statistics_as_well():
    stats, _ = tallied([(np.array([1, 5, 9]), np.array([1, 2, 9])), (np.array([True]), np.array([False]))], rtol=1.0)
    assert (stats.elements, stats.beyond, stats.largest, stats.mean) == (4, 2, 3.0, 1.0)


def port(**facts):
    tally = PortTally("y", rtol=1e-3, atol=1e-5)
    for actual, expected in facts["samples"]:
        tally.add(f(*actual), f(*expected), label="entry")
    return tally.report()


@pytest.mark.parametrize(
    ("formats", "words"),
    [
        ({"onnx": [((NAN, 1), (0.5, 1))]}, "gives NaN where the code gave numbers"),
        ({"onnx": [((1.005, 1), (1, 1))]}, "may be rounding"),
        ({"onnx": [((7, 1), (1, 1))], "pt2": [((1, 1), (1, 1))]}, "pt2 agrees"),
        ({"onnx": [((7, 1), (1, 1))], "pt2": [((7, 1), (1, 1))]}, "Every format is off"),
        ({"onnx": [((7, 1), (1, 1))]}, "a second format tells which"),
        ({"onnx": [((1, 1), (1, 1)), ((7, 1), (1, 1))]}, "frozen into the model"),
    ],
)
def test_a_report_says_what_to_do(formats, words):
    report = NodeReport("n", tuple(FormatReport(name, (port(samples=each),)) for name, each in formats.items()))
    assert words in report.lines()[-1]
    assert len(report.advice()) == 1


@pytest.mark.parametrize("samples", [[((7, 1), (1, 1))], [((1, 1), (1, 1)), ((7, 1), (1, 1))]])
def test_a_brought_model_is_not_said_to_come_of_the_recording(samples):
    (said,) = NodeReport("n", (FormatReport("onnx", (port(samples=samples),)),), brought=True).advice()
    assert "body and the model file that the node brings compute different values" in said


def test_a_good_report_has_no_advice():
    assert NodeReport("n", (FormatReport("onnx", (port(samples=[((1,), (1,))]),)),)).lines() == []


def test_reports_travel_as_json_and_give_the_same_rows():
    report = NodeReport(
        "n", (FormatReport("onnx", (port(samples=[((INF, 1), (1, 1))]),)), FormatReport("pt2", error="does not load"))
    )
    stored = json.loads(json.dumps(checks_json([report]), allow_nan=False))
    rows = rows_of_checks(stored)
    assert rows == check_rows([report])
    assert [(row.format, row.port, row.ok) for row in rows] == [("onnx", "y", False), ("pt2", "", False)]
    assert rows[0].largest == INF
    assert rows[0].note in report.lines()[0]
    assert rows[0].statistics["inf_model"] == 1
    assert CheckRow.from_json(json.loads(json.dumps(rows[0].as_json(), allow_nan=False))).largest is None


def test_evidence_of_an_older_leapp_is_read():
    old = {
        "port": "y",
        "ok": True,
        "samples": 2,
        "sample": 1,
        "largest": 0.5,
        "where": [0],
        "expected": "1",
        "actual": "1.5",
        "note": "",
    }
    (row,) = rows_of_checks(
        [{"node": "n", "ok": True, "formats": [{"format": "onnx", "ok": True, "error": "", "ports": [old]}]}]
    )
    assert (row.port, row.where, row.largest) == ("y", "sample 1, [0]", 0.5)
    assert set(row.statistics_texts()) == {"-"}
