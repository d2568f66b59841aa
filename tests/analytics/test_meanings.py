"""Each column of the archive and of each result says what it is."""

from __future__ import annotations

from nsqanalytics.job_list import JOBS
from nsqanalytics.meanings import MEANINGS, OF_JOB, meaning
from nsqanalytics.schema import COLUMNS


def test_every_column_has_a_meaning_and_every_meaning_a_column():
    """A column that is added needs a text; the text of one that has gone must go too."""
    declared = {(job.name, figure.name) for job in JOBS.values() for figure in job.figures}
    assert sorted(each for each in declared if not meaning(*each)) == []
    assert sorted(MEANINGS.keys() - {column for _, column in declared}) == []
    assert OF_JOB.keys() <= declared
    assert all(column.meaning for column in COLUMNS.values())
