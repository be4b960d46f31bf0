"""CSV and TSV: what is read, and what is refused with which words."""

import csv
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import puorl
import puorl.data.csv as csv_reader
from puorl.core.errors import ConfigError, DataError
from puorl.data.dataset import Dataset
from puorl.data.formats import load
from puorl.data.validate import FieldNames

BASIC = "obs_0,obs_1,act_0,reward,robot\n1,2.5,0,1,A\n3,4,1,0,B\n5,6,1,0,B\n"


def _read(tmp_path, content, name="log.csv", **names):
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return csv_reader.read(path, FieldNames(**names))


def test_fields_and_columns(tmp_path):
    rows = _read(tmp_path, BASIC)
    assert rows.arrays["obs"].tolist() == [[1.0, 2.5], [3.0, 4.0], [5.0, 6.0]]
    assert rows.arrays["action"].tolist() == [[0.0], [1.0], [1.0]]
    assert rows.arrays["reward"].tolist() == [1.0, 0.0, 0.0]
    assert rows.columns["robot"].tolist() == ["A", "B", "B"]
    assert (rows.obs_names, rows.action_names) == (("obs_0", "obs_1"), ("act_0",))
    assert rows.provenance is None


@pytest.mark.parametrize(
    "content",
    [
        BASIC.replace(",", ";"),
        BASIC.replace(",", "\t"),
        BASIC.replace("\n", "\r\n"),
        BASIC.replace("\n", "\r"),
        "\ufeff" + BASIC,
        BASIC + "\n\r\n\n",
        BASIC.rstrip("\n"),
        BASIC.replace("3,4", '"3"," 4 "').replace("robot", '"robot"'),
        BASIC.replace("3,4", "\n\n3,4"),
    ],
    ids=["semicolon", "tab", "crlf", "cr", "bom", "blank end", "no newline", "quotes", "blank"],
)
def test_spellings_of_the_same_table(tmp_path, content):
    rows, plain = _read(tmp_path, content), _read(tmp_path, BASIC, "plain.csv")
    assert rows.arrays.keys() == plain.arrays.keys()
    for name, array in plain.arrays.items():
        np.testing.assert_array_equal(rows.arrays[name], array)
    assert rows.columns["robot"].tolist() == ["A", "B", "B"]


def test_types_of_extra_columns(tmp_path):
    head = "obs_0,act_0,id,wide,flag,gap,seen,note,code\n"
    body = "1,1,7,12345678901234567,true,,false,,01\n2,2,8,2,False,1.5,,x,2\n"
    columns = _read(tmp_path, head + body).columns
    assert columns["id"].dtype == np.int64
    assert columns["wide"].tolist() == [12345678901234567, 2]
    assert columns["flag"].dtype == bool
    np.testing.assert_array_equal(columns["gap"], [np.nan, 1.5])
    np.testing.assert_array_equal(columns["seen"], [0.0, np.nan])
    assert columns["note"].tolist() == ["", "x"]
    assert columns["code"].tolist() == ["01", "2"]


def test_types_do_not_depend_on_the_first_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_reader, "_BLOCK_LINES", 10)
    lines = ["obs_0,act_0,id,level,mark"] + [f"{i},0,{i},{i},{i}" for i in range(95)]
    lines += ["95,0,95,0.5,A7"]
    columns = _read(tmp_path, "\n".join(lines)).columns
    assert columns["id"].tolist() == list(range(96))
    assert columns["level"].dtype == np.float64
    assert columns["mark"].tolist() == [str(i) for i in range(95)] + ["A7"]


def test_quoted_cells_may_cross_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_reader, "_BLOCK_LINES", 2)
    text = 'obs_0,act_0,note\n1,1,"a\nb\n\nc, ""d"""\n2,2,5" pipe\n3,3,"e\nf"\n'
    assert _read(tmp_path, text).columns["note"].tolist() == ['a\nb\n\nc, "d"', '5" pipe', "e\nf"]


def test_single_fields(tmp_path):
    head = "obs_0,act_0,terminal,timeout,trip,stamp\n"
    body = "1,1,0,false,x-9,2024-05-01T12:00:00Z\n2,2,1,true,x-8,2024-05-01T12:00:00.500Z\n"
    rows = _read(tmp_path, head + body, episode="trip", time="stamp")
    assert rows.arrays["terminal"].tolist() == [0, 1]
    assert rows.arrays["timeout"].tolist() == [False, True]
    assert rows.arrays["episode"].tolist() == ["x-9", "x-8"]
    assert rows.columns["trip"].tolist() == ["x-9", "x-8"]
    assert np.diff(rows.arrays["time"]).tolist() == [0.5]
    assert "stamp" not in rows.columns


