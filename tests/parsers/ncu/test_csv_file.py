"""Saved outputs of ncu, as people have them: read right, or refused with a reason."""

import csv
import lzma
from pathlib import Path

import pandas as pd
import pytest

from nsight_prof.parsers.errors import ArtifactUnreadable, NoKernels, PermissionRefused
from nsight_prof.parsers.ncu import NcuCapture, read_csv, read_ncu

DETAILS = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size",'
    '"Grid Size","Device","CC","Section Name","Metric Name","Metric Unit","Metric Value",'
    '"Rule Name","Rule Type","Rule Description","Estimated Speedup Type","Estimated Speedup"\n'
)
LAUNCH = '"{id}","77","app","127.0.0.1","{name}","1","7","(32, 4, 1)","(224, 1, 1)","0","9.0",'


def details(*rows: tuple[str, str, str, str], number: int = 0, name: str = "f(int, T1)") -> str:
    start = LAUNCH.format(id=number, name=name.replace('"', '""'))
    return "".join(start + '"{}","{}","{}","{}",\n'.format(*row) for row in rows)


def rule(text: str) -> str:
    start = LAUNCH.format(id=0, name="f(int, T1)")
    return f'{start}"SpeedOfLight","","","","SOLBottleneck","OPT","{text}","global","38.17"\n'


def read(tmp_path: Path, text: str | bytes, name: str = "x.csv") -> NcuCapture:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_csv(path)


def values(capture: NcuCapture, profile: int = 0) -> dict[str, float]:
    rows = capture.metrics[capture.metrics["profile"] == profile]
    return dict(zip(rows["metric"], rows["value"], strict=True))


BYTES = ("Command line profiler metrics", "dram__bytes_read.sum", "Mbyte", "2.33")
DURATION = ("GPU Speed Of Light Throughput", "Duration", "us", "6.75")
CYCLES = ("GPU Speed Of Light Throughput", "Elapsed Cycles", "cycle", "13,485")
PLAIN = DETAILS + details(BYTES, DURATION, CYCLES)
EXPECTED = {
    "dram__bytes_read.sum": 2.33e6,
    "gpu__time_duration.sum": 6750.0,
    "gpc__cycles_elapsed.max": 13485.0,
}


@pytest.mark.parametrize(
    "text",
    [
        PLAIN,
        PLAIN.replace("\n", "\r\n"),
        "\ufeff" + PLAIN,
        PLAIN.encode("utf-16"),
        '==PROF== Connected to process 77 (/x/app)\nm, n = "8, 8\n\n' + PLAIN + "==PROF== Bye\n",
        "took 3 s " + PLAIN,
        PLAIN.replace('"us"', '"usecond"'),
        PLAIN.replace('"Mbyte","2.33"', '"Kbyte","2,330.00"'),
        PLAIN + rule('Memory is used, ""more"" than 1,000 times'),
        PLAIN.removesuffix("\n"),
        DETAILS + details(BYTES) + "loss = 0.5\n" + details(DURATION, CYCLES),
        DETAILS + details(BYTES) + "loss = 0.5 " + details(DURATION, CYCLES),
    ],
    ids=[
        "plain", "crlf", "bom", "utf-16", "banner", "output before the header", "older unit word",
        "other scale", "rules", "no newline at the end", "output between records",
        "output before a record",
    ],
)  # fmt: skip
def test_a_details_page_is_read_past_everything_around_it(
    text: str | bytes, tmp_path: Path
) -> None:
    capture = read(tmp_path, text)
    assert values(capture) == pytest.approx(EXPECTED)
    launch = capture.launches.iloc[0]
    assert (launch["name"], launch["grid"], launch["block"]) == ("f(int, T1)", "224x1x1", "32x4x1")
    assert (launch["pid"], launch["stream"], launch["device"]) == (77, 7, 0)


@pytest.mark.parametrize(
    ("cycles", "percent"),
    [
        ("4,067,203.88", "12.50"),
        ("4.067.203,88", "12,50"),
        ("4 067 203,88", "12,50"),
        ("4\u202f067\u202f203,88", "12,50"),
        ("4'067'203.88", "12.50"),
        ("40,67,203.88", "12.50"),
        ("4067203.88", "12.50"),
        ("4067203,88", "12,50"),
    ],
)
def test_separators_of_any_locale_are_told_from_decimal_marks(
    cycles: str, percent: str, tmp_path: Path
) -> None:
    rows = [("S", "a__x", "cycle", cycles), ("S", "b__x", "%", percent), ("S", "c__x", "", "1,024")]
    expected = {"a__x": 4067203.88, "b__x": 12.5, "c__x": 1024.0}
    if percent == "12,50":
        rows[2] = ("S", "c__x", "", "1.024")
    assert values(read(tmp_path, DETAILS + details(*rows))) == expected


