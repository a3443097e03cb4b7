"""Canonical bytes of ONNX files."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from leapp.errors import ArtifactLoadError
from leapp.export import canon_onnx

RNG = np.random.default_rng(0)
WEIGHT = RNG.normal(size=(3, 3)).astype(np.float32)
BIAS = RNG.normal(size=3).astype(np.float32)


def model(noise="", order=(0, 1)):
    """A small model with a subgraph; ``noise`` is what an exporter would leave in it."""
    branch = helper.make_graph(
        [helper.make_node("Neg", ["h"], ["neg"])], "then", [], [helper.make_tensor_value_info("neg", 1, [1, 3])]
    )
    other = helper.make_graph(
        [helper.make_node("Identity", ["h"], ["same"])], "else", [], [helper.make_tensor_value_info("same", 1, [1, 3])]
    )
    nodes = [
        helper.make_node("Gemm", ["x", "weight", "bias"], ["h"], name="gemm"),
        helper.make_node("ReduceSum", ["h"], ["total"], keepdims=0),
        helper.make_node("Greater", ["total", "zero"], ["positive"]),
        helper.make_node("If", ["positive"], ["y"], then_branch=branch, else_branch=other),
    ]
    initializers = [numpy_helper.from_array(WEIGHT, "weight"), numpy_helper.from_array(BIAS, "bias")]
    graph = helper.make_graph(
        nodes,
        "main",
        [helper.make_tensor_value_info("x", 1, [1, 3])],
        [helper.make_tensor_value_info("y", 1, [1, 3])],
        [*(initializers[i] for i in order), numpy_helper.from_array(np.float32(0), "zero")],
        value_info=[helper.make_tensor_value_info("h", 1, [1, 3]), helper.make_tensor_value_info("total", 1, [])],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    made.producer_name, made.producer_version = "pytorch", f"2.13.0+{noise or 'cpu'}"
    if noise:
        helper.set_model_props(made, {"host": noise})
        graphs = [made.graph, made.graph.node[3].attribute[0].g, made.graph.node[3].attribute[1].g]
        for each in graphs:
            each.doc_string = noise
            for part in (*each.node, *each.initializer, *each.value_info, *each.input, *each.output):
                part.doc_string = noise
                entry = part.metadata_props.add()
                entry.key, entry.value = "stack_trace", noise
    return made


def run(path, x):
    return onnxruntime.InferenceSession(path).run(None, {"x": x})[0]


def test_noise_and_order_leave_no_trace(tmp_path):
    files = []
    for index, (noise, order) in enumerate((("", (0, 1)), ("/home/ada/train.py:12", (1, 0)))):
        path = tmp_path / f"{index}" / "m.onnx"
        path.parent.mkdir()
        onnx.save(model(noise, order), path)
        before = run(path, np.ones((1, 3), np.float32))
        canon_onnx.canonicalise(path, {"b": "2", "a": "1"})
        onnx.checker.check_model(path)
        for x in (RNG.normal(size=(1, 3)).astype(np.float32), -np.ones((1, 3), np.float32)):
            reference = tmp_path / "reference.onnx"
            onnx.save(model(), reference)
            assert np.array_equal(run(path, x), run(reference, x))
        assert np.array_equal(run(path, np.ones((1, 3), np.float32)), before)
        files.append(path.read_bytes())
    assert files[0] == files[1]
    assert b"/home" not in files[1]
    loaded = onnx.load(tmp_path / "0" / "m.onnx")
    assert [(p.key, p.value) for p in loaded.metadata_props] == [("a", "1"), ("b", "2")]
    assert loaded.producer_version == "2.13.0"


def test_a_second_run_changes_nothing(tmp_path):
    path = tmp_path / "m.onnx"
    onnx.save(model("noise"), path)
    canon_onnx.canonicalise(path, {"a": "1"})
    before = path.read_bytes()
    canon_onnx.canonicalise(path, {"a": "1"})
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["m.onnx"]


def test_a_model_in_memory_gives_the_bytes_of_its_file(tmp_path):
    path = tmp_path / "m.onnx"
    onnx.save(model("noise", (1, 0)), path)
    canon_onnx.canonicalise(path, {"a": "1"})
    message = model("other noise")
    canon_onnx.canonicalise_model(message, {"a": "1"})
    assert message.SerializeToString(deterministic=True) == path.read_bytes()


def test_external_data_lies_in_name_order(tmp_path):
    contents = []
    for index, order in enumerate(((0, 1), (1, 0))):
        path = tmp_path / f"{index}" / "m.onnx"
        path.parent.mkdir()
        onnx.save(model(order=order), path, save_as_external_data=True, location="m.onnx.data", size_threshold=1)
        canon_onnx.canonicalise(path)
        onnx.checker.check_model(path)
        assert sorted(each.name for each in path.parent.iterdir()) == ["m.onnx", "m.onnx.data"]
        reference = tmp_path / "reference.onnx"
        onnx.save(model(), reference)
        x = RNG.normal(size=(1, 3)).astype(np.float32)
        assert np.array_equal(run(path, x), run(reference, x))
        contents.append((path.read_bytes(), (path.parent / "m.onnx.data").read_bytes()))
        tensor = next(t for t in onnx.load(path, load_external_data=False).graph.initializer if t.name == "bias")
        assert tensor.data_location == TensorProto.EXTERNAL
    assert contents[0] == contents[1]
    data = contents[0][1]
    assert data[: BIAS.nbytes] == BIAS.tobytes()
    assert data[4096 : 4096 + WEIGHT.nbytes] == WEIGHT.tobytes()


@pytest.mark.parametrize("content", [b"", b"not a model", b"\x08\x0a", b"PK\x03\x04 an archive"])
def test_what_is_no_model_is_left_as_it_was(tmp_path, content):
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    with pytest.raises(ArtifactLoadError, match="m.onnx could not be loaded as onnx"):
        canon_onnx.canonicalise(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("location", "../elsewhere.bin", "not beside the model"),
        ("location", "missing.bin", "missing.bin"),
        ("length", "999999", "ends too early"),
        ("offset", "-5", "Errno 22|negative"),
    ],
)
def test_tensors_that_cannot_be_read_leave_everything_as_it_was(tmp_path, key, value, why):
    path = tmp_path / "models" / "m.onnx"
    path.parent.mkdir()
    (tmp_path / "elsewhere.bin").write_bytes(b"secret" * 100)
    made = model()
    onnx.save(made, path, save_as_external_data=True, location="m.onnx.data", size_threshold=1)
    broken = onnx.load(path, load_external_data=False)
    for entry in broken.graph.initializer[0].external_data:
        if entry.key == key:
            entry.value = value
    path.write_bytes(broken.SerializeToString())
    before = {each.name: each.read_bytes() for each in path.parent.iterdir()}
    with pytest.raises((ArtifactLoadError, OSError), match=why):
        canon_onnx.canonicalise(path)
    assert {each.name: each.read_bytes() for each in path.parent.iterdir()} == before


def test_data_without_a_length_and_tensors_of_attributes(tmp_path):
    path = tmp_path / "m.onnx"
    constant = helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(WEIGHT, "c"))
    add = helper.make_node("Add", ["x", "c"], ["y"])
    graph = helper.make_graph(
        [constant, add],
        "main",
        [helper.make_tensor_value_info("x", 1, [3, 3])],
        [helper.make_tensor_value_info("y", 1, [3, 3])],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    options = {"location": "weights.bin", "size_threshold": 1, "convert_attribute": True}
    onnx.save(made, path, save_as_external_data=True, **options)
    shortened = onnx.load(path, load_external_data=False)
    entries = shortened.graph.node[0].attribute[0].t.external_data
    kept = [(each.key, each.value) for each in entries if each.key == "location"]
    assert kept == [("location", "weights.bin")]
    del entries[:]
    entries.add(key="location", value="weights.bin")
    path.write_bytes(shortened.SerializeToString())
    canon_onnx.canonicalise(path)
    loaded = onnx.load(path)
    assert np.array_equal(numpy_helper.to_array(loaded.graph.node[0].attribute[0].t), WEIGHT)
    assert (tmp_path / "m.onnx.data").read_bytes() == WEIGHT.tobytes()
