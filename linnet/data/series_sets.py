"""Sets of real series by name. Those of statsmodels need no download, the others a folder with their files.

    table = load_series("co2")
    table.frequency, len(table.series)          # weekly, 1
    load_series("etth1", data_dir="data", columns=SeriesColumns(targets=("OT",)))

statsmodels is not imported; only its csv files are read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from itertools import zip_longest
from pathlib import Path

from linnet.base.project import advice
from linnet.data.columnar import Column, Table, read_table
from linnet.data.errors import DataError, MissingDataError, unknown
from linnet.data.files import File, read_any
from linnet.data.layouts import SeriesColumns
from linnet.data.series import DEFAULT, SeriesTable, read_series, series_of_table
from linnet.data.sets import Described

PACKAGE = "statsmodels"
FOLDERS = ("m4", "ett", "ETT-small")
MONTH = 30 * 24
"""The hours of 30 days."""


def the_table(table: Table) -> Table:
    return table


@dataclass(frozen=True)
class SeriesSet(Described):
    """A set of series.

    files      their paths in the folder of the package, or in a folder of data
    table      makes one table of those of the files
    columns    how it is read; what the user names replaces them
    settings   the settings that its authors, or those who compare on it, use
    """

    files: tuple[File, ...] = ()
    table: Callable[..., Table] = the_table
    columns: SeriesColumns = DEFAULT
    settings: Mapping[str, int] = field(default_factory=dict)
    package: bool = False

    def read(self, data_dir: str | Path | None) -> Table:
        return self.table(*(read_table(self.find(file, data_dir)) for file in self.files))

    def find(self, file: File, data_dir: str | Path | None) -> Path:
        if self.package:
            return package_folder() / file.name
        return read_any([file], FOLDERS, data_dir).path


def load_series(
    name: str,
    path: str | Path | None = None,
    columns: SeriesColumns = DEFAULT,
    data_dir: str | Path | None = None,
) -> SeriesTable:
    """Read a set of SERIES_SETS.

    path       the file of the set "own"
    columns    how a file is read; of a set by name, what differs from its own columns
    data_dir   where the files of a set are searched first
    """
    if name not in SERIES_SETS:
        raise unknown("set", name, SERIES_SETS)
    if name != "own":
        chosen = SERIES_SETS[name]
        return series_of_table(chosen.read(data_dir), with_given(chosen.columns, columns))
    if path is None:
        raise DataError("the set 'own' is a file of yours; give its path (path=, --path)")
    return read_series(path, columns)


def with_given(columns: SeriesColumns, given: SeriesColumns) -> SeriesColumns:
    """Return the columns of a set with those that differ from the defaults of a file."""
    default = DEFAULT._asdict()
    return columns._replace(**{key: value for key, value in given._asdict().items() if value != default[key]})


def package_folder() -> Path:
    found = find_spec(PACKAGE)
    if found is None or found.origin is None:
        raise MissingDataError(
            f"this set is in the package {PACKAGE}: {advice('series')}, or give a file of your own (--path)"
        )
    return Path(found.origin).parent


# -------------------------------------------------------------------------------- tables of sets


def years_and_months(table: Table) -> Table:
    """One row for each year, with a column for each month, becomes one row for each month."""
    years, months = table.columns[0], table.columns[1:]
    times = [f"{year}-{month:02d}" for year in years for month in range(1, 13)]
    values = [value for row in zip(*months, strict=True) for value in row]
    return with_times(table, times, {"temperature": values})


def years_and_quarters(table: Table) -> Table:
    """The time is in two columns, the year and the quarter."""
    years, quarters, *others = table.columns
    times = [f"{year}Q{quarter}" for year, quarter in zip(years, quarters, strict=True)]
    return with_times(table, times, dict(zip(table.names[2:], others, strict=True)))


def with_times(table: Table, times: Column, others: Mapping[str, Column]) -> Table:
    return Table(table.source, ["time", *others], [times, *others.values()])


def joined_rows(train: Table, test: Table) -> Table:
    """Append to each row of a table, of which shorter ones end in empty fields, that of another table."""
    later = {row[0]: row[1:] for row in zip(*test.columns, strict=True)}
    rows = [[*filled(row), *filled(later[row[0]])] for row in zip(*train.columns, strict=True)]
    columns = [list(column) for column in zip_longest(*rows, fillvalue="")]
    names = [f"V{number}" for number in range(1, len(columns) + 1)]
    return replace(train, names=names, columns=columns)


def filled(row: Sequence[str]) -> list[str]:
    """Return the fields of a row that are not empty."""
    return [field for field in row if field]


def twenty_months(table: Table) -> Table:
    """Cut the series after 12 months of training and 4 each of validation and test, of 30 days each."""
    return replace(table, columns=[column[: 20 * MONTH] for column in table.columns])


def of_statsmodels(
    name: str, about: str, columns: SeriesColumns, table: Callable[..., Table] = the_table
) -> SeriesSet:
    files = (File(f"datasets/{name}/{name}.csv"),)
    return SeriesSet(f"{about}; needs no download", "public domain", files, table, columns, package=True)


def of_m4(period: str, about: str, checksums: tuple[str, str], horizon: int, season: int) -> SeriesSet:
    files = tuple(
        File(f"{period}-{part}.csv", f"sha256:{code}", instead="")
        for part, code in zip(("train", "test"), checksums, strict=True)
    )
    return SeriesSet(
        f"the {about} of the M4 competition (Makridakis, Spiliotis and Assimakopoulos 2020)",
        "no stated terms, for research; M4-methods/Dataset, in --data-dir",
        files,
        joined_rows,
        SeriesColumns(layout="rows"),
        {"horizon": horizon, "season": season},
    )


def of_ett(number: int, checksum: str) -> SeriesSet:
    """Return a set with a forecast for each hour of the test, as those who compare on it have."""
    return SeriesSet(
        f"ETTh{number}: loads of a power transformer and the temperature of its oil (OT), each hour (Zhou et "
        "al. 2021)",
        "CC BY-ND 4.0; ETDataset/ETT-small, in --data-dir",
        (File(f"ETTh{number}.csv", f"sha256:{checksum}", instead=""),),
        twenty_months,
        SeriesColumns(time="date", targets=("HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL", "OT")),
        {"horizon": 24, "test_steps": 4 * MONTH, "valid_steps": 4 * MONTH, "stride": 1},
    )


SERIES_SETS: dict[str, SeriesSet] = {
    "sunspots": of_statsmodels(
        "sunspots",
        "sunspots of each year from 1700 to 2008 (National Geophysical Data Center)",
        SeriesColumns(time="YEAR", targets=("SUNACTIVITY",)),
    ),
    "co2": of_statsmodels(
        "co2",
        "CO2 in the air of Mauna Loa, each week from 1958 to 2001, with gaps (Keeling and Whorf 2004)",
        SeriesColumns(time="date", targets=("co2",)),
    ),
    "elnino": of_statsmodels(
        "elnino",
        "sea surface temperature of the eastern Pacific, each month from 1950 to 2010 (NOAA)",
        SeriesColumns(time="time", targets=("temperature",)),
        years_and_months,
    ),
    "macrodata": of_statsmodels(
        "macrodata",
        "economy of the United States, 12 series, each quarter from 1959 to 2009 (Federal Reserve Bank of "
        "St. Louis)",
        SeriesColumns(time="time"),
        years_and_quarters,
    ),
    "m4-hourly": of_m4(
        "Hourly",
        "414 hourly series",
        (
            "ea59b7783573c49077a835ab6465c7d66f1474783360f310988a9a737fbca62f",
            "71a57fccb15e534d973626ada4fb87febf789e9317715b7cc6dd3b5f90db6f42",
        ),
        horizon=48,
        season=24,
    ),
    "m4-weekly": of_m4(
        "Weekly",
        "359 weekly series",
        (
            "d478d3f6ed673e6ed3c2cb0fbed5425f72eedd51318ebebeb0b5ecfcefc37714",
            "3b2bc4be8e636e802260dcd843ca3c5da40536a1fbe1ecb3229a97dae4f44688",
        ),
        horizon=13,
        season=1,
    ),
    "etth1": of_ett(1, "f18de3ad269cef59bb07b5438d79bb3042d3be49bdeecf01c1cd6d29695ee066"),
    "etth2": of_ett(2, "a3dc2c597b9218c7ce1cd55eb77b283fd459a1d09d753063f944967dd6b9218b"),
    "own": SeriesSet("your own file (--path)", "yours"),
}
