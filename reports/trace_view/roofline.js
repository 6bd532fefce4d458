// Places are in decades: powers of ten of FLOP/B and FLOP/s.
const roofline = {
  LEAST: 0.2,
  // What holds every point, every roof of a pipe and every ridge point, with a margin.
  whole: ({ kernels, roofs }) => {
    const memory = roofs.filter((roof) => roof.memory).map((roof) => Math.log10(roof.value));
    const pipes = roofs.filter((roof) => !roof.memory).map((roof) => Math.log10(roof.value));
    const ys = kernels.map((kernel) => Math.log10(kernel.rate));
    const xs = kernels.flatMap((kernel) => kernel.points.map((point) => Math.log10(point.at)));
    xs.push(...pipes.flatMap((pipe) => memory.map((level) => pipe - level)));
    ys.push(...pipes);
    const ends = (values) => [Math.min(...values) - 0.3, Math.max(...values) + 0.3];
    return { x: ends(xs), y: ends(ys) };
  },
  // `factor` below 1 looks closer; (x, y) stays where it is. Nothing beyond the whole is shown.
  zoom: (view, factor, x, y, whole) => {
    const around = ([low, high], at, [first, last]) => {
      const size = Math.min(Math.max((high - low) * factor, roofline.LEAST), last - first);
      const from = at - (at - low) / (high - low) * size;
      return roofline.within([from, from + size], [first, last]);
    };
    return { x: around(view.x, x, whole.x), y: around(view.y, y, whole.y) };
  },
  pan: (view, right, up, whole) => ({
    x: roofline.within(view.x.map((end) => end + right), whole.x),
    y: roofline.within(view.y.map((end) => end + up), whole.y),
  }),
  within: ([low, high], [first, last]) => {
    const by = Math.max(first - low, 0) || Math.min(last - high, 0);
    return [low + by, high + by];
  },
  // The kernels that are asked for, each with its points of the levels that are.
  chosen: (kernels, { stage = "", kind = "", level = "", words = "" }) => kernels
    .filter((kernel) => (!stage || kernel.stages.includes(stage)) && (!kind || kernel.kind === kind))
    .filter((kernel) => kernel.name.toLowerCase().includes(words.trim().toLowerCase()))
    .map((kernel) => ({ ...kernel, points: kernel.points.filter((point) => !level || point.level === level) }))
    .filter((kernel) => kernel.points.length),
  // A memory roof ends at the highest pipe, a pipe begins at the fastest memory.
  line: (roof, roofs, whole) => {
    const value = Math.log10(roof.value), others = roofs.filter((one) => one.memory !== roof.memory).map((one) => Math.log10(one.value));
    const meet = others.length ? (roof.memory ? Math.max(...others) - value : value - Math.max(...others)) : null;
    if (roof.memory) {
      const end = meet === null ? whole.x[1] : meet;
      return [[whole.x[0], value + whole.x[0]], [end, value + end]];
    }
    return [[meet === null ? whole.x[0] : meet, value], [whole.x[1], value]];
  },
  // Where memory roofs meet the roofs of pipes.
  ridges: (roofs) => roofs.filter((roof) => roof.memory).flatMap((level) => roofs.filter((roof) => !roof.memory)
    .map((pipe) => ({ level: level.key, at: pipe.value / level.value, value: pipe.value }))),
  ticks: ([low, high]) => {
    const steps = high - low > 4 ? [1] : high - low > 1.2 ? [1, 2, 5] : [1, 1.5, 2, 3, 4, 5, 6, 8];
    const found = [];
    for (let power = Math.floor(low); power <= high; power++)
      for (const step of steps) {
        const at = power + Math.log10(step);
        if (at >= low && at <= high) found.push({ at, value: step * 10 ** power });
      }
    return found;
  },
  // Three digits at most, with the prefix of its unit.
  amount: (value, unit = "") => {
    const [scale, prefix] = [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]].find(([step]) => unit && value >= step) || [1, ""];
    return `${Number((value / scale).toPrecision(3))} ${prefix}${unit}`.trim();
  },
  told: (kernel, point) => [
    `${kernel.number} ${kernel.name}`,
    roofline.amount(kernel.rate, "FLOP/s"),
    ...(point ? [point] : kernel.points).map((one) =>
      `${one.label}: ${roofline.amount(one.at)} FLOP/B${one.reached === null ? "" : `, ${word("{part} % of what the roofs allow there", { part: roofline.amount(100 * one.reached) })}`}`),
    ...kernel.facts.map(([message, values]) => word(message, values.what ? { what: word(values.what) } : values)),
  ],
  // Which texts are written, and where: each at the first of its `places` [x, y] where it covers none of those before it, nor
  // any of `taken` ({x, y, width}, y below). One without a free place is left out, but for one that is `chosen`.
  free: (texts, taken = [], height = 12) => texts.reduce((kept, one) => {
    const covers = (x, y, others) => others.some((other) => x < other.x + other.width && other.x < x + one.width && Math.abs(y - other.y) < height);
    const place = one.places.find(([x, y]) => !covers(x, y, kept) && !covers(x, y, taken.filter((other) => other.of !== one.of))) || one.chosen && one.places[0];
    return place ? [...kept, { ...one, x: place[0], y: place[1] }] : kept;
  }, []),
  // The point nearest to a place, within `reach` of the same measure; null for none.
  nearest: (spots, x, y, reach) => {
    let best = null, least = reach;
    for (const spot of spots) {
      const off = Math.hypot(spot.x - x, spot.y - y) - spot.r;
      if (off <= least) [best, least] = [spot, off];
    }
    return best;
  },
};

