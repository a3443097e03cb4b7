"""What leaves the trace of an array is named, at the user's line and with what to write instead."""

from __future__ import annotations

import inspect
import io
import re
import warnings

import numpy as np
import pytest
import torch

from leapp import annotate, errors

TABLE = np.array([2.0, 3.0])


@pytest.fixture
def given(make_session):
    """The array that an open node ``n`` was given."""
    x = np.array([0.5, -1.0, 2.0, 3.5])
    return make_session().input_tensors("n", {"x": x})[id(x)]


def here(offset=0):
    """The line that calls, as warnings and errors show it."""
    return f"tests/trace/test_array_named.py:{inspect.currentframe().f_back.f_lineno + offset}"


# --- lists ----------------------------------------------------------------------------------------------------------

OF_LISTS = {
    "maximum": lambda x: np.maximum([x[0], x[1]], 0),
    "sqrt": lambda x: np.sqrt((x[0] ** 2, x[1] ** 2)),
    "logical_and.reduce": lambda x: np.logical_and.reduce([x > 0, x < 1]),
    "add.reduce": lambda x: np.add.reduce([x, x]),
    "multiply.outer": lambda x: np.multiply.outer([x[0], x[1]], [1.0, 2.0]),
    "TABLE * [x[0], x[1]]": lambda x: TABLE * [x[0], x[1]],
}


@pytest.mark.parametrize("name", OF_LISTS)
def test_a_ufunc_of_a_list_is_named_where_its_result_is_an_output(make_session, name):
    x = np.array([0.5, -1.0])
    session = make_session()
    made = OF_LISTS[name](session.input_tensors("n", {"x": x})[id(x)])
    np.testing.assert_array_equal(made, OF_LISTS[name](x))
    with (
        pytest.warns(errors.NoTwinWarning, match=rf"function {re.escape(name)}\. .* with np\.array or np\.stack\."),
        pytest.raises(errors.OutputNotTracedError),
    ):
        session.output_tensors("n", {"y": made})


def test_a_ufunc_of_a_list_is_named_where_its_result_is_used(given):
    pair = [given[0], given[1]]
    with pytest.warns(errors.NoTwinWarning, match=r"function maximum\. .* np\.stack\. .*" + here(1)):
        given[:2] + np.maximum(pair, 0)


def test_a_ufunc_of_a_list_beside_an_array_is_recorded(record):
    def function(x):
        return np.maximum([x[0], x[1]], x[2:]) + ([x[1], x[0]] * x[:2])

    first, second = np.array([0.5, -1, 2, 3]), np.array([1.5, 4, -2, 1])
    recorded = record(function, first.copy())
    np.testing.assert_array_equal(recorded(torch.from_numpy(second.copy())).numpy(), function(second))


# --- iterators ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        lambda x: np.nditer(x, op_flags=["readwrite"]),
        lambda x: np.nditer([x, np.zeros(4)], None, [["writeonly"], ["readonly"]]),
        lambda x: np.nested_iters(x.reshape(2, 2), [[0], [1]], op_flags=[["readwrite"]]),
    ],
)
def test_an_iterator_that_writes_is_refused_where_it_is_made(given, make):
    with pytest.raises(errors.UnrecordableOpError, match=r"(?s)test_array_named.*for index in np\.ndindex\(x\.shape\)"):
        make(given)


def test_an_iterator_that_writes_a_plain_array_reads_the_traced_one(given):
    out = np.zeros(4)
    with pytest.warns(errors.TraceEscapeWarning, match=r"numpy\.nditer at " + here(1)):
        pairs = np.nditer([given, out], [], [["readonly"], ["readwrite"]])
    for one, other in pairs:
        other[...] = one * 2
    np.testing.assert_array_equal(out, [1, -2, 4, 7])


def test_iterators_are_the_classes_of_numpy(given):
    with pytest.warns(errors.TraceEscapeWarning):
        iterator = np.nditer(given)
    numpys = type(iterator)
    assert isinstance(iterator, np.nditer)
    assert not isinstance(given, np.nditer)
    assert issubclass(numpys, np.nditer)
    assert isinstance(np.nditer, type)
    assert np.nditer == numpys
    assert numpys == np.nditer
    assert {np.nditer: 1}[numpys] == 1
    assert np.nditer.iternext is numpys.iternext
    with pytest.raises(TypeError, match="not an acceptable base type"):
        type("Mine", (np.nditer,), {})
    assert isinstance(np.ndenumerate(given), np.ndenumerate)
    assert [index for index, _ in type("Mine", (np.ndenumerate,), {})(given)] == [(0,), (1,), (2,), (3,)]


@pytest.mark.parametrize("shape", [(4,), (2, 2), (1, 4)])
def test_ndenumerate_is_recorded(record, shape):
    def function(x):
        return sum([value * (sum(index) + 1) for index, value in np.ndenumerate(x.reshape(shape))], x[0])

    first, second = np.array([0.5, -1, 2, 3]), np.array([1.5, 4, -2, 1])
    recorded = record(function, first.copy())
    assert recorded(torch.from_numpy(second.copy())).numpy() == function(second)


@pytest.mark.filterwarnings("ignore::leapp.errors.TraceEscapeWarning")
def test_ndenumerate_gives_what_it_gives(given):
    for array in (given, given.reshape(2, 2), given[:0], given[0], [given[0], 1], np.arange(4.0)):
        found = [(index, float(value)) for index, value in np.ndenumerate(array)]
        assert found == [(index, float(value)) for index, value in np.ndenumerate(np.asarray(array).tolist())]


