"""What the page of accuracy says in words: its sections in their order, and why errors are so."""

from __future__ import annotations

from nsight_prof.parsers.predict.measured import LATER_RANK
from nsight_prof.parsers.predict.serving import SERVED_SPEEDS, UNTRACED_ADAPTED
from nsight_prof.parsers.predict.trace import MEMSET_TRACED_S
from scripts.pages.accuracy.questions import EVERY_SERVED, VERSION

IMPORTED_INTRO = f"""\
<!-- Written by scripts/accuracy.py --aiconfigurator DIR; do not edit. -->
# How far predictions from imported tables lie from what was measured

The runs of `captures/`, predicted with the operators that NVIDIA's
[aiconfigurator](https://github.com/ai-dynamo/aiconfigurator) measured on an H200 in vLLM {VERSION}
(the recorded engines are vLLM 0.20). None of its tables is kept here; to write this page again:

```
git clone https://github.com/ai-dynamo/aiconfigurator
python scripts/accuracy.py --aiconfigurator aiconfigurator
```

Words are those of [the page without these tables](accuracy.md). Held out, products of this model's
outputs and inputs are in no fit, neither of own cases nor of the tables. Which source a product
comes from is chosen by what each source misses of shapes that are left out of it, never by the
errors below.
"""
IMPORTED_CAUSES = """
## What each source misses of itself

Own cases of this very model (T2, in sample) lie farther from the engine than imported products of
other shapes: the benchmark calls the same product one after the other, where consecutive launches
overlap. They go first all the same, since how far off they are is known from this comparison alone.

From the 5th to the 95th percentile, measured over predicted: pairs of outputs and inputs that are
left out, and sizes between measured ones of the same pair. Products in fp8 were held against no
engine of ours; [those of others](predict.md#operators-that-others-measured).
"""
HOST_SPEEDS_INTRO = """\
# Written by scripts/accuracy.py from captures/; do not edit.
# How long a fixed loop of Python took beside recorded runs, on average, in us (table host_speed),
# by what timed it: a host that is not known is taken to lie between the 5th and the 95th percentile
# of these over their median.
"""
SLOWDOWNS_INTRO = """\
# Written by scripts/accuracy.py from captures/; do not edit.
# How many times as long prompts took the GPU once its power limit had set in, by GPU and model:
# steps of slices (dense models in 16 bits) over what their kernels take before it.\
"""
HOST_RESIDUALS_INTRO = """\
# Written by scripts/accuracy.py from captures/; do not edit.
# Measured time of passes that torch launched and that waited for the host, over what the host needs
# for their operations alone (one H100 and its host).\
"""
POINT_RESIDUALS_INTRO = """\
# Written by scripts/accuracy.py from captures/; do not edit.
# Measured over predicted medians of whole points, from slices: batches, and loads of servers with
# the event loop of another server. Steps are corrected by residuals.yaml, of other models. Servers,
# and prompts that wait for a host that a narrow engine told, are by engine.\
"""
RESIDUALS_INTRO = """\
# Written by scripts/accuracy.py from captures/; do not edit.
# Measured over predicted medians of recorded serving points (batches of requests, vLLM 0.20, dense
# models in bf16), without a correction: by GPU, by what was predicted from, quantity and model.
# rank_wait_s: measured less predicted seconds of steps over two GPUs. layer_: ms in which the host
# issued a layer of a short prompt, beside one such GPU. traced_: the same with experts, latent
# attention, a head or adapters, over what the slice's trace says.\
"""
INTRO = """\
<!-- Written by scripts/accuracy.py from captures/; do not edit. -->
# How far predictions lie from what was measured

## How right predictions are now

How far off to expect a number that `prof predict` says today, and whether to trust it. Each cell is
the mean absolute error of the newest predictions that were written down before their engine or
server was recorded, with models frozen before: [what they rest
on](#what-is-asked-and-what-is-reached), beside what the models of today make of the same points.

- **yes**: as near as is asked, and at least 85 % of what was measured lies within intervals of 90 %
- **number only**: as near as is asked, but intervals are too narrow
- **interval only**: farther than is asked; what was measured lies within the interval
- **no**: neither; measure it
"""
CARRIED = """
Of a kind of GPU on which nothing was recorded, by its datasheet alone (`--gpu h100-sxm`, tier T0):
eleven engines of an H100 (eight models, one of them with adapters, one with a head, one a mixture
of experts), predicted from slices and kernels of an H200 before they ran. Few of these numbers have
an upper end, so that intervals are not judged, and no bound is asked of them. [Each
model](#on-an-h100-from-runs-of-an-h200-t0).
"""
READ_SO = f"""
First tokens that wait for the host, those of short prompts above all, are as fast as a host that
differs from machine to machine and from minute to minute. A narrow engine on the machine that
serves tells it (`layer-slice`; with drafts or adapters nothing else does), and a recorded server of
another model there tells the event loop (`vllm-serve`).

## What the numbers are

`prof predict --validate RUN --on RUN …` made every number here, from the recorded runs of
`captures/`. Where nothing else is said they are of one kind of GPU (H200), one engine (vLLM 0.20)
and dense models in bf16 (the shapes of Qwen2.5-7B, Llama-3.1-8B, Mistral-7B, Qwen3-4B, Qwen3-14B
and Qwen3-32B): what holds for others is not known; mixtures of experts and latent attention stand
by themselves. Predicted were points of one batch of requests, and loads of servers.

**Held out** means: the run is no source, and the products of this model's outputs and inputs are in
no fit. **In sample** they are, so that the numbers say only how well the model of costs can follow.
With a recorded engine the *model* was seen, at one batch and one length; the points were not.
Predictions of batches from kernels alone, and from slices, are moved by the median of what batches
of other models took beyond such predictions (`parsers/predict/residuals.yaml`). Intervals of
batches and loads of servers are conformal (`point_residuals.yaml`): as wide as what is left out
needs it for 90 %, by what decides. They rest on six models for batches and for loads on
{sum(len(truths) for _, truths in EVERY_SERVED)} recorded servers; the model that is held against is
left out of both. Of prompts that wait for the host
they rest on all engines, whichever GPU they had; where narrow engines told the host, on all engines
of which one did. Rates of batches whose first tokens wait for the host have what these may miss by
their share. Errors are of medians; those of kernels are weighted by time. Intervals are meant to
hold 90 %.
[How well the measurements themselves repeat](noise-floor.md): no prediction is truer than that.
Where starts of one engine differ by more than what is asked, a point more than they do is asked
("floor").
"""
PAUSES = """
### What TPOT over two H100 is missed by

TPOT of a request is a mean over its tokens: single steps that take several times as long as others
are in it, but not in the median gap between two tokens. What these steps waited for is not known:
no engine over two was traced. The errors of the median gap are those of the models of steps.
Batches whose prompts take more than one step are left out: there gaps have prompts of others in
them.
"""
REACHED = """
## What is asked, and what is reached

What [the first tables](#how-right-predictions-are-now) rest on: the newest predictions that were
written before their truth, going back to older models until two engines or servers are among them,
and all that ever were. Single engines and two GPUs are predicted from slices, servers from slices
with and without the event loop of another server. The last columns have the models of today on all
of these points, the model of each left out: a hindcast, as the truths were at hand when these
models were chosen. [Each model and load by itself](#predicted-before-they-were-recorded).

"floor": the true median of an engine would miss a start on another host by as much
([how it is estimated](noise-floor.md#what-the-true-median-would-miss)), and a point more than that
is asked; engines over several GPUs, and those with drafts or LoRA, have floors of their own. Until
27 Nov it was the distance from the median of the recorded starts, which is too little where there
are few, and the same for all but several GPUs. Below, where the host was told on the same machine,
it is that of starts on one host.
"""
ASKED = """
### Each measure, in the order in which it was asked

The mean absolute error of the newest predictions that were written before their truth, of all that
ever were, and of the models of today on all of these points (a hindcast). Reached is what the
newest say; where none were written before, the models of today say it. TTFT of all lengths has the
floors of its points. Kernels are weighted by their time. Steps are what the GPU does in them:
kernels, and gaps that do not wait for the host, which the profiler slows; until 28 Nov they had
that wait (today's models: 5.7 and 10.6 %, and 2.6 and 4.0 without it before they were changed).
What was written of Llama-3.1-8B had the power limit slow no step within itself; that is mended
since then. Kernels of Qwen3-8B were not written down, but the models were frozen before they ran.
All others are whole points of
tier T3 (over two GPUs T2). What is asked of aiconfigurator is that it lies farther: of the same
points its error is the bound; "today" has engines that were recorded before it was asked, too. The
last rows are closed loops on H200 that others recorded, by imported tables alone, with how many
their intervals cover ([each model](predict.md#operators-that-others-measured)).
"""
MISSED = """
### What the missed rows are missed by

[All points of the missed rows](#the-missed-rows-by-what-their-points-wait-for) were divided by what
they wait for. What misses the bounds:

- **First tokens of batches from 1,000 tokens are missed by those that wait for the host**: it is
  another machine's, at one of two speeds
  ([where the errors come from](#where-the-errors-come-from)), or the same machine's
  [minutes later](#one-machines-host-minutes-later). Long ones of dense models that wait
  for the GPU are at the bound on one GPU, an H100 too: neither the power limit nor attention of
  chunks misses the row. Over two GPUs one batch is most of the error (Qwen3-14B, 4 prompts): it was
  recorded twice, with 58 and with 148 ms, of which the mean counts.
- **KV cache on H100**: slices were started for more requests than engines, and sampling from more
  held memory ([by the model of today](#kv-cache-by-the-model-of-today)).
- **TPOT and throughput with a head or adapters**: steps wait for the host, or are longer without
  nsys than under it ([each of them](#predicted-before-they-were-recorded)); a narrow engine
  tells the first.
- **Servers**: [where first tokens wait](#where-first-tokens-of-servers-wait) has each load, within
  the engine and outside of it, and how fast its host was. Where no event loop was known it was
  taken as none; today it is the median of recorded servers of other models.
- **The server of the eleventh machine** was slower than its narrow engine minutes before said:
  first tokens of one client took 23 ms, where 16 were predicted.
- **Open loops of the tenth machine**: TPOT was 6 to 64 % longer than predicted, in closed loops of
  the minutes before at most 9 %. That points to the host: each prompt that comes to requests which
  generate makes a step whose kernels it issues one by one.
"""
MISSED_ROWS = """
## The missed rows, by what their points wait for

The points of each missed row by what the models of today take them to wait for: how many there are,
how much of the row's error they make, how far off they were as predicted, and how far off the
models of today have them, their own model left out. The latter are hindcasts: the truths were at
hand when these models were chosen. Of servers they have the event loop of another model's server.
TPOT and throughput of batches are not divided.
"""
MODELS_INTRO = """\
<!-- Written by scripts/accuracy.py from captures/; do not edit. -->
# How far predictions lie from what was measured: each model

[How right predictions are now](#how-right-predictions-are-now) stands on the first page, with [what
the numbers are](#what-the-numbers-are) and [where the errors come
from](#where-the-errors-come-from). Here is each model, machine, load and operator.
"""
ELSEWHERE_INTRO = """
What else was predicted before, in the order of recording. "Told" says how the host was known.

- **One H100** (25 November): Llama-3.1-8B, Qwen3-8B in fp8 and with weights of 4 bits (w4a16,
  vLLM's Machete kernels), Gemma 3 12B (five of six layers attend to a window of 1,024 tokens) and
  Qwen3-30B-A3B (a mixture of experts, tokens spread over them at random) from slices on an H100;
  most of them, Qwen3-8B in bf16 and Qwen2.5-7B also from runs of an H200 alone. Weights are made
  up. Fewer points were recorded: batches of 1, 8, 32 and 128, prompts of 10, 200 and 1,000 tokens.
- **Two H100**: Qwen3-14B and Llama-3.1-8B from a slice of one rank and collectives of two, hours
  before. The time was over when Llama-3.1-8B had generated its batches, and the step that was
  interrupted is marked as done in the capture; it was started again hours later, with all points.
- **DeepSeek-V2-Lite** (latent attention, experts beside two that all tokens use): layers without a
  profiler were recorded on one loan of an H200, the trace half an hour later on another, minutes
  before the engine on the same board; the prediction was committed before its recording was opened.
  Prompts beyond CUDA graphs came sooner: a layer took the host 2.5 ms without nsys, and 1.2 to 1.3
  times that under it, which is left in.
- **EAGLE head and LoRA** (26 November): Llama-3.1-8B with a head of one layer that drafts 3 tokens
  (2.4 tokens per step by vLLM's synthetic rejection sampling), and with 4 adapters of rank 16, from
  traces of 4 layers 12 and 27 minutes before. Steps of a few requests that check drafts wait for
  the host, 5.0 to 8.1 ms by the slice, and took 7.6 to 8.9 ms for batches of 1 to 32 and 6.3 for
  single requests. The power limit of batches of 128, which check 512 tokens per step, was not
  predicted, as the trace's long prompts were not read. Steps with adapters took 0.1 to 0.3 ms
  longer than the trace: nsys makes them [shorter](#steps-with-adapters-under-nsys-and-without),
  which was not known then.
- **Narrow engines** since then tell what the host needs: all layers of the model, each of one key
  head, without a profiler, so that the GPU waits for it in every step. Qwen3-8B was predicted with
  a head (2.0 tokens per step) and with 8 adapters of rank 32, from such engines on another H200.
  With adapters two faults came to light, both mended since ([in
  sample](#with-4-layers-beside-an-eagle-head-or-with-adapters-t3)): steps that wait for the host
  were taken for such that do not, and one prompt was taken to read all adapters.
- **Another H100, a day later**: Llama-3.1-8B, Qwen3-8B in w4a16 and Gemma 3 12B again, predicted
  three times: long before, by engines of other days, and by narrow engines 10 minutes before on a
  GPU of that kind (whether of the same host is not known); a server of one of them without an event
  loop.
- **One machine** (an H200, the same boot and GPU): narrow engines of Llama-3.1-8B, Qwen3-14B and
  Qwen3-8B with 8 adapters, and a server of Qwen3-4B for its event loop; 7 to 9 minutes later the
  engines and the server that were predicted. Predictions that were to be made there failed, since
  the machine had not the slices; the same code made them elsewhere, committed when the engines had
  ended and before any of their files was opened. The narrow engine with adapters was ended after 10
  of its 12 points. TPOT, throughput, cache and closed loops were within what is asked; first tokens
  that wait for the host and open loops were not: the host was slower by a fifth than when it told
  ([below](#one-machines-host-minutes-later)).
- **Two H200, the host's speed timed beside each step**: narrow engines of Llama-3.1-8B and
  Qwen3-14B, predictions for hosts of 14 speeds, engines and a server half a minute later. By a rule
  of before, a prediction is read where the loop beside the truth says. Narrow engines were ended by
  a limit of time while they exited, so that only predictions from slices of other days were written
  there; the others were made elsewhere by the same code, before any file of the truths was opened
  but the loop's times. The engines have 6 and 8 of 9 points. The host was as fast as told by its
  loop (0.97 to 1.05), and yet short prompts and open loops came later: a loop on other cores does
  not tell how fast the core of an engine is
  ([below](#the-same-on-another-machine-with-the-loop-timed-by-every-run)). The event loop was of
  the machine before, timed by another clock; that the rule scaled it was wrong.
- **Four H200, narrow engines with a busy GPU** (27 November): each layer of a prompt spins for its
  part of what the whole model takes (`--busy-step`), so that the core waits as a whole engine's
  does. Llama-3.1-8B, Qwen3-14B, Mistral-7B and a server; predictions were written there with time
  and hash one to six minutes before. Open and closed loops, TPOT, throughput, capacity and cache
  were within what is asked, first tokens of batches were not: Mistral-7B beyond CUDA graphs came
  after two thirds of the predicted time ([below](#a-narrow-engine-whose-gpu-is-kept-busy)), batches
  of Qwen3-14B that wait for the GPU 5 to 7 % later.
- **Another four, hours later**: the same rules, and a narrow server beside it, which told closed
  loops no better than a server of days before. Llama-3.1-8B has 4 batches of 9. No correction and
  no interval rested on these engines then.
- **Two of four H200**: Llama-3.1-8B from a slice of one rank and collectives of the minutes before;
  on one GPU n-grams (3 tokens looked up, 2.4 per step) and 4 adapters of rank 16 from slices of
  another day. A slice that looked n-grams up had not ended in time, there and hours later with
  Mistral-7B, so that look-ups were taken to need no time. The engines over two and with adapters
  were ended by a limit of time, the latter after 3 of 9 points. So that n-grams are always found,
  all tokens have one embedding. Two repeats of 128 requests over two differ: 7.4 and 8.7 ms per
  token.
- **A third machine**: Llama-3.1-8B from a slice of another day alone.
- **A fourth machine**, of four H200, all within six minutes: engine and server of Qwen3-14B (told
  by a busy engine), Llama-3.1-8B with one adapter (slice and narrow engine of these minutes),
  Qwen3-14B over two (slice of these minutes, collectives of another machine) and a server of
  Llama-3.1-8B over two (all of that other machine). Over two GPUs many clients and requests near
  the capacity came sooner: the models let each further request wait for the host, as on one GPU.
- **A fifth machine**, of two H200, seven minutes: servers of Qwen3-14B over both (slice and
  collectives of other machines) and of Qwen3-4B (told by a busy engine, event loop of the fourth
  machine; one of three open loops), and one batch of Llama-3.1-8B with an adapter, behind a narrow
  engine with 9 of 21 points. The slice of Qwen3-14B over two had a host that took 1.15 ms for a
  layer beyond CUDA graphs, others 0.7: open loops over two were predicted so, and came much sooner.
- **A sixth machine**, of four H200, nine minutes: engine and server of Qwen3-8B (slice and busy
  narrow engine of these minutes), of Mistral-7B and Qwen2.5-7B (slices of other days, hosts not
  told), of Qwen3-32B over two (slice of these minutes, collectives of another machine; cut off
  after 7 of 9 points and 9 of 10 loads) and an engine of Mistral-7B with 4 adapters (all of these
  minutes). The event loop is that of the server of Mistral-7B there, of that one itself of the
  fifth machine. What counts was fixed before. Since then intervals of servers rest on these
  servers, too, and what the host needs with adapters on that engine; nothing else does.
- **A seventh machine**, of four H200, eight minutes, models frozen before: engine and server of
  Llama-3.1-8B, engine of Mistral-7B, server of Qwen3-4B (cut off behind its closed loops, its
  engine not begun) and engine of Qwen3-8B with 8 adapters, told by busy narrow engines of these
  minutes beside slices of other days; engine and server of Qwen3-14B over two, told for the first
  time by a narrow engine over both, its GPUs idle, beside slice and collectives of other machines;
  and an engine of Llama-3.1-8B with one adapter, told by the busy narrow engine of the fifth
  machine (cut off after 7 of 9 points).
  The event loop is that of Qwen3-8B on the sixth machine, for Qwen3-4B that of Llama-3.1-8B there.
  Where an engine without a narrow one was predicted, too, it stands [by
  itself](#engines-of-the-seventh-machine-as-predicted-without-their-narrow-ones) and counts in no
  sum above. Since then intervals of servers rest on these servers, too, and what the host needs
  with adapters on these engines; nothing else does.
- **An eighth machine**, of four H200, eight minutes, the same models frozen before: engine and
  server of Llama-3.1-8B and server of Qwen3-4B, told by busy narrow engines of these minutes, and
  engine and server of Qwen3-14B over two, told by a narrow engine over both. The event loop is that
  of Qwen3-8B on the sixth machine. Engines of Qwen3-4B and of Qwen3-8B with adapters were to come
  and were not begun when the time was up. The engine over two is predicted [without its narrow
  one](#an-engine-of-the-eighth-machine-as-predicted-without-its-narrow-one), too, which counts in
  no sum above.
- **A ninth machine**, of four H100, six minutes, models of `e9ad6794`: engine and server of
  Llama-3.1-8B from a slice of another H100, told by a busy narrow engine of these minutes, without
  a known event loop. Engines of five more models, adapters and drafts among them, were predicted
  [from slices of an H200](#engines-of-the-ninth-machines-h100-from-slices-of-an-h200-t0) and the
  datasheet of the H100: no bound is asked of these.
- **A tenth machine**, of four H200, eight minutes, models of `34f5dc00`: engines and servers of
  Llama-3.1-8B and Qwen3-4B, engines of Qwen3-8B and Qwen3-14B, of Qwen3-8B with 8 adapters and of
  Llama-3.1-8B with an EAGLE head, each told by a narrow engine of these minutes beside slices of
  other days, and two engines that look n-grams up, told by none. The event loop is that of Qwen3-8B
  on the sixth machine. With adapters and with the head they are predicted [without narrow
  ones](#engines-of-the-tenth-machine-as-predicted-without-their-narrow-ones), too, which counts in
  no sum above.
- **An eleventh machine**, of one H200 beside 16 cores, six minutes, models of `4e38e138`: the
  server of Qwen3-4B, told by a busy narrow engine of the minutes before, with the event loop of
  Qwen3-8B on the sixth machine; and four and then all layers of Mistral-7B under nsys. An engine of
  Qwen3-4B was predicted and left out when the time was up.
"""
BEFORE_INTRO = """\
Slices of five models were recorded (`prof run layer-slice`: 4 of their layers under nsys, 12
without), `prof predict` wrote down what it makes of them (`captures/prediction/before`), and only
then were the whole models served, on another H200 and host: batches of 1 to 128 with 512 + 128
tokens, and single requests of 10 to 4,000 + 100 tokens. No number was changed after that; the
method was chosen on Qwen2.5-7B, whose errors stand below. Qwen3-4B and then Mistral-7B came last:
what moves and bounds predictions of them rests on the batches of the models before them.
"""
BEFORE_SERVER = """
A server of Llama-3.1-8B, predicted from the same slice before it was recorded: closed loops of 1 to
128 clients, and requests at random times at 40, 60 and 80 % of the predicted capacity and at 80 per
second, beyond it; 512 + 128 tokens each. Its own event loop was not known: once it took no time,
once as much as that of the server of another model. Capacity is the highest rate of a closed loop.

TPOT of open loops of Llama-3.1-8B was far off: what the host needs for a step beyond CUDA graphs
was drawn from two engines of few layers whose steps did not wait for it, and came out at twice its
time. Since then it comes from what the trace of a slice shows for each layer, host and GPU of a
server work at the same time, and sustained loads are slower by the power limit than a slice is. The
rule for the host, how much it varies, by how much sustained loads are slower and from how many
tokens on, were chosen on the servers of Llama-3.1-8B and Qwen2.5-7B: what they give further below
is in sample for the model of servers, though held out for the model that is served. The server of
Qwen3-4B was predicted with these rules, at 27, 41, 55 and 90 requests per second, before it was
recorded, and so was that of Mistral-7B, at 19, 28 and 37 (it was ended before its last load).

Bounds for TTFT and TPOT of open loops were missed by both, and that for TTFT of closed loops by
Qwen3-4B. Prompts came later than predicted, the shortest ones most. That points at the host, whose
part does not shrink with the prompt; but these runs have no trace, so that what held the prompts
back was not seen. TPOT of open loops is off to both sides, from load to load and from model to
model.
"""
BEFORE_KERNELS = """
All 32 layers under nsys, predicted from 4 before: each operator of each step, and kernels with gaps
of a step. These predictions had the power limit slow a step by what was read before it, and not
within it; steps of 4,000 and more tokens reach the limit by themselves.
"""
PEER = """
## Beside aiconfigurator

[aiconfigurator](https://github.com/ai-dynamo/aiconfigurator) {aiconfigurator} on the same points,
by its tables of vLLM {tables} on {systems} (the recorded engines are vLLM 0.20, of which it has
none): mean absolute error of both, whose is smaller, the worst point, and the bias.
`scripts/aiconfigurator_points.py` wrote its answers. It needs no measurement of the model; prof had
a slice of each, recorded in two minutes. Llama-3.1-8B, Qwen3-4B, Qwen3-14B and Qwen3-32B, with
-h100 on an H100 and with -tp2 over two, are the predictions of before the recording; so are their
numbers of the tables above. Qwen2.5-7B is held out, but the method was chosen on it, and
the model of servers on its server.

It is asked for batches as "static", for closed loops as "agg", a steady state, while the recorded
loops have a beginning and an end. Batches whose prompts take more than one step (16,384 tokens) are
left out of TTFT, where it means the end of all prompts. Loads of random arrivals it does not have.

"Today" is what the models of today make of the same sources, with this model left out of all that
moves them: a hindcast. Five rows have aiconfigurator nearer, all of first tokens, and in all but
one what the host adds decides. It knows of none: its numbers are those of the GPU, too short for
nearly all points (bias), and near where a host was fast. Long prompts of Qwen3-14B wait for the GPU
(all but one), whose power limit is read from the slice since then; short ones of Qwen3-8B in fp8
had a host under nsys at twice its time. What stays: of Qwen3-32B, whose prompt of 512 tokens would
take a host at the slower of its speeds longer than the GPU, which it did not there; of the second
start of Llama-3.1-8B over two H100, whose host was twice as fast as in the first (prompts of 512
tokens: 31 and 14 ms). Half of such hosts are fast; without one that was told, no prediction is near
both.
"""
EXACT = """
## Operators at exactly the shapes of a model (T2)

`prof run predict-ops` measured the operators of Llama-3.1-8B on an H100, each once behind another
kernel; held against four layers of the model in vLLM on another H100, recorded before. Nothing was
fitted. Asked is 8 % over all kernels.

Small operators were recorded three times. At first all their sizes were left open to torch.compile,
whose kernels then divide by numbers that they do not know: rotary embeddings took five times as
long as in the engine and activations nearly twice, 12.3 % over all kernels; in graphs instead of
launched one by one that stayed (12.7 %). Since then the number of tokens alone is open, as in vLLM;
that this was the cause was found with this comparison at hand. What is left of small operators:
the engine has the embedding and the first norm in one kernel, which no call by itself has.
"""
ELSEWHERE_OPERATORS = """
## Operators on an H100, predicted from an H200 (T0)

The chip is the same, so that what waits for DRAM is taken to be slower by the difference of the
bandwidths, and all else to stay (`prof predict --gpu h100-sxm`). Held against four layers of
Llama-3.1-8B, recorded on an H100 after this rule was written; since then a limit from below was
taken off, which moves few of these numbers. There is no upper bound, so that coverage says nothing.
"""
COLLECTIVES = f"""
## What two ranks exchange

As `predict-ops` measured it on two H100 (tier T2), held against the engine that served Qwen2.5-7B
over two H200, which are linked as fast; it had been recorded before, and nothing was fitted to it.
In the engine a collective waits for the later rank: from this table on, predictions take an
all-reduce to be {LATER_RANK - 1:.0%} longer than by itself. The all-gather is launched by the host
in both, and by itself it waits for that.
"""
MEMSET = f"""
## Memsets within graphs, under nsys and without

A graph of 144 short kernels, and one with a memset before each, on an H200
(`scripts/probe_memsets.py`). Gaps of steps are shorter by {1e6 * MEMSET_TRACED_S:.1f} us for each
memset within them than a trace shows.
"""
ADAPTED = f"""
## Steps with adapters, under nsys and without

What steps take without nsys, over the kernels and gaps of a trace under it: of all 32 layers of
Llama-3.1-8B in one process, traced and not, and of whole engines by their slices of 4 layers. Its
kernels take in 32 layers what they take in 4. Without adapters steps take 0.98 times as long; those
of adapters are launched before the last ones end (programmatic launches), which nsys may hold
apart. Why both models differ is not known: predictions take {UNTRACED_ADAPTED} times, which is
between them.
"""
FURTHER = """
## Steps of many requests, by layers

What each further request adds to the host's part of a step is read from the points of a slice that
wait for the host: of each number of requests the shortest, since the host has two speeds. Held
against are steps of 16 to 128 requests of three times as many layers, which another process of the
same run served: as predicted from the fewer layers with what further requests add, and with the
host as one request has it, which was taken before.
"""
HOST_ADDS = """
## What the host adds

From the arrival of a request to its first token, beside the kernels of the step, for prompts of 10
to 200 tokens, which fit a CUDA graph: as the slice of the model tells it, recorded on one machine,
and in the whole engine, on another, as what was measured there less what is predicted of the GPU.
"""
KV_CACHE = """
## KV cache, by the model of today

What an engine holds beside weights and KV cache is what its slice held, less the largest step of
the slice and with its own: slices were started for 1,024 requests, engines for 128, and while
tokens are sampled each request takes 14 bytes for each word of the vocabulary (`prof predict`
follows what vLLM 0.20 profiles). Committed predictions, further up, did not have that. The sizes
are vLLM's own; which of them count was seen with these truths at hand. The largest part of what
is left is vLLM's estimate of its CUDA graphs: 0.14 to 1.15 GiB in these engines, from the free
memory before and after four captures.
"""
INTERVALS = """
## Intervals of slices, each model left out

Batches of all six models: what is moved and bounded by residuals has seen the other five alone.
Prompts that the host decides have the widest intervals, most of them of fewer than 1,000 tokens:
these engines had CUDA graphs of at most 256 tokens, and a prompt of 512 or 1,000 beyond them takes
what the host needs for each layer, as the trace of a slice shows it. The predictions above did not
have that yet, nor that the engine looks one step ahead: a first token waits until the next step is
issued. All of this was chosen after these engines were recorded, and how intervals are made by
their coverage here; that it holds for another model is not shown.

What the profiler adds to a step that generates is told by 12 layers without it: their fastest
quarter, since the host makes some of them longer and none shorter; where all 12 wait for the host,
it is that of other slices. Before that the median counted, and nothing was taken off where they
waited: TPOT on one H200 was off by 1.5 %, in fp8 by 3.3 %. The host beyond graphs has one of two
speeds, so that the time to first token is the mean over both. Where the GPU needs about as long,
that is later than at their mean, which missed long prompts by 3.5 %. Both were chosen with all
these truths at hand.

No residual of points has seen fp8 or what several GPUs do. Steps without prompts are moved as
those of the other models, and over two GPUs by what ranks of the other model waited for each other:
in seconds, in which models differ less than in parts of their steps. What each operator may miss is
taken to be independent of the others, and what these models miss as a whole comes on top. Before
that all operators were at the end of their intervals at once, which bounded steps over two GPUs by
27 %. Their two models and the one in fp8 were at hand when this was chosen. First tokens that wait
for the GPU have the interval of those of other models there too: what operators may miss beside it
held all of 29 such points, and with them 97 % of all prompts of 1,000 tokens and more. That as well
was chosen with the truths at hand.

Prompts that wait for the host are bounded by all engines of other models, on whichever GPU: how
fast a host runs is of the machine, of its neighbours and of the start, and no slice tells it.
Before that an H100 had the intervals of an H200, and fp8, 4 bits, experts and several GPUs had
those of their operators: 74 % of short prompts were within. The truths were at hand.

Of the few points of one class, 50 or 100 % within their intervals may be chance; of all classes
together between 85 and 95 % are asked.
"""
LIGHT = 16
"""Clients whose prompts fit one step: loads that tell what the server adds."""
KNOWN_SERVER = f"""
## The same server, its loads of 1 to {LIGHT} clients known (T3)

The event loop of a server passes requests on and sends tokens: what a request and a token take it
comes from its own closed loops. Held against are its loads of more than {LIGHT} clients and its
open loops; where the server is known, products of this model are in sample, and of closed loops
what vLLM's counters say that requests took outside of the engine.
"""
WAITS = f"""
## Where first tokens of servers wait

Open loops of all recorded servers, means over requests. Outside of the engine are the client, HTTP,
the tokenizer, the event loop and the way back, as clients saw it less what vLLM's own counters say;
within are its queue and steps until the first token. A request alone takes 4 to 5 ms outside; under
load it waits there for the loop, which sends the tokens of all others, and for the step that is
being issued when it comes, since the engine takes requests in between steps. Tokens are taken to
need the loop for as long as they reach clients one after another, which is too short: beyond the
capacity requests were outside for up to twice as long as predicted.

Prompts that come alone were followed through 26 of these loads. With the host as slow as it was in
each, predicted first tokens are 14.5 % off and nearly always too early (TPOT 7.6 %, to both sides):
6 ms are missing outside of the engine and 3 within, more where more requests generate. Twice the
time for each token, or one and a half times that for each request, explain a third to a half of it
and are not taken: no recorded run tells them. Nor are both speeds of the host for steps without
prompts, which take TTFT from 16.3 to 15.3 % and TPOT from 6.6 to 7.9 %.

How fast the host was: a prompt beside requests that generate is beyond CUDA graphs, and while the
host issues it no client gets a token. The longest pause before the first token of a request that
came alone is that time; here it stands over what the trace of the model's slice says, under nsys.
One number for all servers would be off by a quarter to both sides, and the errors of TTFT follow
it: where the host was slow they are negative. Predictions have it at its faster speed and its
slower one in turn, {SERVED_SPEEDS[0]:.2f} and {SERVED_SPEEDS[1]:.2f} times the trace's, half of the
time each, as a loop of Python had it on the vCPUs of such a machine (1,056 runs, 51 % of them
slow). By the same prediction the starts of one server are off to both sides.
"""
HOST_SPEED = """
## One machine's host, minutes later

What stood beside each run on the H200 whose engines were predicted from runs on the same machine: a
fixed loop of Python in a process of its own, timed all the while; every fourth time is kept.
Runs are in the order of recording, within 16 minutes of one virtual machine with 16 hardware
threads. What told of the host are the first four; then come what was predicted and a narrow engine
again, which was ended early.
"""
SLOWER_HOST = """
The same points as before, by the models of today: with the host as it was told, and with all that
host and event loop need as many times longer as the loop took longer on average beside the run that
is predicted than beside the one that tells (`--host-speed`). That was known only afterwards; open
loops are near the bounds with it.
"""
TIMED_SPEED = """
### The same on another machine, with the loop timed by every run

Hours later `prof run` timed the loop itself beside each step, on a virtual machine of two H200 and
32 hardware threads, by the CPU time of its thread (these times and those above are by two clocks,
and are not compared), and engines on their own thread before each repeat. Both GPUs served at once.
Before and after a step the loop runs 20 times in a row; beside it each run comes after 0.1 s
without work, after which a core takes up to twice as long.
"""
TIMED_HOST = """
By the loop beside them this host was as fast beside the truths as beside the narrow engines that
told of it (0.97 to 1.05 times the time), and open loops and short prompts were missed as much as
before. So it is not that a host becomes slower meanwhile, or not that alone: **the host of an
engine whose GPU works is slower than that of a narrow engine on the same machine**. The thread of
the whole engines took 1.2 and 1.3 times as long for the loop as that of the narrow ones. A narrow
engine never waits for its GPU, and its core never rests; one that serves waits for most of each
step. That this is what makes the core slower (by its clock, its caches, or other guests of the
hypervisor) is likely, and not shown: a virtual machine does not tell. Engines of servers are
processes of their own, whose threads nobody timed.

With the host by these loops of the engines' own threads, which the models of today take where both
sides have them, errors are as follows. These are hindcasts.
"""
ISSUED_INTRO = """
### Short prompts: the host alone

First tokens of 10 to 200 prompt tokens of Qwen3-14B came after 18 to 23 ms where its narrow engine
had them after 8 to 12 ms, and the GPU needs 10 to 12, nearly the sum of both. They are no sum. What
an engine's steps took by themselves, as the engine timed them, says so: its first step issues the
prompt and asks the GPU for no result, and took nearly all of the time. The step after it issues the
next one and takes the first token, for which it hardly waits any more. So a first token
is what the host needs before, the longer of what it takes to issue the prompt and of what the GPU
takes, and what it needs after, as predicted; the time to issue is what is missed. Per layer it is
0.13 to 0.17 ms where a host is fast and two to three times that where it is slow, in all engines;
Qwen3-14B met a slow one all three times that it was recorded, which is chance or something of its
own: no trace of one tells.

Single prompts of at most 200 tokens, within CUDA graphs, medians; loops are those of the whole
engine over those of the narrow one.
"""
KEPT_BUSY = """
### A narrow engine whose GPU is kept busy

Why does a whole engine take longer to issue? In the recorded traces no call of CUDA waits
meanwhile: launches and graph launches take as long in all layers of Llama-3.1-8B as in 4 of them,
and four fifths of the time are between the calls, in Python. Neither launches that wait for the
GPU, nor a full queue, nor memory or events are what it is; and the engine of Qwen3-32B issued its
prompts in half of the time that its GPU was busy with them. It is how fast the core runs.

Here each prompt was issued with an idle and with a busy GPU by one narrow engine, and then by the
whole one; "fast" are those before which the loop took less than 42 us on the engine's thread, which
has one of two speeds. At the same speed of the core a busy GPU costs 10 to 15 % within CUDA graphs
(one more launch for each layer, the spinning one, is in it), and nothing beyond them. What differs
more is which speed the core has, and that changes within a minute, with the GPU idle or busy: no
measurement before tells it. The loop does not tell all of it either: Mistral-7B's prompts beyond
graphs were issued in 32 and then in 22 ms with the same loop before. Prompts of Qwen3-14B within
graphs took longer in the whole engine at both speeds, as on all machines before: why is not known.
"""
LOOK_UPS = """
### How long steps wait that look n-grams up, by layers

Slices of Llama-3.1-8B with several numbers of layers looked n-grams up (3 tokens, 2.4 per step) on
one H200, one after the other, and the whole engine did on another day. The wait is what a step
takes beside its kernels and gaps, of slices the median over their contexts. The slice of 20 layers
was ended by its limit of time before its last batch; "fast" are loops as
[above](#a-narrow-engine-whose-gpu-is-kept-busy). Few requests wait as long whatever the layers are.
Many wait longer with 12 layers than with 4, but no longer with 20. The speed of the core moves the
wait as much, so it is taken as a slice has it, and is not carried on over layers.
"""
EXPLAINED = """
All single prompts of fewer than 1,000 tokens of all recorded engines on one GPU, as the models of
today predict them from slices and narrow engines, their own model left out, and with the one number
that these do not know: in how long the engine issued the prompt, as it timed itself. That is no
prediction. It shows that what first tokens consist of is modelled well, and that their errors are
the host's time to issue.
"""
CAUSES = """
## Where the errors come from

Operators contribute to the error of a step by [their parts of
it](#operators-of-recorded-steps-held-out-t1). Kernels of benchmarks differ from those of the
engine: attention is that of PyTorch's back ends and not vLLM's, which splits keys among SMs and
combines the parts; a KV write was measured by nobody, and is taken to move its bytes like a norm
does; products take longer among other kernels than one after the other. With a recorded engine
these differences are gone at its batch, and what remains is how they change with batch and length.

The time to first token of short prompts waits for the host, which differs from machine to machine
and from start to start; no kernel tells it. [What it adds](#what-the-host-adds) differs between the
slice and the whole engine of a model, and from prompt to prompt of one engine. It runs at one of
two speeds, of which the slower takes some 1.5 times as long, and changes between them within
seconds: one engine issued 512 tokens of Qwen2.5-7B in 11 or in 19 to 23 ms, prompt by prompt; 12
layers of Qwen3-14B took 3.4 ms for each prompt of 64 tokens and then 5.3 for each of 128. Slices
show the faster one mostly, whole engines the slower one. In all recorded traces the first token
comes 0.9 to 1.1 ms (with more requests, 2 ms) after both the end of the step and the moment when
the host has issued the next one.

These are two speeds of the machine's cores. Beside engines on a virtual machine of two H200 a fixed
loop of Python, a process of its own, took 24 to 32 us or 44 to 56 us, and hardly ever a time
between; 25 single prompts of 512 tokens of Qwen3-8B in w4a16, one after the other in one engine,
had their first token after 18 to 19 ms or after 27 to 33 ms, and stayed at one of both for some
tenths of a second to seconds. The engine's thread was moved to another core at some of these
changes and at others not; nothing was throttled, and the hypervisor took 2 s of 160 s of all 32
cores. Each of these by itself took 0.12 to 0.14 ms or 0.19 to 0.26 ms for a longer loop, and half
a second later some took the other; it made no difference which other one of them was busy. So a
hardware thread would run whose core another one shares, of which a virtual machine is not told.
Which speed a prompt meets cannot be known before: the interval holds both.

Under nsys prompts that wait for it take 1.2 times
as long as before it in the same process, in the median of slices, and up to twice: of Qwen3-8B in
fp8, whose short prompts were predicted at twice their time by that. What is beyond 1.2 is taken off
since then, of prompts within CUDA graphs.

What the host needs for prompts of batches is therefore not taken from the slice any more, where
models are dense: a layer takes it as long as it took those of other models, within CUDA graphs and
beyond them by itself, the median of nine models on whichever machine and GPU, and at each of both
speeds half of the time. Each model left out, first tokens of short prompts were off by 35 % before
and are by 23 now, those of long ones by 5.9 and 4.6 (one H200: 13.2 and 12.6, 3.1 and 3.0; one
H100: 29 and 21, 8.0 and 4.2; fp8: 27 and 25, 2.2 and 3.3; w4a16: 115 and 68, 8.6 and 4.1; two H100:
111 and 53, 12 and 9). All these truths were at hand. Servers have the trace's speed as before: with
the others' speed TTFT of open loops was off by 19.5 % in place of 13.5, TPOT by 22 in place of 13.

Since then what a layer takes the host is read from the engines' own clocks; before, it was what was
left of first tokens beside the next step, in which the GPU was where it took longer (Qwen3-32B:
0.33 ms a layer within graphs, 0.21 by the clock). A narrow engine's host of minutes before differs
from the one that serves as much as other hosts do, so that prompts are issued half way between what
it told and what other models needed. Half was not fitted, but chosen with these numbers at hand: of
46 prompts of ten engines short ones were off by 21.1 % as told, by 17.6 half way, by 16.5 as others
were, long ones by 11.3, 9.2 and 8.1. Prompts within graphs wait for weights, and are moved as steps
that generate and no longer as long prompts. Residuals have the engines of later machines too, which
took prompts of one model on the GPU by 1 to 3 % longer. All
engines of slices, narrow engines and two GPUs again, each model left out (318 points; engines that
were told stand twice): first tokens of short prompts are off by 19.9 % (21.9 before; bias +1.1,
+7.9 before), of long ones by 4.5 (4.7), and intervals of TPOT hold 93 % (90). Told by busy engines:
short 7.9 % (16.4), long 4.0 (5.3), TPOT within 74 % (70). What got worse: short prompts of the
first engines on an H200, whose hosts nobody told, are off by 14.4 % (12.5). All truths were at
hand.

What was tried and did not help: to add to all prompts what single prompts of 12 layers took beyond
the trace (GPU-bound prompts from 3.5 to 3.6 %, and intervals of one model held 12 %); what the host
needs within CUDA graphs by the whole step instead of by its layers (short prompts 15.9 %); the
factor that the host of other models needed, for prompts within CUDA graphs too (12.8 %, but
Qwen3-4B and 32B 20 and 16 % too late); in servers the faster of its speeds (open loops:
TPOT 12.1 %, TTFT 22 %), or the mean over loads with both, as for batches (open loops up to 80 % of
the capacity: TTFT 12.9 instead of 14.1 %, TPOT 7.9 instead of 6.6 %).

Attention of requests that generate takes a fixed time and one by the bytes of the KV cache. Between
contexts of 128 and 1,024 tokens its ratio to the roofline was interpolated, which is too long in
between: with the recorded 1,024 left out, a slice that has only the datasheet beside it misses them
by +11 to +36 % that way, and by -8 to +6 % on a line through 128 and 4,000. It is on a line since
then, which takes 1 to 4 % off steps of large batches. Steps of Qwen3-8B in fp8 were predicted too
long by that, and since they were not moved by what other models took. The part that is left is not
known: no whole engine in fp8 was traced.

Weights of 4 bits are multiplied by kernels (Machete) that have a buffer cleared before each. Under
nsys the GPU is idle for some 4 us around that, and the steps of the whole engine were shorter than
predicted by 4.5 %. Half of that is [of nsys](#memsets-within-graphs-under-nsys-and-without), which
was measured afterwards by itself; since then it is taken off. For each layer of a prompt beyond
CUDA graphs the host took 0.9 ms in the trace of this slice, 0.6 in its engines without nsys, and
0.4 or less in the whole engine, half an hour later on the same machine; 1.0 ms with nsys and
without in the slice of Gemma 3, and 0.6 or less in its engine: the slower and the faster of the two
speeds. Such prompts came at up to half the predicted time and less.

Over two H100 the median gap between tokens is some 0.1 ms longer than the kernels of one rank and
what it exchanges, in both models. Single steps take several times as long, which is in TPOT and not
in that median: 0.1 to 0.3 ms for each step, most of it in some batches and hardly any in others. Of
both the other model tells the sum here. Two ranks and the engine are processes of their own, and a
step waits for the latest; which of them was late was not traced. A second start of Llama-3.1-8B had
hardly any of such steps, so that they are of a start and not of the model.
On H200 tensor parallelism was recorded once, so that nothing about it is held out but
its kernels; collectives, which no other run has, are missing there.

A server adds what no engine tells: its event loop is one thread, which parses and tokenizes
requests and sends the tokens of all. So short prompts come later than the engine alone would have
them. The clients of a closed loop stay in step: while the loop takes in the requests of those that
are done, the engine brings all others to their end, and then computes all prompts in a row, which
makes the time to first token of 64 and more clients longer and their TPOT shorter. Where its loads
of few clients are known, this is predicted. Prompts that come to requests which generate make steps
beyond the largest CUDA graph: the host issues their kernels one by one, and the tokens of the step
before wait so long. How long differs from load to load: gaps between tokens have two modes, at some
14 and 24 ms for Llama-3.1-8B at 20 and 30 requests per second, and the prediction is between them.
Beyond the capacity, at 80 requests per second, predicted throughput is some 10 % too high.

Since the third machine was recorded, servers have the median event loop of others where none is
told, steps have what each further request adds to the host, and residuals the engines of the two
latest machines. Open loops got worse by it where a server had several GPUs or a host that nobody
told. Three things of that were mended, with all these truths at hand. Over several GPUs the
engine's process schedules while others issue, so that the longer of both counts, and not their sum:
the capacity of Llama-3.1-8B over two is off by -3 % in place of -14. How long a narrow engine
issues prompts is read from its own clock, where its GPU is idle as well; what was left of the time
to first token was 8 % less within graphs. And prompts of servers are issued half way between what
a trace told of one host and what engines of other models needed, as those of batches are where
narrow engines told it. Open loops of all recorded servers whose event loop another one told, up to
80 % of the capacity, were off by 17.0 % in TPOT and 23.2 in TTFT before these three, and are by 8.4
and 14.9 since then; closed loops by 2.9 and 8.1, and by 2.6 and 8.1.

Tried for these and not taken: prompts of servers issued as other models needed it alone (TPOT 10.4,
TTFT 16.4 % off, where the trace alone gives 8.8 and 15.9; without the fifth machine); that a
further request adds half as much, or nothing, where the tokens are handed on by the process in
front of the engine (TPOT 8.5 and 8.7, TTFT 15.8 and 16.8); a busy narrow engine's times over an
idle one's on that host as a factor for others (LoRA and EAGLE within graphs 12 to 29 and 16 to
36 %).

Engines over several GPUs do not hold a first token of a batch back for the next step, as other
processes issue it (`WorkerProc`), and three of five engines had it when the kernels of one rank
were done, without the time in which a traced GPU waits for its first kernel. With two models at
hand this was not taken (short prompts over both kinds of GPU would have gone from 35.6 to 36.7 %);
with three it takes them from 36.7 to 31 %. What a layer takes the host there is that of engines on
one GPU, since no clock tells it of other processes. Servers are as before: open loops of
Llama-3.1-8B over two would have their first tokens 16 % too early.

Two more changes of that day, with all truths at hand. How much the power limit slows prompts
differs between slices by the board (1.11 to 1.15 on H200), so that dense models have the median of
the slices of others: prompts of one H200 that fit a step and wait for the GPU go from 2.0 to 1.7 %.
Prompts of engines that look n-grams up came 5 % sooner than those of the same models without, in
both engines, and are not moved by what others took: their GPUs wait in each step, and may be
cooler.

Tried then and not taken, for short prompts on one GPU (16.4 %, of which 7 % are between the points
of one engine): what a layer takes the host beyond graphs read from prompts of 1,000 and 4,000
tokens too (beyond graphs 22.8 to 22.2, but open loops of servers from 13.9 to 14.7 in TTFT, 11.8 to
12.7 in TPOT); half of the time in which a traced GPU waits for its first kernel (16.3); another
spread of both speeds (16.3 to 16.5); what narrow engines told at a quarter in place of half (0.3
points less, better for 8 of 15 engines and worse for 7); with adapters what a layer takes other
engines that have them (beyond graphs 23.7 to 20.7 %, within them 9.2 to 11.4).

Of the long prompts of one GPU that wait for the host, a third were of models with experts or latent
attention, whose layers are launched otherwise than dense ones; so are those with adapters or a
head. Their host was what the slice's trace says, under nsys. Eleven engines of four such models
issued prompts in 0.8 to 0.85 times that, which is taken since then (the model left out), and steps
of a head have the host's two speeds half of the time each. A layer of dense models takes the host
what it took on machines with the same kind of GPU, where three models were served beside one, and
no longer on all: beside an H100 prompts within graphs take a fifth less than beside an H200. By
both, first tokens of short prompts on one GPU are off by 16.5 % in place of 17.7, long ones by 4.0
in place of 4.4 (those that wait for the host by 10 in place of 13); with drafts or adapters by 13
in place of 15.5 and by 5.2 in place of 5.8. What stays is the two speeds: beyond graphs the
same engine needs 0.4 to 0.55 ms a layer or 0.7 to 1.0, and which one it meets was known of none.
Qwen3-8B in w4a16 met the faster one in both of its starts, Qwen3-14B the slower one in three of
six.

Loads of servers are bounded by what all recorded servers missed, each with its own machine, in
place of four: intervals of TPOT of closed loops are six tenths as wide, and servers over two GPUs
have such bounds too. First tokens over two GPUs that wait for their hosts have 1.75 times the width
of one; that factor was chosen with the five engines at hand.

Tried for these and not taken: the host as other models needed it alone where a narrow engine told
it (short prompts 16.3 % in place of 17.1 of those engines, but H100 15.1 in place of 12.7), the
longer of both (19.2 %), open and closed loops moved by the median of what other servers missed
(open loops: TTFT 15.8 in place of 15.7, closed ones 8.2 and 8.2), and hosts of one kind of GPU for
two (37.9 in place of 37.1). Prompts that repeat themselves, as n-grams need them, are read 3 to
11 % faster than others (two models), in short and long batches alike: why is not known, and they
are predicted like others.
"""
