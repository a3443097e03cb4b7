"""Values of constants: found in model files by their digest, compared element by element."""

from __future__ import annotations

import json
import zipfile
from hashlib import sha256

import ml_dtypes
import numpy as np
import onnx
import pytest
from bundle_cases import manifest_of, port, reseal, rewrite_json, stage
from onnx import helper, numpy_helper

from leapp._spec import NodeSpec
from leapp.bundle import _diff_values, write
from leapp.bundle._diff_values import compare_tensors, places, tensor_text
from leapp.bundle.diff import Cause, Step, diff
from leapp.bundle.read import load
from leapp.bundle.samples import RawTensor
from leapp.bundle.schema import Artifact, Constant


def compared(a, b):
    return compare_tensors(RawTensor.of(np.asarray(a)), RawTensor.of(np.asarray(b)))


F32 = np.float32


def test_differences_of_floats():
    found = compared(F32([[1, 2], [3, 4]]), F32([[1, 2], [3, 4.5]]))
    assert (found.count, found.differing, found.largest, found.mean, found.where) == (4, 1, 0.5, 0.125, (1, 1))
    assert (found.nan_first, found.nan_second, found.pattern) == (0, 0, "")
    assert found.text() == "largest difference 0.5, mean 0.125, 1 of 4 elements, many ulp"


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_ulp_counts_numbers_in_between_also_across_zero(dtype):
    one = np.ones(1, dtype)
    assert compared(one, np.nextafter(one, dtype(2))).ulp == 1
    least = np.nextafter(dtype(0), dtype(1))
    assert compared([-least], [least]).ulp == 2
    assert compared(dtype([0.0]), dtype([-0.0])).ulp == 0
    assert compared(dtype([0.0]), dtype([-0.0])).differing == 1


def test_bfloat16():
    a, b = (np.array([value], ml_dtypes.bfloat16) for value in (1.0, 1.0078125))
    found = compared(a, b)
    assert (found.ulp, found.largest) == (1, 0.0078125)


def test_what_is_not_finite_is_counted_apart():
    found = compared(F32([np.nan, np.inf, 1, 2]), F32([np.nan, 3, np.nan, 2.5]))
    assert (found.nan_first, found.nan_second, found.infinite_first, found.infinite_second) == (1, 2, 1, 0)
    assert (found.largest, found.differing) == (0.5, 3)
    json.dumps(found.as_json(), allow_nan=False)


def test_integers_bools_and_complex_numbers():
    assert compared(np.int64([1, -5]), np.int64([1, 7])).largest == 12
    assert compared(np.int64([1]), np.int64([2])).ulp is None
    assert compared(np.bool_([True, False]), np.bool_([True, True])).differing == 1
    assert compared(np.complex64([1 + 1j]), np.complex64([1 + 3j])).largest == 2


def test_another_dtype_of_the_same_numbers():
    found = compared(F32([1, 2]), np.float64([1, 2.5]))
    assert (found.differing, found.largest, found.ulp) == (1, 0.5, None)


def test_other_shapes_and_nothing_have_no_differences():
    assert compared(F32([1, 2]), F32([1])) is None
    assert compared(F32([]), F32([])) is None


def test_pieces_give_what_the_whole_gives(monkeypatch):
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((7, 5)).astype(F32) for _ in range(2))
    whole = compared(a, b)
    monkeypatch.setattr(_diff_values, "CHUNK_ELEMENTS", 4)
    pieces = compared(a, b)
    assert pieces.where == whole.where
    assert (pieces.largest, pieces.differing, pieces.ulp) == (whole.largest, whole.differing, whole.ulp)
    assert pieces.mean == pytest.approx(whole.mean)
    assert whole.largest == np.abs(a.astype(float) - b).max()


WEIGHT = np.arange(12, dtype=F32).reshape(3, 4) + 1


