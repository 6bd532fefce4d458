"""Sentences of reports on real exports and recorded runs that an engineer disputed, and what is
said instead."""

import math
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from nsight_prof.parsers.build.load import load_run
from nsight_prof.parsers.cells import records
from nsight_prof.parsers.ncu.command import to_measure
from nsight_prof.parsers.run.directory import RunDir, read_manifest, write_manifest
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.analysis.run_time import run_time
from nsight_prof.reports.findings.launch_cost import WAITS_FROM, launch_cost
from nsight_prof.reports.findings.model import Finding
from nsight_prof.reports.findings.open_questions import open_questions
from nsight_prof.reports.page import Value
from nsight_prof.reports.page.writer import Writer
from nsight_prof.reports.profile.tables.findings import findings as findings_table
from nsight_prof.reports.profile.views import report_view
from nsight_prof.reports.render.report import render_report
from nsight_prof.reports.summary.models import SummaryView
from nsight_prof.reports.summary.summary import summarise
from nsight_prof.reports.verdicts.ranking import OVERVIEW, findings, headline
from tests.reports.programs import english, kernels

Runs = Callable[[str], Run]
FLAMEOX = "nsys/morluto+flameox/nsight-2025.5.2.sqlite"
GRAPHS = "nsys/zx3xyy+assignment2-systems/result_2_7B_compile_ro.sqlite"
CLOVERLEAF = "nsys/hpcgroup+pipit/perlmutter-cloverleaf-cuda.sqlite"
MORDRED = "nsys/bwyogatama+Mordred-Deprecated/report1.sqlite"
GORY = "nsys/cestwc+balinski-and-gomory-cuda/report23.sqlite"
STRIDED = "ncu/CodeGandee+llm-perf-opt/kernel_0010_adbaf834f7ef147e0ba0fa823d1cf461/ncu.details.csv"
PAGES = "nsys/MosesChuka+EasyCUDA/nsys_easy.sqlite"
WEIGHTS = "nsys/zx3xyy+assignment2-systems/result.sqlite"
PINNED = "nsys/GindaChen+nsys-ai/h100_2gpu_1s.sqlite"
PASCAL = "nsys/KLi447+CS-598-FAL-Project/nsys_terminal_output.txt"
FILES = "nsys/brycelelbach+ncu2markdown/power_iteration__baseline.sqlite"
RANK = "nsys/hpcgroup+pipit/saxpy-mpi-cuda_nsys_perlmutter0.sqlite"
NAIVE = "ncu/Olajide-Badejo+CUDA-Kernel-Library/naive_2048.txt"
BARRIER = "ncu/BobbyAl+cuda-kmer-counting/ecoli_gpu_kmer_optimized_k12.txt"
SM_BUSY = "ncu/Olajide-Badejo+GPU-Roofline-Profiler/gemm_naive.csv"
NO_GRID = "ncu/AveryClapp+ESMM-Research/profile.ncu-rep"
ONE_BLOCK = "ncu/josiahls+cuda_learning_mojo/profile.ncu-rep"
BERT = (
    "ncu/leleucas+Actual-Parameter-Collection-for-Machine-Learning-Operators/"
    "bert_flashattn_nsight.csv"
)
SUMMARY = "nsys/CodeGandee+llm-perf-opt/summary_cuda_gpu_kern_sum.csv"
FP8 = "ncu/microsoft+superbenchmark/cublaslt_ncu.log"
A6000 = "ncu/junstar92+cuda-kernel-study/gemm_ncu_results_4096x4096x4096_a6000.csv"


def summary(run: Run) -> SummaryView:
    return summarise(report_view(run))


def words(value: Value | None) -> str:
    return "" if value is None else Writer().value(value)


def about(run: Run, kernel: str) -> Finding:
    """Return the finding about the kernels whose readable name has `kernel` in it."""
    named = run.kernels["short_name"].str.contains(kernel, regex=False)
    ids = set(run.kernels.loc[named, "kernel_id"])
    (found,) = [f for f in findings(run) if f.key == "kernel" and ids & set(f.kernel_ids)]
    return found


