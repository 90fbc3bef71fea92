"""The study of a search: in a journal file or SQLite in its folder, or in a database on a server."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from linnet.runs.errors import Damaged, Mismatch, Stopped, missing
from linnet.runs.records import file_lock, write_atomically
from linnet.runs.remote import without_password
from linnet.runs.untrusted import LARGE, check, open_file, parse_json, read_bytes
from linnet.train.claims import Claims, DatabaseClaims, FolderClaims, first_line

# Wider than a URL: the error of SQLAlchemy for sqlite:/study.db says more than a file of that name.
ADDRESS = re.compile(r"[a-z][a-z0-9+]+:")  # with one letter it is a drive of Windows
POSTGRES = re.compile(r"^postgres(ql)?://")
DEAD_AFTER = 60.0
"""Seconds after which a process that the database has not heard of is taken for dead."""


def load_optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise missing("linnet search", "optuna") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


@contextmanager
def storage_errors(folder: Path) -> Iterator[None]:
    """Say what to do about errors of the storage of a study."""
    load_optuna()
    from optuna.exceptions import OptunaError
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (OptunaError, SQLAlchemyError) as error:
        raise Stopped(
            f"the storage of the study in {folder} failed ({first_line(error)}). It is a journal file or the "
            "address of a database, like sqlite:///study.db or postgresql://user@host/name. The runs are "
            "kept: repeat the command once it works"
        ) from None


# ---------------------------------------------------------------------------- a study and its folder


def open_study(
    optuna: Any, opened: Any, storage: str | None, folder: Path, methods: Mapping[str, Any]
) -> Any:
    with replaying(storage or folder / "study.log"):
        study = optuna.create_study(study_name=folder.name, storage=opened, load_if_exists=True, **methods)
    if has_own_folders(storage):
        join_study(study, folder, storage)
    else:
        refuse_other_study(study, folder, storage)
    study.set_user_attr("folder", folder_code(folder))
    # A sampler that has drawn everything calls this; Optuna's own is for its own loop.
    study.stop = lambda: study.set_user_attr("exhausted", True)
    return study


def has_own_folders(storage: str | None) -> bool:
    """Whether processes that share the storage need not share a folder: a database on a server."""
    return bool(storage and ADDRESS.match(storage) and not storage.startswith("sqlite"))


def join_study(study: Any, folder: Path, storage: str | None) -> None:
    """Make an empty folder one of the study."""
    there = study.user_attrs.get("folder")
    if there is not None and read_bytes(folder / "study.id") is None and not has_runs(folder):
        write_atomically(folder / "study.id", there.encode())
    refuse_other_study(study, folder, storage)


def has_runs(folder: Path) -> bool:
    return any(folder.glob("[0-9]*/config.json"))


def refuse_other_study(study: Any, folder: Path, storage: str | None) -> None:
    """Raise if the folder has the runs of another study, or the study has its runs elsewhere."""
    there = study.user_attrs.get("folder")
    where = without_password(storage or "study.log")
    if there is not None and there != folder_code(folder):
        raise Mismatch(
            f"the study {folder.name!r} in {where} has its runs in another folder than {folder}; "
            "give that as --run-dir, or one of another name"
        )
    if there is None and has_runs(folder):
        raise Mismatch(
            f"the runs in {folder} are not of the study in {where}; give the "
            "--storage with which they were made, or another --run-dir"
        )


def folder_code(folder: Path) -> str:
    """Return an identifier of the folder that does not depend on where it is mounted."""
    path = folder / "study.id"
    code = read_bytes(path)
    if code is None:
        code = uuid.uuid4().hex.encode()
        write_atomically(path, code)
    check(bool(re.fullmatch(rb"[0-9a-f]{32}", code)), path, "it is not the 32 digits of a study")
    return code.decode()


# ------------------------------------------------------------------------------------- its storage


def open_storage(
    optuna: Any, storage: str | None, folder: Path, dead_after: float = DEAD_AFTER
) -> tuple[Any, Claims]:
    """Return a database by its address, or a journal file (the default), and who trains which run."""
    if storage and has_own_folders(storage):
        return open_database(optuna, storage, folder.name, dead_after)
    is_address = storage and ADDRESS.match(storage)
    return storage if is_address else journal(optuna, storage, folder), FolderClaims(folder)


def open_database(optuna: Any, storage: str, study: str, dead_after: float) -> tuple[Any, Claims]:
    from sqlalchemy.exc import IntegrityError, ProgrammingError
    from sqlalchemy.pool import NullPool

    url = driver(storage)
    # A connection for each use: between two uses there are hours of training, in which one may break.
    how: dict[str, Any] = {"poolclass": NullPool}
    if url.startswith("postgresql"):
        # Seconds, and milliseconds: a network that is cut is an error, and not a wait of hours.
        how["connect_args"] = {"connect_timeout": 10, "keepalives_idle": 10, "tcp_user_timeout": 20_000}
    attempts = 5
    while True:
        try:
            opened = optuna.storages.RDBStorage(url, engine_kwargs=how)
            return opened, DatabaseClaims(opened.engine, study, dead_after)
        except (IntegrityError, ProgrammingError):
            # Processes that begin at the same time make the same tables: the second one finds them.
            attempts -= 1
            if not attempts:
                raise
            time.sleep(0.2)
        except ImportError:
            raise missing(f"a study in {url.partition(':')[0]}", extra="postgres") from None


def driver(storage: str) -> str:
    """Return the address of a database with the name of our driver, where it has none."""
    return POSTGRES.sub("postgresql+psycopg://", storage)


def journal(optuna: Any, storage: str | None, folder: Path) -> Any:
    """Return a journal file, which works in any shared folder."""
    path = Path(storage or folder / "study.log")
    # This lock ends with its process; Optuna's own remains after its process was killed.
    lock = file_lock(path.with_name(f".{path.name}.lock"))
    with lock:
        mend(path)
    backend = optuna.storages.journal.JournalFileBackend(str(path), lock_obj=lock)
    with replaying(path):
        return optuna.storages.JournalStorage(backend)


@contextmanager
def replaying(journal: str | Path) -> Iterator[None]:
    """Report errors of Optuna while it replays a journal, which it does without checks."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AssertionError, IndexError, AttributeError) as error:
        raise Damaged(f"{journal} is damaged: Optuna cannot read its study ({error!r})") from None


def mend(path: Path) -> None:
    """Remove an incomplete last line, which a full disk leaves: it would damage the next line."""
    content = read_bytes(path, LARGE) or b""
    if content and not content.startswith(b'{"op_code"'):
        raise ValueError(f"{path} is not a journal of Optuna; give a journal, or the name of a new file")
    whole = content[: content.rfind(b"\n") + 1]
    for number, line in enumerate(whole.splitlines(), 1):
        where = f"{path}, line {number}"
        entry = parse_json(where, line)
        check(
            isinstance(entry, dict) and isinstance(entry.get("op_code"), int),
            where,
            "it is not an entry of Optuna",
        )
    if whole != content:
        with open_file(path, "ab") as file:
            file.truncate(len(whole))