# --- views ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "view",
    [
        lambda y: np.lib.stride_tricks.sliding_window_view(y, 2),
        lambda y: np.lib.stride_tricks.sliding_window_view(y, 2)[::2].T,
    ],
)
def test_windows_see_what_is_written_after_they_were_taken(record, view):
    def function(x):
        y = x * 1
        windows = view(y)
        y[1] = x[3]
        y += 1
        return windows

    first, second = np.array([0.5, -1, 2, 3]), np.array([1.5, 4, -2, 1])
    recorded = record(function, first.copy())
    np.testing.assert_array_equal(recorded.result, function(first.copy()))
    np.testing.assert_array_equal(recorded(torch.from_numpy(second.copy())).numpy(), function(second))


def test_a_copy_of_an_array_into_itself(record):
    """NumPy asks nothing more of the mask then."""

    def function(x):
        y = x * 2
        np.copyto(y, y, where=np.ones((3, 4), bool))
        np.copyto(y, y[:], where=x > 0)
        return y

    first, second = np.array([0.5, -1, 2, 3]), np.array([1.5, 4, -2, 1])
    recorded = record(function, first.copy())
    np.testing.assert_array_equal(recorded(torch.from_numpy(second.copy())).numpy(), function(second))


# --- files and text -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("save", lambda x: np.save(io.BytesIO(), x)),
        ("savez", lambda x: np.savez(io.BytesIO(), x=x)),
        ("savez_compressed", lambda x: np.savez_compressed(io.BytesIO(), x)),
        ("savetxt", lambda x: np.savetxt(io.StringIO(), x)),
        ("array_str", np.array_str),
        ("array_repr", np.array_repr),
        ("array2string", np.array2string),
    ],
)
def test_what_writes_files_and_text_is_a_read(given, name, write):
    with pytest.warns(errors.TraceEscapeWarning, match=rf"numpy\.{name}\(\) at tests/trace/test_array_named\.py"):
        write(given)


# --- places ---------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
def test_inside_files_of_numpy_the_line_is_the_users(given):
    with pytest.warns(errors.NoTwinWarning, match=r"ndarray\.view.*" + here(1)) as told:
        np.asmatrix(given)
    ours = [each for each in told if issubclass(each.category, errors.LeappWarning)]
    assert [each.filename for each in ours] == [__file__]


@pytest.mark.filterwarnings("error")
def test_functions_of_numpy_testing_are_guards(given):
    np.testing.assert_allclose(given, given * 1)
    np.testing.assert_array_equal(given, given)
    np.testing.assert_array_less(given, 9)
    np.testing.assert_equal(given[0], 0.5)
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        np.testing.assert_allclose(given, given + 1)
    with pytest.raises(errors.DataDependentBranchError, match=re.escape(here(1))):
        np.all(given > 0) or given


@pytest.mark.parametrize("decide", [lambda x: x[0] > 0, lambda x: (x > 0).any(), lambda x: x[:1], lambda x: x[0]])
def test_a_branch_on_an_array_speaks_of_arrays(given, decide):
    with pytest.raises(errors.DataDependentBranchError, match=r"(?s)np\.where\(condition, a, b\)") as raised:
        given[0] if decide(given) else given[1]
    assert "torch" not in str(raised.value)
    with pytest.raises(errors.DataDependentBranchError, match=r"(?s)torch\.where\(condition, a, b\)") as raised:
        given[0] if torch.from_numpy(given)[0] else given[1]
    assert "np." not in str(raised.value)


@pytest.mark.filterwarnings("error")
def test_a_number_of_steps_is_no_data(given):
    np.zeros(4) + sum(1 for _ in given) + given


# --- vectors of any sign ---------------------------------------------------------------------------------------------


def canonical(vectors):
    """As the error says."""
    return vectors * np.sign(np.take_along_axis(vectors, np.abs(vectors).argmax(-2, keepdims=True), -2))


@pytest.mark.parametrize("fix", [None, canonical])
def test_eigenvectors_of_another_sign(tmp_path, fix):
    import leapp

    half = np.random.default_rng(3).standard_normal((5, 5))
    x = half @ half.T
    leapp.start("signs", save_path=tmp_path)
    _, vectors = np.linalg.eigh(annotate.input_tensors("n", {"x": x}))
    line = here(-1)
    annotate.output_tensors("n", {"y": vectors if fix is None else fix(vectors)}, export_with="torchscript")
    leapp.stop()
    if np.array_equal(np.sign(np.linalg.eigh(x)[1]), np.sign(torch.linalg.eigh(torch.from_numpy(x))[1].numpy())):
        pytest.skip("NumPy and torch agree on these signs here")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if fix is not None:
            assert leapp.compile_graph()
            return
        with pytest.raises(errors.NotReplayableError, match=rf"holds eigh \({line}\).*LAPACK.*argmax\(-2, keepdims"):
            leapp.compile_graph()


def test_the_array_that_was_handed_in_is_not_the_one_to_compute_with(make_session):
    given = {"a": {"b": np.ones(2)}}
    session = make_session()
    session.input_tensors("n", {"obs": given})
    with pytest.raises(errors.OutputNotTracedError, match="only what it returned is traced, not the array"):
        session.output_tensors("n", {"y": given["a"]["b"] * 2})