def test_graphs_that_were_traced_as_wholes_are_no_copies(
    imported: Runs, real_exports: Path
) -> None:
    run, time = imported(GRAPHS), run_time(imported(GRAPHS))
    with closing(sqlite3.connect(f"file:{real_exports / GRAPHS}?mode=ro", uri=True)) as db:
        table = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
        ((graphs_ns,),) = db.execute(f"SELECT sum(end - start) FROM {table}").fetchall()
    assert time.graphs_ns == pytest.approx(graphs_ns, rel=1e-6)
    assert time.copies_ns == 0
    assert words(summary(run).first.verdict).startswith("Work in CUDA graphs")
    (overview,) = [found for found in findings(run) if found.key == "time"]
    assert "CUDA graphs that were traced as wholes take another" in english(overview.verdict)


def test_a_run_that_waits_for_its_start_is_not_near_its_limits(imported: Runs) -> None:
    verdict = words(summary(imported(FLAMEOX)).first.verdict)
    assert re.match(r"The GPU is idle for 96 % of the run: kernels are loaded", verdict)


def test_a_copy_that_gains_nothing_is_no_finding(imported: Runs) -> None:
    assert "copies" not in {found.rule for found in findings(imported(FLAMEOX))}


def test_start_up_is_named_where_it_is_most_of_the_idle_time(imported: Runs) -> None:
    verdict = words(summary(imported(GORY)).first.verdict)
    assert "kernels are loaded at start-up, once" in verdict


def test_a_cause_of_less_than_half_of_the_idle_time_does_not_stand_alone(imported: Runs) -> None:
    verdict = words(summary(imported(CLOVERLEAF)).first.verdict)
    assert "the CPU is busy with other work and the CPU waits for results first" in verdict


def test_few_gaps_may_not_come_again(imported: Runs) -> None:
    (found,) = [found for found in findings(imported(MORDRED)) if found.rule == "host_bound"]
    assert "They are 3 gaps: whether they come again" in english(found.verdict)


@pytest.mark.parametrize("export", [FLAMEOX, GORY, CLOVERLEAF])
def test_what_gains_nothing_stands_last(imported: Runs, export: str) -> None:
    ranked = [found for found in findings(imported(export)) if found.key not in OVERVIEW]
    lacking = [math.isnan(found.gain_ns) for found in ranked]
    assert lacking == sorted(lacking)


def test_kernels_without_weights_are_not_told_to_read_them_less_often(imported: Runs) -> None:
    run = imported(A6000)
    for kernel in ("random normal", "PyTorch mul"):
        found = about(run, kernel)
        assert found.rule == "dram_saturated"
        assert "weights" not in english(found.action)
        assert "fewer passes over the data" in english(found.action)


def test_a_product_without_tensor_cores_does_not_wait_for_them(imported: Runs) -> None:
    verdict = english(about(imported(A6000), "sgemm_2d_blocktile").verdict)
    assert "of any roof): it multiplies matrices without the Tensor Cores" in verdict


def test_the_terminal_names_why_the_busiest_unit_is_busy(imported: Runs) -> None:
    first = headline(imported(A6000))[0]
    assert "data is loaded again for each use instead of being re-used in a tile" in first
    assert "bandwidth" not in first
    verdict = english(about(imported(A6000), "sgemm_naive").verdict)
    assert "it is limited by one unit, queue of load/store instructions (LSU)" in verdict


def test_a_cache_beside_the_bound_is_not_called_its_bandwidth(imported: Runs) -> None:
    verdict = english(about(imported(A6000), "sgemm_warptiling").verdict)
    assert "FMA pipe (60 % used) and L1 (63 %)" in verdict


def test_what_would_disprove_a_wait_is_about_that_wait(imported: Runs) -> None:
    (found,) = [f for f in findings(imported("ncu/thedavidchu+speedy_scan/profile.ncu-rep"))
                if f.key == "kernel"]  # fmt: skip
    assert "block barrier" in english(found.verdict)
    assert english(found.disproof).startswith("With its barriers left out")


def test_what_would_disprove_it_of_a_library_is_no_change_of_its_code(
    recorded_run_of: Runs,
) -> None:
    found = about(recorded_run_of("h200-ocr-pages"), "cuDNN attention forward")
    assert found.rule == "uncoalesced_loads"
    assert "other back ends" in english(found.disproof)


