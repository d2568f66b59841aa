"""ACTIVITY of the files of an archive, in the tasks of Spark's that read them. Without Spark."""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from nsqanalytics.archive import ArchiveWriter, samples_path
from nsqanalytics.computation import MOST_PARTS, ROWS_OF_CONTEXT, ROWS_OF_SERIES, fits_tasks, shares
from nsqanalytics.counting.activity import ACTIVITY
from nsqanalytics.counting.computing import AllAtOnce
from nsqanalytics.counting.ends import Rules
from nsqanalytics.counting.names import Names
from nsqanalytics.counting.of_files import OfFiles, Share, Wanted
from nsqanalytics.counting.sample_files import SampleFiles, UnreadableFile
from nsqanalytics.counting.sampling import Contexts
from nsqanalytics.counting.validation import InvalidReading
from nsqanalytics.files import Folder
from nsqanalytics.schema import Sample, as_table
from tests.analytics.conftest import MIDNIGHT
from tests.analytics.hostile import hostile_archive
from tests.analytics.walker import walk_hours

HOUR = timedelta(hours=1)
ROWS_OF_GROUP = 7


@pytest.fixture(scope="module")
def samples() -> pa.Table:
    """Eight archives' samples, shuffled."""
    made = [sample for seed in range(8) for sample in hostile_archive(seed, MIDNIGHT + seed * timedelta(days=3))]
    random.Random(3).shuffle(made)
    return as_table(made)