@pytest.mark.parametrize(
    ("before", "after", "pattern"),
    [
        (WEIGHT, WEIGHT[:, [1, 2, 3, 0]], "the same values in another order along axis 1: 1, 2, 3, 0"),
        (WEIGHT, WEIGHT[[0, 2, 1]], "the same values in another order along axis 0: 0, 2, 1"),
        (np.int64([3, 0, 1, 2]), np.int64([0, 1, 2, 3]), "the same values in another order: 1, 2, 3, 0"),
        (F32([1, 1, 2]), F32([2, 1, 1]), "the same values in another order: 2, 1, 0"),
        (WEIGHT, -WEIGHT, "the same values with the other sign"),
        (F32([0, 2, 3]), F32([0, -2, -3]), "the same values with the other sign"),
        (WEIGHT, WEIGHT * F32([1, -1, -1, -1]), "the same values with the other sign at 1, 2, 3 of axis 1"),
        (F32([[1, 2], [3, 4]]), F32([[-1, 2], [3, 4]]), "the same values with the other sign at 1 of 4"),
        (WEIGHT, WEIGHT + 1, ""),
        (F32([1, 2]), F32([2, 3]), ""),
        (F32(2.0), F32(-2.0), "the same values with the other sign"),
        (F32([0.0]), F32([-0.0]), ""),
        (np.uint8([1, 2]), np.uint8([255, 254]), ""),
    ],
)
def test_values_that_only_moved(before, after, pattern):
    assert compared(before, after).pattern == pattern


def test_first_tick_values_as_text():
    assert tensor_text(RawTensor.of(np.zeros((2, 3), F32))) == "zeros"
    assert tensor_text(RawTensor.of(F32([1, 0.5]))) == "[1, 0.5]"
    assert tensor_text(RawTensor.of(np.ones((2, 2), F32))) == "float32[2, 2] [1, 1, 1, 1]"
    assert tensor_text(RawTensor.of(np.ones(99, F32))) == "float32[99]"


# --- in bundles ----------------------------------------------------------------------------------------------------