const drawRoofline = (host) => {
  const data = JSON.parse(host.querySelector(".data").textContent), { element, button } = parts;
  const live = host.querySelector(".live"), bar = element("div", "", { className: "bar" });
  const whole = roofline.whole(data), asked = { stage: "", kind: "", level: "", words: "" };
  const draw = (tag, set, inside = []) => {
    const one = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(set)) one.setAttribute(name, value);
    one.append(...inside);
    return one;
  };
  const svg = draw("svg", { tabindex: 0, role: "application", class: "plane" });
  svg.setAttribute("aria-label", word("{title}: arrow keys move, plus and minus zoom, n and p choose a kernel, Enter goes to its details, l to its launches", { title: data.title }));
  const state = element("p", "", { className: "state" });
  state.setAttribute("role", "status");
  let view = whole, kernels = data.kernels, picked = null, spots = [], width = 0, height = 0, frame = null;

  const atX = (x) => frame.left + (x - view.x[0]) / (view.x[1] - view.x[0]) * frame.width;
  const atY = (y) => frame.top + (view.y[1] - y) / (view.y[1] - view.y[0]) * frame.height;
  const place = (x, y) => [view.x[0] + (x - frame.left) / frame.width * (view.x[1] - view.x[0]),
    view.y[1] - (y - frame.top) / frame.height * (view.y[1] - view.y[0])];
  const text = (words, x, y, set = {}) => draw("text", { x, y, "font-size": 11, ...set }, [words]);
  const shapes = {
    dram: (x, y, r, look) => draw("circle", { cx: x, cy: y, r, ...look }),
    l2: (x, y, r, look) => draw("rect", { x: x - r * 0.9, y: y - r * 0.9, width: 1.8 * r, height: 1.8 * r, ...look }),
    l1: (x, y, r, look) => draw("path", { d: `M${x} ${y - 1.2 * r}L${x + 1.1 * r} ${y + 0.8 * r}H${x - 1.1 * r}Z`, ...look }),
  };
  const paint = () => {
    width = live.clientWidth;
    height = Math.round(Math.min(Math.max(width * 0.6, 300), 520));
    frame = { left: width < 600 ? 56 : 74, top: 8, width: 0, height: height - 48 };
    frame.width = width - frame.left - 8;
    const clip = `${host.id}-clip`, drawn = [], marks = [], names = [], titles = [];
    for (const { at, value } of roofline.ticks(view.x)) {
      const x = atX(at);
      drawn.push(draw("line", { x1: x, x2: x, y1: frame.top, y2: frame.top + frame.height }));
      marks.push(text(roofline.amount(value), x, frame.top + frame.height + 15, { "text-anchor": "middle" }));
    }
    for (const { at, value } of roofline.ticks(view.y)) {
      const y = atY(at);
      drawn.push(draw("line", { x1: frame.left, x2: frame.left + frame.width, y1: y, y2: y }));
      marks.push(text(roofline.amount(value, " ").replace(/ +/, " "), frame.left - 5, y + 4, { "text-anchor": "end" }));
    }
    const half = frame.top + frame.height / 2, words = word(width < 600 ? "FLOP/B at the memory level" : "Arithmetic intensity at the memory level (FLOP/B)");
    marks.push(text(words, frame.left + frame.width / 2, height - 6, { "text-anchor": "middle" }));
    marks.push(text(word("Throughput (FLOP/s)"), 12, half, { "text-anchor": "middle", transform: `rotate(-90 12 ${half})` }));
    for (const roof of data.roofs) {
      if (asked.level && roof.memory && roof.key !== asked.level) continue;
      const [[x0, y0], [x1, y1]] = roofline.line(roof, data.roofs, whole);
      drawn.push(draw("line", { x1: atX(x0), y1: atY(y0), x2: atX(x1), y2: atY(y1), style: `stroke:var(--${roof.colour});stroke-width:1.6` }));
      const name = `${roof.label} ${roofline.amount(roof.value, roof.memory ? "B/s" : "FLOP/s")}`;
      // The name stands at the part of the roof that is seen.
      const low = Math.max(x0, view.x[0], roof.memory ? x0 + view.y[0] - y0 : x0), high = Math.min(x1, view.x[1], roof.memory ? x0 + view.y[1] - y0 : x1);
      if (high <= low || !roof.memory && (y0 < view.y[0] || y0 > view.y[1])) continue;
      const look = { style: `fill:var(--${roof.colour});paint-order:stroke;stroke:var(--paper);stroke-width:3px` };
      if (roof.memory) {
        const turn = -Math.atan2(atY(0) - atY(1), atX(1) - atX(0)) * 180 / Math.PI;
        const at = low + (high - low) * 0.06, x = atX(at), y = atY(y0 + at - x0) - 6;
        names.push(text(name, x, y, { transform: `rotate(${turn} ${x} ${y})`, ...look }));
      } else {
        const x = atX(high) - 4, y = atY(y0) - 7;
        names.push(text(name, x, y, { "text-anchor": "end", ...look }));
        titles.push({ x: x - 6 * name.length, y, width: 6 * name.length });
      }
    }
    for (const { level, at, value } of roofline.ridges(data.roofs)) {
      if (asked.level && level !== asked.level) continue;
      const x = atX(Math.log10(at)), y = atY(Math.log10(value));
      drawn.push(draw("path", { d: `M${x} ${y - 4}l4 4l-4 4l-4 -4Z`, style: `fill:var(--paper);stroke:var(--level-${level})` }));
    }
    spots = [];
    const points = [], numbers = [];
    for (const kernel of kernels) {
      const y = atY(Math.log10(kernel.rate)), r = Math.max(Math.sqrt(kernel.share || 0) * 15, 3.5), chosen = kernel.number === picked;
      const xs = kernel.points.map((point) => atX(Math.log10(point.at)));
      points.push(draw("line", { x1: Math.min(...xs), x2: Math.max(...xs), y1: y, y2: y, style: `stroke:var(--${kernel.colour});stroke-width:${chosen ? 3.5 : 2};opacity:0.8` }));
      kernel.points.forEach((point, n) => {
        const look = { style: `fill:var(--level-${point.level});stroke:var(--${chosen ? "ink" : "paper"});stroke-width:${chosen ? 2 : 0.7};opacity:0.9` };
        points.push(shapes[point.level](xs[n], y, r, look));
        spots.push({ x: xs[n], y, r, kernel, point });
      });
      const right = Math.max(...xs), left = Math.min(...xs), wide = 7 * String(kernel.number).length;
      // Beside the outermost mark, else above or below it.
      const places = [[right + r + 3, y + 4], [left - r - 3 - wide, y + 4], [right - wide / 2, y + r + 12], [right - wide / 2, y - r - 4]];
      numbers.push({ places, width: wide, of: kernel.number, kernel, chosen });
    }
    // The chosen kernel says its number in any case, then those that take the most time.
    numbers.sort((one, other) => other.chosen - one.chosen || other.kernel.share - one.kernel.share);
    const marked = spots.map(({ x, y, r, kernel }) => ({ x: x - r, y: y + 4, width: 2 * r, of: kernel.number }));
    for (const { x, y, kernel } of roofline.free(numbers, [...marked, ...titles]))
      points.push(text(kernel.number, x, y, { "font-weight": "bold", style: "paint-order:stroke;stroke:var(--paper);stroke-width:3px" }));
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.setAttribute("height", height);
    const box = { x: frame.left, y: frame.top, width: frame.width, height: frame.height };
    svg.replaceChildren(draw("clipPath", { id: clip }, [draw("rect", box)]), draw("rect", { ...box, style: "fill:var(--paper);stroke:var(--grid)" }),
      draw("g", { "clip-path": `url(#${clip})` }, [...drawn, ...names, ...points]), ...marks);
    host.dataset.view = [...view.x, ...view.y].map((end) => end.toFixed(3)).join(" ");
  };
  const show = (next) => { view = next; paint(); };
  const middle = () => {
    const kernel = kernels.find((one) => one.number === picked);
    return kernel ? [Math.log10(kernel.points[0].at), Math.log10(kernel.rate)] : [(view.x[0] + view.x[1]) / 2, (view.y[0] + view.y[1]) / 2];
  };
  const zoom = (factor, ...around) => show(roofline.zoom(view, factor, ...(around.length ? around : middle()), whole));
  const pan = (right, up) => show(roofline.pan(view, right * (view.x[1] - view.x[0]), up * (view.y[1] - view.y[0]), whole));

  const announce = () => {
    const kernel = kernels.find((one) => one.number === picked);
    state.replaceChildren(kernel ? "" : word("{n} of {total} kernels", { n: kernels.length, total: data.kernels.length }));
    if (!kernel) return;
    const [name, ...rest] = roofline.told(kernel);
    state.append(element("b", name), ` · ${rest.join(" · ")}`);
    if (parts.detail(picked)) state.append(" · ", element("a", word("its details"), { href: `#kernel-${picked}` }));
    if (document.getElementById("trace")) {
      const launches = element("a", word("its launches"), { href: "#trace" });
      launches.addEventListener("click", (event) => { event.preventDefault(); parts.show("launches", kernel.number); });
      state.append(" · ", launches);
    }
  };
  const pick = (number) => {
    picked = number;
    const kernel = kernels.find((one) => one.number === number);
    if (kernel) {
      const x = Math.log10(kernel.points[0].at), y = Math.log10(kernel.rate);
      if (x < view.x[0] || x > view.x[1] || y < view.y[0] || y > view.y[1])
        view = roofline.pan(view, x - (view.x[0] + view.x[1]) / 2, y - (view.y[0] + view.y[1]) / 2, whole);
    }
    announce();
    paint();
  };
  const ask = (what, value) => {
    asked[what] = value;
    kernels = roofline.chosen(data.kernels, asked);
    pick(kernels.some((one) => one.number === picked) ? picked : asked.words && kernels.length ? kernels[0].number : null);
  };
  const step = (way) => {
    if (!kernels.length) return;
    const at = kernels.findIndex((one) => one.number === picked);
    pick(kernels[(at < 0 ? (way > 0 ? 0 : kernels.length - 1) : at + way + kernels.length) % kernels.length].number);
  };
  const open = () => { if (picked !== null && parts.detail(picked)) location.hash = `#kernel-${picked}`; };

  button(bar, "+", word("Zoom in"), () => zoom(0.6));
  button(bar, "−", word("Zoom out"), () => zoom(1 / 0.6));
  button(bar, word("Whole"), word("Whole roofline"), () => show(whole));
  const selects = {};
  const select = (what, title, choices) => {
    if (choices.length < 2) return;
    const one = selects[what] = element("select");
    one.setAttribute("aria-label", title);
    one.append(element("option", title, { value: "" }), ...choices.map(([value, name]) => element("option", name, { value })));
    one.addEventListener("change", () => ask(what, one.value));
    bar.append(one);
  };
  const distinct = (values) => [...new Set(values)].map((value) => [value, value]);
  select("stage", word("All stages"), distinct(data.kernels.flatMap((kernel) => kernel.stages)));
  select("kind", word("All kinds"), distinct(data.kernels.map((kernel) => kernel.kind)).map(([kind]) => [kind, word(kind)]));
  select("level", word("All memory levels"), [...new Map(data.kernels.flatMap((kernel) => kernel.points.map((point) => [point.level, point.label])))]);
  const search = element("input", "", { type: "search", placeholder: word("Find kernels by name") });
  search.setAttribute("aria-label", word("Find kernels by name"));
  search.addEventListener("input", () => ask("words", search.value));
  bar.append(search);
  button(bar, "‹", word("Kernel before"), () => step(-1));
  button(bar, "›", word("Next kernel"), () => step(1));
  const clear = () => {
    for (const [what, one] of Object.entries(selects)) asked[what] = one.value = "";
    search.value = "";
    picked = null;
    ask("words", "");
  };

  const spot = (event) => { const box = svg.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
  const pointers = new Map();
  let moved = 0;
  svg.addEventListener("pointerdown", (event) => {
    svg.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, spot(event));
    moved = 0;
  });
  svg.addEventListener("pointermove", (event) => {
    const [x, y] = spot(event), before = pointers.get(event.pointerId);
    if (before) {
      const [other] = [...pointers].filter(([id]) => id !== event.pointerId).map(([, at]) => at);
      const apart = (at) => Math.max(Math.hypot(at[0] - other[0], at[1] - other[1]), 1);
      if (other) zoom(apart(before) / apart([x, y]), ...place(...other));
      else if (x !== before[0] || y !== before[1]) pan((before[0] - x) / frame.width, (y - before[1]) / frame.height);
      moved += Math.abs(x - before[0]) + Math.abs(y - before[1]);
      pointers.set(event.pointerId, [x, y]);
    }
    const one = moved > 4 ? null : roofline.nearest(spots, x, y, 6);
    if (one) svg.dataset.tip = roofline.told(one.kernel, one.point).join("\n"); else delete svg.dataset.tip;
  });
  const release = (event) => {
    if (!pointers.delete(event.pointerId) || moved > 4 || event.type !== "pointerup") return;
    const one = roofline.nearest(spots, ...spot(event), 6);
    pick(one ? one.kernel.number : null);
  };
  svg.addEventListener("pointerup", release);
  svg.addEventListener("pointercancel", release);
  svg.addEventListener("dblclick", (event) => zoom(0.4, ...place(...spot(event))));
  svg.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    zoom(Math.exp(event.deltaY / 200), ...place(...spot(event)));
    event.preventDefault();
  }, { passive: false });
  const keys = {
    ArrowLeft: () => pan(-0.15, 0), ArrowRight: () => pan(0.15, 0), ArrowUp: () => pan(0, 0.15), ArrowDown: () => pan(0, -0.15),
    "+": () => zoom(0.6), "=": () => zoom(0.6), "-": () => zoom(1 / 0.6), 0: () => show(whole), Home: () => show(whole),
    n: () => step(1), p: () => step(-1), Enter: open, Escape: clear, l: () => { if (picked !== null) parts.show("launches", picked); },
  };
  svg.addEventListener("keydown", (event) => {
    if (!keys[event.key] || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    keys[event.key]();
  });

  const notes = data.clock ? [word("Roofs at {clock}, the SM clock of these kernels.", data)] : [];
  notes.push(word("Marks are as large as their share of GPU time."), word("● DRAM, ■ L2, ▲ L1, ◇ ridge point."),
    word("Drag to move, Ctrl and the wheel or + and − to zoom, double click to look closer, click a point for its kernel."),
    word("Keys: arrows, + −, n and p for kernels, Enter for its details, l for its launches, Home for all, Escape for no filter."));
  const hint = element("p", notes.join(" "), { className: "keys" });
  live.append(bar, svg, state, hint);
  live.hidden = false;
  host.classList.add("drawn");
  new ResizeObserver(() => { if (live.clientWidth && live.clientWidth !== width) paint(); }).observe(live);
  paint();
  announce();
  const known = new Set(data.kernels.map((kernel) => kernel.number));
  parts.listen("point", (number) => {
    if (!known.has(number)) return;
    clear();
    pick(number);
    host.scrollIntoView({ block: "center" });
    svg.focus({ preventScroll: true });
  });
  parts.offer(word("Its point on the roofline"), known, (number) => parts.show("point", number));
};
if (typeof document !== "undefined") for (const host of document.querySelectorAll(".roofline")) drawRoofline(host);
