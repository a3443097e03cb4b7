from pathlib import Path

import pytest

from leapp._spec import UNSET, ExportFormat
from leapp.errors import UnknownNodeError
from leapp.manifest.load import load_one
from leapp.manifest.model import Entry, ExportSettings, Manifest, OnnxOptions, Pipeline, Probe, Session

PT2, ONNX, SCRIPTED = ExportFormat.PT2, ExportFormat.ONNX, ExportFormat.TORCHSCRIPT


def manifest(**values):
    pipeline = Pipeline("demo", "1.0.0", Entry("main.py:main", file="main.py", callable="main"))
    return Manifest(Path("/p/m.toml"), "m.toml", Path("/p"), **{"pipeline": pipeline, **values})


# --- formats: one row per line of the rule -------------------------------------------------------------------------

NOTHING = ExportSettings()
WITH_PT2 = ExportSettings((PT2,))
WITH_NONE = ExportSettings(())


@pytest.mark.parametrize(
    ("node", "script", "brings_model", "export", "expected"),
    [
        # [nodes.NAME] wins over everything
        (WITH_PT2, (ONNX,), False, ExportSettings((SCRIPTED,)), (PT2,)),
        (WITH_PT2, None, False, NOTHING, (PT2,)),
        (WITH_PT2, (ONNX,), True, NOTHING, (PT2,)),
        (WITH_NONE, (ONNX,), False, WITH_PT2, None),
        # then a script that says None, or brings a model
        (NOTHING, None, False, WITH_PT2, None),
        (None, None, False, NOTHING, None),
        (NOTHING, (ONNX,), True, WITH_PT2, None),
        (None, UNSET, True, WITH_PT2, None),
        # then [export]
        (NOTHING, (ONNX,), False, WITH_PT2, (PT2,)),
        (None, UNSET, False, WITH_PT2, (PT2,)),
        (None, (ONNX,), False, WITH_NONE, None),
        # then what the script gave, then ONNX
        (NOTHING, (SCRIPTED, PT2), False, NOTHING, (SCRIPTED, PT2)),
        (None, UNSET, False, NOTHING, (ONNX,)),
    ],
)
def test_formats_of_a_node(node, script, brings_model, export, expected):
    nodes = {} if node is None else {"policy": node}
    found = manifest(export=export, nodes=nodes).formats_for("policy", script, brings_model=brings_model)
    assert found == expected


def test_settings_of_another_node_do_not_count():
    assert manifest(nodes={"other": WITH_PT2}).formats_for("policy") == (ONNX,)


@pytest.mark.parametrize(
    ("node", "export", "otherwise", "expected"),
    [
        (None, NOTHING, None, OnnxOptions(20, 10)),
        (None, NOTHING, OnnxOptions(18, 8), OnnxOptions(18, 8)),
        (None, ExportSettings(opset=19), OnnxOptions(18, 8), OnnxOptions(19, 8)),
        (ExportSettings(opset=21), ExportSettings(opset=19, ir_version=9), None, OnnxOptions(21, 9)),
        (ExportSettings(ir_version=11), ExportSettings(opset=19, ir_version=9), None, OnnxOptions(19, 11)),
    ],
)
def test_onnx_of_a_node_is_settled_key_by_key(node, export, otherwise, expected):
    nodes = {} if node is None else {"policy": node}
    assert manifest(export=export, nodes=nodes).onnx_for("policy", otherwise) == expected


def test_tolerances_of_a_node():
    found = manifest(export=ExportSettings(rtol=0.0, atol=0.5), nodes={"policy": ExportSettings(atol=0.25)})
    assert found.tolerances_for("policy") == (0.0, 0.25)
    assert found.tolerances_for("other", rtol=0.1, atol=0.1) == (0.0, 0.5)
    assert manifest().tolerances_for("policy") == (1e-3, 1e-5)
    assert manifest().tolerances_for("policy", rtol=0.1, atol=0.2) == (0.1, 0.2)