def test_numbers_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    text = DETAILS + details(("S", "a__x", "%", "12.5"), ("S", "b__x", "%", "12,5"))
    with pytest.raises(ArtifactUnreadable, match="decimal mark"):
        read(tmp_path, text)


def test_a_lone_number_that_may_be_a_thousand_or_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtifactUnreadable, match=r"1\.234"):
        read(tmp_path, DETAILS + details(("S", "a__x", "%", "1.234")))


@pytest.mark.parametrize("text", ["n/a", "nan", "(!) n/a", "(!) nan", "no data", "-nan"])
def test_a_value_that_ncu_does_not_have_is_unknown_not_zero(text: str, tmp_path: Path) -> None:
    capture = read(tmp_path, DETAILS + details(("S", "a__x", "", text), BYTES))
    row = capture.metrics.set_index("metric").loc["a__x"]
    assert pd.isna(row["value"])


def test_a_text_value_is_text(tmp_path: Path) -> None:
    capture = read(
        tmp_path, DETAILS + details(("Launch Statistics", "Function Cache Configuration", "", "No"))
    )
    row = capture.metrics.iloc[0]
    assert (row["metric"], row["text"]) == ("launch__func_cache_config", "No")
    assert pd.isna(row["value"])


def test_an_unknown_unit_leaves_its_value_out_and_says_so(tmp_path: Path) -> None:
    capture = read(tmp_path, DETAILS + details(("S", "a__x", "Mfurlong", "1.50"), BYTES))
    assert pd.isna(values(capture)["a__x"])
    assert "'Mfurlong' of metric a__x" in capture.warnings[0]


def test_a_label_that_nobody_knows_keeps_its_section(tmp_path: Path) -> None:
    capture = read(tmp_path, DETAILS + details(("A", "Size", "", "1.50"), ("B", "Size", "", "2")))
    assert values(capture) == {"A/Size": 1.5, "B/Size": 2.0}


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        (b"", NoKernels, "is empty"),
        (b"\n \n", NoKernels, "is empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", ArtifactUnreadable, "LFS"),
        (b"\x7fELF\x02\x01\x01\0\0\0\xff\xfe", ArtifactUnreadable, "binary"),
        (b"\xff\xd8\xff\xe0 JFIF \x80\x81", ArtifactUnreadable, "binary"),
        (b"NVR\0\x02\0\0\0", ArtifactUnreadable, r"an \.ncu-rep"),
        (b"hello\nworld\n", ArtifactUnreadable, "neither a CSV page nor a table"),
        (DETAILS.encode(), NoKernels, "no record"),
        ((DETAILS + '"0","77","ap').encode(), ArtifactUnreadable, "within its first record"),
        (
            b"==PROF== Connected to process 1 (/a)\n==ERROR== ERR_NVGPUCTRPERM - The user does not "
            b"have permission\n==WARNING== No kernels were profiled.\n",
            PermissionRefused,
            "ERR_NVGPUCTRPERM",
        ),
        (b"==ERROR== Failed to load report file 'x'.\n", ArtifactUnreadable, "Failed to load"),
        (b"==WARNING== No kernels were profiled.\n", NoKernels, "no kernel"),
        (
            b'==PROF== Profiling "f" - 0: 0%....50%....100% - 9 passes\n==WARNING== Note: x\n',
            ArtifactUnreadable,
            "log of a run that profiled 1 kernels",
        ),
    ],
)
def test_a_file_without_data_is_refused_with_its_reason(
    text: bytes, error: type[Exception], message: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=message):
        read(tmp_path, text)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ArtifactUnreadable, match=r"none\.csv"):
        read_csv(tmp_path / "none.csv")


@pytest.mark.parametrize("lost", range(1, 120, 7))
def test_a_cut_file_loses_only_its_last_record_and_says_so(lost: int, tmp_path: Path) -> None:
    capture = read(tmp_path, PLAIN[:-lost])
    found = values(capture)
    assert found.items() <= EXPECTED.items()
    assert len(found) == 3 or capture.warnings


def test_an_error_after_the_last_kernel_is_a_warning(tmp_path: Path) -> None:
    capture = read(tmp_path, PLAIN + "==ERROR== The application returned an error code (11).\n")
    assert "error code (11)" in capture.warnings[0]


RAW = (
    '"ID","Process ID","Process Name","Host Name","thread Domain:Push/Pop_Range:PL_Type:PL_Value:'
    'CLR_Type:Color:Msg_Type:Msg","Id:Domain:Start/Stop_Range:PL_Type:PL_Value:CLR_Type:Color:'
    'Msg_Type:Msg","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC",'
    '"FBSP.TriageSCG.dramc__x.avg","dram__bytes.sum","gpu__time_duration.sum","launch__note"\n'
    '"","","","","","","","","","","","","","%","Gbyte","usecond",""\n'
    '"0","77","app","127.0.0.1","77  ""<default domain>:decode:none:none:RGB:0xff:REGISTERED:'
    'decode""  ""<default domain>:a:b:none:none:none:none:none:none"" ","","f<1, ""x"">(int)",'
    '"1","7","(256, 1, 1)","(8, 2, 1)","0","9.0","3.250000","0.000019","12.500000","5 (2; 3)"\n'
)