def test_a_product_that_loads_by_tma_scatters_nothing(recorded_run_of: Runs) -> None:
    run = recorded_run_of("h200-ocr-pages")
    product = run.kernels[run.kernels["short_name"].str.startswith("CUTLASS GEMM")].iloc[0]
    loads = run.counters.set_index("kernel_id").loc[product["kernel_id"]]
    assert loads["global_load_bytes"] < 0.01 * loads["l2_bytes"]
    told = [f for f in findings(run) if product["kernel_id"] in f.kernel_ids]
    assert not [f for f in told if f.rule.startswith("uncoalesced")]


def test_a_model_of_two_layers_says_that_its_head_weighs_more(recorded_run_of: Runs) -> None:
    view = report_view(recorded_run_of("h200-top-kernels"))
    told = " ".join(english(caveat.text) for caveat in view.caveats)
    assert "The program runs 2 layers of its model" in told
    whole = report_view(recorded_run_of("h200-vllm-kernels"))
    assert not any("of its model" in english(caveat.text) for caveat in whole.caveats)


def test_a_test_of_links_between_gpus_has_no_computation_to_overlap(recorded_run_of: Runs) -> None:
    run = recorded_run_of("h200-data-parallel")
    frame = run.launch_times
    links = frame["stage"].eq("collectives")
    assert frame.loc[links, "duration_ns"].sum() > frame.loc[~links, "duration_ns"].sum() / 10
    assert not [found for found in findings(run) if found.rule == "collectives_exposed"]


def test_who_runs_an_engine_is_not_told_to_change_a_training_loop(recorded_run_of: Runs) -> None:
    told = findings(recorded_run_of("h200-vllm-tensor-parallel"))
    (exposed,) = [found for found in told if found.rule == "collectives_exposed"]
    assert "fewer GPUs" in english(exposed.action)
    for found in told:
        words = english(found.action)
        assert not re.search(r"gradients|torch\.compile|foreach|\.item\(\)", words), words


def test_a_strided_kernel_of_a_library_that_fills_l2_is_not_to_be_tiled(imported: Runs) -> None:
    (found,) = [found for found in findings(imported(STRIDED)) if found.key == "kernel"]
    assert found.rule == "l2_saturated"
    assert "make its inputs contiguous" in english(found.action)


def test_a_model_whose_config_was_cut_says_so_too(run: Run) -> None:
    manifest = read_manifest(RunDir(run.path))
    args = {"override": ["text_config.num_hidden_layers=4"]}
    manifest.recipe["target"] = {"file": "inference/run.py", "args": args}
    write_manifest(RunDir(run.path), manifest)
    told = [english(caveat.text) for caveat in report_view(load_run(run.path)).caveats]
    assert any("runs 4 layers of its model" in words for words in told)


@pytest.mark.parametrize("beside", [True, False])
def test_one_product_in_single_precision_beside_others_in_half_is_no_choice(
    run: Run, beside: bool
) -> None:
    wide = {"name": "ampere_sgemm_128x64_tn", "dtype": "fp32"}
    rest = {} if beside else {name: {"dtype": "fp32"} for name in run.kernels["short_name"]}
    run = kernels(run, {**rest, "cuBLAS GEMM 256x128": wide})
    (found,) = [f for f in findings(run) if f.key == "simt_gemm"]
    assert found.choice is not beside
    assert ("a choice of the program's owner" in english(found.verdict)) is not beside


def test_pauses_between_copies_of_weights_are_start_up(imported: Runs) -> None:
    found = {f.rule: f for f in findings(imported(WEIGHTS))}
    assert "host_bound" not in found
    # By hand: 622 ms lie before the step that repeats, 100 of them between copies of weights.
    assert "idle for 622 ms of 808 ms" in english(found["first_use"].verdict)
    assert math.isnan(found["first_use"].gain_ns)


def test_kernels_beside_graphs_that_take_all_the_time_are_no_finding(imported: Runs) -> None:
    assert {found.key for found in findings(imported(GRAPHS))} <= set(OVERVIEW)


def test_a_wait_after_each_launch_is_named_whatever_the_gaps_are_put_down_to(
    imported: Runs,
) -> None:
    (found,) = [found for found in findings(imported(CLOVERLEAF)) if found.rule == "idle"]
    assert "1,312 times (cudaDeviceSynchronize), after nearly every launch" in english(
        found.verdict
    )
    assert english(found.action).startswith("Take synchronisations out of the loop")


