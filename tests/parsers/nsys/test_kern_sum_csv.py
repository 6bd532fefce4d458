"""Kernel summaries as every version of nsys stats printed them."""

import lzma
from pathlib import Path

import pytest

from nsight_prof.parsers import tables
from nsight_prof.parsers.errors import ArtifactUnreadable, NoKernels
from nsight_prof.parsers.nsys.kern_sum_csv import parse_kern_sum, read_kern_sum, read_kernel_summary

NEW = """Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name
75.0,3000,2,1500.0,1500.0,1000,2000,707.1,"void f<int, (bool)1>(T1)"
25.0,1000,1,1000.0,1000.0,1000,1000,0.0,gemm
"""


def test_the_summary_of_today_is_read() -> None:
    frame = parse_kern_sum(NEW)
    assert frame.columns.tolist() == [c.name for c in tables.tables()["kernels"]]
    assert frame["name"].tolist() == ["void f<int, (bool)1>(T1)", "gemm"]
    assert frame["share"].tolist() == [0.75, 0.25]
    assert frame["calls"].tolist() == [2, 1]
    assert frame["std_ns"].isna().tolist() == [False, True]
    assert frame["registers"].isna().all()


@pytest.mark.parametrize(
    ("heads", "row"),
    [
        ("Time(%),Total Time (ns),Instances,Average,Minimum,Maximum,Name", "100,6,2,3.0,2,4,k"),
        ("Time(%),Total Time,Instances,Average,Minimum,Maximum,Kernel", '100%,6,2,"3",2,4,k'),
        (
            "Time (%),Total Time (us),Instances,Avg (us),Min (us),Max (us),Name",
            "1,.006,2,.003,.002,.004,k",
        ),
        ("Total Time (ms),Instances,Min (msec),Max (msec),Name", "6e-6,2,2e-6,4e-6,k"),
        ("Total Time (ns)\tInstances\tMin (ns)\tMax (ns)\tName", "6\t2\t2\t4\tk"),
    ],
)
def test_heads_and_units_of_all_versions_are_known(heads: str, row: str) -> None:
    kernel = parse_kern_sum(f"{heads}\n{row}\n").iloc[0]
    columns = ["name", "total_ns", "calls", "mean_ns", "min_ns", "max_ns"]
    assert kernel[columns].tolist() == ["k", 6, 2, 3.0, 2, 4]


def test_grids_and_blocks_make_kernels_of_their_own() -> None:
    text = (
        "Time (%),Total Time (ns),Instances,GridXYZ,BlockXYZ,Name\n"
        "60,6,2,   2   66    1, 384    1    1,k\n40,4,2,   1    1    1, 384    1    1,k\n"
    )
    frame = parse_kern_sum(text)
    assert frame["grid"].tolist() == ["2x66x1", "1x1x1"]
    assert frame["block"].tolist() == ["384x1x1"] * 2
    assert frame["kernel_id"].is_unique


@pytest.mark.parametrize(
    "data",
    [
        b"\xef\xbb\xbf" + NEW.encode(),
        NEW.replace("\n", "\r\n").encode(),
        NEW.encode("utf-16"),
        b"Generating SQLite file t.sqlite\nProcessing [t.sqlite] with [kern_sum.py]...\n\n"
        + NEW.encode()
        + b"\nProcessing [t.sqlite] with [other.py]...\n",
    ],
)
def test_marks_line_ends_and_banners_do_not_matter(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "kern_sum.csv"
    path.write_bytes(data)
    assert read_kern_sum(path).equals(parse_kern_sum(NEW))


def test_a_packed_summary_is_read(tmp_path: Path) -> None:
    path = tmp_path / "kern_sum.csv.xz"
    path.write_bytes(lzma.compress(NEW.encode()))
    assert read_kern_sum(path).equals(parse_kern_sum(NEW))


def test_a_list_cut_to_its_top_rows_keeps_the_shares_of_the_whole() -> None:
    text = "\n".join(NEW.replace("75.0", "30.0").replace("25.0", "10.0").splitlines()[:3])
    assert parse_kern_sum(text)["share"].tolist() == pytest.approx([0.3, 0.1])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Time (%),Total Time (ns),Count,Operation\n1,2,3,[CUDA memset]\n", "no kernel summary"),
        (NEW.replace("(ns)", "(fortnights)"), "unknown time unit 'fortnights'"),
        (NEW[:-20], "fields"),
        (NEW.replace("3000", "many"), "'many'"),
    ],
)
def test_what_is_no_whole_summary_is_refused(text: str, words: str) -> None:
    with pytest.raises(ArtifactUnreadable, match=words):
        parse_kern_sum(text)


