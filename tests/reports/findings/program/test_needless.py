"""Work of the GPU that lines of the program ask for, known by their text, on made-up samples."""

import pandas as pd
import pytest

from nsight_prof.parsers import tables
from nsight_prof.parsers.build.load import load_run
from nsight_prof.parsers.cells import records
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.analysis.profiled import kernel_time
from nsight_prof.reports.findings.program.needless import needless_work
from tests.reports.findings.program.test_host_work import MS, line
from tests.reports.programs import english, kernels, write


def launching(run: Run, source: str, inner: str = "", category: str = "elementwise") -> Run:
    """A kernel of which three of four samples are at a line, and one at another."""
    name = str(run.kernels["short_name"].iloc[0])
    run = kernels(run, {name: {"category": category}})
    key = run.kernels["kernel_id"].iloc[0]
    at = {"call": "", "file": "/a/train.py", "function": "step", "inner": inner, "callers": "",
          "kernel_id": key}  # fmt: skip
    rows = [
        at | {"line": 9, "samples": 30, "time_ns": 3 * MS},
        at | {"line": 20, "samples": 10, "time_ns": MS, "inner": ""},
    ]
    run = write(run, "host_lines", [line("", 5, source=source)])
    return write(run, "launch_lines", rows)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("counts += (pairs == torch.arange(kinds)[:, None]).sum(1)", False),
        ("wrong = labels[:, None] != torch.arange(kinds)", False),
        ("same = torch.arange(n)[:, None] == torch.arange(n)", True),
        ("if step == 0: places = torch.arange(n)", True),
    ],
)
def test_what_data_is_compared_with_is_a_constant_but_not_the_result(
    run: Run, source: str, said: bool
) -> None:
    titles = [english(found.title) for found in needless_work(launching(run, source))]
    assert any("makes constants anew" in title for title in titles) == said


@pytest.mark.parametrize(
    ("source", "title", "part"),
    [
        ("seen.append([x.abs().mean(), x.std()])", "statistics of whole tensors", 1.0),
        ("scores = scores + torch.tril(torch.ones(n, n))", "makes constants anew", 1.0),
        ("rows = F.one_hot(words, count).to(dtype) @ table", "one_hot", 0.95),
        ("optimizer.zero_grad(set_to_none=False)", "sets gradients to zero", 3.5),
        ("return F.linear(x, self.base + 0.5 * (self.up @ self.down))", "of low rank", 1.0),
        ("inverse = torch.linalg.inv(covariance)", "inverts matrices", 0.8),
        ("keys = keys.repeat_interleave(4, dim=1)", "writes repeated copies", 1.0),
        ("gaps = points[:, None] - centres[None]", "subtracts each of one set", 0.8),
        ("turned = freqs.cos() * x", "makes constants anew", 1.0),
        ("y = flex_attention(q, k, v, score_mod=slope)", "without compiling it", 0.9),
        ('y = torch.einsum("bi,ij,bj->b", x, w, z)', "three tensors or more in one einsum", 0.6),
    ],
)
def test_a_line_tells_what_it_asks_the_gpu_for(
    run: Run, source: str, title: str, part: float
) -> None:
    run = launching(run, source)
    (found,) = needless_work(run)
    assert title in english(found.title)
    assert "train.py:9" in english(found.verdict)
    first = run.kernels["total_ns"].iloc[0]
    assert found.gain_ns == pytest.approx(part * 0.75 * first)
    assert found.share == pytest.approx(0.75 * first / kernel_time(run))


@pytest.mark.parametrize(
    ("source", "category"),
    [
        ("loss = (found - wanted).pow(2).mean()", "reduction"),
        ("x = x / x.norm(dim=-1, keepdim=True)", "elementwise"),
        ("y = self.layer(x, torch.arange(n))", "gemm"),
        ("x = F.linear(x, self.base) + self.other @ x", "elementwise"),
    ],
)
def test_work_that_results_need_is_not_told(run: Run, source: str, category: str) -> None:
    assert not needless_work(launching(run, source, category=category))