def test_empty_next_state_is_unknown(tmp_path):
    text = "obs_0,act_0,next_obs_0,terminal\n1,0,2,0\n2,0,,1\n5,0,6,0\n"
    rows = _read(tmp_path, text)
    np.testing.assert_array_equal(rows.arrays["next_obs"], [[2.0], [np.nan], [6.0]])
    dataset = load(tmp_path / "log.csv")
    assert dataset.rows.next_known.tolist() == [True, False, True]


def test_named_columns_keep_their_order(tmp_path):
    rows = _read(tmp_path, BASIC, obs="obs_1,obs_0", action=["reward", "act_0"])
    assert rows.arrays["obs"][0].tolist() == [2.5, 1.0]
    assert rows.arrays["action"][0].tolist() == [1.0, 0.0]
    assert "reward" not in rows.arrays


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "expected a first line with column names, got an empty one"),
        ("\n1,2\n", "expected column names in the first line, got only numbers"),
        ("1,2,3\n4,5,6\n", "got only numbers"),
        ("obs_0,act_0,obs_0\n1,2,3\n", "got 'obs_0' twice"),
        ("obs_0,act_0\n1,2\n3\n", r"row 1 \(line 3\): expected 2 cells .*found 1"),
        ("obs_0,act_0\n\n1,2\n3,4,5\n", r"row 1 \(line 4\): expected 2 cells .*found 3"),
        ("obs_0,act_0\n1,2\n,4\n", r"row 1 \(line 3\), column obs_0 \(obs\): .*an empty cell"),
        ("obs_0,act_0\n1,2\n3,fast\n", r"column act_0 \(action\): expected a number, got 'fast'"),
        ('obs_0,act_0,n\n1,2,"a\nb"\n3,x,c\n', r"row 1 \(line 4\), column act_0"),
        ("obs_0;act_0\n1,5;2\n", "decimal point, got '1,5'"),
        ("obs_0,act_0\n1_0,2\n", "got '1_0'"),
        ("obs_0,act_0,reward\n1,2,\n", r"column reward \(reward\): .*empty"),
        ("obs_0,act_0,next_obs_0\n1,2,\n3,4,x\n", r"row 1 .*next_obs_0 \(next_obs\).*got 'x'"),
        (
            "obs_0,act_0,terminal\n1,2,0\n3,4,yes\n",
            "expected only 0/1 or only true/false, got 'yes'",
        ),
        ("obs_0,act_0,terminal\n1,2,0\n3,4,\n", r"terminal \(terminal\): row 1 is empty"),
        ("obs_0,act_0,ep\n1,2,a\n3,4,\n", r"ep \(episode\): row 1 is empty"),
        ("obs_0,act_0,t\n1,2,now\n", "ISO 8601 stamps, .*got 'now' in row 0"),
        ('obs_0,act_0,n\n1,2,"open\n3,4,x\n', "line 3: expected every quoted cell to be closed"),
        ('"obs_0,act_0\n1,2\n', "expected a header line"),
        ("obs_0,act_0\n1,2\n3,\0\n", "line 3: expected text, got a NUL"),
        ("obs\0_0,act_0\n1,2\n", "NUL byte in line 1"),
        ("obs_0,act_0\n1,2\n3,\xe4\n".encode("latin-1"), "expected UTF-8 text, got the byte"),
        ("obs_0,act_0\n1,2\n".encode("utf-16"), "expected UTF-8 text"),
        ("a,b\n1,2\n", "expected obs under one of its usual names"),
    ],
)
def test_refused_with_a_reason(tmp_path, content, says):
    with pytest.raises(DataError, match=says):
        Dataset.from_raw(_read(tmp_path, content), source="log.csv")


def test_header_without_rows_has_no_rows(tmp_path):
    rows = _read(tmp_path, "obs_0,act_0,id\n")
    assert rows.arrays["obs"].shape == (0, 1)
    with pytest.raises(DataError, match="at least one row"):
        load(tmp_path / "log.csv")


def test_folder_and_missing_file(tmp_path):
    with pytest.raises(DataError, match="expected a readable CSV file, got: Is a directory"):
        csv_reader.read(tmp_path, FieldNames())
    with pytest.raises(DataError, match="No such file"):
        csv_reader.read(tmp_path / "no.csv", FieldNames())


def test_load_with_label(tmp_path):
    (tmp_path / "log.tsv").write_text(BASIC.replace(",", "\t"))
    dataset = load(tmp_path / "log.tsv", label="robot == 'B' and obs_0 < 4")
    assert dataset.columns["labelled"].tolist() == [False, True]
    assert dataset.provenance.format == "csv"


_TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)


@settings(max_examples=150, deadline=None)
@given(
    rows=st.lists(
        st.tuples(
            st.floats(allow_nan=False, allow_infinity=False),
            st.floats(width=32, allow_nan=False, allow_infinity=False),
            st.integers(-(2**63) + 1, 2**63 - 1),
            st.booleans(),
            _TEXT,
        ),
        min_size=1,
        max_size=30,
    ),
    delimiter=st.sampled_from([",", ";", "\t"]),
    end=st.sampled_from(["\n", "\r\n"]),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    block=st.integers(1, 7),
)
def test_what_the_csv_module_writes_comes_back(
    tmp_path_factory, rows, delimiter, end, quoting, block
):
    # Python's writer quotes no line break but its own.
    assume(end != "\n" or quoting == csv.QUOTE_ALL or not any("\r" in row[4] for row in rows))
    path = tmp_path_factory.mktemp("csv") / "log.csv"
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=delimiter, lineterminator=end, quoting=quoting)
        writer.writerow(["obs_0", "act_0", "id", "flag", "note"])
        writer.writerows([*row[:4], f"t{row[4]}"] for row in rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_reader, "_BLOCK_LINES", block)
        found = csv_reader.read(path, FieldNames())
    obs, action, ids, flags, notes = zip(*rows, strict=True)
    assert found.arrays["obs"][:, 0].tolist() == list(obs)
    assert all(map(math.isfinite, found.arrays["action"][:, 0]))
    assert found.arrays["action"][:, 0].tolist() == list(action)
    assert found.columns["id"].tolist() == list(ids)
    assert found.columns["flag"].tolist() == list(flags)
    assert found.columns["note"].tolist() == [f"t{note}" for note in notes]


