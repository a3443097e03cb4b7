"""Programs that run under a recorder, each in a process of its own, as a build's sessions do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from leapp.build.reads import Reads

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DRIVER = """\
import json, os, sys, time
from pathlib import Path
from leapp.build import reads
from leapp.errors import LeappError
given = json.loads(sys.argv[1])
os.chdir(given["root"])
{before}
recorder = reads.ReadRecorder(
    Path(given["root"]), inputs=given["inputs"], own_folders=[Path(each) for each in given["own"]]
)
{after_made}
recorder.install()
sys.path.insert(0, given["root"])
def reader():
    # The process that takes the notifications: ours by its HOME.
    for each in Path("/proc").glob("[0-9]*"):
        try:
            words = (each / "cmdline").read_bytes().split(b"\\0")
            ours = f"HOME={{os.environ['HOME']}}".encode() in (each / "environ").read_bytes().split(b"\\0")
        except OSError:
            continue
        if ours and len(words) > 4 and words[4].endswith(b"_inotify.py"):
            return int(each.name)
    raise LookupError
def others_work():
    # Lets the test do something, as a process that has nothing to do with the session.
    own = Path(given["own"][0])
    (own / "wait").touch()
    while not (own / "go").exists():
        time.sleep(0.01)
    (own / "go").unlink()
path = Path(given["entry"])
names = {{"__name__": "__main__", "recorder": recorder, "reader": reader, "others_work": others_work}}
try:
    exec(compile(given["code"], str(path), "exec"), names)
    record = {{"reads": recorder.collect().as_json()}}
except LeappError as error:
    record = {{"error": type(error).__name__, "text": str(error)}}
with open(given["result"], "w") as file:
    json.dump(record, file)
"""


@dataclass
class Outcome:
    reads: Reads | None
    error: str
    text: str
    printed: str

    def paths(self, kind: str = "project") -> list[str]:
        return [each.path for each in getattr(self.reads, kind)]


class Session:
    """A project folder beside a folder of the session's own and one that is neither."""

    def __init__(self, base: Path) -> None:
        self.root = base / "project"
        self.outside = base / "outside"
        self.own = base / "own"
        for each in (self.root, self.outside, self.own):
            each.mkdir()

    def file(self, name: str, content: str | bytes = "content", *, of: Path | None = None) -> Path:
        path = (of or self.root) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def run(
        self,
        code: str,
        *,
        inputs=(),
        before="",
        after_made="",
        python=(sys.executable,),
        others: Callable[[], object] | None = None,
    ) -> Outcome:
        """Run ``code``. ``others`` is done by this process each time that ``others_work()`` is called there."""
        result = self.own / "result.json"
        given = {
            "root": str(self.root),
            "inputs": list(inputs),
            "own": [str(self.own)],
            "entry": str(self.root / "entry.py"),
            "code": textwrap.dedent(code),
            "result": str(result),
        }
        with subprocess.Popen(
            [*python, "-B", "-c", DRIVER.format(before=before, after_made=after_made), json.dumps(given)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "HOME": str(self.own), "OUTSIDE": str(self.outside)},
        ) as process:
            if others is not None:
                self._serve(process, others)
            try:
                printed, complaints = process.communicate(timeout=100)
            finally:
                process.kill()
        assert process.returncode == 0, complaints
        record = json.loads(result.read_text())
        reads = Reads.from_json(record["reads"]) if "reads" in record else None
        if reads is not None:
            assert json.loads(json.dumps(reads.as_json())) == record["reads"]
        return Outcome(reads, record.get("error", ""), record.get("text", ""), printed)

    def _serve(self, process: subprocess.Popen[str], others: Callable[[], object]) -> None:
        while process.poll() is None:
            if (self.own / "wait").exists():
                (self.own / "wait").unlink()
                others()
                (self.own / "go").touch()
            time.sleep(0.01)
