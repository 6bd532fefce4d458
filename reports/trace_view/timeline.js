(() => {
  const host = document.getElementById("trace");
  if (!host || typeof DecompressionStream === "undefined") return;
  const root = document.documentElement;
  const onRoofline = new Set([...document.querySelectorAll(".roofline .data")].flatMap(
    (data) => JSON.parse(data.textContent).kernels.map((kernel) => kernel.number)));
  const NAME = 0, COLOUR = 1, KERNEL = 2, STAGE = 3, FACTS = 4;
  const HEIGHTS = { kernels: 30, idle: 12, calls: 14 }, OTHER = 18, GROUP = 22, AXIS = 24, GAP = 4;
  const NARROW = 600, GUTTER = 150, LETTER = 6.2;
  const { element } = parts;
  const time = (ns) => {
    const [unit, name] = ns >= 1e9 ? [1e9, "s"] : ns >= 1e6 ? [1e6, "ms"] : ns >= 1e3 ? [1e3, "us"] : [1, "ns"];
    const value = ns / unit;
    return `${ns >= 1e12 ? Math.round(value).toLocaleString("en") : Number(value.toPrecision(3))} ${name}`;
  };

  const unpack = async () => {
    const text = host.querySelector(".data").textContent;
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    const block = new Uint8Array(await new Response(stream).arrayBuffer());
    const size = new DataView(block.buffer).getUint32(0, true);
    const head = JSON.parse(new TextDecoder().decode(block.subarray(4, 4 + size)));
    let at = 4 + size;
    const column = (rows, planes) => {
      const found = new Float64Array(rows);
      for (let plane = 0, scale = 1; plane < planes; plane++, scale *= 256)
        for (let i = 0; i < rows; i++) found[i] += block[at++] * scale;
      return found;
    };
    for (const row of head.rows) {
      const [start, duration, item, busy, count] = row.bytes.map((planes) => column(row.n, planes));
      for (let i = 0, sum = head.origin; i < row.n; i++) start[i] = sum += start[i];
      // The latest end so far rises, so that the first event of a view is found by halving.
      const reach = new Float64Array(row.n);
      for (let i = 0, last = -Infinity; i < row.n; i++) reach[i] = last = Math.max(last, start[i] + duration[i]);
      Object.assign(row, { start, duration, busy: busy || duration, count, reach, item: Uint32Array.from(item) });
    }
    return head;
  };

  const draw = (head) => {
    const { items, rows, span } = head;
    const live = host.querySelector(".live"), canvas = element("canvas"), bar = element("div", "", { className: "bar" });
    const context = canvas.getContext("2d");
    const state = element("p", "", { className: "state" });
    state.setAttribute("role", "status");
    const first = Math.min(span[0], ...rows.filter((row) => row.n).map((row) => row.start[0]));
    const last = Math.max(span[1], ...rows.filter((row) => row.n).map((row) => row.reach[row.n - 1]));
    const view = { from: span[0], to: span[1] };
    let wanted = null, chosen = null, places = [], width = 0, gutter = 0, height = 0, colours = {}, due = false;
    const palette = [...new Set(items.map((item) => item[COLOUR]))];
    const layer = Uint8Array.from(items, (item) => palette.indexOf(item[COLOUR]));

    const readColours = () => {
      const style = getComputedStyle(host);
      for (const name of ["paper", "ink", "quiet", "grid", "soft", "line", "rest", "accent", "on-dark", ...palette])
        if (name) colours[name] = style.getPropertyValue(`--${name}`).trim();
    };
    const lay = () => {
      width = canvas.clientWidth || live.clientWidth;
      gutter = width < NARROW ? 0 : GUTTER;
      places = [];
      let y = AXIS, group = null;
      for (const row of rows) {
        const head = row.group !== group;
        if (head) y += GROUP;
        group = row.group;
        const label = gutter ? 0 : 13;
        const tall = HEIGHTS[row.kind] || OTHER;
        places.push({ row, y: y + label, height: tall, head });
        y += label + tall + GAP;
      }
      height = y + 2;
      const scale = devicePixelRatio || 1;
      canvas.style.height = `${height}px`;
      canvas.width = Math.round(width * scale);
      canvas.height = Math.round(height * scale);
      context.setTransform(scale, 0, 0, scale, 0, 0);
    };
    const room = () => width - gutter;
    const atX = (t) => gutter + (t - view.from) / (view.to - view.from) * room();
    const atTime = (x) => view.from + (x - gutter) / room() * (view.to - view.from);
    const firstIn = (row, t) => {
      let low = 0, high = row.n;
      while (low < high) { const middle = (low + high) >> 1; if (row.reach[middle] > t) high = middle; else low = middle + 1; }
      return low;
    };
    const isBin = (row, i) => Boolean(row.width) && row.count && (row.count[i] !== 1 || row.busy[i] !== row.duration[i]);
    const shown = (item) => !wanted || wanted[item];

    const label = (text, x, y, space, colour) => {
      const letters = Math.floor(space / LETTER);
      if (letters < 3) return;
      context.fillStyle = colour;
      context.fillText(text.length <= letters ? text : `${text.slice(0, letters - 1)}…`, x, y);
    };
    const paintRow = ({ row, y, height }) => {
      const columns = Math.ceil(room()), kinds = palette.length, sums = new Float32Array(columns * kinds);
      const scale = room() / (view.to - view.from), end = view.to;
      let drawn = -1;
      for (let i = firstIn(row, view.from); i < row.n && row.start[i] < end; i++) {
        const item = row.item[i], plain = !items[item][COLOUR];
        if (wanted && row.kind === "kernels" && !wanted[item]) continue;
        const left = (row.start[i] - view.from) * scale, right = left + row.duration[i] * scale;
        if (right - left >= 2 && !isBin(row, i)) {
          const x = Math.max(left, 0), wide = Math.min(right, columns) - x;
          context.fillStyle = plain ? colours.soft : colours[items[item][COLOUR]];
          context.fillRect(gutter + x, y, Math.max(wide - (wide > 3 ? 1 : 0), 1), height);
          if (plain) { context.strokeStyle = colours.rest; context.strokeRect(gutter + x + 0.5, y + 0.5, Math.max(wide - 2, 1), height - 1); }
          if (wide > 26 && height >= 14) label(items[item][NAME], gutter + x + 4, y + height / 2 + 4, wide - 6,
            plain ? colours.ink : items[item][COLOUR] === "blue" ? colours["on-dark"] : "#111");
          continue;
        }
        if (plain) {
          const pixel = Math.floor(left);
          if (pixel === drawn || pixel < 0) continue;
          drawn = pixel;
          context.fillStyle = colours.rest;
          context.fillRect(gutter + pixel, y, 1, height);
          continue;
        }
        const rate = row.duration[i] ? row.busy[i] / row.duration[i] : 1;
        const low = Math.max(Math.floor(left), 0), high = Math.min(Math.floor(right), columns - 1);
        for (let pixel = low; pixel <= high; pixel++) {
          const part = Math.min(right, pixel + 1) - Math.max(left, pixel);
          sums[pixel * kinds + layer[item]] += Math.max(part, 0.02) * rate;
        }
      }
      for (let pixel = 0; pixel < columns; pixel++) {
        let sum = 0, floor = y + height;
        for (let kind = 0; kind < kinds; kind++) sum += sums[pixel * kinds + kind];
        if (!sum) continue;
        const unit = (sum > 1 ? 1 / sum : Math.max(1, 1.5 / height / sum)) * height;
        for (let kind = 0; kind < kinds; kind++) {
          const tall = sums[pixel * kinds + kind] * unit;
          if (!tall) continue;
          context.fillStyle = colours[palette[kind]];
          context.fillRect(gutter + pixel, floor - tall, 1, tall);
          floor -= tall;
        }
      }
    };
    const axis = () => {
      const goal = (view.to - view.from) / Math.max(room() / 90, 3);
      const power = 10 ** Math.floor(Math.log10(goal));
      const step = [1, 2, 5, 10].map((factor) => factor * power).find((value) => value >= goal);
      for (let tick = Math.ceil((view.from - span[0]) / step) * step; tick + span[0] <= view.to; tick += step) {
        const x = atX(tick + span[0]);
        context.fillStyle = colours.grid;
        context.fillRect(Math.round(x), AXIS - 6, 1, height);
        // The digits that tell neighbours apart, however far in.
        const [unit, name] = Math.abs(tick) >= 1e9 ? [1e9, "s"] : step >= 1e5 ? [1e6, "ms"] : step >= 100 ? [1e3, "us"] : [1, "ns"];
        const digits = Math.min(Math.max(0, Math.ceil(Math.log10(unit / step))), 9);
        context.fillStyle = colours.quiet;
        context.textAlign = x > width - 40 ? "right" : x < gutter + 30 ? "left" : "center";
        context.fillText(`${(tick / unit).toFixed(digits)} ${name}`, x, 13);
      }
      context.textAlign = "left";
    };
    const paint = () => {
      due = false;
      context.font = `11px "DejaVu Sans", system-ui, sans-serif`;
      context.fillStyle = colours.paper;
      context.fillRect(0, 0, width, height);
      axis();
      for (const place of places) {
        if (place.head) {
          context.font = `bold 12px "DejaVu Sans", system-ui, sans-serif`;
          label(place.row.group, 4, place.y - (gutter ? 7 : 20), width, colours.ink);
          context.font = `11px "DejaVu Sans", system-ui, sans-serif`;
        }
        context.save();
        context.beginPath();
        context.rect(gutter, place.y, room(), place.height);
        context.clip();
        paintRow(place);
        context.restore();
        if (gutter) label(place.row.name, 4, place.y + place.height / 2 + 4, gutter - 8, colours.quiet);
        else label(place.row.name, 4, place.y - 3, width, colours.quiet);
      }
      if (chosen) {
        const place = places.find((one) => one.row === chosen.row);
        const x = Math.max(atX(chosen.row.start[chosen.i]), gutter - 1);
        const right = Math.min(atX(chosen.row.start[chosen.i] + chosen.row.duration[chosen.i]), width);
        if (right >= gutter) {
          context.strokeStyle = colours.ink;
          context.lineWidth = 2;
          context.strokeRect(x - 1, place.y - 1, Math.max(right - x, 2) + 2, place.height + 2);
          context.lineWidth = 1;
        }
      }
    };
    const refresh = () => { if (!due) { due = true; requestAnimationFrame(paint); } };
    const show = (from, to) => {
      const least = 50, size = Math.min(Math.max(to - from, least), last - first);
      view.from = Math.min(Math.max((from + to - size) / 2, first), last - size);
      view.to = view.from + size;
      host.dataset.view = `${view.from} ${view.to}`;
      refresh();
    };
    const zoom = (factor, at = (view.from + view.to) / 2) =>
      show(at - (at - view.from) * factor, at + (view.to - at) * factor);
    const pan = (part) => { const by = part * (view.to - view.from); show(view.from + by, view.to + by); };

    const told = ({ row, i }) => {
      const item = items[row.item[i]];
      const lines = [item[NAME]];
      if (isBin(row, i)) lines.push(word("{n} begin within {time}, busy {busy}", { n: row.count[i].toLocaleString("en"), time: time(row.duration[i]), busy: time(row.busy[i]) }));
      else lines.push(word("{time}, from {start}", { time: time(row.duration[i]), start: time(Math.max(row.start[i] - span[0], 0)) }));
      if (item[STAGE]) lines.push(word("stage {name}", { name: item[STAGE] }));
      lines.push(...item[FACTS]);
      if (item[KERNEL]) lines.push(word("kernel {n}", { n: item[KERNEL] }));
      return lines;
    };
    const find = (x, y) => {
      const place = places.find((one) => y >= one.y - 2 && y < one.y + one.height + 2);
      if (!place || x < gutter) return null;
      const { row } = place, t = atTime(x), slack = 3 * (view.to - view.from) / room();
      let best = null, least = Infinity;
      for (let i = firstIn(row, t - slack); i < row.n && row.start[i] <= t + slack; i++) {
        if (row.kind === "kernels" && !shown(row.item[i])) continue;
        const off = Math.max(row.start[i] - t, t - row.start[i] - row.duration[i], 0);
        // Of those under the pointer the shortest, which lies upon the others.
        const rank = off ? off + 1e15 : row.duration[i];
        if (rank < least) [best, least] = [{ row, i }, rank];
      }
      return best;
    };
    const announce = (prefix = "") => {
      state.replaceChildren(prefix);
      if (!chosen) return;
      const [name, ...rest] = told(chosen), kernel = items[chosen.row.item[chosen.i]][KERNEL];
      state.append(element("b", name), ` · ${rest.join(" · ")}`);
      if (kernel && document.getElementById(`kernel-${kernel}`))
        state.append(" · ", element("a", word("its details"), { href: `#kernel-${kernel}` }));
      if (kernel && onRoofline.has(kernel)) {
        const point = element("a", word("its point on the roofline"), { href: "#" });
        point.addEventListener("click", (event) => { event.preventDefault(); parts.show("point", kernel); });
        state.append(" · ", point);
      }
    };
    const choose = (one, prefix = "") => {
      chosen = one;
      if (one) {
        const start = one.row.start[one.i], end = start + one.row.duration[one.i];
        if (end < view.from || start > view.to) show((start + end - view.to + view.from) / 2, (start + end + view.to - view.from) / 2);
      }
      announce(prefix);
      refresh();
    };
    const open = (one) => {
      const kernel = one && items[one.row.item[one.i]][KERNEL];
      if (kernel && document.getElementById(`kernel-${kernel}`)) location.hash = `#kernel-${kernel}`;
    };
    const step = (way) => {
      const row = chosen ? chosen.row : rows.find((one) => one.kind === "kernels");
      if (!row || !row.n) return;
      let i = chosen ? chosen.i + way : firstIn(row, view.from);
      const fits = (at) => row.kind !== "kernels" || shown(row.item[at]);
      while (i >= 0 && i < row.n && !fits(i)) i += way;
      if (i < 0 || i >= row.n) return;
      choose({ row, i });
    };
    const otherRow = (way) => {
      const middle = chosen ? chosen.row.start[chosen.i] : (view.from + view.to) / 2;
      let at = chosen ? rows.indexOf(chosen.row) + way : 0;
      while (rows[at] && !rows[at].n) at += way;
      const row = rows[at];
      if (row) choose({ row, i: Math.min(firstIn(row, middle), row.n - 1) });
    };

    // What is asked for: words in the name, one kernel, or one colour; the others are left out.
    const search = element("input", "", { type: "search", placeholder: word("Find kernels by name") });
    search.setAttribute("aria-label", word("Find kernels by name"));
    const want = (test, what) => {
      wanted = test && items.map(test);
      chosen = null;
      const kernels = rows.filter((row) => row.kind === "kernels");
      if (wanted) {
        let launches = 0, busy = 0, one = null;
        for (const row of kernels)
          for (let i = 0; i < row.n; i++)
            if (wanted[row.item[i]]) {
              launches += row.width ? row.count[i] : 1;
              busy += row.busy[i];
              one = one || { row, i };
            }
        const count = word("{n} launches, {time}", { n: launches.toLocaleString("en"), time: time(busy) });
        choose(one && { row: one.row, i: one.i }, `${what}: ${launches ? count : word("none")}. `);
      } else choose(null);
      for (const button of bar.querySelectorAll("[data-colour]"))
        button.setAttribute("aria-pressed", String(Boolean(test && test.colour === button.dataset.colour)));
    };
    const wantKernel = (number) => {
      const item = items.find((one) => one[KERNEL] === number);
      search.value = item ? item[NAME] : "";
      show(span[0], span[1]);
      want((one) => one[KERNEL] === number, word("Kernel {n}", { n: number }));
    };
    search.addEventListener("input", () => {
      const words = search.value.trim().toLowerCase();
      want(words && ((item) => item[NAME].toLowerCase().includes(words)), `“${search.value.trim()}”`);
    });
    search.addEventListener("keydown", (event) => { if (event.key === "Enter") { event.preventDefault(); step(event.shiftKey ? -1 : 1); } });

    const button = (text, title, act) => parts.button(bar, text, title, act);
    button("+", word("Zoom in"), () => zoom(0.5));
    button("−", word("Zoom out"), () => zoom(2));
    button("◂", word("Earlier"), () => pan(-0.4));
    button("▸", word("Later"), () => pan(0.4));
    button(word("Whole run"), word("Show the whole run"), () => { search.value = ""; want(null); show(span[0], span[1]); });
    bar.append(search);
    button("‹", word("Launch before"), () => step(-1));
    button("›", word("Next launch"), () => step(1));
    for (const [colour, name] of head.legend) {
      const one = button("", word("Only {name}", { name: word(name) }), () => {
        const on = one.getAttribute("aria-pressed") === "true";
        const test = (item) => item[COLOUR] === colour;
        test.colour = colour;
        search.value = "";
        want(on ? null : test, word(name));
      });
      const swatch = element("span", "", { className: "swatch" });
      swatch.style.background = `var(--${colour})`;
      one.append(swatch, word(name));
      one.dataset.colour = colour;
      one.setAttribute("aria-pressed", "false");
    }

    // Pointers: one drags, two zoom, a click goes to the kernel; the wheel zooms with Ctrl.
    const pointers = new Map();
    let moved = 0;
    const spot = (event) => { const box = canvas.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      pointers.set(event.pointerId, spot(event));
      moved = 0;
    });
    canvas.addEventListener("pointermove", (event) => {
      const [x, y] = spot(event), before = pointers.get(event.pointerId);
      if (before) {
        const others = [...pointers].filter(([id]) => id !== event.pointerId);
        if (others.length) {
          const other = others[0][1][0], factor = Math.abs(before[0] - other) / Math.max(Math.abs(x - other), 1);
          zoom(factor, atTime(other));
        } else if (x !== before[0]) {
          const by = (before[0] - x) / room() * (view.to - view.from);
          show(view.from + by, view.to + by);
        }
        moved += Math.abs(x - before[0]) + Math.abs(y - before[1]);
        pointers.set(event.pointerId, [x, y]);
      }
      const one = moved > 4 ? null : find(x, y);
      if (one) canvas.dataset.tip = told(one).join("\n"); else delete canvas.dataset.tip;
    });
    const release = (event) => {
      const click = pointers.delete(event.pointerId) && moved <= 4 && event.type === "pointerup";
      if (!click) return;
      const one = find(...spot(event));
      choose(one);
      open(one);
    };
    canvas.addEventListener("pointerup", release);
    canvas.addEventListener("pointercancel", release);
    canvas.addEventListener("dblclick", (event) => zoom(0.4, atTime(spot(event)[0])));
    canvas.addEventListener("wheel", (event) => {
      if (event.ctrlKey || event.metaKey) zoom(Math.exp(event.deltaY / 200), atTime(spot(event)[0]));
      else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan((event.deltaX || event.deltaY) / room());
      else return;
      event.preventDefault();
    }, { passive: false });
    const keys = {
      ArrowLeft: () => pan(-0.15), ArrowRight: () => pan(0.15), ArrowUp: () => otherRow(-1), ArrowDown: () => otherRow(1),
      "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), Home: () => show(span[0], span[1]), 0: () => show(span[0], span[1]),
      n: () => step(1), p: () => step(-1), Enter: () => open(chosen), Escape: () => { search.value = ""; want(null); },
      f: () => { if (chosen) { const { row, i } = chosen; show(row.start[i] - row.duration[i], row.start[i] + 2 * row.duration[i]); } },
    };
    canvas.tabIndex = 0;
    canvas.setAttribute("role", "application");
    canvas.setAttribute("aria-label", word("Timeline: arrow keys move, plus and minus zoom, up and down choose a row, n and p an event, Enter goes to its kernel"));
    canvas.addEventListener("keydown", (event) => {
      if (!keys[event.key] || event.ctrlKey || event.altKey || event.metaKey) return;
      event.preventDefault();
      keys[event.key]();
    });

    const wide = rows.filter((row) => row.width).map((row) => `${row.name}: ${time(row.width)}`);
    const hint = element("p", "", { className: "keys" });
    hint.textContent = [
      word("Drag to move, Ctrl and the wheel or + and − to zoom, double click to look closer, click a kernel for its details."),
      word("Idle time is strong where the next call came late, faint where the work was queued; calls that wait are yellow."),
      word("Keys: arrows, + −, n and p for launches, f to fill, Home for the whole run."),
      ...(wide.length ? [word("Shorter launches are added up in bins ({bins}); table launches has each of them.", { bins: wide.join("; ") })] : []),
      ...(head.note ? [head.note] : []),
    ].join(" ");
    live.append(bar, canvas, state, hint);
    live.hidden = false;
    host.classList.add("drawn");
    host.querySelector(".fallback").hidden = true;
    const again = () => { readColours(); lay(); refresh(); };
    new ResizeObserver(() => { if (canvas.clientWidth !== width) again(); }).observe(live);
    new MutationObserver(again).observe(root, { attributeFilter: ["data-theme"] });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
    readColours();
    lay();
    paint();
    host.dataset.view = `${view.from} ${view.to}`;
    link(wantKernel, new Set(items.map((item) => item[KERNEL])));
  };

  // From kernels to their launches: the numbers of launches in tables, a button in each detail.
  const link = (wantKernel, known) => {
    const go = (number) => { wantKernel(number); host.scrollIntoView({ block: "start" }); host.querySelector("canvas").focus({ preventScroll: true }); };
    parts.listen("launches", (number) => { if (known.has(number)) go(number); });
    parts.offer(word("Its launches in the timeline"), [...known].filter(Boolean), go);
    for (const table of document.querySelectorAll("main table")) {
      const heads = table.tHead ? [...table.tHead.rows[0].cells] : [];
      const at = heads.findIndex((cell) => cell.textContent.trim() === word("Launches"));
      if (at < 0) continue;
      for (const row of table.tBodies[0] ? table.tBodies[0].rows : []) {
        const to = row.cells[0] && row.cells[0].querySelector("a[href^='#kernel-']");
        const number = to ? Number(to.getAttribute("href").slice("#kernel-".length)) : NaN;
        const cell = row.cells[at];
        if (!known.has(number) || !cell || cell.children.length) continue;
        const there = element("a", cell.textContent, { href: "#trace", title: word("Launches in the timeline") });
        there.addEventListener("click", (event) => { event.preventDefault(); go(number); });
        cell.replaceChildren(there);
      }
    }
  };

  // The icicle: a range above what is in it; a click on one makes it as wide as the page.
  const grow = (whole) => {
    const place = document.getElementById("trace-tree");
    if (!place) return;
    const live = place.querySelector(".live"), LEVEL = 25;
    const parents = new Map(), sum = (node) => node[2] + node[3];
    const walk = (node) => { for (const child of node[7]) { parents.set(child, node); walk(child); } };
    walk(whole);
    let focus = whole, boxes = new Map();
    const told = (node) => {
      const [name, kind, busy, idle, launches] = node;
      const lines = [name, `${time(sum(node))}, ${Number((100 * sum(node) / Math.max(sum(whole), 1)).toPrecision(3))} % ${word("of all")}`];
      if (launches) lines.push(word("{n} launches", { n: launches.toLocaleString("en") }));
      if (kind !== "idle") lines.push(word("kernels and copies {time}", { time: time(busy) }), word("idle before them {time}", { time: time(idle) }));
      return lines;
    };
    const act = (node) => {
      const kernel = node[6];
      if (kernel && document.getElementById(`kernel-${kernel}`)) location.hash = `#kernel-${kernel}`;
      else if (node[7].length) { focus = node; lay(); boxes.get(node).focus(); }
    };
    const box = (node, x, width, depth) => {
      const one = element("button", node[0], { type: "button", tabIndex: node === focus ? 0 : -1, onclick: () => act(node) });
      const look = { left: `${x}px`, width: `${Math.max(width - 1, 1)}px`, top: `${depth * LEVEL}px` };
      const colour = node[5] || (node[1] === "idle" ? "faint" : "grid");
      Object.assign(one.style, look, { background: `var(--${colour})`, color: colour === "blue" ? "var(--on-dark)" : node[5] ? "#111" : "var(--ink)" });
      if (width < 20) one.style.padding = 0;
      one.dataset.tip = told(node).join("\n");
      one.setAttribute("aria-label", told(node).join(", "));
      boxes.set(node, one);
      live.append(one);
    };
    const lay = () => {
      const width = live.clientWidth, path = [];
      boxes = new Map();
      live.replaceChildren();
      for (let node = parents.get(focus); node; node = parents.get(node)) path.unshift(node);
      path.forEach((node, depth) => box(node, 0, width, depth));
      let deepest = 0;
      const put = (node, x, wide, depth) => {
        if (wide < 2) return;
        deepest = Math.max(deepest, depth);
        box(node, x, wide, depth);
        let at = x;
        for (const child of node[7]) {
          const part = wide * sum(child) / Math.max(sum(node), 1);
          put(child, at, part, depth + 1);
          at += part;
        }
      };
      put(focus, 0, width, path.length);
      live.style.height = `${(deepest + 1) * LEVEL}px`;
    };
    const near = {
      ArrowUp: (node) => parents.get(node), ArrowDown: (node) => node[7].find((child) => boxes.has(child)),
      ArrowLeft: (node) => beside(node, -1), ArrowRight: (node) => beside(node, 1), Home: () => whole,
    };
    const beside = (node, way) => {
      const all = (parents.get(node) || [0, 0, 0, 0, 0, 0, 0, [node]])[7].filter((child) => boxes.has(child));
      return all[all.indexOf(node) + way];
    };
    live.addEventListener("keydown", (event) => {
      const node = [...boxes].find(([, one]) => one === event.target);
      const to = node && near[event.key] && near[event.key](node[0]);
      if (!node || !near[event.key]) return;
      event.preventDefault();
      if (!to) return;
      event.target.tabIndex = -1;
      boxes.get(to).tabIndex = 0;
      boxes.get(to).focus();
    });
    live.setAttribute("role", "group");
    live.setAttribute("aria-label", word("NVTX ranges and kernels: arrow keys move, Enter zooms or goes to the kernel"));
    live.hidden = false;
    place.classList.add("drawn");
    let width = 0;
    new ResizeObserver(() => { if (live.clientWidth !== width) { width = live.clientWidth; lay(); } }).observe(live);
    lay();
  };

  unpack().then((head) => { draw(head); grow(head.tree); }).catch((error) => {
    // The still picture and the sentence below it stay.
    console.error(error);
  });
})();
