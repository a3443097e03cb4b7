"""Plans for several machines: what each pipeline costs, and which shard builds it."""

from __future__ import annotations

import json
import os
import statistics
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from leapp.build.cache import Cache, default_root
from leapp.errors import CostsError, LeappError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from leapp._spec import JSON
    from leapp.build.plan import BuildPlan, PipelinePlan

_SESSION: Final = "evidence/session.json"
_UNKNOWN_S: Final = 1.0
"""Cost of each pipeline where none is known: all weigh the same."""

Costs = dict[tuple[str, str], float]
"""Seconds of the last build, by name and version."""


# --- plans ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Planned:
    """One pipeline of a plan, for people and machines that spread the work."""

    plan: PipelinePlan
    key: str | None
    """Digest of all that can change its bytes; None: not known."""
    cost_s: float | None
    """Wall time of its last build in seconds; None: not known."""

    @property
    def formats(self) -> tuple[str, ...]:
        """Formats of any node, in the manifest's order; none: the script says so."""
        export = self.plan.manifest.export
        nodes = self.plan.manifest.nodes.values()
        named = [*(export.formats or ()), *(each for node in nodes for each in node.formats or ())]
        return tuple(dict.fromkeys(each.value for each in named))

    def as_json(self) -> dict[str, JSON]:
        """One record for machines."""
        return {
            "name": self.plan.name,
            "version": self.plan.version,
            "manifest": self.plan.manifest.shown,
            "root": str(self.plan.manifest.root),
            "formats": list(self.formats),
            "target": str(self.plan.target),
            "key": self.key,
            "cost_s": self.cost_s,
        }


def planned(plan: BuildPlan, costs: Costs | None = None) -> tuple[Planned, ...]:
    """What would be built, in the plan's order; nothing is run.

    Args:
        plan: as ``make_plan`` gives it, or a shard of it.
        costs: as ``read_costs`` gives them; None: what this machine knows of each pipeline's last build.
    """
    cache = Cache(default_root(os.environ))  # one for all: it digests the tools once
    if costs is None:
        costs = known_costs(plan, cache)
    return tuple(Planned(each, key_of(each, cache), costs.get((each.name, each.version))) for each in plan.pipelines)


def key_of(plan: PipelinePlan, cache: Cache) -> str | None:
    """The cache's key of a pipeline: of all that can change its bytes but for the files that it will read.

    None: it cannot be told, such as for an interpreter that is not there.
    """
    try:
        return cache.key(plan)
    except (OSError, LeappError):
        return None


def known_costs(plan: BuildPlan, cache: Cache) -> Costs:
    """What this machine knows of the pipelines of a plan; some may be missing.

    The bundle in the plan's output folder says it in its evidence; where there is none, the cache knows of the last
    build, of any version and kept or not. Shards are not divided by it: another machine knows something else.
    """
    found: Costs = {}
    for each in plan.pipelines:
        cost_s = _cost_of(each.target)
        if cost_s is None and (last := cache.last(each)) is not None:
            cost_s = _seconds(last.wall_s)
        if cost_s is not None:
            found[each.name, each.version] = cost_s
    return found


def _cost_of(bundle: Path) -> float | None:
    """Evidence may be gone or of an older leapp; that is no reason not to build."""
    try:
        record: Any = json.loads((bundle / _SESSION).read_bytes())
    except (OSError, ValueError):
        return None
    cost_s = record.get("wall_s") if isinstance(record, dict) else None
    return _seconds(cost_s)


def _seconds(value: object) -> float | None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if number and 0 <= value < float("inf") else None  # type: ignore[arg-type,operator]


def read_costs(path: Path, plan: BuildPlan) -> Costs:
    """Costs of the pipelines of a plan, out of what ``leapp plan --json`` printed; some may be missing.

    A pipeline of a version that the file does not know costs what the last one of its name in the file does.

    Raises:
        CostsError: the file cannot be read, or a line is no such record.
    """
    found: Costs = {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise CostsError(file=path, why=error.strerror or str(error)) from error
    except UnicodeDecodeError as error:
        raise CostsError(file=path, why="it is no text") from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            name, version, cost = record["name"], record["version"], record["cost_s"]
        except (ValueError, KeyError, TypeError) as error:
            raise CostsError(file=f"{path}:{number}", why="it is no record of `leapp plan --json`") from error
        if cost is not None:
            cost_s = _seconds(cost)
            if cost_s is None:
                raise CostsError(file=f"{path}:{number}", why=f"cost_s is {cost!r}, not seconds")
            found[str(name), str(version)] = cost_s
    by_name = {name: cost_s for (name, _), cost_s in found.items()}
    keys = [(each.name, each.version) for each in plan.pipelines]
    return {key: found.get(key, by_name[key[0]]) for key in keys if key[0] in by_name}


# --- shards --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Shard:
    """One of several parts of a plan."""

    number: int
    """Counted from 1."""
    of: int

    def __str__(self) -> str:
        """As it is written on the command line."""
        return f"{self.number}/{self.of}"

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Read ``I/N``. Raises ValueError."""
        number, slash, of = text.partition("/")
        if not (slash and number.isascii() and number.isdigit() and of.isascii() and of.isdigit()):
            raise ValueError(f"{text!r} is not I/N, as in 2/4")
        shard = cls(int(number), int(of))
        if shard.of < 1:
            raise ValueError(f"{text!r}: there is at least one shard, as in 1/1")
        if shard.number < 1:
            raise ValueError(f"{text!r}: shards are counted from 1, so the first one is 1/{shard.of}")
        if shard.number > shard.of:
            raise ValueError(f"{text!r}: there is no shard {shard.number} of {shard.of}; the last one is {of}/{of}")
        return shard


def part_of(plan: BuildPlan, shard: Shard, costs: Costs) -> BuildPlan:
    """The pipelines that one shard builds, in the plan's order.

    Depends on the set of pipelines and their costs alone, so that machines which never speak to each other divide the
    work without a gap, as long as they plan the same manifests with the same costs. The costs must therefore be those
    of ``read_costs``, or none: never those that one machine alone knows.
    """
    keys = [(each.name, each.version) for each in plan.pipelines]
    mine = set(divide(keys, shard.of, costs)[shard.number - 1])
    return replace(plan, pipelines=tuple(each for each in plan.pipelines if (each.name, each.version) in mine))


def divide(keys: Iterable[tuple[str, str]], count: int, costs: Costs) -> tuple[tuple[tuple[str, str], ...], ...]:
    """Spread pipelines over ``count`` shards: the dearest first, each to the shard that has the least so far.

    No shard costs more than the mean and one pipeline. A pipeline of unknown cost counts as the median of the known.
    """
    keys = sorted(keys)
    known = [costs[key] for key in keys if key in costs]
    usual = statistics.median(known) if known else _UNKNOWN_S
    loads = [(0.0, 0, at) for at in range(count)]
    shards: list[list[tuple[str, str]]] = [[] for _ in range(count)]
    for key in sorted(keys, key=lambda key: (-costs.get(key, usual), key)):
        # Where all cost nothing, the number of pipelines spreads them.
        load, number, at = min(loads)
        loads[at] = (load + costs.get(key, usual), number + 1, at)
        shards[at].append(key)
    return tuple(map(tuple, shards))