@pytest.mark.parametrize(("names", "told"), [("forward", True), ("weight_norm_bwd_kernel", False)])
def test_weights_that_do_not_change_are_made_once(run: Run, names: str, told: bool) -> None:
    inner = "/p/site-packages/torch/nn/utils/parametrizations.py:306 forward"
    run = launching(run, "x = self.a(x)", inner)
    run = kernels(run, {str(run.kernels["short_name"].iloc[1]): {"name": names}})
    assert [("weight_norm" in english(f.title)) for f in needless_work(run)] == [True] * told


def test_a_backward_pass_for_each_loss_is_told_from_a_single_one(run: Run) -> None:
    source = "loss.backward(retain_graph=True)"
    assert not needless_work(launching(run, source))  # less than twice the other kernels
    tables.write(run.kernels.iloc[:1], "kernels", run.directory.tables)
    (found,) = needless_work(launching(load_run(run.path), source))
    total = kernel_time(run_of := load_run(run.path))
    assert found.gain_of == "wall time"
    idle = run_of.host_lines["idle_ns"].sum()
    saved = (0.75 - 2 * 0.25) * total
    assert found.gain_ns == pytest.approx(saved + saved / (0.75 * total) * idle)


def timed(run: Run, *texts: tuple[int, str, int]) -> Run:
    """Lines of the function `step` that ran: number, text and how often."""
    rows = [
        {"file": "/a/train.py", "line": number, "function": "step", "source": text, "hits": hits,
         "time_ns": MS, "own_ns": float(MS)}
        for number, text, hits in texts
    ]  # fmt: skip
    return write(run, "timed_lines", rows)


def titles(run: Run) -> list[str]:
    return [english(f.title) for f in needless_work(run)]


@pytest.mark.parametrize(
    ("source", "use", "title", "part"),
    [
        ("scores = songs @ covers.T", "return scores.diagonal()", "the diagonal alone", 0.95),
        ("return (songs @ covers.T).diagonal()", "", "the diagonal alone", 0.95),
        ("y = self.filter(x)", "return y[:, :, ::2, ::2]", "by a slice with steps", 0.75),
        ("scores = self.head(x)", "word = scores[:, -1].argmax()", "keeps the last one", 0.9),
    ],
)
def test_a_result_of_which_a_part_is_used_is_told_by_its_uses(
    run: Run, source: str, use: str, title: str, part: float
) -> None:
    run = timed(launching(run, source, category="gemm"), (9, source, 100), (10, use, 100))
    (found,) = needless_work(run)
    assert title in english(found.title)
    assert found.gain_ns == pytest.approx(part * 0.75 * run.kernels["total_ns"].iloc[0])


@pytest.mark.parametrize(
    ("source", "use"),
    [
        (
            "scores = songs @ covers.T",
            "return scores.diagonal() - scores.logsumexp(1)[0] + lost(x)",
        ),
        ("y = self.filter(x)", "return y if self.skip else y[:, :, ::2, ::2]"),  # either
        ("y = self.turn(x)", "first, second = y[..., ::2], y[..., 1::2]"),
    ],
)
def test_a_result_that_is_used_as_a_whole_is_none_of_those(run: Run, source: str, use: str) -> None:
    lines = [(9, source, 100), (10, use, 100), (11, "return scores + y", 100)]
    assert not titles(timed(launching(run, source, category="gemm"), *lines))


@pytest.mark.parametrize(
    ("source", "use", "told"),
    [
        ("spread = x.abs().mean()", "self.seen.append(spread)", True),
        ("total += x.abs().mean()", "return total / steps", False),  # what the function is for
    ],
)
def test_statistics_that_are_returned_are_the_work(
    run: Run, source: str, use: str, told: bool
) -> None:
    run = timed(launching(run, source), (9, source, 100), (10, use, 100))
    assert [("statistics" in title) for title in titles(run)] == [True] * told


