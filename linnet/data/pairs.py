"""Sets of labelled pairs of sentences by name: does the second sentence follow from the first?

splits = load_from(PAIR_SETS, "snli", Wanted(data_dir="data"))
splits.train[0].texts, splits.train[0].label
"""

from __future__ import annotations

from pathlib import Path

from linnet.data.errors import DataError, MissingDataError
from linnet.data.files import File
from linnet.data.labelled import LabelledSet, Rows, Splits, Wanted, own_files
from linnet.data.tables import Columns, Labelled, read_rows, read_tsv

PREMISE, HYPOTHESIS = "premise", "hypothesis"
NO_LABEL = "-"  # in the published files of SNLI: the annotators did not agree
PUBLISHED = (
    "The files of snli_1.0.zip (https://nlp.stanford.edu/projects/snli) are read with --path "
    "snli_1.0_train.jsonl --valid-path snli_1.0_dev.jsonl --test-path snli_1.0_test.jsonl "
    "--premise sentence1 --hypothesis sentence2 --label gold_label"
)


def own(source: LabelledSet, wanted: Wanted) -> Splits:
    if wanted.path is None:
        raise DataError(
            "there are no pairs of sentences to read: give a file of yours (--path FILE), or --set snli "
            "and the folder of its files (--data-dir DIR)"
        )
    return own_files(wanted, read_pairs)


def read_pairs(path: str | Path, columns: Columns) -> Rows:
    """Read the pairs of a table that have a class; both sentences must have words."""
    rows = [row for row in read_rows(path, columns) if row.label != NO_LABEL]
    for row in rows:
        for name, text in zip(columns.texts.values(), row.texts, strict=True):
            if not text.strip():
                raise DataError(f"{row.where} has an empty {name!r}; expected a sentence")
    return rows


def snli(source: LabelledSet, wanted: Wanted) -> Splits:
    """The two training files overlap; each pair is read once."""
    try:
        first, sample, valid, test = (table_rows(source, number, wanted) for number in range(4))
    except MissingDataError as error:
        raise MissingDataError(f"{error}\n{PUBLISHED}") from error
    return Splits(list({row.texts: row for row in (*first, *sample)}.values()), valid, test)


def table_rows(source: LabelledSet, number: int, wanted: Wanted) -> Rows:
    columns = Columns({PREMISE: PREMISE, HYPOTHESIS: HYPOTHESIS})
    rows = read_tsv(source.files[number].name, source.text(number, wanted), columns)
    return [Labelled(row.text, source.class_name(row.label), row.where, row.second) for row in rows]


PAIR_SETS = {
    "own": LabelledSet("your own pairs (--path)", "yours", own),
    "snli": LabelledSet(
        "SNLI, does a sentence follow from another: 116,000 of its 549,000 training pairs, and its "
        "validation and test sets (Bowman et al. 2015)",
        "Creative Commons Attribution-ShareAlike 4.0",
        snli,
        files=tuple(
            File(f"{name}.tsv", f"sha256:{checksum}", instead="")
            for name, checksum in (
                ("train_first100k", "9f6e692a1de4440dfaea338a6a5cad4b6451ac927f69f217a5fd5a9dd8162c80"),
                ("train_sample20k", "a5828b8c47ee20c496390ee99b5402b32429df4b8a295ee818ceeb77b0fcc24a"),
                ("validation", "331da274becadc50832746ff4f893bed0d95b6235057b95ee8e1dad73e59fc46"),
                ("test", "c246eae7acea892c7f54a431833c93ca267695fb8a4d47a8f119aa65172dfd61"),
            )
        ),
        folders=("snli",),
        folds=1,
        names={"0": "entailment", "1": "neutral", "2": "contradiction"},
    ),
}
