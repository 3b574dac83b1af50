// Maps: points on a canvas with their texts, a lasso, a legend that hides groups, and what is chosen beside them.
// @ts-check

export const WIDTH = 10000;
const LABEL = 170;
// Milliseconds before a text is asked for, so that a moving pointer asks for few.
const PAUSE = 80;
// Pixels of what is shown beside a map that must be in sight.
const PEEK = 120;

/**
 * @typedef {{ xs: Uint16Array, ys: Uint16Array, groups: Uint8Array }} Points
 * @typedef {{ title: string, text: string, href?: string }} Shown
 * @typedef {{ text: (index: number) => Promise<Shown>, open: (index: number) => Promise<Node[]>,
 *   similar: (index: number) => Promise<Node[]>, select: (corners: number[][]) => Promise<Node[]> }} Source
 */

/** @param {ArrayBuffer} buffer Five bytes a point. @returns {Points} */
export const readPoints = (buffer) => {
  const bytes = new DataView(buffer), count = Math.floor(bytes.byteLength / 5);
  const points = { xs: new Uint16Array(count), ys: new Uint16Array(count), groups: new Uint8Array(count) };
  for (let i = 0; i < count; i += 1) {
    points.xs[i] = bytes.getUint16(5 * i, true);
    points.ys[i] = bytes.getUint16(5 * i + 2, true);
    points.groups[i] = bytes.getUint8(5 * i + 4);
  }
  return points;
};

/** True if a point lies in a polygon (even-odd rule). @param {number} x @param {number} y @param {number[][]} corners */
export const isInside = (x, y, corners) => {
  let inside = false;
  corners.forEach(([ax, ay], i) => {
    const [bx, by] = corners[(i + 1) % corners.length];
    if ((ay > y) !== (by > y) && x < (bx - ax) * (y - ay) / (by - ay) + ax) inside = !inside;
  });
  return inside;
};

/**
 * The nearest point that is shown within a distance; -1 without one.
 * @param {Points} points @param {number} x @param {number} y @param {number} reach @param {Set<number>} hidden
 */
export const findNearest = (points, x, y, reach, hidden) => {
  let best = -1, least = reach * reach;
  for (let i = 0; i < points.xs.length; i += 1) {
    const apart = (points.xs[i] - x) ** 2 + (points.ys[i] - y) ** 2;
    if (apart <= least && !hidden.has(points.groups[i])) { least = apart; best = i; }
  }
  return best;
};

/**
 * The next point from one in a direction; that one itself if none is there.
 * @param {Points} points @param {number} from @param {number} dx @param {number} dy @param {Set<number>} hidden
 */
export const findNext = (points, from, dx, dy, hidden) => {
  let best = from, least = Infinity;
  for (let i = 0; i < points.xs.length; i += 1) {
    const along = (points.xs[i] - points.xs[from]) * dx + (points.ys[i] - points.ys[from]) * dy;
    const aside = Math.abs((points.xs[i] - points.xs[from]) * dy) + Math.abs((points.ys[i] - points.ys[from]) * dx);
    if (along > 0 && aside <= along && along + aside < least && !hidden.has(points.groups[i])) { least = along + aside; best = i; }
  }
  return best;
};

/** At most forty corners of a line, as whole numbers. @param {number[][]} line @returns {number[][]} */
export const simplify = (line) => {
  const every = Math.max(1, Math.ceil(line.length / 40));
  return line.filter((_, i) => i % every === 0).map((at) => at.map(Math.round));
};

/** @param {string} name @param {Record<string, unknown>} values @param {...(Node | string)} inside */
const make = (name, values, ...inside) => {
  const one = Object.assign(document.createElement(name), values);
  one.append(...inside);
  return one;
};

/** The parts of a page that belongs to a map. @param {string} address @param {string} selector */
const readPart = async (address, selector) => {
  const page = new DOMParser().parseFromString(await (await fetch(address)).text(), "text/html");
  const part = page.querySelector(selector) ?? page.body;
  // Names of parts are those of the page around.
  for (const one of part.querySelectorAll("[id]")) one.removeAttribute("id");
  return [...part.childNodes];
};

