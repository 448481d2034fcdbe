"use strict";
(() => {
  const all = (q, e = document) => Array.from(e.querySelectorAll(q));

  // Tooltips: text only, never markup.
  const tip = document.getElementById("tip");
  const show = (text, x, y) => {
    tip.textContent = text;
    tip.hidden = false;
    const w = tip.offsetWidth, h = tip.offsetHeight;
    const room = document.documentElement.clientWidth;
    tip.style.left = Math.max(4, Math.min(x + 14, room - w - 6)) + "px";
    tip.style.top = (y + 18 + h > innerHeight ? Math.max(4, y - h - 12) : y + 18) + "px";
  };
  const hide = () => { tip.hidden = true; };
  const tipped = (e) => e.target.closest ? e.target.closest("[data-t]") : null;
  document.addEventListener("pointermove", (e) => {
    const t = tipped(e);
    if (t) show(t.dataset.t, e.clientX, e.clientY);
    else if (!e.target.closest || !e.target.closest("svg.curves")) hide();
  });
  document.addEventListener("pointerdown", (e) => {
    const t = tipped(e);
    if (t) show(t.dataset.t, e.clientX, e.clientY); else hide();
  });
  document.addEventListener("scroll", hide, true);
  document.addEventListener("keydown", (e) => { if (e.key === "Escape") hide(); });

  // Operator and segment graphs: which one, and how large.
  const setZoom = (svg, zoom) => {
    const [, , w, h] = svg.getAttribute("viewBox").split(" ").map(Number);
    svg.dataset.zoom = zoom;
    svg.setAttribute("width", w * zoom);
    svg.setAttribute("height", h * zoom);
  };
  for (const box of all(".views")) {
    const pane = () => box.querySelector(".canvas:not(.off)");
    for (const button of all("[data-view]", box)) button.addEventListener("click", () => {
      for (const b of all("[data-view]", box)) { b.classList.toggle("on", b === button); b.setAttribute("aria-pressed", b === button); }
      for (const p of all(".canvas", box)) p.classList.toggle("off", p.dataset.pane !== button.dataset.view);
    });
    for (const button of all("[data-zoom]", box)) button.addEventListener("click", () => {
      const p = pane(), svg = p.querySelector("svg"), now = Number(svg.dataset.zoom || 1);
      const [, , w, h] = svg.getAttribute("viewBox").split(" ").map(Number);
      const fit = Math.min(p.clientWidth / w, Math.max(0.2, (innerHeight * 0.8) / h));
      const next = { in: now * 1.3, out: now / 1.3, one: 1, fit }[button.dataset.zoom];
      const cx = (p.scrollLeft + p.clientWidth / 2) / now, cy = (p.scrollTop + p.clientHeight / 2) / now;
      const zoom = Math.min(3, Math.max(0.05, next));
      setZoom(svg, zoom);
      p.scrollLeft = cx * zoom - p.clientWidth / 2;
      p.scrollTop = cy * zoom - p.clientHeight / 2;
    });
    for (const node of all("g.n[data-row]", box)) node.addEventListener("click", (e) => {
      if (e.pointerType === "touch") return;
      const row = document.getElementById(box.closest("article").id + "-r" + node.dataset.row);
      if (!row) return;
      row.hidden = false;
      row.scrollIntoView({ block: "center" });
      row.classList.remove("flash");
      void row.offsetWidth;
      row.classList.add("flash");
    });
  }

  // Timelines: zoom widens all rows together.
  for (const box of all(".times")) {
    const scroller = box.querySelector(".lanescroll"), wide = box.querySelector(".lanewidth");
    let zoom = 1;
    const set = (next, at) => {
      const before = (scroller.scrollLeft + at) / zoom;
      zoom = Math.min(400, Math.max(1, next));
      wide.style.width = 100 * zoom + "%";
      scroller.scrollLeft = before * zoom - at;
    };
    for (const button of all("[data-zoom]", box)) button.addEventListener("click", () =>
      set({ in: zoom * 1.8, out: zoom / 1.8, one: 1 }[button.dataset.zoom], scroller.clientWidth / 2));
    scroller.addEventListener("wheel", (e) => {
      if (!e.ctrlKey) return;
      e.preventDefault();
      set(zoom * Math.exp(-e.deltaY / 200), e.clientX - scroller.getBoundingClientRect().left);
    }, { passive: false });
  }

  // Charts: a cursor that reads the curves back from their paths.
  const points = (path) => {
    const out = [];
    let x = 0, y = 0;
    for (const m of path.getAttribute("d").matchAll(/([MLHV])(-?[\d.]+)(?:,(-?[\d.]+))?/g)) {
      if (m[1] === "V") y = Number(m[2]); else x = Number(m[2]);
      if (m[3] !== undefined) y = Number(m[3]);
      out.push([x, y]);
    }
    return out;
  };
  const at = (p, x) => {
    let i = 0, j = p.length - 1;
    while (i < j) { const k = (i + j + 1) >> 1; if (p[k][0] <= x) i = k; else j = k - 1; }
    const a = p[i], b = p[Math.min(i + 1, p.length - 1)];
    return b[0] > a[0] && x > a[0] ? a[1] + (b[1] - a[1]) * (x - a[0]) / (b[0] - a[0]) : a[1];
  };
  const three = (v) => v === 0 ? "0" : Math.abs(v) >= 1e6 || Math.abs(v) < 1e-3 ? v.toExponential(2) : String(Number(v.toPrecision(3)));
  const clock = (s) => s >= 120 ? Math.floor(s / 60) + ":" + String(Math.floor(s % 60)).padStart(2, "0") + " min"
    : s >= 1 ? three(s) + " s" : s >= 1e-3 ? three(s * 1e3) + " ms" : three(s * 1e6) + " µs";
  for (const svg of all("svg.curves")) {
    const plot = svg.querySelector(".plot"), cursor = svg.querySelector(".cursor"), d = plot.dataset;
    let curves = null;
    svg.addEventListener("pointermove", (e) => {
      curves = curves || all("path[data-name]", plot).map((p) => [p.dataset.name, points(p)]);
      const box = svg.getBoundingClientRect(), share = Math.min(1, Math.max(0, (e.clientX - box.left) / box.width));
      cursor.setAttribute("x1", 100 * share + "%");
      cursor.setAttribute("x2", 100 * share + "%");
      const lines = curves.map(([name, p]) => name + ": " + three(Number(d.low) + (1 - at(p, 1000 * share) / 120) * (d.high - d.low)) + " " + d.unit);
      const mark = tipped(e);
      show(clock(share * d.end) + "\n" + lines.join("\n") + (mark ? "\n" + mark.dataset.t : ""), e.clientX, e.clientY);
      svg.classList.add("hot");
    });
    svg.addEventListener("pointerleave", () => { svg.classList.remove("hot"); hide(); });
  }

  // Tables: sort by a column, filter by text and queue.
  const value = (row, i) => row.cells[i].dataset.v ?? row.cells[i].textContent.trim().toLowerCase();
  for (const table of all("table.sortable")) {
    const body = table.tBodies[0];
    all("thead th", table).forEach((th, i) => th.querySelector("button").addEventListener("click", () => {
      const numbers = th.dataset.sort === "num";
      const up = th.getAttribute("aria-sort") ? th.getAttribute("aria-sort") !== "ascending" : !numbers || i === 0;
      for (const other of all("thead th", table)) other.removeAttribute("aria-sort");
      th.setAttribute("aria-sort", up ? "ascending" : "descending");
      const sign = up ? 1 : -1;
      const compare = numbers ? (a, b) => a[0] - b[0] : (a, b) => a[0].localeCompare(b[0]);
      const rows = Array.from(body.rows).map((r, k) => [numbers ? parseFloat(String(value(r, i)).replace("inf", "Infinity")) || 0 : value(r, i), k, r]);
      rows.sort((a, b) => sign * compare(a, b) || a[1] - b[1]);
      body.append(...rows.map((r) => r[2]));
    }));
  }
  const wanted = {};
  const apply = (id) => {
    const table = document.getElementById(id), w = wanted[id] || {};
    const words = (w.text || "").toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of table.tBodies[0].rows) {
      const yes = (!w.queue || row.dataset.q === w.queue) && words.every((x) => row.dataset.s.includes(x));
      row.hidden = !yes;
      shown += yes;
    }
    const total = table.tBodies[0].rows.length;
    document.getElementById(id + "-count").textContent = shown === total ? total + " ops" : shown + " of " + total + " ops";
  };
  for (const input of all("input[data-filter]")) input.addEventListener("input", () => {
    const id = input.dataset.filter;
    wanted[id] = { ...wanted[id], text: input.value };
    apply(id);
  });
  for (const button of all("button[data-queue]")) button.addEventListener("click", () => {
    const id = button.dataset.for, off = wanted[id] && wanted[id].queue === button.dataset.queue;
    wanted[id] = { ...wanted[id], queue: off ? "" : button.dataset.queue };
    for (const b of all("button[data-queue]", button.parentElement)) {
      const on = !off && b === button;
      b.classList.toggle("on", on);
      b.setAttribute("aria-pressed", on);
    }
    apply(id);
  });
  document.documentElement.dataset.ready = "1";
})();