@pytest.fixture(scope="module")
def files(samples: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> SampleFiles:
    """Some files per hour, of several row groups. Every third lacks the total of its histograms, as in old archives."""
    return written(samples, tmp_path_factory.mktemp("archive"))


def written(samples: pa.Table, root: Path) -> SampleFiles:
    hours = defaultdict(list)
    hour_of = pc.floor_temporal(samples["taken_at"], unit="hour")
    for start in sorted(pc.unique(hour_of).to_pylist()):
        rows = samples.filter(pc.equal(hour_of, pa.scalar(start, hour_of.type)))
        for first in range(0, rows.num_rows, 30):
            path = root / f"{start:%d-%H}-{first}.parquet"
            table = rows.slice(first, 30)
            if first % 90 == 60:
                table = table.drop_columns(["finish_count"])
            pq.write_table(table, path, row_group_size=ROWS_OF_GROUP)
            hours[start].append((str(path), path.as_uri()))
    return SampleFiles(str(root), dict(hours))


def contexts_of(files: SampleFiles) -> Contexts:
    starts = sorted(files.hours)
    return [(start, starts[max(0, at - 2) : at + 1]) for at, start in enumerate(starts)]


def computed(files: SampleFiles, rules: Rules, parts: list[Share], wanted: Wanted | None = None, at_once: int = 10**6):
    """ACTIVITY, sorted by its keys."""
    numbers = pa.record_batch({"id": pa.array(range(len(parts)))})
    found = list(OfFiles(files, rules, wanted or Wanted(), parts, at_once)([numbers]))
    return sorted_by_key(pa.Table.from_batches(found, ACTIVITY))


def all_at_once(samples: pa.Table, rules: Rules, topic: str = "") -> pa.Table:
    """ACTIVITY of rows that Spark has read."""
    channel = pc.fill_null(samples["channel"], "")
    rows = samples.set_column(samples.schema.get_field_index("channel"), "channel", channel)
    rows = rows.append_column("is_wanted", pc.equal(rows["topic"], topic) if topic else [[True] * len(rows)])
    rows = rows.append_column("is_in_own_hour", [[True] * len(rows)]).append_column("file", [["f"] * len(rows)])
    return sorted_by_key(pa.Table.from_batches(list(AllAtOnce(rules)(rows.to_batches()))))


def sorted_by_key(table: pa.Table) -> pa.Table:
    keys = [(name, "ascending") for name in ("window_start", "node", "topic", "channel")]
    return table.sort_by(keys).combine_chunks()


@pytest.mark.parametrize("parts", [1, 3])
def test_figures_do_not_depend_on_how_hours_and_series_are_divided_into_tasks(samples, files, parts):
    """All hours in one task, an hour in each, many hours at once or one by one, and a third of the series each."""
    contexts = contexts_of(files)
    rules = Rules(HOUR, (), contexts)
    expected = all_at_once(samples, rules)
    whole = [Share(contexts, part, parts) for part in range(parts)]
    by_hour = [Share([context], part, parts) for context in contexts for part in range(parts)]

    assert expected.num_rows > 150
    for divided, at_once in ((whole, 10**6), (whole, 1), (by_hour, 10**6)):
        assert computed(files, rules, divided, at_once=at_once) == expected


@pytest.mark.parametrize("seed", [*range(40), 370, 374, 496])
def test_each_hour_alone_has_the_figures_of_plain_python(tmp_path, seed):
    """Also of nodes without an uptime. In its own run, nothing but its own hours can ask for evidence about a fall."""
    samples = hostile_archive(seed, MIDNIGHT + seed * timedelta(days=2) + 12 * HOUR)
    files = written(as_table(samples), tmp_path)
    contexts = contexts_of(files)

    rows = computed(files, Rules(HOUR, (), contexts), [Share([context]) for context in contexts]).to_pylist()

    keys = ("window_start", "node", "topic", "channel")
    names = ("sample_count", "left_out_count", "carried_count", "unplaced_count", "uncertain_count", "in_count")
    found = {tuple(row[key] for key in keys): [row[name] for name in names] for row in rows}
    assert found == {key: [row.sums[name] for name in names] for key, row in walk_hours(samples).items()}


@pytest.mark.parametrize(("topic", "parts"), [("", 1), ("", 7), ("u", 3)])
def test_windows_of_minutes_are_computed_from_all_hours_together(samples, files, parts, topic):
    rules = Rules(timedelta(minutes=5))
    divided = [Share(None, part, parts) for part in range(parts)]

    found = computed(files, rules, divided, Wanted(Names(topic)))

    assert found.num_rows > 150
    assert found == all_at_once(samples, rules, topic)


def test_topics_are_chosen_by_names_and_patterns(files):
    rules, everything = Rules(HOUR), [Share()]

    def topics(names: str) -> set[str]:
        return set(computed(files, rules, everything, Wanted(Names(names)))["topic"].to_pylist())

    assert topics("t") == topics(" t , T") == topics("t*") == {"t"}
    assert topics("t, u*") == topics("*") == topics("") == {"t", "u"}
    assert topics("T") == topics(",") == set()


def test_readings_from_the_end_of_the_period_on_are_left_out(samples, files):
    rules, until = Rules(HOUR), MIDNIGHT + timedelta(days=9, minutes=70)

    found = computed(files, rules, [Share()], Wanted(until=until))

    assert found == all_at_once(samples.filter(pc.less(samples["taken_at"], pa.scalar(until))), rules)


def test_a_file_that_cannot_be_read_is_named(files, tmp_path):
    """It is cut off."""
    [start, *_] = sorted(files.hours)
    whole = Path(files.hours[start][0][0]).read_bytes()
    cut = tmp_path / "a cut.parquet"
    cut.write_bytes(whole[: len(whole) // 2])

    with pytest.raises(UnreadableFile, match=re.escape(f"a file cannot be read: {cut.as_uri()}: ")):
        computed(SampleFiles(str(tmp_path), {start: [(str(cut), cut.as_uri())]}), Rules(HOUR), [Share()])


def test_a_computation_is_divided_by_its_rows():
    """Few rows are one task. If there are more than a task holds in memory, tasks divide the series."""
    hours = [MIDNIGHT + n * HOUR for n in range(24)]
    contexts: Contexts = [(start, hours[max(0, at - 2) : at + 1]) for at, start in enumerate(hours)]

    def count(given: Contexts | None, rows: int, cores: int = 2) -> int:
        return len(shares(given, dict.fromkeys(hours, rows), cores))

    def fits(given: Contexts | None, rows: int) -> bool:
        return fits_tasks(given, dict.fromkeys(hours, rows))

    assert (count(None, 1000), count(contexts[:12], 1000)) == (1, 1)
    assert (count(None, 10_000), count(contexts, 60_000)) == (2, 2)
    assert count(contexts, 60_000, cores=8) == 8
    assert count(None, ROWS_OF_SERIES) == 24
    crowded = shares(contexts, dict.fromkeys(hours, ROWS_OF_CONTEXT), 2)
    assert {share.parts for share in crowded} == {3}
    done = sorted((start, share.part) for share in crowded for start, _ in share.contexts or ())
    assert done == [(start, part) for start in hours for part in range(3)]
    assert shares([], {}, 2) == []
    assert (fits(contexts, ROWS_OF_CONTEXT), fits(contexts, 2 * ROWS_OF_CONTEXT)) == (True, False)
    assert (fits(None, MOST_PARTS * ROWS_OF_SERIES // 24), fits(None, ROWS_OF_SERIES)) == (True, False)


def test_evidence_about_a_fall_counts_old_readings_as_new_ones(tmp_path):
    """Without ``finish_count`` in the file, it is the total of the histogram, also of the channel that rose."""
    node = {"node": "n", "boot_id": "1", "topic": "t"}

    def reading(minute: int, channel: str, received: int, finished: int) -> Sample:
        counts = {"message_count": received, "hist_zero_count": finished, "hist_offset": 600, "hist_counts": []}
        return Sample(taken_at=MIDNIGHT + minute * HOUR / 60, channel=channel, **node, **counts, finish_count=finished)

    samples = as_table(
        [reading(1, "a", 100, 0), reading(2, "a", 5, 0), reading(3, "a", 6, 0)]
        + [reading(minute, "c", 50, 10 * minute) for minute in (1, 2, 3)]
    )
    rules = Rules(HOUR)

    found = computed(written(samples.drop_columns(["finish_count"]), tmp_path), rules, [Share()])

    assert found == all_at_once(samples, rules)
    assert found["uncertain_count"].to_pylist() == [0, 0]


def test_the_figures_of_an_hour_do_not_depend_on_the_hours_that_are_computed_with_it(tmp_path):
    """Another topic was silent for three hours, and is lower when a topic falls: evidence only if they are together."""
    node = {"node": "n", "boot_id": "1"}

    def reading(hours: float, topic: str, received: int) -> Sample:
        return Sample(taken_at=MIDNIGHT + hours * HOUR, topic=topic, **node, message_count=received)

    samples = [reading(0.1, "u", 100), *(reading(hour + 0.5, "t", 50 + hour) for hour in range(4))]
    samples += [reading(4.1, "t", 5), reading(4.1, "u", 7), reading(4.5, "t", 6)]
    files = written(as_table(samples), tmp_path)
    contexts = contexts_of(files)
    rules = Rules(HOUR, (), contexts)

    together = computed(files, rules, [Share(contexts)])

    assert together == computed(files, rules, [Share([context]) for context in contexts])


def test_a_damaged_page_is_found(tmp_path):
    """A flipped bit anywhere before the footer: the file is named, or the bit is in a column that is not read."""
    writer = ArchiveWriter(str(tmp_path))
    writer.write_table(as_table(hostile_archive(0, MIDNIGHT)))
    expected = sorted_by_key(computed_of(tmp_path))
    [file, *_] = sorted(tmp_path.rglob("*.parquet"), key=lambda path: -path.stat().st_size)
    whole = file.read_bytes()
    footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    rng = random.Random(5)
    found = Counter[str]()
    for _ in range(100):
        damaged = bytearray(whole)
        damaged[rng.randrange(footer)] ^= 1 << rng.randrange(8)
        file.write_bytes(damaged)
        try:
            found["the same figures" if sorted_by_key(computed_of(tmp_path)) == expected else "others"] += 1
        except UnreadableFile as error:
            found["named" if file.as_uri() in str(error) else "not named"] += 1

    assert found["named"] > 50
    assert set(found) <= {"named", "the same figures"}


def computed_of(archive: Path) -> pa.Table:
    hours = Folder(samples_path(str(archive))).partitions()
    files = {start: [(file.path, Path(file.path).as_uri()) for file in files] for start, files in hours.items()}
    return computed(SampleFiles(samples_path(str(archive)), files), Rules(HOUR), [Share()])


@pytest.mark.parametrize("name", ["node", "topic", "taken_at", "depth", "message_count", "requeue_count"])
def test_a_file_without_a_column_that_every_file_has_is_named(samples, tmp_path, name):
    at = samples["taken_at"][0].as_py()
    start = at.replace(minute=0, second=0, microsecond=0)
    path = tmp_path / "a.parquet"
    pq.write_table(samples.slice(0, 1).drop_columns([name]), path)

    with pytest.raises(InvalidReading, match=f"a reading is invalid: {name} is missing: {path.as_uri()}"):
        computed(SampleFiles(str(tmp_path), {start: [(str(path), path.as_uri())]}), Rules(HOUR), [Share()])


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("topic", pa.large_string()),
        ("topic", pa.binary()),
        ("topic", pa.dictionary(pa.int32(), pa.string())),
        ("depth", pa.uint64()),
    ]
    + [("taken_at", pa.timestamp("ns")), ("hist_offset", pa.int64()), ("hist_counts", pa.large_list(pa.int64()))],
    ids=str,
)
def test_other_types_for_the_same_values_change_no_figure(samples, tmp_path, name, kind):
    """As other programs write them."""
    hour = pc.floor_temporal(samples["taken_at"], unit="hour")
    rows = samples.filter(pc.equal(hour, hour[0]))
    at = rows.schema.get_field_index(name)
    results = []
    for table in (rows, rows.set_column(at, name, rows[name].cast(kind))):
        path = tmp_path / "a.parquet"
        pq.write_table(table, path)
        files = SampleFiles(str(tmp_path), {hour[0].as_py(): [(str(path), path.as_uri())]})
        results.append(computed(files, Rules(HOUR), [Share()]))

    assert results[0].num_rows > 1
    assert results[1] == results[0]


def test_a_column_of_nulls_may_have_no_type(samples, tmp_path):
    """As a program writes it that guesses types. No reading of these nodes needs it."""
    of_go = samples.filter(pc.is_null(samples["uptime_ns"]))
    hour = pc.floor_temporal(of_go["taken_at"], unit="hour")
    rows = of_go.filter(pc.equal(hour, hour[0]))
    path = tmp_path / "a.parquet"
    pq.write_table(rows.set_column(rows.schema.get_field_index("uptime_ns"), "uptime_ns", pa.nulls(len(rows))), path)
    files = SampleFiles(str(tmp_path), {hour[0].as_py(): [(str(path), path.as_uri())]})

    assert computed(files, Rules(HOUR), [Share()]) == all_at_once(rows, Rules(HOUR))


@pytest.mark.parametrize(
    ("name", "values"),
    [("depth", [1.5]), ("topic", [b"\xff\xfe"]), ("hist_counts", [[1.0]])],
    ids=["a figure with a fraction", "bytes that are no text", "counts with fractions"],
)
def test_a_column_of_another_type_is_named_with_its_file(samples, tmp_path, name, values):
    row = samples.filter(pc.is_valid(samples["hist_offset"])).slice(0, 1)
    start = row["taken_at"][0].as_py().replace(minute=0, second=0, microsecond=0)
    path = tmp_path / "a.parquet"
    pq.write_table(row.set_column(row.schema.get_field_index(name), name, pa.array(values)), path)
    files = SampleFiles(str(tmp_path), {start: [(str(path), path.as_uri())]})

    with pytest.raises(UnreadableFile, match=re.escape(f"a file cannot be read: {path.as_uri()}: ")):
        computed(files, Rules(HOUR), [Share()])