/** What a server knows of the points. @param {DOMStringMap} from @returns {Source} */
const askServer = (from) => {
  /** @type {Map<number, Promise<Shown>>} */
  const known = new Map();
  /** @param {number} index @returns {Promise<Shown>} */
  const text = (index) => {
    if (!known.has(index)) known.set(index, fetch(`${from.text}&point=${index}`).then((answer) => answer.json()));
    return /** @type {Promise<Shown>} */ (known.get(index));
  };
  return {
    text,
    open: async (index) => {
      const { href = "" } = await text(index);
      return [make("p", {}, make("a", { href, className: "button" }, "Open it alone")), ...await readPart(href, "main")];
    },
    similar: (index) => readPart(`${from.similar}&point=${index}`, "#chosen"),
    select: (corners) => readPart(`${from.selection}&area=${corners.join(";")}`, "#chosen"),
  };
};

/** What a file knows of its points. @param {{ texts: string[], sessions: string[] }} data @param {Points} points @returns {Source} */
const askFile = (data, points) => {
  /** @param {number} index */
  const show = (index) => make("li", {}, data.texts[index], make("p", { className: "soft" }, data.sessions[index]));
  /** @param {string} title @param {number[]} some */
  const list = (title, some) => [make("h2", {}, title), make("ol", { className: "texts" }, ...some.slice(0, 200).map(show))];
  return {
    text: async (index) => ({ title: data.sessions[index], text: data.texts[index] }),
    open: async (index) => list("Text", [index]),
    similar: async (index) => {
      const far = (/** @type {number} */ i) => (points.xs[i] - points.xs[index]) ** 2 + (points.ys[i] - points.ys[index]) ** 2;
      return list("Similar to this one", [...points.xs.keys()].sort((a, b) => far(a) - far(b)).slice(0, 20));
    },
    select: async (corners) => {
      const inside = [...points.xs.keys()].filter((i) => isInside(points.xs[i], points.ys[i], corners));
      return list(`${inside.length.toLocaleString()} texts`, inside);
    },
  };
};

