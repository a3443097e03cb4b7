"""Records of commands as JUnit files, as annotations and as a table."""

from __future__ import annotations

import io
import stat
import xml.etree.ElementTree as ET
from pathlib import Path

import junitparser
import pytest

from leapp import cli
from leapp.errors import OutputFileError
from leapp.report import github
from leapp.report.junit import junit_xml, write_whole
from leapp.report.outcomes import Case, Suite, shown_path, suites

COMMON = {"schema": 1, "command": "build", "ok": True, "exit_code": 0, "error": None}


def row(port="y", *, ok=True, note="", where=""):
    return {"node": "policy", "format": "onnx", "port": port, "ok": ok, "note": note, "where": where}


def error(message, *, details="", problems=(), kind="BuildError"):
    return {"class": kind, "message": message, "details": details, "problems": [*problems], "log": None}


def build(**more):
    return {
        **COMMON,
        "manifest": "manifests/p.toml",
        "root": "/w",
        "name": "p",
        "version": "1.0.0",
        "wall_s": 2.5,
        **more,
    }


def failed(code=1, **more):
    return build(ok=False, exit_code=code, **more)


def problem(file, line, key="pipeline.name", message="an integer", column=None):
    return {"file": file, "line": line, "column": column, "key": key, "message": message}


def element(data):
    return ET.fromstring(data)  # noqa: S314  # we wrote it


def parsed(*records):
    return [*junitparser.JUnitXml.fromstring(junit_xml(suites(records), command="build").decode())]


def test_each_port_is_a_case_and_the_whole_one():
    (suite,) = parsed(
        build(checks=[row("y"), row("z", ok=False, note="apart by 3", where="sample 0, [1]")], digest="ab")
    )
    assert (suite.name, suite.tests, suite.failures, suite.errors, suite.time) == ("p 1.0.0", 3, 1, 0, 2.5)
    assert [case.name for case in suite] == ["build", "policy/onnx/y", "policy/onnx/z"]
    (wrong,) = [*suite][2].result
    assert isinstance(wrong, junitparser.Failure)
    assert wrong.text == "policy (onnx) z at sample 0, [1]: apart by 3"
    assert {each.name: each.value for each in suite.properties()} == {
        "digest": "sha256:ab",
        "manifest": "manifests/p.toml",
    }


@pytest.mark.parametrize(("code", "kind"), [(1, junitparser.Failure), (2, junitparser.Error), (3, junitparser.Error)])
def test_what_could_not_be_checked_is_an_error_and_no_failure(code, kind):
    (suite,) = parsed(failed(code, error=error("It broke.\nMend it.", details="the end of the log")))
    ((case,),) = ([*suite],)
    (wrong,) = case.result
    assert type(wrong) is kind
    assert (wrong.message, wrong.type) == ("It broke.", "BuildError")
    assert wrong.text == "It broke.\nMend it.\n\nthe end of the log"


def test_manifests_with_problems_are_a_suite_each():
    problems = [problem("m/a.toml", 3), problem("m/b.toml", None), problem("m/a.toml", 7, key="")]
    first, second = parsed({**COMMON, "ok": False, "exit_code": 2, "error": error("3 problems", problems=problems)})
    assert (first.name, first.errors, second.name) == ("m/a.toml", 2, "m/b.toml")
    assert [case.name for case in first] == ["line 3, pipeline.name", "line 7"]
    assert next(iter(first)).result[0].text == "m/a.toml:3, pipeline.name: an integer"


def test_problems_of_bundles_and_reproductions_are_cases():
    (suite,) = parsed(
        {
            **COMMON,
            "command": "verify",
            "ok": False,
            "exit_code": 1,
            "bundle": "dist/p/1.0.0",
            "name": "p",
            "version": "1.0.0",
            "problems": [{"kind": "missing", "path": "nodes/a.pt", "detail": "it is gone"}],
        }
    )
    assert [(case.name, case.is_passed) for case in suite] == [("verify", True), ("missing: nodes/a.pt", False)]
    blame = {"reproduced": False, "blames": [{"text": "the hash seed"}]}
    (suite,) = parsed(failed(reproduction=blame, error=error("no")))
    assert [case.name for case in suite] == ["build", "reproduction"]
    assert [*suite][1].result[0].text == "It came out otherwise once more: the hash seed"


