"""Whose bytes are loaded: digests before anything else, models beside the bundle, old runtime files."""

from __future__ import annotations

import hashlib
import shutil

import numpy as np
import pytest
import torch
from pipelines import counter, onnx_file, port

import leapp
from leapp import annotate, errors
from leapp._canonical import sha256_file
from leapp.bundle import write
from leapp.runtime import inference

STEP = {"sum/step": np.float32([1, 2])}


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A bundle of ours: one node with feedback, in two formats."""
    folder = tmp_path_factory.mktemp("exported")
    leapp.start("bundle", save_path=str(folder))
    held = torch.ones(2)
    for _ in range(2):
        step, held = annotate.input_tensors("sum", {"step": torch.randn(2), "held": held})
        held = annotate.output_tensors("sum", {"total": held + step}, export_with=["onnx", "torchscript"])
    leapp.stop()
    leapp.compile_graph()
    return folder / "bundle"


@pytest.fixture
def bundle(exported, tmp_path):
    return shutil.copytree(exported, tmp_path / "bundle")


@pytest.fixture
def nothing_is_loaded(monkeypatch):
    """Fails the test when a model would be opened."""

    def refuse(*_):
        pytest.fail("a model was loaded before all digests were checked")

    monkeypatch.setattr(inference, "load_model", refuse)
    monkeypatch.setattr(inference, "read_tensors", refuse)


def test_a_bundle_by_its_folder_its_json_and_its_runtime_file(bundle):
    for path in (bundle, bundle / "bundle.json", bundle / "bundle.yaml", str(bundle)):
        assert leapp.InferenceManager(path)(STEP)["sum/total"].tolist() == [2, 3]


@pytest.mark.parametrize(
    "file",
    [
        "bundle.yaml",
        "bundle_initial_values.safetensors",
        "nodes/sum/sum.onnx",
        "nodes/sum/manifest.json",
        "bundle.json",
    ],
)
@pytest.mark.usefixtures("nothing_is_loaded")
def test_a_changed_file_is_refused_before_anything_is_loaded(bundle, file):
    data = bytearray((bundle / file).read_bytes())
    at = data.rfind(b"version") if file == "bundle.json" else len(data) // 2
    data[at] ^= 1
    (bundle / file).write_bytes(data)
    with pytest.raises(RuntimeError, match=r"was changed after the bundle was built|bundle\.json"):
        leapp.InferenceManager(bundle)


def test_a_model_file_that_is_not_used_is_not_looked_at(bundle):
    (bundle / "nodes/sum/sum.pt").write_bytes(b"other")
    assert leapp.InferenceManager(bundle).backends == {"sum": "onnx"}
    with pytest.raises(errors.BundleDigestError):
        leapp.InferenceManager(bundle, formats="torchscript")


def test_external_data_is_checked(tmp_path, monkeypatch):
    monkeypatch.setattr("leapp.export.onnx.EXTERNAL_DATA_ABOVE_BYTES", 0)
    weights = torch.arange(4096.0)
    leapp.start("big", save_path=str(tmp_path))
    x = annotate.input_tensors("n", {"x": torch.randn(4096)})
    annotate.output_tensors("n", {"y": x + weights}, export_with="onnx")
    leapp.stop()
    leapp.compile_graph()
    (data,) = tmp_path.glob("big/nodes/n/*.data")
    run = leapp.InferenceManager(tmp_path / "big")
    assert torch.equal(run({"n/x": weights})["n/y"], 2 * weights)
    stored = bytearray(data.read_bytes())
    stored[5] ^= 1
    data.write_bytes(stored)
    with pytest.raises(errors.BundleDigestError, match=data.name):
        leapp.InferenceManager(tmp_path / "big")


def test_a_brought_model_that_was_not_copied(tmp_path):
    node = {"inputs": [port("x", "n")], "outputs": [port("y", "n")]}
    (tmp_path / "models").mkdir()
    file = tmp_path / "models" / "net.onnx"
    onnx_file(file, node, [("Add", "x x", "y")])
    leapp.start("brings", save_path=str(tmp_path))
    x = annotate.input_tensors("n", {"x": torch.randn(3)})
    brings = {"model_path": file, "copy_original_model": False}
    annotate.output_tensors("n", {"y": x + x}, backend_params=brings)
    leapp.stop()
    leapp.compile_graph()
    with pytest.raises(errors.ModelNotFoundError, match="Node 'n': its model file 'net.onnx' was not found"):
        leapp.InferenceManager(tmp_path / "brings")
    run = leapp.InferenceManager(tmp_path / "brings", [tmp_path / "models"])
    assert run({"n/x": np.float32([1, 2, 3])})["n/y"].tolist() == [2, 4, 6]
    onnx_file(file, node, [("Sub", "x x", "y")])
    with pytest.raises(errors.ModelDigestError, match="net.onnx is not the file that was exported"):
        leapp.InferenceManager(tmp_path / "brings", [tmp_path / "models"])


@pytest.mark.usefixtures("nothing_is_loaded")
def test_changed_files_beside_a_runtime_file_are_refused(tmp_path):
    pipeline = counter(tmp_path).start(sum__held=np.float32([1, 2]))
    pipeline.contract["pipeline"]["initial_values_sha256sum"] = sha256_file(tmp_path / "first.safetensors")
    for file, write_again in (("twice.onnx", pipeline.write), ("first.safetensors", pipeline.write)):
        path = write_again()
        data = (tmp_path / file).read_bytes()
        (tmp_path / file).write_bytes(data + b"\0")
        with pytest.raises(errors.ModelDigestError, match=f"{file} is not the file that was exported: sha256"):
            leapp.InferenceManager(path)
        (tmp_path / file).write_bytes(data)
    path = pipeline.old()
    (tmp_path / "sum.onnx").write_bytes(b"x")
    with pytest.raises(RuntimeError, match=f"md5 {hashlib.md5(b'x').hexdigest()} instead of"):  # noqa: S324 - theirs
        leapp.InferenceManager(path)


def test_an_old_runtime_file_with_sorted_maps_and_md5_alone(tmp_path):
    path = counter(tmp_path).start(sum__held=np.float32([1, 2])).old()
    assert path.read_text().index("outputs") < path.read_text().index("parameters")
    run = leapp.InferenceManager(path)
    assert run(STEP)["twice/result"].tolist() == [4, 8]
    assert leapp.InferenceManager(tmp_path)(STEP)["twice/result"].tolist() == [4, 8], "the only one in its folder"


def test_models_outside_the_bundle_are_found_by_name_and_digest(tmp_path):
    pipeline = counter(tmp_path / "hand").start(sum__held=np.float32([1, 2]))
    path = pipeline.write()
    models, others = tmp_path / "models", tmp_path / "others"
    models.mkdir()
    others.mkdir()
    shutil.move(tmp_path / "hand" / "sum.onnx", models)
    (others / "sum.onnx").write_bytes(b"another model of that name")
    with pytest.raises(errors.ModelNotFoundError, match="Node 'sum': its model file 'sum.onnx' was not found in"):
        leapp.InferenceManager(path)
    with pytest.raises(FileNotFoundError):
        leapp.InferenceManager(path, [tmp_path])
    with pytest.raises(errors.ModelDigestError, match="others"):
        leapp.InferenceManager(path, [others])
    for folders in ([models], [others, models], [str(models)], (models, others)):
        assert leapp.InferenceManager(path, folders)(STEP)["twice/result"].tolist() == [4, 8]
    # A path of the machine that exported it, and one that leads outside, are names and no more.
    for written in ("/models/sum.onnx", "../models/sum.onnx"):
        pipeline.contract["models"]["sum"]["parameters"]["model_path"] = written
        with pytest.raises(errors.ModelNotFoundError):
            leapp.InferenceManager(pipeline.write())
        assert leapp.InferenceManager(pipeline.write(), [models])(STEP)["twice/result"].tolist() == [4, 8]


def test_what_is_no_bundle(tmp_path, bundle):
    for path, why in (
        (tmp_path / "gone", "does not exist"),
        (tmp_path / "gone.yaml", "does not exist"),
        (tmp_path / "empty", "holds no bundle.json and no .yaml file"),
        (tmp_path / "two", r"several runtime files \(a.yaml, b.yml\); name one"),
        (tmp_path / "text.txt", "neither a folder nor a runtime file"),
        (bundle / "other.yaml", "the runtime file of the bundle in this folder is bundle.yaml"),
    ):
        (tmp_path / "empty").mkdir(exist_ok=True)
        (tmp_path / "two").mkdir(exist_ok=True)
        for file in ("two/a.yaml", "two/b.yml", "text.txt", "bundle/other.yaml"):
            (tmp_path / file).touch()
        with pytest.raises(errors.NotABundleError, match=why):
            leapp.InferenceManager(path)
    (tmp_path / "two" / "a.yaml").write_text("models: 1")
    with pytest.raises(errors.NotABundleError, match="it is a YAML file that says nothing of models"):
        leapp.InferenceManager(tmp_path / "two" / "a.yaml")


def test_a_broken_bundle_json_is_not_passed_over(bundle):
    (bundle / "bundle.json").write_text("{")
    with pytest.raises(errors.BundleFormatError):
        leapp.InferenceManager(bundle / "bundle.yaml")


def test_a_failed_bundle_runs_with_a_warning(bundle):
    (bundle / "bundle.json").unlink()
    write.seal(bundle, name="bundle", version="0.0.0", status="failed")
    with pytest.warns(errors.FailedBundleWarning, match="marked as failed") as noticed:
        leapp.InferenceManager(bundle)
    assert noticed[0].filename == __file__


FIRST = [
    ({}, "the first value of 'sum/held' is missing"),
    ({"sum__held": np.float32([1])}, r"is float32\[1\], the runtime file has float32\[2\]"),
    ({"sum__held": np.float64([1, 2])}, r"is float64\[2\]"),
    ({"sum__held": np.float32([1, 2]), "sum__step": np.float32([1, 2])}, "'sum/step' is no input that is fed back"),
]


@pytest.mark.parametrize(("values", "why"), FIRST, ids=[why for _, why in FIRST])
def test_first_values_that_do_not_fit(tmp_path, values, why):
    path = counter(tmp_path).start(**values).write()
    with pytest.raises(errors.BundleFormatError, match=why):
        leapp.InferenceManager(path)


def test_first_values_that_are_not_there(tmp_path):
    pipeline = counter(tmp_path)
    with pytest.raises(errors.BundleFormatError, match="'sum/held' is fed back and has no value at the first tick"):
        leapp.InferenceManager(pipeline.write())
    path = pipeline.start(sum__held=np.float32([1, 2])).write()
    (tmp_path / "first.safetensors").unlink()
    with pytest.raises(errors.BundleFormatError, match="its initial values 'first.safetensors' are not there"):
        leapp.InferenceManager(path)
