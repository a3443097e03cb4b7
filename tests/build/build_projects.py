"""Projects to build: tiny ones, written to a folder and built once for all tests that look at the result."""

from __future__ import annotations

import os
import textwrap
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from leapp.build.isolate import SessionOutcome, run_session, session_environment
from leapp.build.plan import PipelinePlan, make_plan
from leapp.manifest.load import load_one

if TYPE_CHECKING:
    from pathlib import Path

HEAD = """\
import os, sys
import torch
import leapp
from leapp import annotate


def record(node="scale", factor=2.0):
    x = annotate.input_tensors(node, {"x": torch.randn(3)})
    annotate.output_tensors(node, {"y": torch.tanh(x) * factor})

"""


@dataclass
class Project:
    """A folder with sources and manifests."""

    root: Path
    manifests: dict[str, Path] = field(default_factory=dict)

    def source(self, name: str, body: str, *, head: str = HEAD) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(head + textwrap.dedent(body), encoding="utf-8")

    def manifest(self, name: str, entry: str, extra: str = "", *, pipeline: str = "", timeout_s: float = 120) -> Path:
        path = self.root / "manifests" / f"{name}.toml"
        path.parent.mkdir(exist_ok=True)
        head = f'schema = 1\n[pipeline]\nname = "{name}"\nversion = "1.0.0"\nentry = "{entry}"\n'
        rest = f'{pipeline}\n[export]\nformats = ["torchscript"]\n{textwrap.dedent(extra)}\n'
        if "[session]" not in rest:
            rest += "[session]\n"
        path.write_text(head + rest.replace("[session]\n", f"[session]\ntimeout_s = {timeout_s}\n"), encoding="utf-8")
        self.manifests[name] = path
        return path

    def plan(self, name: str) -> PipelinePlan:
        return make_plan([load_one(self.manifests[name])], out=self.root / "dist", environment=os.environ).pipelines[0]

    def session(self, name: str, *, grace_s: float = 10, **options) -> SessionOutcome:
        """Run one entry in its own process, as a build does, and hand back what is left of it."""
        plan = self.plan(name)
        place = self.root / "sessions" / name
        folders = {each: place / each for each in ("records", "home", "tmp", "out")}
        for each in folders.values():
            each.mkdir(parents=True)
        environment = session_environment(
            options.pop("outer", os.environ),
            home=folders["home"],
            temporary=folders["tmp"],
            seed=plan.manifest.session.seed,
            threads=plan.manifest.session.threads,
            pass_env=plan.manifest.session.pass_env,
        )
        return run_session(
            plan.request(folders["out"]),
            python=plan.python,
            folder=folders["records"],
            environment=environment,
            timeout_s=plan.manifest.session.timeout_s,
            grace_s=grace_s,
            **options,
        )