def test_a_command_that_failed_without_a_word_fails_all_the_same():
    (suite,) = parsed(failed(checks=[row()]))
    assert suite.failures == 1


def test_texts_that_xml_cannot_hold_are_shown():
    nasty = "\x1b[31mred\x00 & <b> ]]> \ud800 \ufffe é 🤖"
    data = junit_xml(suites([failed(error=error(nasty))]), command="build")
    text = next(element(data).iter("failure")).text
    assert text == "\\x1b[31mred\\x00 & <b> ]]> \\ud800 \\ufffe é 🤖"


def test_the_shape_is_the_common_one():
    """The elements and attributes that the schemas of GitLab and Jenkins share, and no others; counts add up."""
    records = [
        build(checks=[row(), row("z", ok=False, note="n")], digest="ab"),
        {**COMMON, "ok": False, "exit_code": 2, "error": error("p", problems=[problem("m.toml", 3)])},
    ]
    root = element(junit_xml(suites(records), command="build"))
    allowed = {
        "testsuites": ({"name", "tests", "failures", "errors", "time"}, {"testsuite"}),
        "testsuite": ({"name", "tests", "failures", "errors", "time"}, {"properties", "testcase"}),
        "properties": (set(), {"property"}),
        "property": ({"name", "value"}, set()),
        "testcase": ({"name", "classname", "time", "file", "line"}, {"failure", "error"}),
        "failure": ({"message", "type"}, set()),
        "error": ({"message", "type"}, set()),
    }
    for each in root.iter():
        attributes, children = allowed[each.tag]
        assert set(each.attrib) <= attributes
        assert {child.tag for child in each} <= children
    for suite in [root, *root.iter("testsuite")]:
        for name, tag in (("tests", "testcase"), ("failures", "failure"), ("errors", "error")):
            assert int(suite.attrib[name]) == len([*suite.iter(tag)])
    assert [child.tag for child in root[0]] == ["properties", "testcase", "testcase", "testcase"]


def test_nothing_checked_is_a_file_all_the_same():
    assert element(junit_xml((), command="build")).attrib["tests"] == "0"


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    target = tmp_path / "new" / "folder" / "junit.xml"
    write_whole(target, b"one")
    write_whole(target, b"two")
    assert target.read_bytes() == b"two"
    assert [each.name for each in target.parent.iterdir()] == ["junit.xml"]
    assert stat.S_IMODE(target.stat().st_mode) & 0o400
    (tmp_path / "taken").mkdir()
    with pytest.raises(OutputFileError, match="taken"):
        write_whole(tmp_path / "taken", b"three")
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith(".")] == []


# --- GitHub ----------------------------------------------------------------------------------------------------------


def said(*records, workspace="/w", here="/w"):
    return [*github.commands(suites(records), here=here, workspace=workspace)]


def test_problems_of_manifests_are_at_their_lines():
    problems = [problem("manifests/a.toml", 3), problem("manifests/b.toml", None)]
    record = {**COMMON, "ok": False, "exit_code": 2, "error": error("2", problems=problems)}
    assert said(record) == [
        "::error file=manifests/a.toml,line=3,title=manifests/a.toml::manifests/a.toml:3, pipeline.name: an integer",
        "::error file=manifests/b.toml,title=manifests/b.toml::manifests/b.toml, pipeline.name: an integer",
    ]


def test_texts_are_escaped_as_the_runner_wants_it():
    (line,) = said(failed(name="a,b:c%", error=error("50% of\r\nthis: that, and ::error::")))
    assert line == ("::error file=manifests/p.toml,title=a%2Cb%3Ac%25 1.0.0::50%25 of%0D%0Athis: that, and ::error::")
    assert "\n" not in line


def test_lines_of_sources_are_found_in_messages():
    text = "2 things:\nnode 'a': float() at src/a.py:11 moved\nnode 'b': item at src/b.py:7 moved\nMend them."
    assert said(failed(error=error(text))) == [
        "::error file=src/a.py,line=11,title=p 1.0.0::node 'a': float() at src/a.py:11 moved",
        "::error file=src/b.py,line=7,title=p 1.0.0::node 'b': item at src/b.py:7 moved",
    ]
    (line,) = said(failed(error=error("float() at src/a.py:11 leaves.\nStay.", details="Raised by /w/src/a.py:11")))
    assert line == "::error file=src/a.py,line=11,title=p 1.0.0::float() at src/a.py:11 leaves.%0AStay."


