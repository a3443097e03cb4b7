"""Checks as JUnit XML, in the form that GitLab and Jenkins read.

The elements are those of the common schema: ``testsuites`` > ``testsuite`` > ``testcase`` > ``failure`` or ``error``.
A failure is a check that did not pass; an error is one that could not be made. No clock and no host is in it.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import xml.etree.ElementTree as ET  # only written with, never read
from pathlib import Path
from typing import TYPE_CHECKING, Final

from leapp.errors import OutputFileError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leapp.report.outcomes import Case, Suite

_NOT_IN_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""XML 1.0 has no way at all to write these."""
_MESSAGE_LENGTH: Final = 300
"""Of the attribute, which lists show; the element's text is whole."""


def junit_xml(suites: Sequence[Suite], *, command: str) -> bytes:
    """The file's bytes: UTF-8, indented, one ``testsuite`` per suite, in order.

    Args:
        suites: as ``leapp.report.outcomes.suites`` gives them.
        command: the verb, which names the whole: ``leapp build``.
    """
    root = ET.Element("testsuites", {"name": f"leapp {command}", **_counts(suites)})
    for suite in suites:
        node = ET.SubElement(root, "testsuite", {"name": _legal(suite.name), **_counts([suite])})
        found = {"digest": suite.digest and f"sha256:{suite.digest}", "manifest": suite.file}
        if any(found.values()):
            properties = ET.SubElement(node, "properties")
            for name, value in found.items():
                if value:
                    ET.SubElement(properties, "property", {"name": name, "value": _legal(value)})
        for case in suite.cases:
            _case(node, suite, case)
    ET.indent(root)
    data: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return data + b"\n"


def _counts(suites: Sequence[Suite]) -> dict[str, str]:
    failed = [case for suite in suites for case in suite.failed]
    unchecked = sum(case.unchecked for case in failed)
    return {
        "tests": str(sum(len(suite.cases) for suite in suites)),
        "failures": str(len(failed) - unchecked),
        "errors": str(unchecked),
        "time": f"{sum(suite.time_s for suite in suites):.3f}",
    }


def _case(node: ET.Element, suite: Suite, case: Case) -> None:
    # A check by itself is not timed: the first case stands for the whole, and has its time.
    time_s = suite.time_s if case is suite.cases[0] else 0.0
    # Readers take what follows the last dot of a classname for the class.
    attributes = {
        "name": case.name,
        "classname": f"leapp.{suite.command}.{suite.name.replace('.', '_')}",
        "time": f"{time_s:.3f}",
    }
    if case.file or suite.file:
        attributes["file"] = case.file or suite.file
    if case.line is not None:
        attributes["line"] = str(case.line)
    element = ET.SubElement(node, "testcase", {key: _legal(value) for key, value in attributes.items()})
    if not case.problem:
        return
    first = case.problem.strip().partition("\n")[0]
    message = first if len(first) <= _MESSAGE_LENGTH else f"{first[: _MESSAGE_LENGTH - 1]}…"
    tag = "error" if case.unchecked else "failure"
    ET.SubElement(element, tag, {"message": _legal(message), "type": case.kind}).text = _legal(case.text)


def _legal(text: str) -> str:
    r"""What XML can hold; the rest as ``\x1b``, so that nothing is lost and every reader takes the file."""
    return _NOT_IN_XML.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def write_whole(path: Path, data: bytes) -> None:
    """Write a file in one step, and the folders above it: a reader sees all of it or what was there.

    Raises:
        OutputFileError: the operating system refused; what was there is unchanged.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, scratch = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            mask = os.umask(0)
            os.umask(mask)
            Path(scratch).chmod(0o666 & ~mask)  # as open() would have made it: CI reads it as another user
            Path(scratch).replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                Path(scratch).unlink()
            raise
    except OSError as error:
        raise OutputFileError(path=str(path), why=error.strerror or str(error)) from error
