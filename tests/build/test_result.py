"""Results of ``--only``: a pipeline without the node is an error only where no pipeline has it."""

from types import SimpleNamespace
from typing import Any

from leapp.build.result import PipelineResult, WithoutNode
from leapp.errors import EntryFailedError, LeappError, OnlyNodeError, ValidationError


def result(name: str, error: LeappError | None = None, **rest: Any) -> PipelineResult:
    plan: Any = SimpleNamespace(name=name, version="1.0.0")
    return PipelineResult(plan, error=error, **rest)


def lacking(name: str) -> PipelineResult:
    return result(name, OnlyNodeError(manifest=f"{name}.toml", node="act", known="x", near=""))


def settle(*results: PipelineResult) -> tuple[list[str], list[str], list[str], tuple[str, ...]]:
    """Names that are told as they come, those told at the end, those that count, and those that are left out."""
    told: list[str] = []
    apart = WithoutNode()
    on_result = apart.after(lambda each: told.append(each.plan.name))
    for each in results:
        on_result(each)
    at_once = [*told]
    counted = apart.settled(results)
    return at_once, told[len(at_once) :], [each.plan.name for each in counted], apart.left_out


def test_pipelines_without_the_node_are_left_out_where_another_has_it():
    assert settle(lacking("arm"), result("walk")) == (["walk"], [], ["walk"], ("arm 1.0.0",))


def test_a_node_whose_models_failed_is_there():
    row: Any = SimpleNamespace(node="act")
    failed = result("walk", ValidationError(count=1, detail="x", reports={}), checks=(row,))
    assert settle(failed, lacking("arm")) == (["walk"], [], ["walk"], ("arm 1.0.0",))


def test_where_no_pipeline_has_it_each_says_so():
    assert settle(lacking("arm"), lacking("walk")) == ([], ["arm", "walk"], ["arm", "walk"], ())


def test_a_pipeline_that_failed_before_its_nodes_were_known_leaves_the_errors():
    broken = result("walk", EntryFailedError(entry="walk.py", how="exited", log="x.log"))
    assert settle(lacking("arm"), broken) == (["walk"], ["arm"], ["arm", "walk"], ())


def test_without_only_all_is_told_at_once():
    assert settle(result("arm"), result("walk")) == (["arm", "walk"], [], ["arm", "walk"], ())