def test_a_traceback_points_to_the_last_line_of_ones_own():
    details = 'Traceback:\n  File "/w/e.py", line 3, in f\n  File "/v/site-packages/torch/x.py", line 9, in g\nboom'
    (line,) = said(failed(3, error=error("It raised.", details=details)), workspace="")
    assert line.startswith("::error file=/w/e.py,line=3,")


def test_lines_where_values_left_the_trace_are_warnings_unless_told_already():
    def note(line, kind="escape"):
        return {"kind": kind, "node": "a", "op": "float()", "file": "a.py", "line": line, "function": "f"}

    lines = said(failed(error=error("at a.py:3 it moved"), escapes=[note(3), note(4), note(5, "constant")]))
    assert [line.split("::")[1] for line in lines] == [
        "error file=a.py,line=3,title=p 1.0.0",
        "warning file=a.py,line=4,title=p 1.0.0",
    ]


def test_checks_that_fail_are_at_the_manifest():
    (line,) = said(failed(checks=[row(), row("z", ok=False, note="apart")]))
    assert line == "::error file=manifests/p.toml,title=p 1.0.0::policy (onnx) z: apart"


def test_files_are_named_from_the_checkout(tmp_path):
    (tmp_path / "sub" / "src").mkdir(parents=True)
    (tmp_path / "sub" / "src" / "a.py").touch()
    workspace, sub = str(tmp_path), str(tmp_path / "sub")
    assert shown_path("src/a.py", (sub,), workspace) == "sub/src/a.py"
    assert shown_path("../sub/src/a.py", ("", sub), workspace) == "sub/src/a.py"
    assert shown_path(f"{sub}/src/a.py", (), workspace) == "sub/src/a.py"
    assert shown_path("/etc/passwd", (sub,), workspace) == "/etc/passwd"
    assert shown_path("src/a.py", (sub,), "") == "src/a.py"
    assert shown_path("", (sub,), workspace) == ""


def test_the_table_holds_whatever_is_said():
    suite = Suite(
        "p|q <x>", "build", (Case("build"), Case("a*b", "one | two\n\nthree `code` [l](x) & \\")), time_s=1.25
    )
    text = github.summary([suite], command="build")
    assert "| ❌ | p&#124;q &lt;x&gt; | 2 | 1 | 1.2 s |  |\n" in text
    assert "| a&#42;b | one &#124; two<br>three &#96;code&#96; &#91;l&#93;(x) &amp; &#92; |\n" in text
    assert len({line.count("|") for line in text.splitlines()[2:5]}) == 1


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture
def broken(tmp_path, monkeypatch):
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "e.py").touch()
    (tmp_path / "manifests").mkdir()
    (tmp_path / "manifests" / "p.toml").write_text(
        'schema = 1\n[pipeline]\nname = 3\nversion = "1.0.0"\nentry = "e.py"\n'
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    return tmp_path


def test_github_gets_lines_on_stderr_and_a_table(broken, monkeypatch, capsys):
    page = broken / "page.md"
    page.write_text("before\n")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(broken.parent))
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(page))
    assert cli.main(["check", "--json", "--junit", "junit.xml"]) == 2
    captured = capsys.readouterr()
    assert captured.out.count("\n") == 1
    assert f"::error file={broken.name}/manifests/p.toml,line=3," in captured.err
    assert page.read_text().startswith("before\n### leapp check\n")
    assert element(Path("junit.xml").read_bytes()).attrib["errors"] == "1"


def test_nobody_else_gets_them(broken, capsys):
    assert cli.main(["check"]) == 2
    assert "::error" not in capsys.readouterr().err


def test_a_junit_file_that_cannot_be_written_is_named(broken, capsys):
    (broken / "manifests" / "p.toml").unlink()
    (broken / "file").touch()
    assert cli.main(["verify", "manifests", "--junit", "file/junit.xml"]) == 2
    assert "file/junit.xml" in capsys.readouterr().err


def test_records_survive_an_ascii_stdout(broken, monkeypatch):
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", out)
    assert cli.main(["verify", "größe\udcff", "--json"]) == 2
    assert b"gr\\u00f6\\u00dfe\\udcff" in out.buffer.getvalue()