@settings(max_examples=200, deadline=None)
@given(
    content=st.binary(max_size=80) | st.text('obact_01,;\n\r"x. \0', max_size=60).map(str.encode)
)
def test_garbage_raises_nothing_but_data_error(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("csv") / "log.csv"
    path.write_bytes(content)
    with pytest.raises(DataError):
        csv_reader.read(path, FieldNames())


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_damaged_tables_load_or_say_why(tmp_path_factory, data):
    content = bytearray((BASIC + "7,8,9,1,C\n" * 3).encode())
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("csv") / "log.csv"
    path.write_bytes(bytes(content))
    try:
        dataset = load(path)
    except DataError:
        return
    assert np.isfinite(dataset.obs).all()


@pytest.mark.parametrize(
    "ids", [("10", "1e1"), ("1", "1.0"), ("true", "True"), ("+1", "1"), ("-0", "0")]
)
def test_ids_that_are_equal_as_numbers_only_stay_apart(tmp_path, ids):
    lines = [f"{i},0,{ids[i % 2]}" for i in range(8)]  # interleaved
    path = tmp_path / "log.csv"
    path.write_text("\n".join(["obs_0,act_0,ep", *lines]) + "\n")
    data = load(path)
    assert data.num_episodes == 2
    assert (data.next_obs - data.obs).ravel().tolist() == [2.0] * 6
    assert data.columns["ep"].tolist() == [ids[i % 2] for i in range(6)]
    assert any("kept apart, as texts" in note for note in data.provenance.notes)


def test_equal_spellings_of_ids_stay_numbers(tmp_path):
    rows = _read(tmp_path, "obs_0,act_0,ep\n1,0,1.0\n2,0, 1.0\n3,0,2.0\n")
    assert rows.arrays["episode"].tolist() == [1.0, 1.0, 2.0]
    assert "ep" not in rows.columns


def test_a_header_longer_than_the_csv_modules_cells(tmp_path):
    names = [f"obs_{i}" for i in range(20_000)]
    rows = _read(tmp_path, ";".join([*names, "act_0"]) + "\n" + ";".join(["1"] * 20_001) + "\n")
    assert len(";".join(names)) > csv.field_size_limit()
    assert rows.arrays["obs"].shape == (1, 20_000)


def test_columns_without_a_name_are_kept_and_told(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text(";obs_0;act_0;\n0;1;2;\n1;3;4;\n")  # an index of pandas, a sign at the end
    data = puorl.load(path)
    assert data.columns["unnamed_1"].tolist() == [0]
    assert data.obs.tolist() == [[1.0]]
    assert any(
        "without a name in the header: unnamed_1, unnamed_4" in n for n in data.provenance.notes
    )


def test_lines_before_the_header_are_left_out(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("sep=;\n# pump 7\n\nobs_0;act_0\n1;2\n3;4\nx;6\n")
    with pytest.raises(DataError, match=r"row 2 \(line 7\), column obs_0"):
        puorl.load(path)
    assert puorl.load(path, missing="drop").obs.tolist() == [[1.0]]


def test_decimal_commas_are_read_when_asked_for(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("obs_0;act_0;t;power;name\n1,5;2;0,1;,5;a,1\n-3,25e1;4;0,2;7;b\n5;1;0,3;8;c\n")
    with pytest.raises(DataError, match=r"column t .*got '0,1' .* --decimal ,"):
        puorl.load(path)
    (tmp_path / "plain.csv").write_text("obs_0;act_0\n1,5;2\n-3,25e1;4\n")
    with pytest.raises(DataError, match=r"got '1,5'; if that is .* --decimal , .*2 bad cells"):
        puorl.load(tmp_path / "plain.csv")
    data = puorl.load(path, decimal=",")
    assert (data.obs[:, 0].tolist(), data.time.tolist()) == ([1.5, -32.5], [0.1, 0.2])
    assert data.columns["power"].tolist() == [0.5, 7.0]
    assert data.columns["name"].tolist() == ["a,1", "b"]
    path.write_text("obs_0;act_0\n1.234;2\n3;4\n5;6\n")  # thousands, or a slip: not 1.234
    with pytest.raises(DataError, match=r"row 0 .*got '1.234'"):
        puorl.load(path, decimal=",")
    with pytest.raises(ConfigError, match="decimal"):
        puorl.load(path, decimal=";")


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_the_encoding_can_be_named(tmp_path, encoding):
    path = tmp_path / "log.csv"
    path.write_bytes("obs_°C,act_0\n1,2\n3,4\n".encode(encoding))
    with pytest.raises(DataError, match=f"such as --encoding {encoding} "):
        puorl.load(path)
    assert puorl.load(path, encoding=encoding).provenance.obs_names == ("obs_°C",)
    with pytest.raises(ConfigError, match="encoding: expected the name of a text encoding"):
        puorl.load(path, encoding="rot13")


@pytest.mark.parametrize("others", ["", "n/a"])
def test_cells_that_say_nan_are_counted_with_the_other_bad_ones(tmp_path, others):
    path = tmp_path / "log.csv"
    path.write_text(f"obs_0,act_0\n1,2\nNaN,4\n5,6\n7,nan\n{others},1\n9,1\n")
    with pytest.raises(DataError, match=r"row 1 \(line 3\), .*got 'NaN'.*; 3 bad cells in all"):
        puorl.load(path)


def test_a_column_that_only_looks_like_a_field_need_not_be_one(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("obs_0,act_0,t,terminal\n1,2,early,maybe\n3,4,late,no\n")
    data = puorl.load(path, time="", terminal="")
    assert (data.time, data.columns["t"].tolist()) == (None, ["early"])
    assert "t: not used as time, as asked" in data.provenance.notes
    assert "terminal" in data.provenance.missing


def test_the_format_of_stamps_can_be_named(tmp_path):
    path = tmp_path / "log.csv"
    stamps = ["25.10.2026 02:59:59", "25.10.2026 03:00:00", "25.10.2026 03:00:01"]
    path.write_text("obs_0,act_0,t\n" + "".join(f"{i},0,{s}\n" for i, s in enumerate(stamps)))
    with pytest.raises(DataError, match=r"got '25.10.2026 02:59:59' .* --time-format"):
        puorl.load(path)
    form = "%d.%m.%Y %H:%M:%S"
    assert np.diff(puorl.load(path, time_format=form).time).tolist() == [1.0]
    dated = puorl.load(path, time_format=form)
    assert dated.provenance.clock == "dates"
    assert type(dated.provenance).from_dict(dated.provenance.to_dict()) == dated.provenance
    assert puorl.Dataset.concatenate([dated, dated]).provenance.clock == "dates"
    path.write_text("obs_0,act_0,t\n1,0,1.5\n2,0,2.5\n3,0,3.5\n")
    assert puorl.load(path).provenance.clock is None
    path.write_text("obs_0,act_0,t\n" + "".join(f"{i},0,{s}\n" for i, s in enumerate(stamps)))
    berlin = puorl.load(path, time_format=form, time_zone="Europe/Berlin", gap=1e4)
    assert np.diff(berlin.time).tolist() == [3601.0]  # the first is still in summer time
    with pytest.raises(DataError, match="expected stamps of the format '%Y'"):
        puorl.load(path, time_format="%Y")
