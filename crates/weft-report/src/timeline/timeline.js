"use strict";
// Draws each figure.timeline of the page: a heat map, lines and spans with one time axis. Nothing is loaded.
for (const figure of document.querySelectorAll("figure.timeline:not(.drawn)")) {
  figure.classList.add("drawn");
  const data = JSON.parse(figure.querySelector("script.data").textContent);
  const { edges, rows, layers, lines, spans, kinds, marks } = data;
  const columns = edges.length - 1, first = edges[0], last = edges[columns];
  const LEFT = 120, RIGHT = 12, AXIS = 22;
  let [from, to] = [first, last];
  let layer = 0, cursor = null, drag = null;

  const make = (tag, parent, text = "") => {
    const it = document.createElement(tag);
    it.textContent = text;
    parent.append(it);
    return it;
  };
  const digits = (value) => {
    const size = Math.abs(value);
    return String(+value.toFixed(size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2));
  };
  const prefixed = (value, unit, prefixes) => {
    const [scale, prefix] = value === 0 ? [1, ""] :
      prefixes.find(([scale]) => Math.abs(value) * 1.0005 >= scale) ?? prefixes.at(-1);
    return `${digits(value / scale)} ${prefix}${unit}`.trim();
  };
  const THOUSANDS = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "K"], [1, ""]];
  const SECONDS = [[1, ""], [1e-3, "m"], [1e-6, "µ"], [1e-9, "n"]];
  const show = (value, unit) => unit === "%" ? `${digits(value * 100)}%` :
    prefixed(value, unit, unit === "s" ? SECONDS : THOUSANDS);
  // Times near each other need more digits than a single one; all have one unit.
  const time = (value, span = to - from) => {
    const [scale, prefix] = SECONDS.find(([scale]) => last >= scale) ?? SECONDS.at(-1);
    const places = Math.min(9, Math.max(0, Math.ceil(-Math.log10(span / scale / 100))));
    return `${(value / scale).toFixed(places)} ${prefix}s`;
  };
  const css = (name) => getComputedStyle(figure).getPropertyValue(name).trim();

  // The controls.
  const bar = make("div", figure);
  bar.className = "bar";
  if (layers.length > 0) {
    const choice = make("fieldset", bar);
    make("legend", choice, "Heat map of");
    layers.forEach((it, index) => {
      const label = make("label", choice), input = make("input", label);
      Object.assign(input, { type: "radio", name: "layer", value: it.name, checked: index === 0 });
      input.addEventListener("change", () => { layer = index; draw(); });
      label.append(` ${it.name}`);
    });
  }
  const button = (text, title, act) => {
    const it = make("button", bar, text);
    Object.assign(it, { type: "button", title });
    it.setAttribute("aria-label", title);
    it.addEventListener("click", act);
  };
  button("+", "Zoom in", () => zoom(0.5, (from + to) / 2));
  button("−", "Zoom out", () => zoom(2, (from + to) / 2));
  button("Whole run", "Show the whole run", () => set(first, last));
  const range = make("span", bar);
  range.className = "range";

  // The plots; each has a heading with its unit, a canvas, and a function that draws and one that names a place.
  const plots = [];
  const plot = (name, note, names, height, describe, paint) => {
    const heading = make("h3", figure, `${name} `);
    make("small", heading, note);
    if (names.length > 1) legend(names);
    const canvas = make("canvas", figure);
    canvas.tabIndex = 0;
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label",
      `${name}, ${note}. Arrow keys move the cursor, plus and minus zoom, 0 shows the whole run.`);
    const it = { heading, canvas, height, describe, paint };
    plots.push(it);
    listen(it);
    return it;
  };
  const output = document.createElement("output");
  output.setAttribute("aria-live", "polite");

  const legend = (names) => {
    const list = make("ul", figure);
    list.className = "legend";
    names.forEach((name, index) => {
      const entry = make("li", list);
      make("span", entry).style.background = `var(--s${index % 8})`;
      entry.append(name);
    });
  };

  const columnAt = (at) => {
    let [low, high] = [0, columns - 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (edges[middle + 1] > at) high = middle; else low = middle + 1;
    }
    return low;
  };
  const width = (it) => it.canvas.clientWidth - LEFT - RIGHT;
  const x = (it, at) => LEFT + (at - from) / (to - from) * width(it);
  const at = (it, place) => from + (place - LEFT) / width(it) * (to - from);
  const columnText = (column) => `${time(edges[column])} to ${time(edges[column + 1])}`;

  // The heat map.
  const full = ({ step, full, cells }) =>
    full ?? Math.max(step, step * cells.reduce((most, row) => row.reduce((a, b) => Math.max(a, b), most), 0));
  let scale;
  const ramp = () => [0, 1, 2, 3].map((index) => {
    const hex = parseInt(css(`--heat${index}`).slice(1), 16);
    return [hex >> 16, hex >> 8 & 255, hex & 255];
  });
  const colour = (stops, share) => {
    const place = Math.min(1, share) * 3, low = Math.min(2, Math.floor(place)), part = place - low;
    return stops[low].map((value, index) => value + (stops[low + 1][index] - value) * part);
  };
  const heat = layers.length > 0 && plot("Links", `${rows.length} rows, one for each link`, [],
    Math.min(560, Math.max(140, rows.length * 9)), (it, cursor) => {
      const row = Math.floor((cursor.y - it.top) / it.plotHeight * rows.length);
      if (row < 0 || row >= rows.length) return "";
      const column = columnAt(cursor.at);
      const values = layers.map(({ name, unit, step, cells }) => `${name} ${show(cells[row][column] * step, unit)}`);
      return [rows[row][0], columnText(column), ...values].join("\n");
    }, (it, ink) => {
      const chosen = layers[layer], top = full(chosen), stops = ramp();
      // One pixel for each cell in view, scaled to the plot without smoothing; columns may differ in length.
      const ratio = devicePixelRatio, wide = Math.round(width(it) * ratio), high = Math.round(it.plotHeight * ratio);
      const image = new ImageData(wide, high);
      const columnOf = Array.from({ length: wide }, (_, pixel) => columnAt(from + (pixel + 0.5) / wide * (to - from)));
      // Where several rows or columns share a pixel, the greatest value is drawn.
      for (let y = 0; y < high; y++) {
        const low = Math.floor(y / high * rows.length), end = Math.max(low + 1, Math.floor((y + 1) / high * rows.length));
        for (let pixel = 0; pixel < wide; pixel++) {
          const start = columnOf[pixel], stop = Math.max(start, (columnOf[pixel + 1] ?? start + 1) - 1);
          let most = 0;
          for (let row = low; row < end; row++)
            for (let column = start; column <= stop; column++) most = Math.max(most, chosen.cells[row][column]);
          image.data.set([...colour(stops, most * chosen.step / top), 255], 4 * (y * wide + pixel));
        }
      }
      ink.putImageData(image, Math.round(LEFT * ratio), Math.round(it.top * ratio));
      ink.textAlign = "right";
      ink.textBaseline = "middle";
      for (let start = 0; start < rows.length;) {
        let end = start;
        while (end < rows.length && rows[end][1] === rows[start][1]) end++;
        const [above, below] = [start, end].map((row) => it.top + row / rows.length * it.plotHeight);
        ink.fillStyle = css("--text");
        if (below - above >= 11) ink.fillText(rows[start][1], LEFT - 10, (above + below) / 2);
        ink.fillStyle = css("--page");
        if (end < rows.length) ink.fillRect(LEFT, below - 1, width(it), 2);
        ink.fillStyle = css("--grid");
        ink.fillRect(LEFT - 6, above + 2, 2, below - above - 4);
        start = end;
      }
      scale.firstChild.data = "0 ";
      scale.lastChild.data = ` ${show(top, chosen.unit)}${chosen.full == null ? "" : " and more"}`;
      it.heading.lastChild.textContent = `${chosen.name}; ${rows.length} links, one row for each`;
    });
  if (heat) {
    scale = make("div", figure);
    scale.className = "scale";
    scale.append(" ", document.createElement("i"), " ");
  }

  for (const { name, unit, series } of lines) {
    const names = series.map(([name]) => name);
    plot(name, unit === "" ? "count" : unit === "%" ? "share" : unit, names, 130, (it, cursor) => {
      const column = columnAt(cursor.at);
      return [columnText(column), ...series.map(([name, values]) => `${name} ${show(values[column], unit)}`)].join("\n");
    }, (it, ink) => {
      const [start, end] = [columnAt(from), columnAt(to)];
      let most = 0;
      for (const [, values] of series) for (let column = start; column <= end; column++) most = Math.max(most, values[column]);
      const step = nice((most || 1) / 3), top = step * Math.max(1, Math.ceil(most / step));
      const y = (value) => it.top + it.plotHeight * (1 - value / top);
      ink.textAlign = "right";
      ink.textBaseline = "middle";
      for (let value = 0; value <= top * 1.001; value += step) {
        ink.fillStyle = css("--grid");
        ink.fillRect(LEFT, y(value), width(it), 1);
        ink.fillStyle = css("--ink");
        ink.fillText(show(value, unit), LEFT - 10, y(value));
      }
      clip(it, ink, () => series.forEach(([, values], index) => {
        ink.beginPath();
        for (let column = start; column <= end; column++) {
          ink.lineTo(x(it, edges[column]), y(values[column]));
          ink.lineTo(x(it, edges[column + 1]), y(values[column]));
        }
        ink.strokeStyle = css(`--s${index % 8}`);
        ink.lineWidth = 1.5;
        ink.stroke();
      }));
    });
  }

  // Spans: each in the first lane that is free.
  if (spans.length > 0) {
    const order = [...spans].sort((a, b) => a[2] - b[2]), ends = [];
    const lanes = order.map(([, , start, end]) => {
      let lane = ends.findIndex((free) => free <= start);
      if (lane < 0) lane = ends.length;
      ends[lane] = end;
      return lane;
    });
    plot("Messages", `the ${spans.length} largest and slowest, from submission to acknowledgement`, kinds,
      Math.min(420, Math.max(60, ends.length * 9)), (it, cursor) => {
        const lane = Math.floor((cursor.y - it.top) / it.plotHeight * ends.length);
        const found = order.find(([, , start, end], index) =>
          lanes[index] === lane && start <= cursor.at && cursor.at <= end);
        return found ? `${found[0]}\n${time(found[2])} to ${time(found[3])}: ${show(found[3] - found[2], "s")}` : "";
      }, (it, ink) => clip(it, ink, () => order.forEach(([, kind, start, end], index) => {
        const high = it.plotHeight / ends.length, gap = high > 4 ? 1 : 0;
        ink.fillStyle = css(`--s${kind % 8}`);
        ink.fillRect(x(it, start), it.top + lanes[index] * high, Math.max(1, x(it, end) - x(it, start) - gap), high - gap);
      })));
  }
  figure.append(output);

  function nice(value) {
    const power = 10 ** Math.floor(Math.log10(value));
    return [1, 2, 5, 10].find((step) => step * power >= value) * power;
  }
  function clip(it, ink, paint) {
    ink.save();
    ink.beginPath();
    ink.rect(LEFT, it.top - 2, width(it), it.plotHeight + 4);
    ink.clip();
    paint();
    ink.restore();
  }

  function draw() {
    const whole = from === first && to === last;
    range.textContent = `${time(from)} to ${time(to)}${whole ? "; drag to zoom" : ""}`;
    plots.forEach(drawPlot);
  }

  function drawPlot(it) {
    const { canvas, height } = it, ratio = devicePixelRatio;
    it.top = marks.length > 0 ? 16 : 4;
    it.plotHeight = height;
    const all = it.top + height + AXIS;
    canvas.style.height = `${all}px`;
    canvas.width = Math.round(canvas.clientWidth * ratio);
    canvas.height = Math.round(all * ratio);
    canvas.dataset.plot = [LEFT, it.top, width(it), height].join(" ");
    const ink = canvas.getContext("2d");
    ink.scale(ratio, ratio);
    ink.font = `12px ${getComputedStyle(figure).fontFamily}`;
    it.paint(it, ink);
    // The axis.
    const step = nice((to - from) / Math.max(2, width(it) / 130));
    ink.textBaseline = "top";
    ink.fillStyle = css("--ink");
    for (let tick = Math.ceil(from / step - 1e-9) * step; tick <= to + step * 1e-9; tick += step) {
      const place = x(it, tick);
      ink.textAlign = place > canvas.clientWidth - 30 ? "right" : "center";
      ink.fillRect(place, it.top + height, 1, 4);
      ink.fillText(time(tick, step * 100), place, it.top + height + 7);
    }
    // Events.
    let free = LEFT;
    for (const [at, name] of marks) {
      const place = x(it, at);
      if (at < from || at > to) continue;
      ink.fillStyle = css("--mark");
      for (let y = it.top - 4; y < it.top + height; y += 6) ink.fillRect(place, y, 1, 4);
      ink.textAlign = "left";
      ink.textBaseline = "alphabetic";
      const long = ink.measureText(name).width;
      const start = Math.min(place, canvas.clientWidth - long - 2);
      if (it === plots[0] && start >= free) {
        ink.fillText(name, start, 11);
        free = start + long + 12;
      }
    }
    if (cursor && cursor.at >= from && cursor.at <= to) {
      ink.fillStyle = css("--ink");
      ink.fillRect(x(it, cursor.at), it.top, 1, height);
    }
    if (drag && drag.until != null) {
      const [a, b] = [drag.at, drag.until].map((at) => Math.min(LEFT + width(it), Math.max(LEFT, x(it, at))));
      ink.globalAlpha = 0.2;
      ink.fillStyle = css("--s0");
      ink.fillRect(Math.min(a, b), it.top, Math.abs(b - a), height);
    }
  }

  function set(start, end) {
    const least = Math.max((last - first) * 1e-6, 1e-12);
    const span = Math.min(last - first, Math.max(least, end - start));
    from = Math.min(last - span, Math.max(first, start));
    to = from + span;
    draw();
  }
  function zoom(factor, around) {
    set(around - (around - from) * factor, around + (to - around) * factor);
  }
  function point(it, place, y) {
    const inside = place >= LEFT && place <= LEFT + width(it);
    cursor = inside ? { at: at(it, place), y } : null;
    // An event whose label has no room is named here too.
    const near = marks.filter(([when]) => Math.abs(x(it, when) - place) <= 4);
    const texts = near.map(([when, name]) => `${name}, ${time(when)}`);
    output.textContent = cursor ? [it.describe(it, cursor), ...texts].filter((text) => text).join("\n") : "";
    const room = figure.clientWidth - output.offsetWidth;
    output.style.left = `${Math.max(0, place + 14 > room ? place - output.offsetWidth - 14 : place + 14)}px`;
    output.style.top = `${it.canvas.offsetTop + y + 14}px`;
  }

  function listen(it) {
    const { canvas } = it;
    canvas.addEventListener("pointermove", (event) => {
      point(it, event.offsetX, event.offsetY);
      if (drag) drag.until = at(it, event.offsetX);
      draw();
    });
    canvas.addEventListener("pointerleave", () => { cursor = null; output.textContent = ""; draw(); });
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || event.pointerType === "touch") return;
      canvas.setPointerCapture(event.pointerId);
      drag = { at: at(it, event.offsetX), place: event.offsetX };
    });
    canvas.addEventListener("pointerup", (event) => {
      if (!drag) return;
      const { at: start, until, place } = drag;
      drag = null;
      const far = Math.abs(event.offsetX - place) > 4;
      if (far && until != null) set(Math.max(from, Math.min(start, until)), Math.min(to, Math.max(start, until)));
      else draw();
    });
    canvas.addEventListener("dblclick", () => set(first, last));
    // The page scrolls with the wheel alone, as readers expect; with a modifier it zooms, as in maps.
    canvas.addEventListener("wheel", (event) => {
      if (event.ctrlKey || event.metaKey) zoom(event.deltaY < 0 ? 0.8 : 1.25, at(it, event.offsetX));
      else if (event.shiftKey || event.deltaX !== 0) {
        const by = (to - from) * Math.sign(event.deltaX || event.deltaY) * 0.1;
        set(from + by, to + by);
      } else return;
      event.preventDefault();
    }, { passive: false });
    canvas.addEventListener("keydown", (event) => {
      const middle = cursor ? x(it, cursor.at) : LEFT + width(it) / 2;
      const y = cursor ? cursor.y : it.top + it.plotHeight / 2;
      const row = it === heat ? Math.max(1, it.plotHeight / rows.length) : 9;
      const column = Math.max(1, width(it) / Math.max(1, columnAt(to) - columnAt(from)));
      const moves = { ArrowLeft: [-column, 0], ArrowRight: [column, 0], ArrowUp: [0, -row], ArrowDown: [0, row] };
      const acts = {
        "+": () => zoom(0.5, at(it, middle)), "=": () => zoom(0.5, at(it, middle)),
        "-": () => zoom(2, at(it, middle)), "0": () => set(first, last),
        Escape: () => { cursor = null; output.textContent = ""; },
      };
      if (moves[event.key]) {
        const [right, down] = moves[event.key];
        const clamp = (value, low, high) => Math.min(high, Math.max(low, value));
        point(it, clamp(middle + right, LEFT, LEFT + width(it)), clamp(y + down, it.top, it.top + it.plotHeight - 1));
      } else if (acts[event.key]) acts[event.key]();
      else return;
      event.preventDefault();
      draw();
    });
  }

  new ResizeObserver(draw).observe(figure);
  for (const query of ["(prefers-color-scheme: dark)", "print"]) matchMedia(query).addEventListener("change", draw);
}
