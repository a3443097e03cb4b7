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
