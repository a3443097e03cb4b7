"""What ``schedule.py`` runs in the place of a session: it leaves what a real one left, under another pipeline's name.

Run as ``_stand_in.py TEMPLATE BUNDLES REQUEST``. Standard library only, so that hundreds of it take little time.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path


def main(template: Path, bundles: Path, request: Path) -> None:
    """Write the bundle or the report that is asked for, and then the records."""
    told = json.loads(Path(f"{request}.json").read_bytes())
    role = "probe" if told["report"] else "first"
    compiled = json.loads((template / role / "compiled.json").read_bytes())
    if role == "probe":
        shutil.copyfile(template / role / "report.json", told["report"])
    else:
        bundle = Path(told["save_path"], told["name"])
        shutil.copytree(bundles / told["name"], bundle)
        compiled["bundle"] = str(bundle)
    if told["record"]:
        shutil.copytree(template / role / "record", told["record"])
    if told["record"] or told["report"]:  # a reproduction is judged by its bundle alone
        shutil.copyfile(template / role / "reads.json", request.with_name("reads.json"))
    request.with_name("compiled.json").write_text(json.dumps(compiled))
    shutil.copyfile(template / role / "ending.json", request.with_name("ending.json"))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]))