# --- the probe -----------------------------------------------------------------------------------------------------


def test_probe_seeds_follow_the_sessions_or_begin_where_they_are_told():
    assert [manifest(session=Session(seed=7)).probe_seed(run) for run in range(3)] == [8, 9, 10]
    assert [manifest(probe=Probe(seed=3)).probe_seed(run) for run in range(2)] == [3, 4]
    assert manifest(session=Session(seed=2**32 - 1)).probe_seed() == 0


def test_probe_arguments():
    call = Pipeline("demo", "1.0.0", Entry.parse("main.py:main"), args={"a": 1, "b": 2})
    assert manifest(pipeline=call).probe_args() == {"a": 1, "b": 2}
    assert manifest(pipeline=call, probe=Probe(args={"b": 3})).probe_args() == {"a": 1, "b": 3}
    assert call.args == {"a": 1, "b": 2}
    script = Pipeline("demo", "1.0.0", Entry.parse("main.py"), argv=("-a", "1"))
    assert manifest(pipeline=script).probe_argv() == ("-a", "1")
    assert manifest(pipeline=script, probe=Probe(argv=())).probe_argv() == ()


# --- files ---------------------------------------------------------------------------------------------------------


def test_input_files_are_absolute_sorted_and_once(tmp_path):
    root = tmp_path / "p"
    for name in ("w/b.pt", "w/a.pt", "w/.hidden.pt", "w/deep/c.txt", "../side.bin", "weird[1].pt"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()

    def files(*patterns):
        found = Manifest(
            root / "m.toml",
            "m.toml",
            root,
            Pipeline("d", "1.0.0", Entry.parse("m.py")),
            session=Session(inputs=patterns),
        ).input_files()
        assert all(path.is_absolute() for path in found)
        return [str(path.relative_to(tmp_path)) for path in found]

    assert files("w/*.pt", "w/a.pt") == ["p/w/a.pt", "p/w/b.pt"]
    assert files("../side.bin") == ["side.bin"]
    assert files("w") == ["p/w/.hidden.pt", "p/w/a.pt", "p/w/b.pt", "p/w/deep/c.txt"]
    assert files("**/*.txt") == ["p/w/deep/c.txt"]
    assert files("w/.hidden.pt") == ["p/w/.hidden.pt"]
    assert files("weird[[]1].pt") == ["p/weird[1].pt"]
    assert files(str(tmp_path / "side.*")) == ["side.bin"]
    assert files("nothing/*") == []


# --- later errors point into the file ------------------------------------------------------------------------------


def test_unknown_nodes_are_named_with_their_line(tmp_path):
    (tmp_path / "main.py").touch()
    path = tmp_path / "demo.toml"
    path.write_text(
        'schema = 1\n[pipeline]\nname = "demo"\nversion = "1.0.0"\nentry = "main.py"\n'
        "[nodes.policy]\nformats = []\n[nodes.'obs.state']\n"
    )
    found = load_one(path)
    found.check_nodes({"policy", "obs.state", "third"})
    with pytest.raises(UnknownNodeError) as caught:
        found.check_nodes({"policy", "estimator"})
    assert str(caught.value) == (
        f'{path}:8: [nodes."obs.state"] is not a node of this pipeline.\nNodes that were recorded: estimator, policy.'
    )
    with pytest.raises(UnknownNodeError, match=r"Nodes that were recorded: none\."):
        found.check_nodes(())
    assert found.where("nodes", "policy", "formats") == f"{path}:7, nodes.policy.formats"
    assert found.where("nodes", "policy", "onnx") == f"{path}:6, nodes.policy.onnx"
    assert found.where("probe") == f"{path}, probe"


@pytest.mark.parametrize(
    "text", ["", "main", "main.py:", ":main", "a b:main", "-m", "-m ", "-m a b", "1.py:2", "a.py:b:c"]
)
def test_what_is_no_entry(text):
    with pytest.raises(ValueError, match=r"is none of the forms"):
        Entry.parse(text)