@pytest.mark.parametrize(
    "text", [NEW.splitlines()[0], "SKIPPED: t.sqlite does not contain CUDA kernel data."]
)
def test_a_summary_without_kernels_says_so(text: str) -> None:
    with pytest.raises(NoKernels):
        parse_kern_sum(text)


@pytest.mark.parametrize("data", [b"", b"version https://git-lfs.github.com/spec/v1\n"])
def test_an_empty_file_or_a_pointer_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "kern_sum.csv"
    path.write_bytes(data)
    with pytest.raises(ArtifactUnreadable, match="kern_sum.csv"):
        read_kern_sum(path)


@pytest.mark.parametrize(
    ("name", "rows", "total", "calls"),
    [
        ("CodeGandee+llm-perf-opt/summary_cuda_gpu_kern_sum.csv", 113, 1231822285, 329035),
        (
            "ShibukiZero+assignment2-systems/2.7b_ctx512_forward_cuda_gpu_kern_sum.txt",
            24,
            4361845774,
            975,
        ),
        ("zx3xyy+assignment2-systems/nsys_stats.txt", 23, 2991054425, 900),
        ("KLi447+CS-598-FAL-Project/nsys_terminal_output.txt", 74, 21248268366, 2200),
    ],
)
def test_real_summaries_and_tables_are_read(
    real_exports: Path, name: str, rows: int, total: int, calls: int
) -> None:
    frame = read_kern_sum(real_exports / "nsys" / name)
    assert len(frame) == rows
    assert list(frame.loc[0, ["total_ns", "calls"]]) == [total, calls]
    assert frame["kernel_id"].is_unique
    assert frame["share"].sum() == pytest.approx(1)


# As nsys 2020 prints them where the locale groups digits by a full stop.
EUROPEAN = """\
CUDA Kernel Statistics:

 Time(%)  Total Time (ns)  Instances  Average   Minimum  Maximum       Name
 -------  ---------------  ---------  --------  -------  -------  --------------
   100,0          744.226          9  82.691,8   82.400   83.328  kmeans
"""
# Ranks that write to one file leave no empty line between their tables.
RANKS = """\
step 1\rstep 2\r
 Time(%)  Total Time (ns)  Instances   Average   Minimum  Maximum  StdDev   Name
 -------  ---------------  ---------  ---------  -------  -------  ------  -----
    80.0             8000          2     4000.0     3000     5000  1414.2  push
    20.0             2000          1     2000.0     2000     2000     0.0  grid
 Time(%)  Total Time (ns)  Num Calls   Average   Minimum  Maximum  StdDev        Name
 -------  ---------------  ---------  ---------  -------  -------  ------  -----------
   100.0            99999          3    33333.0    33333    33333     0.0  cudaMalloc
 Time(%)  Total Time (ns)  Instances   Average   Minimum  Maximum  StdDev   Name
 -------  ---------------  ---------  ---------  -------  -------  ------  -----
   100.0             6000          2     3000.0     1000     5000  2828.4  push
"""