def test_a_kernel_that_runs_once_has_no_shortest_launch(imported: Runs) -> None:
    (found,) = [found for found in findings(imported(PAGES)) if found.rule == "managed_memory"]
    assert "What the pages cost kernels is not known" in english(found.verdict)


def test_copies_of_pinned_memory_are_not_to_be_pinned(imported: Runs) -> None:
    told = {found.rule: found for found in findings(imported(PINNED))}
    assert english(told["copies"].action).endswith("it is in pinned memory already.")
    # 39 ms of 84 are copies within the GPU: no part of the time that kernels take.
    title = english(told["casts_and_copies"].title)
    assert title == "Copies and casts take 48 % of the time of kernels and copies inside the GPU"


def test_a_gpu_without_tensor_cores_is_not_told_to_use_them(imported: Runs) -> None:
    run = imported(PASCAL)
    assert "maxwell_sgemm_128x64_nt" in set(run.kernels["name"])
    assert "slow_backend" not in {found.rule for found in findings(run)}


def test_results_that_are_written_to_files_may_be_so_beside_the_next_step(imported: Runs) -> None:
    (found,) = [f for f in findings(imported(FILES)) if f.rule == "results_on_host"]
    assert ".cpu()" not in english(found.verdict)  # CuPy
    assert "as for a file that is written" in english(found.action)


def test_long_gaps_between_stages_are_counted(imported: Runs) -> None:
    (found,) = [f for f in findings(imported(RANK)) if f.rule == "idle_outside"]
    assert "The longest of 4 gaps takes 196 ms" in english(found.verdict)


def test_a_naive_product_that_fills_l1_is_not_near_its_limit(imported: Runs) -> None:
    found = about(imported(NAIVE), "gemm_naive")
    assert "busiest unit of L1, which is busy in 95 %" in english(found.verdict)
    assert "Re-use data in registers" in english(found.action)


def test_room_for_three_quarters_of_the_warps_is_no_cause_nobody_measured(imported: Runs) -> None:
    assert about(imported(BARRIER), "count_kmers").rule == "unknown"


def test_the_busiest_part_of_the_sms_is_a_roof_too(imported: Runs) -> None:
    found = about(imported(FP8), "CUTLASS GEMM")
    assert "at most 24 % of any roof" in english(found.verdict)  # Compute (SM) Throughput 23.59


@pytest.mark.parametrize("export", [PINNED, RANK])
def test_the_headline_begins_with_copies_that_take_longer_than_kernels(
    imported: Runs, export: str
) -> None:
    run = imported(export)
    time, (first, *_) = run_time(run), headline(run)
    assert (time.copies_ns or 0) > 2 * (time.kernels_ns or 0)
    assert first.startswith("Copies and memsets keep the GPU busy for ")


def test_copies_at_start_up_do_not_hide_what_kernels_do(imported: Runs) -> None:
    run = imported(WEIGHTS)
    assert (run_time(run).copies_ns or 0) > (run_time(run).kernels_ns or 0)
    assert headline(run)[0].startswith("78 % of the GPU time goes to matrix multiplications")


def test_what_saves_nothing_for_sure_is_told_with_the_most_it_could(imported: Runs) -> None:
    view = report_view(imported(WEIGHTS))
    (found,) = [f for f in view.findings if f.rule == "casts_and_copies"]
    assert found.gain_ns == 0
    assert found.is_bound
    (cells,) = findings_table(view, [found]).cells
    assert "at most 2.4 ms" in [words(cell) for cell in cells]
    report = render_report(load_run(imported(WEIGHTS).path)).report.read_text()
    assert f"{english(found.title)} · could save at most 2.40 ms</summary>" in report
    assert "Could save at most 2.40 ms." in report
    assert "save 0 ns" not in report


def test_a_sentence_of_nothing_to_save_is_left_out(imported: Runs) -> None:
    verdict = words(summary(imported(FLAMEOX)).first.verdict)
    assert verdict.startswith("The GPU is idle for 96 % of the run")
    assert "can be saved" not in verdict


def test_the_longest_launch_comes_first_where_nothing_is_known_of_it(imported: Runs) -> None:
    run = imported("ncu/CodeGandee+llm-perf-opt")
    longest = str(run.counters.sort_values("duration_ns")["kernel_id"].iloc[-1])
    first = findings(run)[0]
    assert first.kernel_ids == (longest,)
    assert "for what, these counters do not say" in english(first.verdict)
    assert "it waits, for what is not known (32 % of a roof)" in headline(run)[0]


