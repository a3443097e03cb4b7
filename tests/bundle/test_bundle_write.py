"""Sealing: what is content, what is evidence, and that only content reaches the digest."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import pytest
from bundle_cases import make, manifest_of, port, stage, two_nodes

from leapp._canonical import canonical_json
from leapp._spec import NodeSpec
from leapp.bundle import _tree, read, write
from leapp.errors import BundleLinkError, BundleValueError, BundleWriteError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def listing(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_bundle_json_lists_content_alone_sorted(bundle: Path) -> None:
    value = json.loads((bundle / "bundle.json").read_text())
    paths = [entry["path"] for entry in value["files"]]
    assert (
        paths
        == sorted(paths)
        == [
            "nodes/estimator/estimator.onnx",
            "nodes/estimator/estimator.pt2",
            "nodes/estimator/graph.txt",
            "nodes/estimator/manifest.json",
            "nodes/policy/graph.txt",
            "nodes/policy/manifest.json",
            "nodes/policy/policy.pt",
            "two.yaml",
            "two_initial_values.safetensors",
        ]
    )
    for entry in value["files"]:
        data = (bundle / entry["path"]).read_bytes()
        assert (entry["size"], entry["sha256"]) == (len(data), sha256(data).hexdigest())
    assert {key: value[key] for key in ("schema", "requires", "status", "name", "version")} == {
        "schema": 1,
        "requires": 1,
        "status": "ok",
        "name": "two",
        "version": "1.0.0",
    }


def test_the_digest_is_that_of_the_file_without_it(tmp_path: Path) -> None:
    digest = make(tmp_path / "b")
    value = json.loads((tmp_path / "b" / "bundle.json").read_text())
    assert value.pop("digest") == digest
    assert sha256(canonical_json(value)).hexdigest() == digest


def test_the_evidence_index_lists_all_evidence_and_nothing_else(bundle: Path) -> None:
    value = json.loads((bundle / "evidence/index.json").read_text())
    assert [entry["path"] for entry in value["files"]] == [
        "evidence/samples/estimator.safetensors",
        "evidence/sources/estimator.json",
        "log.txt",
        "two.png",
    ]
    for entry in value["files"]:
        data = (bundle / entry["path"]).read_bytes()
        assert (entry["size"], entry["sha256"]) == (len(data), sha256(data).hexdigest())


def change_log(folder: Path) -> None:
    (folder / "log.txt").write_text("another host\n")


def change_picture(folder: Path) -> None:
    (folder / "two.png").write_bytes(b"other")


def add_evidence(folder: Path) -> None:
    (folder / "evidence/deep/er").mkdir(parents=True)
    (folder / "evidence/deep/er/provenance.json").write_text("{}")


def drop_evidence(folder: Path) -> None:
    for path in (*(folder / "evidence").rglob("*.*"), folder / "log.txt", folder / "two.png"):
        path.unlink()


def change_model(folder: Path) -> None:
    (folder / "nodes/policy/policy.pt").write_bytes(b"other")


def add_content(folder: Path) -> None:
    (folder / "notes.txt").write_text("x")


def foreign_picture(folder: Path) -> None:
    (folder / "other.png").write_bytes(b"x")  # only <name>.png is evidence


@pytest.mark.parametrize(
    ("change", "same"),
    [
        (change_log, True),
        (change_picture, True),
        (add_evidence, True),
        (drop_evidence, True),
        (change_model, False),
        (add_content, False),
        (foreign_picture, False),
    ],
)
def test_only_content_reaches_the_digest(tmp_path: Path, change: Callable[[Path], None], same: bool) -> None:
    first = make(tmp_path / "a")
    (tmp_path / "b").mkdir()
    stage(tmp_path / "b")
    change(tmp_path / "b")
    second = write.seal(tmp_path / "b", name="two", version="1.0.0", status="ok")
    assert (first == second) is same
    assert read.verify(tmp_path / "b").digest == second


@pytest.mark.parametrize("change", [{"version": "1.0.1"}, {"status": "failed"}, {"marker": "other"}])
def test_what_the_bundle_is_reaches_the_digest(tmp_path: Path, change: dict[str, Any]) -> None:
    assert make(tmp_path / "a") != make(tmp_path / "b", **change)


def test_two_folders_get_equal_bytes_and_modes_whatever_the_umask(tmp_path: Path) -> None:
    make(tmp_path / "a")
    before = os.umask(0o077)
    try:
        make(tmp_path / "b")
    finally:
        os.umask(before)
    assert listing(tmp_path / "a") == listing(tmp_path / "b")
    for path in (tmp_path / "b", *(tmp_path / "b").rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o755 if path.is_dir() else 0o644), path


def test_modes_set_by_others_are_normalised(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    folder.mkdir()
    stage(folder)
    (folder / "nodes/policy/policy.pt").chmod(0o4777)
    (folder / "two.yaml").chmod(0o400)
    (folder / "nodes").chmod(0o700)
    write.seal(folder, name="two", version="1.0.0", status="ok")
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*") if path.is_file()} == {0o644}
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*") if path.is_dir()} == {0o755}


def test_sealing_again_changes_nothing(bundle: Path) -> None:
    before = listing(bundle)
    write.seal(bundle, name="two", version="1.0.0", status="ok")
    assert listing(bundle) == before


def test_empty_folders_are_dropped(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    (folder / "evidence/none/at/all").mkdir(parents=True)
    (folder / "nodes/gone").mkdir(parents=True)
    (folder / "p.yaml").write_text("x")
    write.seal(folder, name="p", version="1", status="ok")
    assert sorted(path.name for path in folder.rglob("*")) == ["bundle.json", "p.yaml"]


def test_more_evidence_can_be_indexed_later(bundle: Path) -> None:
    digest = read.load(bundle).digest
    (bundle / "evidence/signature.json").write_text("{}")
    assert [each.kind for each in read.verify(bundle).problems] == ["evidence-extra"]
    write.index_evidence(bundle, "two")
    report = read.verify(bundle)
    assert report.ok
    assert report.digest == digest


def link_file(folder: Path) -> None:
    (folder / "nodes/x").symlink_to("/etc/hostname")


def link_folder(folder: Path) -> None:
    (folder / "evidence/more").symlink_to(folder / "nodes")


def dangling(folder: Path) -> None:
    (folder / "x").symlink_to("nowhere")


def pipe(folder: Path) -> None:
    os.mkfifo(folder / "nodes/pipe")


def unix_socket(folder: Path) -> None:
    with contextlib.chdir(folder), socket.socket(socket.AF_UNIX) as server:  # such paths must be short
        server.bind("s")


SPECIAL = [
    (link_file, "a symbolic link"),
    (link_folder, "a symbolic link"),
    (dangling, "a symbolic link"),
    (pipe, "a named pipe"),
    (unix_socket, "a socket"),
]


@pytest.mark.parametrize(("put", "kind"), SPECIAL)
def test_links_and_special_files_are_refused(tmp_path: Path, put: Callable[[Path], None], kind: str) -> None:
    folder = tmp_path / "a"
    folder.mkdir()
    stage(folder)
    put(folder)
    with pytest.raises(BundleLinkError, match=kind):
        write.seal(folder, name="two", version="1.0.0", status="ok")
    assert not (folder / "bundle.json").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "a/b"}, "the pipeline name 'a/b': it holds '/'"),
        ({"name": ""}, "the pipeline name ''"),
        ({"name": ".."}, "the pipeline name '..'"),
        ({"version": "1/2"}, "the version '1/2'"),
        ({"status": "fine"}, "the status 'fine': it is none of ok, failed"),
    ],
)
def test_names_that_no_bundle_can_have(tmp_path: Path, change: dict[str, str], message: str) -> None:
    with pytest.raises(BundleValueError) as caught:
        write.seal(tmp_path, **({"name": "p", "version": "1.0.0", "status": "ok"} | change))
    assert message in str(caught.value)


def test_file_names_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"\xff\xfe")).write_text("x")
    with pytest.raises(BundleValueError, match="not Unicode text"):
        write.seal(tmp_path, name="p", version="1", status="ok")


NAMES = [
    ("an estimator", "the policy"),
    ("schätzer", "方策"),
    ("a.b.c", ".hidden"),
    ("node 'x' \"y\"", "it: #1 [a]"),
    ("-rf", "~"),
    ("manifest.json", "evidence"),
    ("NODE", "node"),
    ("1e5", "null"),
    ("\u00e9", "e\u0301"),  # composed and decomposed: two names
]


@pytest.mark.parametrize("nodes", NAMES, ids=lambda pair: ascii(pair[0]))
@pytest.mark.parametrize("name", ["two", "zwei Knöten.v2", "evidence", "log"])
def test_names_of_every_kind_make_sound_bundles(tmp_path: Path, name: str, nodes: tuple[str, str]) -> None:
    make(tmp_path / "b", name, nodes=nodes)
    report = read.verify(tmp_path / "b")
    assert report.problems == ()
    bundle = read.load(tmp_path / "b")
    assert tuple(bundle.nodes) == nodes
    assert bundle.artifact(nodes[0]).read_bytes() == f"model {nodes[0]} onnx".encode()


def test_a_full_disk_is_an_error_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage(tmp_path)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(write, "_write", full)
    with pytest.raises(BundleWriteError, match="No space left on device"):
        write.seal(tmp_path, name="two", version="1", status="ok")


def test_a_value_that_json_cannot_hold_is_named_with_its_place() -> None:
    node = NodeSpec("n", (port("x", 1, limit=float("nan")),), ())
    with pytest.raises(BundleValueError, match=r"inputs\[0\].semantics.limit: nan is not a finite number"):
        write.node_manifest_bytes(manifest_of(node))


def test_node_manifests_are_equal_bytes_whatever_order_maps_had() -> None:
    node = two_nodes().nodes[0]
    first, second = {"torch.add": 1, "torch.cat": 2}, {"torch.cat": 2, "torch.add": 1}
    assert write.node_manifest_bytes(manifest_of(node, ops=first)) == write.node_manifest_bytes(
        manifest_of(node, ops=second)
    )


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("nodes/a/a.onnx", "application/x-onnx"),
        ("nodes/a.b/a.b.PT2", "application/x-torch-export+zip"),
        ("p.yaml", "application/yaml"),
        ("evidence/report.html", "text/html"),
        ("p_initial_values.safetensors", "application/x-safetensors"),
        ("nodes/a.json/weights", "application/octet-stream"),
        ("nodes/a/a.onnx.data", "application/octet-stream"),
    ],
)
def test_media_types(path: str, expected: str) -> None:
    assert _tree.media_type(path) == expected
