"use strict";
(() => {
  const root = document.documentElement;
  const all = (query, from = document) => [...from.querySelectorAll(query)];

  // Dark or light: what the reader chose last, else what the system says. A file may have no memory.
  const memory = (act) => { try { return act(); } catch { return null; } };
  const chosen = memory(() => localStorage.getItem("prof-theme"));
  if (chosen === "dark" || chosen === "light") root.dataset.theme = chosen;
  document.getElementById("theme").addEventListener("click", () => {
    const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
    root.dataset.theme = (root.dataset.theme || system) === "dark" ? "light" : "dark";
    memory(() => localStorage.setItem("prof-theme", root.dataset.theme));
  });
  document.querySelector(".tools").hidden = false;

  // Details: all at once, those that a link leads into, and what findings say on paper.
  const fold = document.getElementById("fold");
  fold.addEventListener("click", () => {
    const open = fold.getAttribute("aria-pressed") !== "true";
    fold.setAttribute("aria-pressed", open);
    for (const one of all("main details:not([data-fold])")) one.open = open;
  });
  const reveal = () => {
    const id = decodeURIComponent(location.hash.slice(1));
    const target = id && document.getElementById(id);
    if (!target) return;
    for (let one = target; one; one = one.parentElement) if (one.tagName === "DETAILS") one.open = true;
    target.scrollIntoView();
  };
  addEventListener("hashchange", reveal);
  // A second click on the same link changes no hash.
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[href^='#'], a[*|href^='#']");
    if (link && (link.getAttribute("href") || "") === location.hash) reveal();
  });
  reveal();
  const contents = document.getElementById("contents");
  if (contents && matchMedia("(max-width: 70rem)").matches) contents.open = false;
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = all("main > details:is([id^='finding-'], [id^='overview-']):not([open])");
    for (const one of opened) { one.open = true; one.dataset.brief = ""; }
  });
  addEventListener("afterprint", () => {
    for (const one of opened) { one.open = false; delete one.dataset.brief; }
  });

  // Long tables lie packed until one is unfolded.
  let packed = null;
  const unpack = () => {
    const text = document.getElementById("folds").textContent;
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    packed = packed || new Response(stream).json();
    return packed;
  };
  const build = ({ texts }, { right, columns }) => {
    const table = document.createElement("table");
    columns[0].forEach((_, place) => {
      const row = (place ? table.tBodies[0] || table.createTBody() : table.createTHead()).insertRow();
      columns.forEach((column, at) => {
        const cell = document.createElement(place ? "td" : "th");
        cell.textContent = texts[column[place]];
        if (right[at]) cell.className = "n";
        row.append(cell);
      });
    });
    return table;
  };
  for (const one of all("details[data-fold]")) {
    const fill = async () => {
      const data = await unpack();
      const wide = document.createElement("div");
      wide.className = "wide";
      wide.append(build(data, data.pages[one.dataset.fold]));
      one.lastElementChild.replaceWith(wide);
    };
    // An old browser that cannot unpack keeps the name of the file with the same numbers.
    one.addEventListener("toggle", () => { fill().catch(() => {}); }, { once: true });
  }

  // Tables: a click on a heading sorts, the next turns it around, the third restores the order.
  const key = (row, at) => {
    const cell = row.cells[at];
    const text = cell ? cell.textContent.trim() : "";
    return { number: cell && cell.dataset.v !== undefined ? Number(cell.dataset.v)
      : text === "" ? NaN : Number(text.replace(/,/g, "")), text };
  };
  const compare = (a, b) => {
    const x = Number.isNaN(a.number), y = Number.isNaN(b.number);
    if (!x && !y) return a.number - b.number;
    return a.text.localeCompare(b.text, undefined, { numeric: true });
  };
  const absent = (one) => one.text === "" || one.text === "–" || one.text.startsWith("n/a");
  const sort = (table, at, way) => {
    const rows = table.initial.filter((row) => !row.classList.contains("rest"));
    const rest = table.initial.filter((row) => row.classList.contains("rest"));
    if (way) {
      const keys = new Map(rows.map((row) => [row, key(row, at)]));
      rows.sort((one, other) => {
        const a = keys.get(one), b = keys.get(other);
        if (absent(a) !== absent(b)) return absent(a) ? 1 : -1;
        return way * compare(a, b);
      });
    }
    table.tBodies[0].append(...rows, ...rest);
  };
  for (const table of all("table.sortable")) {
    table.initial = [...table.tBodies[0].rows];
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, at) => {
      if (head.classList.contains("mixed") || !head.textContent.trim()) return;
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      // Numbers are asked for from the largest on, names from A.
      const first = head.classList.contains("n") ? "descending" : "ascending";
      const second = first === "descending" ? "ascending" : "descending";
      button.addEventListener("click", () => {
        const now = head.getAttribute("aria-sort");
        const next = now === null ? first : now === first ? second : null;
        for (const one of heads) one.removeAttribute("aria-sort");
        if (next) head.setAttribute("aria-sort", next);
        sort(table, at, next === null ? 0 : next === "ascending" ? 1 : -1);
      });
    });
  }

  // On a phone a short table that is wider than the page is shown as cards, a long one scrolls and sorts.
  const narrow = matchMedia("(max-width: 40rem)");
  const stack = (table) => {
    const heads = [...table.tHead.rows[0].cells].map((head) => head.textContent.trim());
    const named = heads[0].length > 1 ? 1 : 2; // a name first, or a number and a name
    for (const row of table.tBodies[0].rows) {
      [...row.cells].forEach((cell, at) => {
        if (at >= named && heads[at]) cell.dataset.label = heads[at];
        if (["", "–"].includes(cell.textContent.trim())) cell.dataset.none = "";
      });
    }
    table.classList.add("cards");
  };

  // What is wider than the page is moved by keys, too, from a link or button in it, or from itself.
  const reach = () => {
    for (const wide of narrow.matches ? all(".wide") : []) {
      const table = wide.querySelector("table:not(.cards)");
      if (table?.tHead?.textContent.trim() && table.rows.length <= 40 && wide.scrollWidth > wide.clientWidth) stack(table);
    }
    for (const wide of all(".wide, figure")) {
      if (wide.scrollWidth > wide.clientWidth && !wide.querySelector("a[href], button")) wide.tabIndex = 0;
    }
  };
  addEventListener("resize", reach);
  document.addEventListener("toggle", reach, true);
  reach();

  // Figures: what a bar or point stands for, beside the pointer.
  const tip = document.createElement("div");
  tip.id = "tip";
  tip.hidden = true;
  tip.setAttribute("role", "tooltip");
  document.body.append(tip);
  for (const title of all("svg title")) {
    title.parentNode.dataset.tip = title.textContent;
    const link = title.closest("a");
    if (link) link.setAttribute("aria-label", title.textContent);
    title.remove();
  }
  const show = (event) => {
    const spot = event.target.closest && event.target.closest("[data-tip]");
    tip.hidden = !spot;
    if (!spot) return;
    const [first, ...rest] = spot.dataset.tip.split("\n");
    const name = document.createElement("b");
    name.textContent = first;
    tip.replaceChildren(name, ["", ...rest].join("\n"));
    const gap = 14, { width, height } = tip.getBoundingClientRect();
    const left = event.clientX + gap + width > innerWidth ? event.clientX - gap - width : event.clientX + gap;
    const top = event.clientY + gap + height > innerHeight ? event.clientY - gap - height : event.clientY + gap;
    tip.style.left = `${Math.max(left, 4)}px`;
    tip.style.top = `${Math.max(top, 4)}px`;
  };
  document.addEventListener("pointermove", show);
  document.addEventListener("pointerdown", show);
  addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });
})();