def archive(path, tensors, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as file:
        file.writestr("archive/version", "3")
        for at, tensor in enumerate(tensors):
            file.writestr(f"archive/data/weights/weight_{at}", tensor.tobytes())


def onnx_file(path, tensors, external=None):
    initializers = [numpy_helper.from_array(each, f"w{at}") for at, each in enumerate(tensors)]
    graph = helper.make_graph([], "g", [], [], initializers)
    options = {"save_as_external_data": True, "location": external, "size_threshold": 0} if external else {}
    onnx.save_model(helper.make_model(graph), path, **options)


SUFFIX = {"onnx": ("onnx", "onnx"), "pt2": ("pt2", "pt2"), "pt": ("torchscript", "jit")}


def bundle(folder, suffix, make, tensors, external=None):
    """A bundle of one more file and the constants that it may hold, in node ``estimator``."""
    stage(folder)
    path = f"nodes/estimator/held.{suffix}"
    make(folder / path, tensors, **({"external": external} if external else {}))
    format, backend = SUFFIX[suffix]
    data = (f"nodes/estimator/{external}",) if external else ()
    held = Artifact(format, backend, path, "0" * 64, "0" * 32, 1, data_paths=data)
    constants = tuple(
        Constant(f"net.w{at}", str(each.dtype), each.shape, sha256(each.tobytes()).hexdigest())
        for at, each in enumerate(tensors)
    )
    node = NodeSpec("estimator", (port("x", 3),), (port("y", 3),))
    manifest = manifest_of(node, held, constants=constants, weights_sha256=sha256(repr(constants).encode()).hexdigest())
    (folder / "nodes/estimator/manifest.json").write_bytes(write.node_manifest_bytes(manifest))
    write.seal(folder, name="two", version="1.0.0", status="ok")
    return folder


TENSORS = [WEIGHT, F32([0.5, 0.25]), np.int64([4])]
HOLDERS = {
    "pt2": ("pt2", archive, {}),
    "torchscript": ("pt", archive, {}),
    "onnx": ("onnx", onnx_file, {}),
    "onnx with external data": ("onnx", onnx_file, {"external": "held.onnx.data"}),
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_values_are_found_in_each_format(tmp_path, holder):
    suffix, make, options = HOLDERS[holder]
    a = bundle(tmp_path / "a", suffix, make, TENSORS, **options)
    moved = WEIGHT.copy()
    moved[1, 2] += F32(0.5)
    b = bundle(tmp_path / "b", suffix, make, [moved, *TENSORS[1:]], **options)
    (found,) = diff(a, b).findings
    assert (found.cause, found.kind, found.part, found.step) == (
        Cause.CONSTANTS, "constant", "constant 'net.w0'", Step.MINOR,
    )  # fmt: skip
    assert (found.values.largest, found.values.differing, found.values.where) == (0.5, 1, (1, 2))


def test_a_weight_that_onnx_holds_with_its_axes_exchanged(tmp_path):
    def turned(path, tensors):
        onnx_file(path, [np.ascontiguousarray(each.T) if each.ndim == 2 else each for each in tensors])

    a = bundle(tmp_path / "a", "onnx", turned, TENSORS)
    b = bundle(tmp_path / "b", "onnx", turned, [WEIGHT * 2, *TENSORS[1:]])
    assert places(load(a), "estimator", ["net.w0"])["net.w0"].transposed
    (found,) = diff(a, b).findings
    assert (found.values.largest, found.values.where) == (12.0, (2, 3))


def test_no_more_than_rounding_is_a_patch(tmp_path):
    a = bundle(tmp_path / "a", "pt2", archive, TENSORS)
    b = bundle(tmp_path / "b", "pt2", archive, [np.nextafter(WEIGHT, F32(99)), *TENSORS[1:]])
    (found,) = diff(a, b).findings
    assert (found.step, found.note) == (Step.PATCH, "no more than rounding")


def test_a_nan_is_never_rounding(tmp_path):
    a = bundle(tmp_path / "a", "pt2", archive, TENSORS)
    broken = WEIGHT.copy()
    broken[0, 0] = np.nan
    (found,) = diff(a, bundle(tmp_path / "b", "pt2", archive, [broken, *TENSORS[1:]])).findings
    assert found.step is Step.MINOR
    assert "NaN 0 -> 1" in found.text()


def test_values_that_only_moved_are_major(tmp_path):
    a = bundle(tmp_path / "a", "pt2", archive, TENSORS)
    b = bundle(tmp_path / "b", "pt2", archive, [WEIGHT[:, ::-1].copy(), *TENSORS[1:]])
    (found,) = diff(a, b).findings
    assert (found.kind, found.step) == ("constant-rearranged", Step.MAJOR)
    assert "another order along axis 1: 3, 2, 1, 0" in found.note


@pytest.mark.parametrize("suffix", ["pt2", "onnx"])
def test_a_file_of_another_form_holds_no_values(tmp_path, suffix):
    def junk(path, tensors):
        path.write_bytes(b"\x3a\xff\xff\xff\xff\xff\xff\xff" + tensors[0].tobytes())

    a = bundle(tmp_path / "a", suffix, junk, TENSORS)
    b = bundle(tmp_path / "b", suffix, junk, [WEIGHT + 1, *TENSORS[1:]])
    (found,) = diff(a, b).findings
    assert found.values is None
    assert found.text() == "node 'estimator': constant 'net.w0' differs"


def test_compressed_members_are_left_alone(tmp_path):
    def compressed(path, tensors):
        archive(path, tensors, zipfile.ZIP_DEFLATED)

    a = bundle(tmp_path / "a", "pt2", compressed, TENSORS)
    assert places(load(a), "estimator", ["net.w0"]) == {}


def test_a_model_that_was_changed_gives_no_values(tmp_path):
    a = bundle(tmp_path / "a", "pt2", archive, TENSORS)
    b = bundle(tmp_path / "b", "pt2", archive, [WEIGHT + 1, *TENSORS[1:]])
    model = b / "nodes/estimator/held.pt2"
    model.write_bytes(model.read_bytes() + b"!")
    assert diff(a, b).findings[0].values is None


def test_another_shape_has_no_values_but_types(tmp_path):
    a = bundle(tmp_path / "a", "pt2", archive, TENSORS)
    b = bundle(tmp_path / "b", "pt2", archive, [WEIGHT[:2].copy(), *TENSORS[1:]])
    (found,) = diff(a, b).findings
    assert (found.first, found.second, found.values) == ("float32[3, 4]", "float32[2, 4]", None)


def test_equal_constants_are_not_looked_for(tmp_path, monkeypatch):
    a = bundle(tmp_path / "a", "pt2", archive, TENSORS)
    b = bundle(tmp_path / "b", "pt2", archive, TENSORS)
    rewrite_json(b / "nodes/estimator/manifest.json", lambda manifest: manifest["tolerances"].update(rtol=0.5))
    reseal(b)
    monkeypatch.setattr(_diff_values, "places", lambda *_: pytest.fail("values were read"))
    assert [each.cause for each in diff(a, b).findings] == [Cause.CONTRACT]