/** Makes a map work. @param {HTMLElement} root */
const openMap = async (root) => {
  const find = (/** @type {string} */ selector) => /** @type {HTMLElement} */ (root.querySelector(selector));
  const canvas = /** @type {HTMLCanvasElement} */ (root.querySelector("canvas"));
  const paint = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const tip = find(".tip"), panel = find(".chosen"), status = find("[role=status]");
  const stored = root.querySelector("script");
  const data = stored ? JSON.parse(stored.textContent ?? "") : null;
  const points = data
    ? { xs: Uint16Array.from(data.x), ys: Uint16Array.from(data.y), groups: Uint8Array.from(data.groups) }
    : readPoints(await (await fetch(root.dataset.points ?? "")).arrayBuffer());
  const source = data ? askFile(data, points) : askServer(root.dataset);
  /** @type {[string, number, number, number, number][]} */
  const labels = JSON.parse(root.dataset.labels ?? "[]");
  const count = points.xs.length;
  /** @type {Set<number>} */
  const hidden = new Set();
  let view = { x: WIDTH / 2, y: WIDTH / 2, scale: 1 };
  /** @type {number[][]} */
  let lasso = [];
  /** @type {number[][]} */
  let area = [];
  /** @type {number[] | null} */
  let moving = null;
  let hasMoved = false;
  let cursor = -1, drawing = false, waiting = false;
  let asking = 0;

  const unit = () => Math.min(canvas.width, canvas.height) / WIDTH * view.scale;
  const toScreen = (/** @type {number} */ x, /** @type {number} */ y) => [(x - view.x) * unit() + canvas.width / 2, canvas.height / 2 - (y - view.y) * unit()];
  const toMap = (/** @type {MouseEvent} */ event) => {
    const box = canvas.getBoundingClientRect();
    const px = (event.clientX - box.left) * devicePixelRatio, py = (event.clientY - box.top) * devicePixelRatio;
    return [(px - canvas.width / 2) / unit() + view.x, (canvas.height / 2 - py) / unit() + view.y];
  };

  const render = () => {
    const { width, height } = canvas, style = getComputedStyle(canvas), u = unit();
    const image = paint.createImageData(width, height), pixels = new Uint32Array(image.data.buffer);
    const size = Math.max(2, Math.min(11, Math.round(devicePixelRatio * (count > 20000 ? 2 : count > 2000 ? 3.5 : 6) * Math.sqrt(view.scale)))), half = size >> 1;
    const inset = Array.from({ length: size }, (_, row) => Math.round(size / 2 - Math.sqrt(Math.max(0, (size / 2) ** 2 - (row + 0.5 - size / 2) ** 2))));
    // Colours are those of the style sheet; what is not chosen is pale.
    const inks = [...root.querySelectorAll(".legend circle")].map((dot) => (getComputedStyle(dot).fill.match(/\d+/g) ?? []).map(Number));
    const ink = (/** @type {number[]} */ [r, g, b], /** @type {number} */ alpha) => ((alpha << 24) | (b << 16) | (g << 8) | r) >>> 0;
    const strong = inks.map((one) => ink(one, 255)), pale = inks.map((one) => ink(one, 60));
    for (let i = 0; i < count; i += 1) {
      const px = Math.round((points.xs[i] - view.x) * u + width / 2) - half, py = Math.round(height / 2 - (points.ys[i] - view.y) * u) - half;
      if (px < 0 || py < 0 || px + size >= width || py + size >= height || hidden.has(points.groups[i])) continue;
      const colour = (area.length && !isInside(points.xs[i], points.ys[i], area) ? pale : strong)[points.groups[i]];
      for (let row = 0; row < size; row += 1) pixels.fill(colour, (py + row) * width + px + inset[row], (py + row) * width + px + size - inset[row]);
    }
    paint.putImageData(image, 0, 0);
    paint.fillStyle = paint.strokeStyle = style.color;
    renderLabels(u);
    paint.lineWidth = 2 * devicePixelRatio;
    const line = lasso.length > 1 ? lasso : area;
    if (line.length > 1) {
      paint.beginPath();
      for (const [x, y] of line) paint.lineTo(...pair(toScreen(x, y)));
      paint.closePath();
      paint.stroke();
    }
    if (cursor >= 0) {
      paint.beginPath();
      paint.arc(...pair(toScreen(points.xs[cursor], points.ys[cursor])), size / 2 + 4 * devicePixelRatio, 0, 7);
      paint.stroke();
    }
  };
  const pair = (/** @type {number[]} */ [x, y]) => /** @type {[number, number]} */ ([x, y]);
  /** A label was placed where it covers no point at its size in the map; it is left out where that is too small. @param {number} u */
  const renderLabels = (u) => {
    const letters = Math.min(LABEL * u, 15 * devicePixelRatio);
    paint.font = `600 ${letters}px system-ui, sans-serif`;
    paint.textAlign = "center";
    paint.textBaseline = "middle";
    paint.lineWidth = devicePixelRatio;
    for (const [name, x, y, ownX, ownY] of letters < 9 * devicePixelRatio ? [] : labels) {
      const [px, py] = toScreen(x, y), [ox, oy] = toScreen(ownX, ownY), wide = paint.measureText(name).width / 2;
      const ex = Math.min(Math.max(ox, px - wide), px + wide), ey = Math.min(Math.max(oy, py - letters * 0.6), py + letters * 0.6);
      if (Math.hypot(ex - ox, ey - oy) > letters) {
        paint.beginPath();
        paint.moveTo(ex, ey);
        paint.lineTo(ox, oy);
        paint.stroke();
      }
      paint.fillText(name, px, py);
    }
  };
  const draw = () => { if (!waiting) { waiting = true; requestAnimationFrame(() => { waiting = false; canvas.classList.toggle("large", view.scale > 1); render(); }); } };
  const fit = () => { canvas.width = canvas.clientWidth * devicePixelRatio; canvas.height = canvas.clientHeight * devicePixelRatio; draw(); };

  /** @param {number} factor @param {number[]} [at] */
  const zoom = (factor, at = [view.x, view.y]) => {
    const scale = Math.min(Math.max(view.scale * factor, 0.5), 60), part = view.scale / scale;
    view = { x: at[0] + (view.x - at[0]) * part, y: at[1] + (view.y - at[1]) * part, scale };
    draw();
  };
  /** Shows the text of a point beside it. @param {number} index @param {boolean} [aloud] */
  const point = async (index, aloud = false) => {
    cursor = index;
    draw();
    asking += 1;
    const mine = asking;
    if (index < 0) { tip.hidden = true; return; }
    await new Promise((done) => { setTimeout(done, PAUSE); });
    if (mine !== asking) return;
    const shown = await source.text(index);
    if (mine !== asking) return;
    const [px, py] = toScreen(points.xs[index], points.ys[index]).map((value) => value / devicePixelRatio);
    tip.replaceChildren(make("strong", { dir: "auto" }, shown.title), make("span", { dir: "auto" }, shown.text));
    tip.hidden = false;
    tip.style.left = `${Math.min(Math.max(px + 12, 0), Math.max(canvas.clientWidth - tip.offsetWidth, 0))}px`;
    tip.style.top = `${py + 12 + tip.offsetHeight > canvas.clientHeight ? Math.max(py - 12 - tip.offsetHeight, 0) : py + 12}px`;
    if (aloud) status.textContent = `${shown.title}: ${shown.text}`;
  };
  /** Shows something beside the map. @param {Promise<Node[]>} nodes */
  const show = async (nodes) => {
    panel.replaceChildren(make("p", { className: "soft" }, "…"));
    panel.hidden = false;
    tip.hidden = true;
    asking += 1;
    try { panel.replaceChildren(...await nodes); } catch { panel.replaceChildren("This could not be read. Reload the page."); }
    panel.scrollTop = 0;
    panel.focus({ preventScroll: true });
    fit();
    // On a phone it stands below the map and its legend.
    if (panel.getBoundingClientRect().top > window.innerHeight - PEEK) panel.scrollIntoView();
  };
  const open = async (/** @type {number} */ index) => {
    cursor = index;
    const again = make("button", { type: "button", className: "similar" }, "Similar to this one");
    again.addEventListener("click", () => show(source.similar(index)));
    await show(source.open(index).then((nodes) => [again, ...nodes]));
  };
  const select = (/** @type {number[][]} */ corners) => {
    area = corners;
    draw();
    if (corners.length > 2) show(source.select(corners));
    else { panel.replaceChildren(); panel.hidden = true; fit(); }
  };
  const selectAround = () => {
    if (cursor < 0) return;
    const far = WIDTH / 12 / view.scale, turns = Array.from({ length: 24 }, (_, i) => i * Math.PI / 12);
    select(turns.map((turn) => [Math.round(points.xs[cursor] + far * Math.cos(turn)), Math.round(points.ys[cursor] + far * Math.sin(turn))]));
  };
  const reset = () => { view = { x: WIDTH / 2, y: WIDTH / 2, scale: 1 }; draw(); };

  canvas.addEventListener("pointerdown", (event) => {
    hasMoved = false;
    if (event.pointerType === "touch" && !drawing) {
      lasso = [toMap(event)];
      // A finger moves the page, unless the map was enlarged.
      if (view.scale > 1) moving = lasso[0];
      return;
    }
    canvas.setPointerCapture(event.pointerId);
    if (event.shiftKey || event.button === 1) moving = toMap(event); else lasso = [toMap(event)];
  });
  canvas.addEventListener("pointermove", (event) => {
    const at = toMap(event);
    if (moving) {
      hasMoved ||= Math.hypot(at[0] - moving[0], at[1] - moving[1]) * unit() > 8 * devicePixelRatio;
      if (!hasMoved && event.pointerType === "touch") return;
      view = { ...view, x: view.x + moving[0] - at[0], y: view.y + moving[1] - at[1] };
      draw();
    } else if (event.buttons && lasso.length && (event.pointerType !== "touch" || drawing)) {
      lasso.push(at);
      draw();
    } else if (!event.buttons) {
      const near = findNearest(points, at[0], at[1], 9 * devicePixelRatio / unit(), hidden);
      if (near !== cursor) point(near);
    }
  });
  canvas.addEventListener("pointerup", (event) => {
    const line = lasso, wasMoving = moving;
    moving = null;
    lasso = [];
    if (wasMoving && (hasMoved || event.pointerType !== "touch")) return;
    const wide = Math.max(0, ...line.map(([x, y]) => Math.hypot(x - line[0][0], y - line[0][1]))) * unit();
    if (line.length > 2 && wide > 8 * devicePixelRatio) { select(simplify(line)); return; }
    const at = toMap(event), near = findNearest(points, at[0], at[1], 14 * devicePixelRatio / unit(), hidden);
    if (near >= 0) { point(near); open(near); } else if (area.length) select([]);
    draw();
  });
  canvas.addEventListener("pointerleave", () => point(-1));
  canvas.addEventListener("pointercancel", () => { lasso = []; moving = null; draw(); });
  // Without a key, the wheel moves the page.
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    zoom(Math.exp(-event.deltaY / 200), toMap(event));
  }, { passive: false });
  const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const move = moves[/** @type {keyof typeof moves} */ (event.key)];
    /** @type {Record<string, () => unknown>} */
    const keys = {
      Enter: () => cursor >= 0 && open(cursor),
      a: selectAround,
      s: () => cursor >= 0 && show(source.similar(cursor)),
      "+": () => zoom(1.5, cursor >= 0 ? [points.xs[cursor], points.ys[cursor]] : undefined),
      "-": () => zoom(1 / 1.5),
      0: reset,
      Escape: () => { select([]); point(-1); },
    };
    if (move) point(cursor < 0 ? findNearest(points, view.x, view.y, 2 * WIDTH, hidden) : findNext(points, cursor, move[0], move[1], hidden), true);
    else if (keys[event.key]) keys[event.key]();
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  panel.addEventListener("keydown", (event) => { if (event.key === "Escape") { select([]); canvas.focus(); } });

  find(".draw").addEventListener("click", (event) => {
    drawing = !drawing;
    canvas.classList.toggle("drawing", drawing);
    /** @type {HTMLElement} */ (event.currentTarget).setAttribute("aria-pressed", String(drawing));
  });
  find(".in").addEventListener("click", () => zoom(1.5));
  find(".out").addEventListener("click", () => zoom(1 / 1.5));
  find(".all").addEventListener("click", reset);
  for (const button of root.querySelectorAll(".legend button")) {
    button.addEventListener("click", () => {
      const group = Number(/** @type {HTMLElement} */ (button).dataset.group);
      if (!hidden.delete(group)) hidden.add(group);
      button.setAttribute("aria-pressed", String(!hidden.has(group)));
      draw();
    });
  }
  find(".png").addEventListener("click", () => canvas.toBlob((blob) => {
    if (!blob) return;
    const link = /** @type {HTMLAnchorElement} */ (/** @type {unknown} */ (make("a", { href: URL.createObjectURL(blob), download: "map.png" })));
    link.click();
    URL.revokeObjectURL(link.href);
  }));
  new ResizeObserver(fit).observe(canvas);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  fit();
  root.dataset.ready = "";
};

/** Waits for a map that is being drawn. */
const waitForMap = async () => {
  const progress = document.querySelector("#drawing");
  while (progress) {
    await new Promise((done) => { setTimeout(done, 1000); });
    const answer = await fetch(location.href).catch(() => null);
    const page = new DOMParser().parseFromString(await answer?.text() ?? "", "text/html");
    const next = page.querySelector("#drawing");
    if (!next && answer?.ok) { location.reload(); return; }
    if (next) progress.textContent = next.textContent;
  }
};

if (typeof document !== "undefined") {
  for (const root of document.querySelectorAll(".map-view")) openMap(/** @type {HTMLElement} */ (root));
  waitForMap();
}