def test_an_imported_trace_names_the_commands_that_count_its_kernels(imported: Runs) -> None:
    export = "nsys/openhackathons-org+nways_accelerated_programming/jacobi_report.sqlite"
    said = headline(imported(export))[-1]
    count, again = said.partition("measures it: ")[2].rstrip(".").split(" && ")
    assert count.startswith("ncu --csv ")
    assert "-k jacobi_kernel -c 1 --metrics $(prof metrics --names --chip GH100) PROGRAM" in count
    assert again == "prof import jacobi_report.sqlite ncu.csv --out RUN"


def test_an_import_has_no_recipe_to_change(imported: Runs) -> None:
    (found,) = [f for f in findings(imported(RANK)) if f.rule == "idle_outside"]
    assert found.action is not None
    assert "recipe" not in english(found.action)
    assert "`" not in english(found.action)


def test_a_launch_that_loads_its_module_is_not_what_nsys_adds_to_each(imported: Runs) -> None:
    run = imported(GORY)
    (launch,) = records(run.api_calls[run.api_calls["name"] == "cudaLaunchKernel"])
    assert launch["total_ns"] / launch["calls"] > WAITS_FROM * launch["median_ns"]
    assert launch_cost(run).traced.value == launch["median_ns"]
    said = words(summary(run).first.verdict)
    assert "About 75 us of the idle time is there only while nsys records" in said


def test_idle_time_of_half_the_run_stands_beside_what_is_saved_elsewhere(imported: Runs) -> None:
    verdict = words(summary(imported(RANK)).first.verdict)
    assert "in all" not in verdict  # of a single action
    assert "The GPU is idle for 66 % of the run: the CPU is busy with other work." in verdict


def test_kernels_in_graphs_that_take_all_the_time_are_traced_next(imported: Runs) -> None:
    assert "--cuda-graph-trace=node" in to_measure(imported(GRAPHS))
    assert to_measure(imported(FLAMEOX)).startswith("ncu ")


def test_a_kernel_of_a_template_is_counted_at_a_launch_of_its_own(imported: Runs) -> None:
    run = imported(CLOVERLEAF)
    command = to_measure(run)
    told = re.search(r"-k par_ranged2d_kernel -s (\d+) -c 1 ", command)
    assert told is not None, command
    names = run.kernels.set_index("kernel_id")["name"]
    launches = run.launches.sort_values("start_ns")["kernel_id"]
    matched = launches[launches.map(names).str.contains("par_ranged2d_kernel")]
    longest = run.kernels.sort_values("total_ns")["kernel_id"].iloc[-1]
    assert matched.iloc[int(told[1])] == longest
    assert " -k kernel -c 20 " in to_measure(imported(SUMMARY))  # nothing tells which launch it is


def test_what_is_not_known_of_a_kernel_has_its_reason(imported: Runs) -> None:
    def asked(path: str) -> str:
        return " ".join(english(question.text) for question in open_questions(imported(path)))

    assert "the SMs are 97 % busy" in asked(SM_BUSY)
    assert "What limits vectorized_blocktiling is not known: ncu counted nothing" in asked(NO_GRID)


def test_more_blocks_are_no_advice_for_a_launch_that_does_next_to_nothing(imported: Runs) -> None:
    found = [found for found in findings(imported(ONE_BLOCK)) if found.rule == "small_grid"]
    assert len(found) == 4
    assert all("more blocks make it no faster" in english(each.action) for each in found)


def test_a_product_with_few_blocks_is_advised_no_scan_of_a_sequence(imported: Runs) -> None:
    found = [f for f in findings(imported(BERT)) if f.rule == "few_blocks"]
    products = [english(f.action) for f in found if "GEMM" in english(f.title)]
    assert len(products) == 2
    assert all("split-K" in action and "scan" not in action for action in products)


def test_what_ncu_says_on_counters_that_prof_lacks_stands_in_the_finding(imported: Runs) -> None:
    page = render_report(load_run(imported(BARRIER).path)).report.read_text()
    assert "waiting for sibling warps at a CTA barrier" in page
    assert "excessive wavefronts" not in page  # 85 % of one unit, which prof did judge
    assert "## What limits each kernel" not in page
