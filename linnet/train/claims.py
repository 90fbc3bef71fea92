"""Which process trains a run of a search: no two train the same one, and another takes that of a dead one.

In a folder that all processes see, the process that trains a run holds a lock, which ends with the process.
So a run that the study calls running and whose lock is free was interrupted, and the next process resumes it
at once.

Where only a database is shared, a table beside Optuna's has a row for each run under way: who trains it, and
when it was heard of last. Its process writes that every few seconds, by the clock of the database. A run that
was not heard of for `dead_after` seconds is free. (Optuna's own heartbeat, an experiment of it, marks such a
run as failed and begins another one; here it keeps its number and its settings, and is resumed.)

    turn    one row of the table, locked in a transaction: the database ends it with its connection
    take    one statement, which changes the row if it is still that of the dead process: of two processes
            that find a run free, one gets it
    check   in its process, before each update: a process that was suspended, or lost the network, for longer
            than `dead_after` asks the database before it goes on, and leaves the run if another has taken it
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from filelock import AcquireReturnProxy, Timeout

from linnet.runs.errors import Stopped, room_for
from linnet.runs.records import file_lock
from linnet.train.progress import Progress

BEATS = 5
"""How often a process is heard of in the time after which it would be taken for dead."""
TURN = -1
"""The number of the row whose lock is the turn."""
SHORTEST_TURN = 10.0
"""Seconds that every turn may take: on a busy machine, a moment may last longer than `dead_after`."""


class Lost(Stopped):
    """Another process has taken over the run."""


class Claim(Protocol):
    """A run that is ours within `with`."""

    def check(self) -> None:
        """Raise Lost if it is not ours any more."""

    def __enter__(self) -> Claim: ...
    def __exit__(self, *error: Any) -> None: ...


class Claims(Protocol):
    """The runs of a study and who trains them."""

    pause: float

    def turn(self) -> AbstractContextManager[None]:
        """Within this, no other process begins or ends a run."""

    def take(self, number: int) -> Claim | None:
        """Return the claim of a run; None if another process has it. Within a turn."""

    def is_heard(self, number: int, before: dict[int, Any]) -> bool:
        """Whether the process of a run was heard of since this was first asked, with the same `before`."""


# -------------------------------------------------------------------------------- a shared folder


class FolderClaims:
    pause = 0.0

    def __init__(self, folder: Path):
        self.folder = folder

    @contextmanager
    def turn(self) -> Iterator[None]:
        with room_for(self.folder), file_lock(self.folder / ".turn"):
            yield

    def take(self, number: int) -> FolderClaim | None:
        try:
            return FolderClaim(file_lock(self.folder / f".{number:04}.lock").acquire(blocking=False))
        except Timeout:
            return None

    def is_heard(self, number: int, before: dict[int, Any]) -> bool:
        # Its lock is held, so its process lives.
        return True


class FolderClaim:
    def __init__(self, held: AcquireReturnProxy):
        self.held = held

    def check(self) -> None:
        """A lock that is held cannot be lost."""

    def __enter__(self) -> FolderClaim:
        return self

    def __exit__(self, *error: object) -> None:
        self.held.lock.release()


# ----------------------------------------------------------------------------- a shared database


class DatabaseClaims:
    """The rows of a study in a table of its database.

    engine       that of SQLAlchemy
    dead_after   seconds
    """

    def __init__(self, engine: Any, study: str, dead_after: float):
        import sqlalchemy as sql

        self.sql, self.engine, self.study = sql, engine, study
        self.dead_after, self.pause = dead_after, dead_after / BEATS
        self.longest_turn = max(dead_after, SHORTEST_TURN)
        self.table = sql.Table(
            "linnet_claims",
            sql.MetaData(),
            sql.Column("study", sql.String(512), primary_key=True),
            sql.Column("number", sql.Integer, primary_key=True, autoincrement=False),
            sql.Column("worker", sql.String(32), nullable=False),
            sql.Column("heard", sql.DateTime(timezone=True), nullable=False),
        )
        self.table.metadata.create_all(engine)
        self.add(TURN, "")

    @contextmanager
    def turn(self) -> Iterator[None]:
        with self.locked() as connection:
            yield
            connection.commit()

    def locked(self) -> Any:
        """Return a connection with the lock of the row TURN; a database that is away is waited for."""
        until = time.monotonic() + self.dead_after
        while True:
            try:
                return self.lock(self.engine.connect())
            except self.sql.exc.OperationalError:
                if time.monotonic() > until:
                    raise
                time.sleep(self.pause)

    def lock(self, connection: Any) -> Any:
        try:
            if self.engine.dialect.name == "postgresql":
                # A process that is suspended now would keep all others waiting.
                most = f"SET LOCAL idle_in_transaction_session_timeout = {int(1000 * self.longest_turn)}"
                connection.execute(self.sql.text(most))
            connection.execute(self.of(self.sql.update(self.table), TURN).values(heard=self.now))
        except BaseException:
            connection.close()
            raise
        return connection

    def take(self, number: int) -> DatabaseClaim | None:
        found, worker = self.read(number), uuid.uuid4().hex
        if found is None:
            is_ours = self.add(number, worker)
        else:
            is_free = (found.now - found.heard).total_seconds() > self.dead_after
            is_ours = is_free and self.hear(number, found.worker, worker)
        return DatabaseClaim(self, number, worker) if is_ours else None

    def is_heard(self, number: int, before: dict[int, Any]) -> bool:
        found = self.read(number)
        return found is not None and found.heard != before.setdefault(number, found.heard)

    # ------------------------------------------------------------------------------- its rows

    @property
    def now(self) -> Any:
        """The time of the database: the clocks of workers may differ."""
        return self.sql.func.now()

    def of(self, statement: Any, number: int) -> Any:
        return statement.where(self.table.c.study == self.study, self.table.c.number == number)

    def read(self, number: int) -> Any:
        wanted = self.sql.select(self.table.c.worker, self.table.c.heard, self.now.label("now"))
        with self.engine.begin() as connection:
            return connection.execute(self.of(wanted, number)).first()

    def add(self, number: int, worker: str) -> bool:
        """Add a row; return False if another process has added it."""
        values = {"study": self.study, "number": number, "worker": worker, "heard": self.now}
        try:
            with self.engine.begin() as connection:
                connection.execute(self.sql.insert(self.table).values(values))
        except self.sql.exc.IntegrityError:
            return False
        return True

    def hear(self, number: int, of: str, new: str | None = None) -> bool:
        """Note that a worker is heard of, or a `new` one in its place; return whether the row was its own."""
        wanted = self.of(self.sql.update(self.table), number).where(self.table.c.worker == of)
        with self.engine.begin() as connection:
            return bool(connection.execute(wanted.values(heard=self.now, worker=new or of)).rowcount)

    def remove(self, number: int, worker: str) -> None:
        wanted = self.of(self.sql.delete(self.table), number).where(self.table.c.worker == worker)
        with self.engine.begin() as connection:
            connection.execute(wanted)


class DatabaseClaim:
    """A run whose row has this worker; within `with`, a thread lets the database hear of it."""

    def __init__(self, claims: DatabaseClaims, number: int, worker: str):
        self.claims, self.number, self.worker = claims, number, worker
        self.heard, self.is_lost = now(), False
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.beats, daemon=True)

    def __enter__(self) -> DatabaseClaim:
        self.thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.ended.set()
        self.thread.join()
        # If the database is away, others take the run once it was not heard of.
        with suppress(self.claims.sql.exc.SQLAlchemyError):
            self.claims.remove(self.number, self.worker)

    def beats(self) -> None:
        while not self.ended.wait(self.claims.pause):
            # `check` asks again when it was not heard of for too long.
            with suppress(self.claims.sql.exc.SQLAlchemyError):
                self.beat()

    def beat(self) -> None:
        # The time before it is sent: the database never hears of us earlier than we believe.
        asked = now()
        if self.claims.hear(self.number, self.worker):
            self.heard = asked
        else:
            self.is_lost = True

    def check(self) -> None:
        if not self.is_lost and now() - self.heard > self.claims.dead_after:
            self.ask()
        if self.is_lost:
            raise Lost(
                f"run {self.number:04} was not heard of for {self.claims.dead_after:g} seconds, and another "
                "process has taken it over"
            )

    def ask(self) -> None:
        try:
            self.beat()
        except self.claims.sql.exc.SQLAlchemyError as error:
            raise Stopped(
                f"the database of the study does not answer ({first_line(error)}), so another process may "
                f"have taken over run {self.number:04}. Its files are kept: repeat the command once it works"
            ) from None


def now() -> float:
    """Return seconds that go on while the machine sleeps, where the system has such a clock."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


def first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


class Watched:
    """The progress of a run that is checked before each update."""

    def __init__(self, shown: Progress, check: Callable[[], None]):
        self.shown, self.check = shown, check

    def step(self, *position: Any) -> None:
        self.check()
        self.shown.step(*position)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.shown, name)
