"""Seal a staged folder into a bundle, and put it at its place whole.

A bundle is staged in a scratch folder beside its target, ``.NAME.leapp-PID-RANDOM``, and exchanged with what stands
there in one system call. Whatever ends the process, the target is the old bundle or the new one; a scratch folder that
a dead process left behind is removed by the next one that writes there.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import re
import secrets
import shutil
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

from leapp._canonical import readable_json
from leapp.bundle._tree import (
    BUNDLE_FILE,
    EVIDENCE_INDEX,
    is_evidence,
    kind_of,
    media_type,
    name_problem,
    scan,
    size_and_sha256,
    text_problem,
)
from leapp.bundle.read import bundle_digest, is_bundle
from leapp.bundle.schema import (
    READER_LEVEL,
    SCHEMA_VERSION,
    STATUSES,
    BundleManifest,
    EvidenceFile,
    EvidenceIndex,
    FileEntry,
    to_json,
)
from leapp.errors import (
    BundleLinkError,
    BundleValueError,
    BundleWriteError,
    ForeignFolderError,
    LeappError,
    NestedBundleError,
    NotABundleError,
    NotAFolderError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leapp.bundle.schema import NodeManifest

_FILE_MODE: Final = 0o644
_FOLDER_MODE: Final = 0o755
_SCRATCH: Final = re.compile(r"\..*\.leapp-(?P<pid>[1-9]\d*)-[0-9a-f]{16}", re.DOTALL)
_MAX_NAME_BYTES: Final = 255


# --- seal ----------------------------------------------------------------------------------------------------------


def node_manifest_bytes(manifest: NodeManifest) -> bytes:
    """The bytes of ``nodes/<node>/manifest.json``. Raises BundleValueError for what JSON cannot hold."""
    return readable_json(to_json(manifest))


def seal(staging: Path, *, name: str, version: str, status: str) -> str:
    """Make a staged folder a bundle: file modes, ``evidence/index.json``, then ``bundle.json``.

    Empty folders are dropped. Sealing a folder again gives the same bytes; sealing one with other evidence gives the
    same digest.

    Returns: the bundle digest.

    Raises:
        BundleLinkError: a link, a pipe or a device is among the files.
        BundleValueError: a name, version or status that no bundle can have, or file names that are not text.
        BundleWriteError: the operating system refused.
    """
    for what, text, problem in (
        ("the pipeline name", name, name_problem(name)),
        ("the version", version, name_problem(version)),
        ("the status", status, None if status in STATUSES else f"it is none of {', '.join(STATUSES)}"),
    ):
        if problem:
            raise BundleValueError(where=f"{what} {text!r}", why=problem)
    with _os_errors(staging):
        return _seal(staging, name, version, status)


def index_evidence(folder: Path, name: str) -> None:
    """Write ``evidence/index.json`` anew for the evidence that lies in a bundle; its digest stays what it is.

    Raises BundleLinkError or BundleWriteError.
    """
    with _os_errors(folder):
        _index_evidence(folder, name)


def _seal(staging: Path, name: str, version: str, status: str) -> str:
    _normalise(staging)
    _index_evidence(staging, name)
    paths = [path for path in scan(staging).files if path != BUNDLE_FILE and not is_evidence(path, name)]
    files = []
    for path in paths:
        size_bytes, digest = size_and_sha256(staging / path)
        files.append(FileEntry(path, media_type(path), size_bytes, digest))
    manifest = BundleManifest(SCHEMA_VERSION, READER_LEVEL, status, name, version, tuple(files), digest="")
    value = to_json(manifest)
    digest = bundle_digest(value)
    _write(staging / BUNDLE_FILE, readable_json(value | {"digest": digest}))
    return digest


def normalise_modes(folder: Path) -> None:
    """Give all files and folders the modes of a sealed bundle, whatever the umask was. Raises BundleWriteError."""
    with _os_errors(folder):
        tree = scan(folder)
        for path in tree.files:
            (folder / path).chmod(_FILE_MODE)
        for path in (".", *tree.folders):
            (folder / path).chmod(_FOLDER_MODE)


def _normalise(staging: Path) -> None:
    """Refuse what no bundle may hold; equal modes whatever the umask; no empty folders."""
    tree = scan(staging)
    for path, kind in tree.others.items():
        raise BundleLinkError(path=str(staging / path), kind=kind)
    for path in (*tree.files, *tree.folders):
        if "\\" in path or text_problem(path):
            raise BundleValueError(where=f"the file name {path!r}", why="it holds a backslash or is not Unicode text")
    for path in tree.files:
        (staging / path).chmod(_FILE_MODE)
    for path in reversed(tree.folders):  # children first: a folder is empty when all that it held was
        folder = staging / path
        folder.chmod(_FOLDER_MODE)
        with contextlib.suppress(OSError):
            folder.rmdir()
    staging.chmod(_FOLDER_MODE)


def _index_evidence(folder: Path, name: str) -> None:
    tree = scan(folder)
    entries = []
    for path in tree.files:
        if path != EVIDENCE_INDEX and is_evidence(path, name):
            size_bytes, digest = size_and_sha256(folder / path)
            entries.append(EvidenceFile(path, size_bytes, digest))
    for path, kind in tree.others.items():
        raise BundleLinkError(path=str(folder / path), kind=kind)
    index = folder / EVIDENCE_INDEX
    if not entries:
        index.unlink(missing_ok=True)
        return
    if not index.parent.exists():
        index.parent.mkdir()
        index.parent.chmod(_FOLDER_MODE)
    _write(index, readable_json(to_json(EvidenceIndex(SCHEMA_VERSION, tuple(entries)))))


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    path.chmod(_FILE_MODE)


# --- the place -----------------------------------------------------------------------------------------------------


def ensure_replaceable(target: Path) -> None:
    """Raise unless a bundle may be written at ``target``: it is missing, an empty folder, or a bundle of ours.

    Raises:
        ForeignFolderError: a folder that is not empty and no bundle.
        NotAFolderError: a file, or a link that leads nowhere; also where a folder above the target would have to be.
        NestedBundleError: the target lies inside another bundle, or holds one.
    """
    target = _absolute(target)
    for above in target.parents:
        if os.path.lexists(above) and not above.is_dir():
            raise NotAFolderError(path=str(above), kind=kind_of(above.lstat().st_mode))
        if is_bundle(above):
            raise NestedBundleError(path=str(target), inner=str(target), outer=str(above))
    if not os.path.lexists(target):
        return
    if not target.is_dir():
        raise NotAFolderError(path=str(target), kind=kind_of(target.lstat().st_mode))
    if not is_bundle(target):
        if any(target.iterdir()):
            raise ForeignFolderError(path=str(target))
        return
    for path in scan(target).folders:
        if is_bundle(target / path):
            raise NestedBundleError(path=str(target), inner=str(target / path), outer=str(target))


@contextlib.contextmanager
def scratch_beside(target: Path) -> Iterator[Path]:
    """An empty folder on the file system of ``target`` to stage a bundle in.

    It is removed at the end, however that comes, unless it was published. Folders above ``target`` are created.
    Left-overs of dead processes beside it are removed first.

    Raises NotAFolderError or BundleWriteError.
    """
    target = _absolute(target)
    with _os_errors(target):
        _make_parents(target)
        _remove_leftovers(target.parent)
        scratch, lock = _new_scratch(target)
    try:
        yield scratch
    finally:
        # The lock goes with the folder's file, wherever that was renamed to; a published one is free from here on.
        os.close(lock)
        _remove(scratch)


def _absolute(target: Path) -> Path:
    """Absolute without following links: a link at ``target`` is itself what is replaced."""
    return Path(os.path.abspath(target))  # noqa: PTH100  # Path.resolve would follow links


def _make_parents(target: Path) -> None:
    existing = next(above for above in target.parents if os.path.lexists(above))
    if not existing.is_dir():
        raise NotAFolderError(path=str(existing), kind=kind_of(existing.lstat().st_mode))
    target.parent.mkdir(parents=True, exist_ok=True)
    created = target.parent
    while created != existing:
        created = created.parent
        _sync(created)


def _scratch_path(target: Path) -> Path:
    tail = f".leapp-{os.getpid()}-{secrets.token_hex(8)}"
    room = _MAX_NAME_BYTES - len(os.fsencode(tail)) - 1
    stem = os.fsencode(target.name)[:room].decode("utf-8", "ignore")  # a cut letter is dropped
    return target.parent / f".{stem}{tail}"


def _new_scratch(target: Path) -> tuple[Path, int]:
    """A folder and a lock on it, which says to other processes, in other containers too, that its owner lives."""
    while True:
        scratch = _scratch_path(target)
        scratch.mkdir(mode=_FOLDER_MODE)
        lock = os.open(scratch, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        with contextlib.suppress(OSError):  # file systems without locks: the process id alone decides
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if scratch.is_dir():
            return scratch, lock
        os.close(lock)  # taken for a left-over before it was locked


def _remove_leftovers(parent: Path) -> None:
    """Remove scratch folders of dead processes, except those that a link of ours leads to."""
    with os.scandir(parent) as entries:
        found = list(entries)
    links = [entry for entry in found if entry.is_symlink() and not _SCRATCH.fullmatch(entry.name)]
    kept = {str(Path(entry.path).readlink()) for entry in links}
    for entry in found:
        match = _SCRATCH.fullmatch(entry.name)
        if match is None or entry.name in kept or _alive(int(match["pid"])) or _locked(entry.path):
            continue
        _remove(Path(entry.path))


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def _locked(folder: str) -> bool:
    try:
        file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(file)
    return False


def _remove(path: Path) -> None:
    """Remove a folder or link of ours as far as possible; what stays is a left-over that the next one removes."""
    try:
        mode = path.lstat().st_mode
    except OSError:
        return
    if not stat.S_ISDIR(mode):
        with contextlib.suppress(OSError):
            path.unlink()
        return
    for folder, _, _ in os.walk(path):
        with contextlib.suppress(OSError):
            os.chmod(folder, 0o700)  # noqa: PTH101  # someone may have made an old bundle read-only
    shutil.rmtree(path, ignore_errors=True)


# --- publish -------------------------------------------------------------------------------------------------------


def publish(staging: Path, target: Path) -> None:
    """Put a sealed folder at ``target``, whole, in the place of what stood there. ``staging`` is used up.

    All bytes are on the disk before the target changes. Of two publishers at once the later one stays.

    Raises:
        NotABundleError: ``staging`` is not sealed.
        ForeignFolderError, NotAFolderError, NestedBundleError: as ``ensure_replaceable``; nothing is touched.
        BundleWriteError: the operating system refused; the target is unchanged.
    """
    staging, target = _absolute(staging), _absolute(target)
    if not is_bundle(staging):
        raise NotABundleError(path=str(staging), why="it was not sealed", advice="Call seal() before publish().")
    ensure_replaceable(target)
    with _os_errors(target):
        _make_parents(target)
        if staging.stat().st_dev != target.parent.stat().st_dev:
            with scratch_beside(target) as near:
                shutil.copytree(staging, near, symlinks=True, dirs_exist_ok=True)
                near.chmod(_FOLDER_MODE)
                _put(near, target)
            _remove(staging)
        else:
            _put(staging, target)


def _put(staging: Path, target: Path) -> None:
    """Sync ``staging`` and bring it to ``target``; on failure it is back where it was."""
    _sync_tree(staging)
    # Under a name of our own, so that what a kill leaves behind can be told and removed.
    own = _scratch_path(target)
    os.rename(staging, own)  # noqa: PTH104  # Path.rename hides that this is one system call
    try:
        while not _try_put(own, target):
            ensure_replaceable(target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.rename(own, staging)  # noqa: PTH104
        raise
    _sync(target.parent)


def _try_put(own: Path, target: Path) -> bool:
    """One attempt; False when another process was faster and the target has to be looked at again."""
    if os.path.lexists(target):
        try:
            _exchange(own, target)
        except FileNotFoundError:
            if os.path.lexists(target):
                raise
            return False
        except OSError as error:
            if error.errno not in _NO_EXCHANGE:
                raise
            return _put_link(own, target)
        if not (own.is_symlink() or is_bundle(own) or not any(own.iterdir())):
            _exchange(own, target)  # it came after the check: give it its place back
            raise ForeignFolderError(path=str(target))
        _remove_own(own, target)
        return True
    if not _can_exchange(target):
        return _put_link(own, target)
    try:
        os.rename(own, target)  # noqa: PTH104
    except OSError as error:
        if error.errno in _TAKEN:
            return False
        raise
    return True


def _put_link(store: Path, target: Path) -> bool:
    """Where the file system cannot exchange: keep the bundle under its scratch name and switch a link to it.

    Switching a link is one system call. A real folder, which only other tools can have put there, has to be moved
    aside first: for that moment there is nothing at the target, and never a mixture.
    """
    link, aside = _scratch_path(target), _scratch_path(target)
    old = target.parent / target.readlink() if target.is_symlink() else aside
    link.symlink_to(store.name)
    try:
        if old == aside and target.is_dir():
            os.rename(target, aside)  # noqa: PTH104
        try:
            os.replace(link, target)  # noqa: PTH105
        except OSError as error:
            if aside.is_dir() and not os.path.lexists(target):
                os.rename(aside, target)  # noqa: PTH104
            if error.errno in _TAKEN:
                return False
            raise
    finally:
        with contextlib.suppress(OSError):
            link.unlink()
    _remove_own(old, target)
    return True


def _remove_own(old: Path, target: Path) -> None:
    """Remove what stood at ``target``, unless it lies elsewhere: where a link of another tool led to."""
    if old.is_symlink():
        _remove_own(old.parent / old.readlink(), target)
    if old.parent == target.parent and _SCRATCH.fullmatch(old.name):
        _remove(old)


_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2
_NO_EXCHANGE: Final = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})
_TAKEN: Final = frozenset({errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR, errno.EISDIR})


def _exchange(first: Path, second: Path) -> None:
    """Exchange two paths in one system call. Raises OSError; ENOSYS where the C library has no such call."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    if rename(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _RENAME_EXCHANGE):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), str(first), None, str(second))


def _can_exchange(target: Path) -> bool:
    """Whether the file system can exchange folders; asked before a first bundle takes the form that can be replaced."""
    first, second = _scratch_path(target), _scratch_path(target)
    try:
        first.mkdir()
        second.mkdir()
        _exchange(first, second)
    except OSError as error:
        if error.errno not in _NO_EXCHANGE:
            raise
        return False
    finally:
        _remove(first)
        _remove(second)
    return True


def _sync_tree(folder: Path) -> None:
    """Bring all bytes and names below a folder to the disk."""
    tree = scan(folder)
    for path in (*tree.files, *reversed(tree.folders)):
        _sync(folder / path)
    _sync(folder)


def _sync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a file system that syncs no folders
            raise
    finally:
        os.close(file)


@contextlib.contextmanager
def _os_errors(path: Path) -> Iterator[None]:
    """Errors of the operating system as one of ours."""
    try:
        yield
    except LeappError:
        raise
    except OSError as error:
        why = error.strerror or str(error)
        if error.filename is not None:
            why = f"{why} ({os.fsdecode(error.filename)})"
        raise BundleWriteError(path=str(path), why=why) from error