def test_digits_may_be_grouped_and_cut_by_the_marks_of_any_locale() -> None:
    columns = ["total_ns", "calls", "mean_ns", "min_ns", "max_ns"]
    kernel = parse_kern_sum(EUROPEAN).iloc[0]
    assert kernel[columns].tolist() == [744226, 9, 82691.8, 82400, 83328]
    spaces = EUROPEAN.replace(",", ";").replace(".", "\u202f").replace(";", ",")
    assert parse_kern_sum(spaces).iloc[0][columns].tolist() == kernel[columns].tolist()


@pytest.mark.parametrize(
    ("heads", "row", "total"),
    [
        # Whole ns have no decimals, so that the mark groups.
        ("Total Time (ns),Instances,Name", '744.226,"9",k', 744226),
        # A number of more than three digits without a mark: digits are not grouped.
        ("Total Time (us),Min (us),Instances,Name", "744.226,1744,9,k", 744226),
        ("Time (%),Total Time (ms),Instances,Name", "50.0,744.226,9,k", 744226000),
        ("Time (%);Total Time (ms);Instances;Name", "50,0;744,226;9;k", 744226000),
    ],
)
def test_a_mark_before_three_digits_is_read_by_what_else_the_table_shows(
    heads: str, row: str, total: int
) -> None:
    assert parse_kern_sum(f"{heads}\n{row}\n")["total_ns"].tolist() == [total]


@pytest.mark.parametrize(
    ("heads", "row", "words"),
    [
        ("Total Time (ms),Instances,Name", "744.226,9,k", r"decimal mark .* '744\.226'"),
        ("Total Time (ms),Min (ms),Instances,Name", '"7,5",7.5,9,k', "decimal mark"),
        ("Time (%),Total Time (ns),Instances,Name", "100.0,744.226,9,k", r"holds '744\.226'"),
    ],
)
def test_numbers_that_can_be_read_in_two_ways_are_refused(heads: str, row: str, words: str) -> None:
    with pytest.raises(ArtifactUnreadable, match=words):
        parse_kern_sum(f"{heads}\n{row}\n")


def test_several_summaries_in_one_text_are_added_and_named(tmp_path: Path) -> None:
    path = tmp_path / "run.out"
    path.write_text(RANKS, encoding="utf-8", newline="")
    summary = read_kernel_summary(path)
    columns = ["name", "calls", "total_ns", "min_ns", "max_ns", "mean_ns", "share"]
    assert summary.kernels[columns].to_numpy().tolist() == [
        ["push", 4, 14000, 1000, 5000, 3500.0, 14 / 16],
        ["grid", 1, 2000, 2000, 2000, 2000.0, 2 / 16],
    ]
    assert summary.kernels["std_ns"].isna().all()
    assert len(summary.notes) == 1
    assert "2 kernel summaries stand in the file (lines 2, 9)" in summary.notes[0]


def test_a_table_that_stands_twice_counts_once() -> None:
    assert parse_kern_sum(f"{NEW}\n{NEW}").equals(parse_kern_sum(NEW))


def test_a_summary_by_grid_and_block_replaces_the_one_of_the_same_launches() -> None:
    heads = "Time (%),Total Time (ns),Instances,GridXYZ,BlockXYZ,Name"
    shaped = f"{heads}\n75,3000,2,2 1 1,32 1 1,f\n25,1000,1,4 1 1,32 1 1,f\n"
    assert parse_kern_sum(f"{NEW}\n{shaped}").equals(parse_kern_sum(shaped))
    with pytest.raises(ArtifactUnreadable, match=r"\(lines 1, 5\).*\(lines 5\)"):
        parse_kern_sum(f"{NEW}\n{shaped.replace('3000', '9000')}")


def test_real_exports_of_one_form_next_to_another_are_no_second_job(root: Path) -> None:
    stem = "tests/fixtures/nsys_stats/hpcgroup+pipit__perlmutter-cloverleaf-cuda__cuda_gpu_kern"
    plain, shaped = (
        lzma.decompress((root / f"{stem}{form}_sum.csv.xz").read_bytes()).decode()
        for form in ("", "_gb")
    )
    assert parse_kern_sum(f"{plain}\n{shaped}").equals(parse_kern_sum(shaped))