@pytest.mark.parametrize(
    ("kernel", "changes", "told"),
    [("forward", "y = x @ table", True), ("forward", "self.scale = self.scale * 2", False),
     ("adam_kernel", "y = x @ table", False)],
)  # fmt: skip
def test_what_a_module_has_is_worked_out_once(
    run: Run, kernel: str, changes: str, told: bool
) -> None:
    source = "table = self.scale * self.codes.to(x.dtype)"
    run = timed(launching(run, source), (8, "x = x + 1", 100), (9, source, 100), (10, changes, 100))
    run = kernels(run, {str(run.kernels["short_name"].iloc[1]): {"name": kernel}})
    assert [("own tensors alone" in title) for title in titles(run)] == [True] * told


@pytest.mark.parametrize(
    ("use", "told"), [("y = self.conv(wide)", True), ("y = self.pool(wide)", False)]
)
def test_a_border_before_a_convolution_is_left_to_it(run: Run, use: str, told: bool) -> None:
    source = "wide = F.pad(x, (1, 1, 1, 1))"
    run = timed(launching(run, source), (9, source, 100), (10, use, 100))
    assert [("with a border" in title) for title in titles(run)] == [True] * told


def test_a_slice_that_drops_results_is_named_before_what_computes_them(run: Run) -> None:
    source, use = "y = self.filter(x)", "return y[:, :, ::2, ::2]"
    run = timed(launching(run, source, category="gemm"), (9, source, 100), (10, use, 100))
    assert "at train.py:10 and train.py:9:" in english(needless_work(run)[0].verdict)


@pytest.mark.parametrize(
    ("kernel", "more", "told"),
    [("sigmoid", "", True), ("silu_backward", "", False), ("sigmoid", "loss.backward()", False)],
)
def test_a_graph_of_derivatives_is_told_where_nobody_derives_them(
    run: Run, kernel: str, more: str, told: bool
) -> None:
    source = "(slope,) = torch.autograd.grad(energy.sum(), x, create_graph=self.graph)"
    run = launching(run, source)
    first = run.kernels["kernel_id"] == run.kernels["kernel_id"].iloc[0]
    names = run.kernels["name"].mask(first, f"vectorized_elementwise_kernel<{kernel}>")
    tables.write(run.kernels.assign(name=names), "kernels", run.directory.tables)
    run = timed(load_run(run.path), (9, source, 100), (10, more, 100))
    assert any("create_graph=True" in title for title in titles(run)) == told


def test_a_sum_in_a_loop_is_told_from_one_of_a_step(run: Run) -> None:
    source = "mixed = mixed + share * layer"
    calls = int(run.kernels["calls"].iloc[0])
    run = launching(run, source)
    loop = (8, "for share, layer in zip(shares, layers):", calls), (9, source, calls)
    assert titles(timed(run, (7, "mixed = 0", calls), *loop)) == []
    enters = (6, "shares = self.weights.softmax(0)", 1), (12, "return mixed", 1)
    assert "one after another in a loop" in titles(timed(run, enters[0], *loop, enters[1]))[0]


def named(run: Run, *names: str) -> Run:
    """Full names of the first kernels."""
    names = (*names, *run.kernels["name"].iloc[len(names) :])
    tables.write(run.kernels.assign(name=list(names)), "kernels", run.directory.tables)
    return load_run(run.path)


@pytest.mark.parametrize(
    ("kernel", "more", "told"),
    [
        ("getrf_pivot<float>", "", True),
        ("kernel_trsm_l_mul32<float>", "", False),  # the solve itself
        ("getrf_pivot<float>", "self.matrix = self.matrix + change", False),
    ],
)
def test_a_matrix_that_stays_is_factored_once(run: Run, kernel: str, more: str, told: bool) -> None:
    for matrix in ("self.matrix", "self.matrix.dense"):
        source = f"x = torch.linalg.solve({matrix}, heat)"
        run = timed(named(launching(run, source), kernel), (9, source, 100), (10, more, 100))
        assert any("factors a matrix anew" in title for title in titles(run)) == told


