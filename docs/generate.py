"""Write the pages that follow from the code, and check the links of all pages. With --check nothing is written."""

from __future__ import annotations

import argparse
import inspect
import re
import sys
import tomllib
import urllib.parse
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy import char, strings
from numpy.lib import recfunctions, scimath, stride_tricks
from numpy.polynomial import polynomial
from packaging.requirements import Requirement

from leapp import errors
from leapp._tried import FLOOR_UNTRIED, TRIED
from leapp.ops import numpy_indexing
from leapp.ops._np_row import NoTwin, Op, OutOfScope, Through
from leapp.ops.format_gaps import FORMAT_GAPS
from leapp.ops.numpy_table import GROUPS
from leapp.ops.torch_table import ESCAPES, METADATA, RANDOM, REFUSED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

ROOT: Final = Path(__file__).parents[1]
ERRORS_PAGE: Final = ROOT / "docs" / "errors.md"
TRACING_PAGE: Final = ROOT / "docs" / "tracing.md"
NUMPY_PAGE: Final = ROOT / "docs" / "numpy.md"
VERSIONS_PAGE: Final = ROOT / "docs" / "versions.md"

_HEAD: Final = """\
# Errors and warnings

Every error of LEAPP is a class of its own. Its text says what happened and, on the line below, what to do about it.
`except leapp.LeappError` catches all errors, and the facts of each (a node, a port, a path) are in `error.facts`.
Errors also inherit the fitting built-in, named here beside each class. The exit code is that of a `leapp` command that
ends with the error. Words in braces are filled in.

<!-- Written by docs/generate.py from leapp/errors.py. -->
"""
_SECTION: Final = re.compile(r"^# --- (.+?) -+$", re.MULTILINE)
_FENCE: Final = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_LINK: Final = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
_HEADING: Final = re.compile(r"^#+ (.+?)\s*$", re.MULTILINE)


def concrete_classes() -> Iterator[type[errors.LeappError | errors.LeappWarning]]:
    """The classes that are raised or warned with: those that have texts of their own, as they stand in the file."""
    for value in vars(errors).values():
        if isinstance(value, type) and issubclass(value, (errors.LeappError, errors.LeappWarning)) and value.remedy:
            yield value


def errors_page() -> str:
    """The page with every class, under the section headings of the module."""
    source = inspect.getsource(errors)
    starts = [(source.count("\n", 0, match.start()), match[1]) for match in _SECTION.finditer(source)]
    parts, section = [_HEAD], ""
    for each in concrete_classes():
        line = inspect.getsourcelines(each)[1]
        heading = [name for start, name in starts if start < line][-1]
        if heading != section:
            section = heading
            parts.append(f"\n## {section[0].upper()}{section[1:]}\n")
        parts.append(_entry(each))
    return "".join(parts)


def tracing_page(written: str) -> str:
    """The page of what is traced, with its lists written again from the tables."""
    lists = {
        "refused": "".join(f"- {_code(each.names.split())}: {each.why}. {each.advice}\n" for each in REFUSED),
        "metadata": f"{_code(METADATA)}\n",
        "escapes": f"{_code(ESCAPES)}\n",
        "random": f"{_code(RANDOM)}\n",
        "gaps": "".join(
            f"- Not in {' and '.join(gap.formats)}: {gap.why}. {gap.instead}\n  {_code(gap.names)}\n"
            for gap in FORMAT_GAPS
        ),
    }
    return _with_lists(written, lists)


def numpy_page(written: str) -> str:
    """The page on NumPy, with its lists written again from the table."""
    rows = [row for group in GROUPS for row in group.rows]
    recorded = ((group.title, [row for row in group.rows if isinstance(row, (Op, Through))]) for group in GROUPS)
    lists = {
        "recorded": "| | |\n|---|---|\n"
        + "".join(f"| {title} | {_functions(row.numpy for row in found)} |\n" for title, found in recorded if found),
        "notes": _by_reason((row.note, row.numpy) for row in rows if isinstance(row, (Op, Through)) and row.note),
        "refused": _by_reason(
            (f"{row.why}{f'; {row.advice}' if row.advice else ''}", row.numpy)
            for row in rows
            if isinstance(row, NoTwin)
        ),
        "scope": _by_reason((row.why, row.numpy) for row in rows if isinstance(row, OutOfScope)),
    }
    return _with_lists(written, lists)


