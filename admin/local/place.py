"""
Where the embedded servers' data and programs live, and whose they are.

Postgres refuses to run as root, so root's servers run as an account without rights. That account must be able to reach
its data and the programs: root's home is closed to it (0700), and so is any checkout below. Then both live under
`/var/lib/tidings`, never under `/tmp` or `/var/tmp`, where other users could be there first and old files are swept
away.
"""

import hashlib
import os
import pwd
import shutil
import stat
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from admin.local.tether import Account

SYSTEM_FOLDER = Path("/var/lib/tidings")
#: accounts without rights that systems come with, in order of preference
UNPRIVILEGED = ("nobody", "daemon")


class SetupError(Exception):
    """The local set-up cannot go on; the text says why and what to do."""


def server_account() -> Account | None:
    """Whom the servers must run as: None, the present user, unless that is root."""
    if os.geteuid() != 0:
        return None
    for name in UNPRIVILEGED:
        with suppress(KeyError):
            entry = pwd.getpwnam(name)
            if entry.pw_uid != 0:
                return Account(name, entry.pw_uid, entry.pw_gid)
    raise SetupError(
        f"Postgres refuses to run as root and there is no account {' or '.join(UNPRIVILEGED)} to run it as: "
        "use an ordinary user, or set DATABASE_URL and REDIS_URL"
    )


def claim(folder: Path) -> None:
    """Make a folder of the present user's, or find that it is: what one user's servers wrote, another's cannot use."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    owner = folder.stat().st_uid
    if owner != os.geteuid():
        raise SetupError(f"{folder} belongs to another user (number {owner}): run this as that user, or remove it")


def make_private(folder: Path, account: Account | None) -> Path:
    """
    Make the folder of a checkout's data and give the place where it really is.

    Owned by the present user and closed to others (0700). For root it can be passed through (0711), not listed, and
    what each server keeps in it is its own (0700); when the account cannot get there, the folder's own place stays for
    root's files and a link named `servers` in it points to the real one.
    """
    claim(folder)
    folder.chmod(0o700 if account is None else 0o711)
    if account is None or _can_reach(folder, account):
        return folder
    key = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:12]
    real = SYSTEM_FOLDER / f"{folder.resolve().parent.name}-{key}"
    real.mkdir(mode=0o711, parents=True, exist_ok=True)
    for made in (SYSTEM_FOLDER, real):
        made.chmod(0o711)
    (real / "belongs-to").write_text(f"{folder.resolve()}\n")
    link = folder / "servers"
    if not link.is_symlink():
        link.symlink_to(real)
    return real


def give_folder(folder: Path, account: Account | None) -> Path:
    """Make a folder that only the servers' account (and root) can enter."""
    folder.mkdir(mode=0o700, exist_ok=True)
    if account:
        os.chown(folder, account.uid, account.gid)
    folder.chmod(0o700)
    return folder


def write_secret(path: Path, text: str) -> None:
    """Write a file that only the present user can read, whole or not at all."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")  # 0600 by its nature
    with os.fdopen(handle, "w") as file:
        file.write(text)
    Path(name).replace(path)


def open_log(path: Path) -> IO[bytes]:
    """Open a server's log for the present user's eyes only; the one before is kept beside it as `….previous`."""
    if path.exists():
        path.replace(path.with_name(f"{path.name}.previous"))
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def last_lines(path: Path, count: int = 15) -> str:
    """Give the end of a log."""
    return "\n".join(path.read_text(errors="replace").splitlines()[-count:])


def package_folder(package: str, *, instead: str) -> Path:
    """Where an installed package's files are; the package itself is not imported."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise SetupError(f"the package {package} is not installed: run `make up` (or `make test`), or set {instead}")
    return Path(next(iter(spec.submodule_search_locations)))


def reachable(base: Path, folders: Iterable[Path], *, copy_name: str, account: Account | None) -> Path:
    """
    Give a folder that holds `folders` as `base` does, at a place where the account can run what is in them.

    That is `base` itself when the account can get there, else a copy under `/var/lib/tidings`, made once per name.
    """
    folders = list(folders)
    if account is None or (_can_reach(base, account) and all(_is_open(folder) for folder in folders)):
        return base
    copy = SYSTEM_FOLDER / "programs" / copy_name
    if copy.is_dir():
        return copy
    copy.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    for made in (SYSTEM_FOLDER, copy.parent):
        made.chmod(0o711)
    partial = Path(tempfile.mkdtemp(dir=copy.parent))
    for folder in folders:
        shutil.copytree(folder, partial / folder.relative_to(base), symlinks=True)
    _open(partial)
    try:
        partial.rename(copy)
    except OSError:  # another start made it in the meantime
        shutil.rmtree(partial)
    return copy


def _can_reach(folder: Path, account: Account) -> bool:
    """Tell whether every folder down to this one can be passed through by an account that owns none of them."""
    resolved = folder.resolve()
    for each in (resolved, *resolved.parents):
        status = each.stat()
        if status.st_uid == account.uid:
            needed = stat.S_IXUSR
        elif status.st_gid == account.gid:
            needed = stat.S_IXGRP
        else:
            needed = stat.S_IXOTH
        if not status.st_mode & needed:
            return False
    return True


def _is_open(folder: Path) -> bool:
    """Tell whether others can read all of a folder; a umask of 077 at installation closes it."""
    return all(
        each.lstat().st_mode & (stat.S_IROTH if each.is_file() else stat.S_IXOTH)
        for each in (folder, *folder.rglob("*"))
    )


def _open(folder: Path) -> None:
    """Let everybody read a folder, and run what its owner can run."""
    for each in (folder, *folder.rglob("*")):
        if each.is_symlink():
            continue
        mode = each.stat().st_mode
        each.chmod(0o755 if each.is_dir() or mode & stat.S_IXUSR else 0o644)
