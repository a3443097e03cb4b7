"""Pages that follow from the code follow from this code, and no link of any page leads nowhere."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def generate():
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_of_errors_is_up_to_date(generate):
    written = (ROOT / "docs" / "errors.md").read_text("utf-8")
    assert written == generate.errors_page(), "`nox -s docs` writes docs/errors.md again"


def test_the_lists_of_what_is_traced_are_up_to_date(generate):
    written = (ROOT / "docs" / "tracing.md").read_text("utf-8")
    assert written.count("<!-- list: ") == 5
    assert written == generate.tracing_page(written), "`nox -s docs` writes docs/tracing.md again"
    assert "`Tensor.resize_`" in written


def test_the_lists_of_numpy_functions_are_up_to_date(generate):
    written = (ROOT / "docs" / "numpy.md").read_text("utf-8")
    assert written.count("<!-- list: ") == 4
    assert written == generate.numpy_page(written), "`nox -s docs` writes docs/numpy.md again"


def test_the_table_of_versions_is_up_to_date(generate):
    written = (ROOT / "docs" / "versions.md").read_text("utf-8")
    assert written.count("<!-- list: ") == 1
    assert written == generate.versions_page(written), "`nox -s docs` writes docs/versions.md again"
    assert "| torch | >=2." in written


def test_every_numpy_function_with_a_name_is_on_the_page(generate):
    from numpy._core import umath

    from leapp.ops.numpy_table import GROUPS

    page = (ROOT / "docs" / "numpy.md").read_text("utf-8")
    functions = [row.numpy for group in GROUPS for row in group.rows]
    assert all(generate._spelled(each) in page for each in functions)
    # Those without a name of their own are ufuncs that NumPy's functions call.
    assert all(vars(umath)[each.__name__] is each for each in functions if not generate._spelled(each))


COMPARE = """
import runpy
import numpy as np, scipy.signal, torch

smooth, window = map(runpy.run_path("smooth.py").get, ("smooth", "WINDOW"))
model = torch.jit.load("smooth/nodes/smooth/smooth.pt")
for signal in np.random.default_rng(7).normal(size=(5, 50)):
    expected = smooth(signal)
    np.testing.assert_array_equal(expected, scipy.signal.lfilter(window, [1.0], signal))
    np.testing.assert_allclose(model(torch.from_numpy(signal)).numpy(), expected, rtol=1e-12, atol=1e-15)
"""


def test_the_equivalent_of_a_native_function_is_exported(tmp_path):
    pytest.importorskip("scipy")
    page = (ROOT / "docs" / "numpy.md").read_text("utf-8")
    (script,) = re.findall(r"^<!-- file: smooth.py -->\n```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "smooth.py").write_text(script, "utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", COMPARE],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_page_of_errors_has_all_of_them(generate):
    from leapp import errors

    page = generate.errors_page()
    for each in vars(errors).values():
        if (
            isinstance(each, type)
            and issubclass(each, (errors.LeappError, errors.LeappWarning))
            and not each.__subclasses__()
        ):
            assert f"\n### {each.__name__}\n" in page


def test_no_link_leads_nowhere(generate):
    assert generate.broken_links() == []


def test_links_that_lead_nowhere_are_named(generate, tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "other.md").write_text("# Names, and `code`\n\n```sh\n# no heading\n```\n", "utf-8")
    (tmp_path / "README.md").write_text(
        "# Top\n[a](docs/other.md#names-and-code) [b](docs/gone.md) [c](docs/other.md#no-heading) ![d](gone.png)\n"
        "[e](#top) [f](#bottom) [g](https://example.com/x) [h](docs)\n```text\n[i](nowhere)\n```\n",
        "utf-8",
    )
    assert generate.broken_links(tmp_path) == [
        "README.md: docs/gone.md: no such file",
        "README.md: docs/other.md#no-heading: no such heading",
        "README.md: gone.png: no such file",
        "README.md: #bottom: no such heading",
    ]


def _script(page, name, folder):
    """Write an example of a page as its reader would."""
    text = (ROOT / "docs" / page).read_text("utf-8")
    (script,) = re.findall(rf"^<!-- file: {name} -->\n```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (folder / name).write_text(script, "utf-8")


def _run_script(name, folder):
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", name],
        cwd=folder, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdin=subprocess.DEVNULL, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_a_function_as_a_node(tmp_path, monkeypatch):
    from leapp.bundle.read import load

    _script("nodes.md", "controller.py", tmp_path)
    _run_script("controller.py", tmp_path)
    model = load(tmp_path / "controller").contract["models"]["act"]
    names = [[port["name"] for port in model[direction]] for direction in ("inputs", "outputs")]
    assert names == [["obs_joints_position", "obs_joints_velocity"], ["action", "spread"]]


def test_a_state_runs_closed_loop(tmp_path):
    _script("state.md", "recurrent.py", tmp_path)
    _run_script("recurrent.py", tmp_path)


def test_a_model_that_is_brought(tmp_path):
    import numpy as np
    import onnxruntime

    from leapp.bundle.read import load

    onnx = pytest.importorskip("onnx")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    weight = onnx.numpy_helper.from_array(np.arange(12, dtype=np.float32).reshape(4, 3) / 10, "W")
    ports = [helper.make_tensor_value_info(*each) for each in (("image", kind, [1, 4]), ("features", kind, [1, 3]))]
    node = helper.make_node("MatMul", ["image", "W"], ["features"])
    graph = helper.make_graph([node], "g", ports[:1], ports[1:], [weight])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9),
        tmp_path / "perception.onnx",
    )
    _script("nodes.md", "perception.py", tmp_path)
    _run_script("perception.py", tmp_path)
    bundle = load(tmp_path / "robot")
    copy = bundle.artifact("perception")
    assert copy.read_bytes() == (tmp_path / "perception.onnx").read_bytes()
    assert bundle.contract["pipeline"]["data_flow"] == {"perception/features": ["policy/features"]}
    image = np.random.default_rng(7).normal(size=(1, 4)).astype(np.float32)
    (features,) = onnxruntime.InferenceSession(copy).run(None, {"image": image})
    (action,) = onnxruntime.InferenceSession(bundle.artifact("policy")).run(None, {"features": features})
    np.testing.assert_allclose(action, np.tanh(image @ onnx.numpy_helper.to_array(weight)) * np.float32(0.5), rtol=1e-5)