def versions_page(written: str) -> str:
    """The page of supported versions, with its table written again from pyproject.toml and what was tried."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    pins = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines() if "==" in line)
    uses: dict[str, dict[str, list[str]]] = {}
    declared = {"base": project["dependencies"], **project["optional-dependencies"]}
    for use, requirements in declared.items():
        for requirement in map(Requirement, requirements):
            uses.setdefault(requirement.name, {}).setdefault(str(requirement.specifier), []).append(f"`{use}`")
    rows = [f"| Python | {project['requires-python']} | {', '.join(TRIED['python'])} | |\n"]
    for name, floors in uses.items():
        for floor, extras in floors.items():
            lowest = () if name in FLOOR_UNTRIED else (floor.removeprefix(">="),)
            tried = ", ".join(TRIED.get(name, (*lowest, pins[name])))
            rows.append(f"| {name} | {floor} | {tried} | {' '.join(extras)} |\n")
    head = "| | allowed | tried with | needed for |\n|---|---|---|---|\n"
    return _with_lists(written, {"versions": head + "".join(rows)})


def _by_reason(found: Iterable[tuple[str, Callable[..., Any]]]) -> str:
    """A line per reason, with all functions that have it."""
    functions: dict[str, list[Callable[..., Any]]] = {}
    for reason, function in found:
        functions.setdefault(reason, []).append(function)
    return "".join(f"- {_functions(each)}: {reason}.\n" for reason, each in functions.items())


def _functions(functions: Iterable[Callable[..., Any]]) -> str:
    """Functions as users write them, with their other names; those that only NumPy itself calls are left out."""
    names = {name: None for function in functions if (name := _spelled(function))}
    return " ".join(names)


_HOMES: Final = {
    "": np,
    "linalg.": np.linalg,
    "fft.": np.fft,
    "lib.stride_tricks.": stride_tricks,
    "polynomial.polynomial.": polynomial,
    "emath.": scimath,
}
_ONE_BY_ONE: Final = {"strings": strings, "char": char, "lib.recfunctions": recfunctions}
"""Modules of which all functions have one fate, where numbers and shapes are not their own subject."""


def _spelled(function: Callable[..., Any]) -> str:
    for home, module in _HOMES.items():
        names = [name for name, each in vars(module).items() if each is function and not name.startswith("_")]
        if names:
            own = function.__name__ if function.__name__ in names else names[0]
            others = [f"`{home}{name}`" for name in names if name != own]
            return f"`{home}{own}`" + (f" ({' '.join(others)})" if others else "")
    for home, module in _ONE_BY_ONE.items():
        if any(each is function for each in vars(module).values()):
            return f"all of `{home}`"
    if getattr(function, "__module__", "") == numpy_indexing.__name__:
        return f"`ndarray.{function.__name__}`"
    return ""


def _with_lists(written: str, lists: dict[str, str]) -> str:
    """A page with the lists between its markers replaced."""
    for name, text in lists.items():
        block = re.compile(rf"(<!-- list: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        written = block.sub(lambda match, text=text: f"{match[1]}{text}{match[2]}", written)  # type: ignore[misc]
    return written


def _code(names: Iterable[str]) -> str:
    return " ".join(f"`{name}`" for name in sorted(names))


def _entry(each: type[errors.LeappError | errors.LeappWarning]) -> str:
    nature = ", ".join(f"`{base.__name__}`" for base in _builtins(each))
    if issubclass(each, errors.LeappError):
        nature += f", exit code {each.exit_code}"
    return f"""
### {each.__name__}

{(inspect.getdoc(each) or "").replace("``", "`")} ({nature})

```text
{_shown(each.what)}
{_shown(each.remedy)}
```
"""


def _builtins(each: type) -> list[type]:
    """The built-in exceptions that ``except`` catches it by, without those that stand for others among them."""
    found = [base for base in each.__mro__ if base.__module__ == "builtins"]
    return [base for base in found if not any(base in other.__mro__[1:] for other in found)]


def _shown(template: str) -> str:
    """A template as a reader meets it: plain placeholders, words for several things, single braces in its own text."""
    several = re.sub(r"(?<!{){(\w+):[^{}|]*\|([^{}]*)}(?!})", r"{\1} \2", template)
    plain = re.sub(r"(?<!{){(\w+)[^{}]*}(?!})", r"{\1}", several)
    return plain.replace("{{", "{").replace("}}", "}")


def broken_links(root: Path = ROOT) -> list[str]:
    """Links of Markdown pages to files, folders and headings that do not exist. Other sites are not asked."""
    broken = []
    for page in pages(root):
        text = _FENCE.sub("", page.read_text("utf-8"))
        for match in _LINK.finditer(text):
            target = match[1] or match[2]
            url = urllib.parse.urlsplit(target)
            if url.scheme or url.netloc:
                continue
            file = page.parent / urllib.parse.unquote(url.path) if url.path else page
            if not file.exists():
                broken.append(f"{page.relative_to(root)}: {target}: no such file")
            elif url.fragment and file.suffix == ".md" and url.fragment not in anchors(file.read_text("utf-8")):
                broken.append(f"{page.relative_to(root)}: {target}: no such heading")
    return broken


def pages(root: Path = ROOT) -> list[Path]:
    """The Markdown pages of the project, without those of environments, caches and builds."""
    return sorted(root.glob("*.md")) + sorted(
        page for folder in ("docs", "examples", "bench") for page in (root / folder).rglob("*.md")
    )


def anchors(text: str) -> set[str]:
    """What a heading is called in a link, as code hosts do it."""
    headings = (re.sub(r"[^\w\- ]", "", match[1].lower()) for match in _HEADING.finditer(_FENCE.sub("", text)))
    return {heading.replace(" ", "-") for heading in headings}


def main() -> int:
    """Write or check. Returns 1 if a page is not what it should be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a page is out of date")
    arguments = parser.parse_args()
    problems = broken_links()
    page = errors_page()
    if not ERRORS_PAGE.is_file() or ERRORS_PAGE.read_text("utf-8") != page:
        if arguments.check:
            problems.append("docs/errors.md is out of date; `nox -s docs` writes it again.")
        else:
            ERRORS_PAGE.write_text(page, "utf-8")
            print("docs/errors.md written.")
    for path, listed in ((TRACING_PAGE, tracing_page), (NUMPY_PAGE, numpy_page), (VERSIONS_PAGE, versions_page)):
        written = path.read_text("utf-8")
        if written == listed(written):
            continue
        if arguments.check:
            problems.append(f"docs/{path.name} is out of date; `nox -s docs` writes its lists again.")
        else:
            path.write_text(listed(written), "utf-8")
            print(f"docs/{path.name} written.")
    print("\n".join(problems) or f"{len(pages())} pages, no broken links.")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