@pytest.mark.parametrize(
    ("use", "told"),
    [("return fixed, second @ fixed", True), ("return torch.linalg.solve(second, fixed)", False)],
)
def test_second_derivatives_for_one_vector_need_no_matrix(run: Run, use: str, told: bool) -> None:
    source = "second = hessian(self.loss)(weights)"
    tables.write(run.kernels.iloc[:1], "kernels", run.directory.tables)
    run = timed(launching(load_run(run.path), source), (9, source, 100), (10, use, 100))
    assert any("full matrix of derivatives" in title for title in titles(run)) == told


@pytest.mark.parametrize(
    ("source", "kernel", "title"),
    [
        ("summed = self.vectors(words)", "renorm_kernel<float>", "max_norm"),
        ("return self.weights @ x", "cusparse::csrmm_alg2_kernel", "sparse form"),
        ("return self.graph @ x", "cusparse::csrmm_alg2_kernel", ""),
        ("summed = self.vectors(words)", "EmbeddingBag_updateOutputKernel_sum_mean", ""),
    ],
)
def test_kernels_tell_what_a_line_has_the_gpu_do(
    run: Run, source: str, kernel: str, title: str
) -> None:
    run = named(launching(run, source, category="sparse"), kernel)
    assert [title in found for found in titles(run)] == [True] * bool(title)


@pytest.mark.parametrize(
    ("index", "longer", "told"),
    [("x[:, day]", 3.0, True), ("x[:, day]", 1.0, False), ("x[:, 0]", 3.0, False)],
)
def test_gradients_of_single_items_are_told_at_their_index(
    run: Run, index: str, longer: float, told: bool
) -> None:
    run = launching(run, "loss.backward()")
    zeros, sums = run.kernels["kernel_id"].iloc[:2]
    each = {
        zeros: ("fill", MS, "FillFunctor"),
        sums: ("elementwise", longer * MS, "CUDAFunctor_add<float>"),
    }
    rows = run.kernels.iloc[:2].assign(calls=600)
    rows["category"], times, rows["name"] = zip(*map(each.get, rows["kernel_id"]), strict=True)
    rows["total_ns"] = [int(600 * time) for time in times]
    tables.write(rows, "kernels", run.directory.tables)
    at = run.launch_lines.iloc[:1]
    both = records(pd.concat([at.assign(kernel_id=key) for key in (zeros, sums)]))
    run = write(load_run(run.path), "launch_lines", both)
    loop = (3, "for day in range(x.shape[1]):", 610), (4, f"held = self.gated({index}, held)", 600)
    run = timed(
        run, (2, "held = zeros(x)", 10), *loop, (5, "return held", 10), (9, "loss.backward()", 10)
    )
    found = [f for f in needless_work(run) if "out of a tensor by an index" in english(f.title)]
    assert len(found) == told
    for finding in found:
        assert "train.py:4" in english(finding.verdict)
        assert finding.gain_ns == pytest.approx((1 - 1 / 60) * 600 * 4 * MS)


@pytest.mark.parametrize(("use", "told"), [("gaps.amax((1, 2))", True), ("gaps.sum(1)", False)])
def test_the_largest_difference_is_priced_with_what_passes_over_all(
    run: Run, use: str, told: bool
) -> None:
    source = "gaps = d[:, :, None] - d[:, None, :]"
    run = timed(launching(run, source), (9, source, 100), (20, f"return {use}", 100))
    found = [f for f in needless_work(run) if "only the largest or smallest" in english(f.title)]
    assert len(found) == told
    for finding in found:  # line 20 launches the fourth sample of the same kernel
        assert "train.py:9:" in english(finding.verdict)
        assert finding.gain_ns == pytest.approx(0.95 * run.kernels["total_ns"].iloc[0])
