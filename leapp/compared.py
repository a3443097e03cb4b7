"""Two paths, each a bundle or a lock -> what differs between them, platform by platform."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from leapp import lock
from leapp.bundle.diff import BundleDiff, diff, diff_digests
from leapp.bundle.digests import digests_of
from leapp.bundle.read import load
from leapp.errors import LockPlatformError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from leapp._spec import JSON
    from leapp.bundle.digests import BundleDigests
    from leapp.bundle.read import Bundle
    from leapp.lock import Lock


@dataclass(frozen=True, slots=True)
class Compared:
    """What was compared for one platform."""

    platform: str
    """``linux-x86_64``; two bundles may be of two platforms: ``linux-x86_64 -> linux-aarch64``."""
    difference: BundleDiff | None
    """None where only one of two locks speaks of the platform."""
    only: str = ""
    """``first`` or ``second``, where it is only that one."""

    @property
    def equal(self) -> bool:
        """Whether it is the same bundle on both sides."""
        return self.difference is not None and self.difference.equal

    def as_json(self) -> dict[str, JSON]:
        """For machines; ``docs/diff.md`` has the schema."""
        record: dict[str, JSON] = {"platform": self.platform, "equal": self.equal, "only": self.only}
        return record if self.difference is None else record | self.difference.as_json()


def compare(first: Path, second: Path) -> list[Compared]:
    """Compare two bundles, two locks, or one of each; a lock is a file that ends in ``.lock``.

    A lock and a bundle are compared for the bundle's platform, two locks for each platform of either.

    Raises:
        NotABundleError, BundleFormatError, BundleTooNewError, BundleDigestError: as ``leapp.bundle.diff.diff``.
        LockError: a lock cannot be read.
        LockPlatformError: a lock does not speak of a bundle's platform.
        PartialBundleError: a bundle that is compared with a lock has the models of one node alone.
    """
    a, b = _open(first), _open(second)
    if isinstance(a, lock.Lock) and isinstance(b, lock.Lock):
        return [*_locks(a, b)]
    if isinstance(a, lock.Lock):
        assert not isinstance(b, lock.Lock)  # seen above
        b.require_whole()  # digests do not tell what was left out from what is gone
        built = lock.in_lock(digests_of(b))
        return [_compared(diff_digests(_section(a, built.platform, first), built))]
    if isinstance(b, lock.Lock):
        a.require_whole()
        built = lock.in_lock(digests_of(a))
        return [_compared(diff_digests(built, _section(b, built.platform, second)))]
    return [_compared(diff(a, b))]


def _open(path: Path) -> Bundle | Lock:
    return lock.read(path) if path.suffix == lock.SUFFIX and not path.is_dir() else load(path)


def _section(found: Lock, platform: str, path: Path) -> BundleDigests:
    if platform not in found.sections:
        raise LockPlatformError(lock=str(path), platform=platform, known=", ".join(found.platforms) or "none")
    return found.sections[platform]


def _locks(a: Lock, b: Lock) -> Iterator[Compared]:
    for platform in sorted({*a.platforms, *b.platforms}):
        if platform in a.sections and platform in b.sections:
            yield _compared(diff_digests(a.sections[platform], b.sections[platform]))
        else:
            yield Compared(platform, None, "first" if platform in a.sections else "second")


def _compared(found: BundleDiff) -> Compared:
    platforms = [] if found.sides is None else [each.platform for each in found.sides]
    return Compared(" -> ".join(dict.fromkeys(platforms)), found)