def test_a_raw_page_with_nvtx_columns_is_read(tmp_path: Path) -> None:
    capture = read(tmp_path, RAW)
    launch = capture.launches.iloc[0]
    assert launch["name"] == 'f<1, "x">(int)'
    assert launch["nvtx"] == "decode/a:b"
    assert values(capture) == {
        "FBSP.TriageSCG.dramc__x.avg": 3.25,
        "dram__bytes.sum": 19000.0,
        "gpu__time_duration.sum": 12500.0,
        "launch__note": 5.0,
    }


def test_a_raw_page_without_its_row_of_units_is_refused(tmp_path: Path) -> None:
    header, _, record, _ = RAW.split("\n")
    with pytest.raises(ArtifactUnreadable, match="row of units"):
        read(tmp_path, f"{header}\n{record}\n")


def test_a_raw_record_that_was_cut_is_left_out_with_a_warning(tmp_path: Path) -> None:
    record = RAW.split("\n")[2]
    capture = read(tmp_path, RAW + record.replace('"0"', '"1"', 1)[:-60])
    assert len(capture.launches) == 1
    assert "unfinished" in capture.warnings[0]


def test_mangled_kernel_names_are_known_as_such(tmp_path: Path) -> None:
    capture = read(tmp_path, DETAILS + details(BYTES, name="_Z1fi"))
    assert capture.launches["mangled_name"].tolist() == ["_Z1fi"]


def test_two_outputs_in_one_file_are_two_sets_of_launches(tmp_path: Path) -> None:
    capture = read(tmp_path, PLAIN + PLAIN)
    assert capture.launches["profile"].tolist() == [0, 1]
    assert values(capture, 1) == pytest.approx(EXPECTED)


def test_an_xz_file_is_read_like_the_plain_one(tmp_path: Path) -> None:
    path = tmp_path / "counters.csv.xz"
    path.write_bytes(lzma.compress(PLAIN.encode()))
    assert values(read_ncu(path)) == pytest.approx(EXPECTED)


def test_the_zero_of_a_launch_that_ncu_could_not_profile_is_unknown(tmp_path: Path) -> None:
    text = RAW.replace('"(8, 2, 1)"', '"(0, 0, 0)"').replace("3.250000", "0.000000")
    capture = read(tmp_path, text)
    assert pd.isna(values(capture)["FBSP.TriageSCG.dramc__x.avg"])
    assert pd.isna(capture.launches["grid"][0])
    assert "could not profile" in capture.warnings[0]


SUMMARY = (
    '"Process ID","Process Name","Host Name","Kernel Name","Block Size","Grid Size","Device","CC",'
    '"Invocations","Section Name","Metric Name","Metric Unit","Minimum","Maximum","Average"\n'
)


def averaged(grid: int, name: str, unit: str, *numbers: str) -> str:
    launch = ("1", "app", "h", "f(int)", "(256, 1, 1)", f"({grid}, 1, 1)", "0", "9.0", "14")
    cells = (*launch, "GPU Speed Of Light Throughput", name, unit, *numbers)
    return ",".join(f'"{cell}"' for cell in cells) + "\n"


def test_a_csv_summary_over_launches_gives_the_averages_of_each_shape(tmp_path: Path) -> None:
    text = (
        "==PROF== Disconnected from process 1\n"
        + SUMMARY
        + averaged(8, "Elapsed Cycles", "cycle", "3,100.00", "4,200.00", "3,939.50")
        + averaged(8, "Duration", "us", "1.70", "1.89", "1.75")
        + averaged(9, "Duration", "us", "2.70", "2.89", "2.75")
    )
    capture = read(tmp_path, text)
    assert capture.launches["grid"].tolist() == ["8x1x1", "9x1x1"]
    assert values(capture) == {"gpc__cycles_elapsed.max": 3939.5, "gpu__time_duration.sum": 1750.0}
    assert values(capture, 1) == {"gpu__time_duration.sum": 2750.0}
    assert "averages over the launches" in capture.warnings[0]


@pytest.mark.parametrize("column", ["Metric Value", "Metric Unit"])
def test_a_details_page_without_a_needed_column_is_refused(column: str, tmp_path: Path) -> None:
    place = next(csv.reader([DETAILS])).index(column)
    records = [[c for i, c in enumerate(r) if i != place] for r in csv.reader(PLAIN.splitlines())]
    text = "\n".join(",".join(f'"{cell}"' for cell in record) for record in records)
    with pytest.raises(ArtifactUnreadable, match=rf"x\.csv: .*lacks .*{column}"):
        read(tmp_path, text + "\n")
