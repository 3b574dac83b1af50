// The map: points on a canvas, zoomed and moved, and a lasso that leads to a list.
const canvas = document.querySelector("#map");
const paint = canvas.getContext("2d");
const COLOURS = [[59, 111, 182], [181, 84, 28], [46, 125, 79], [138, 63, 160], [168, 131, 0], [15, 127, 140], [176, 42, 91], [109, 151, 209], [208, 135, 66], [90, 168, 119], [181, 131, 200], [107, 114, 128]];
const WIDTH = 10000, LABEL = 170;
const bytes = new DataView(await (await fetch(canvas.dataset.points)).arrayBuffer());
const count = bytes.byteLength / 5;
const xs = new Uint16Array(count), ys = new Uint16Array(count), groups = new Uint8Array(count);
for (let i = 0; i < count; i += 1) {
  xs[i] = bytes.getUint16(5 * i, true); ys[i] = bytes.getUint16(5 * i + 2, true); groups[i] = bytes.getUint8(5 * i + 4);
}
let view = { x: WIDTH / 2, y: WIDTH / 2, scale: 1 };
const LABELS = JSON.parse(canvas.dataset.labels);
let lasso = [];
let moving = null;

const fit = () => { canvas.width = canvas.clientWidth * devicePixelRatio; canvas.height = canvas.clientHeight * devicePixelRatio; draw(); };
const unit = () => Math.min(canvas.width, canvas.height) / WIDTH * view.scale;
const toScreen = (x, y) => [(x - view.x) * unit() + canvas.width / 2, canvas.height / 2 - (y - view.y) * unit()];
const toMap = (event) => {
  const box = canvas.getBoundingClientRect();
  const px = (event.clientX - box.left) * devicePixelRatio, py = (event.clientY - box.top) * devicePixelRatio;
  return [(px - canvas.width / 2) / unit() + view.x, (canvas.height / 2 - py) / unit() + view.y];
};

let waiting = false;
const draw = () => { if (!waiting) { waiting = true; requestAnimationFrame(() => { waiting = false; render(); }); } };
const render = () => {
  const { width, height } = canvas;
  const image = paint.createImageData(width, height);
  const pixels = new Uint32Array(image.data.buffer);
  const inks = COLOURS.map(([r, g, b]) => (255 << 24) | (b << 16) | (g << 8) | r);
  const u = unit(), size = Math.max(2, Math.min(9, Math.round(devicePixelRatio * (count > 20000 ? 1.5 : count > 2000 ? 3 : 6) * Math.sqrt(view.scale)))), half = size >> 1;
  const inset = Array.from({ length: size }, (_, row) => Math.round(size / 2 - Math.sqrt(Math.max(0, (size / 2) ** 2 - (row + 0.5 - size / 2) ** 2))));
  for (let i = 0; i < count; i += 1) {
    const px = Math.round((xs[i] - view.x) * u + width / 2) - half, py = Math.round(height / 2 - (ys[i] - view.y) * u) - half;
    if (px < 0 || py < 0 || px + size >= width || py + size >= height) continue;
    const ink = inks[groups[i]];
    for (let row = 0; row < size; row += 1) pixels.fill(ink, (py + row) * width + px + inset[row], (py + row) * width + px + size - inset[row]);
  }
  paint.putImageData(image, 0, 0);
  // A label was placed where it covers no point at this size in the map; it is left out where that is too small to read.
  const style = getComputedStyle(canvas), letters = Math.min(LABEL * u, 15 * devicePixelRatio);
  paint.font = `600 ${letters}px system-ui, sans-serif`;
  paint.textAlign = "center";
  paint.textBaseline = "middle";
  paint.lineWidth = devicePixelRatio;
  for (const [name, x, y, ownX, ownY] of letters < 10 * devicePixelRatio ? [] : LABELS) {
    const [px, py] = toScreen(x, y), [ox, oy] = toScreen(ownX, ownY), wide = paint.measureText(name).width / 2;
    const ex = Math.min(Math.max(ox, px - wide), px + wide), ey = Math.min(Math.max(oy, py - letters * 0.6), py + letters * 0.6);
    if (Math.hypot(ex - ox, ey - oy) > letters) {
      paint.strokeStyle = style.color;
      paint.beginPath();
      paint.moveTo(ex, ey);
      paint.lineTo(ox, oy);
      paint.stroke();
    }
    paint.fillStyle = style.color;
    paint.fillText(name, px, py);
  }
  if (lasso.length > 1) {
    paint.beginPath();
    for (const [x, y] of lasso) paint.lineTo(...toScreen(x, y));
    paint.closePath();
    paint.lineWidth = 2 * devicePixelRatio;
    paint.strokeStyle = getComputedStyle(canvas).color;
    paint.stroke();
  }
};

canvas.addEventListener("pointerdown", (event) => {
  canvas.setPointerCapture(event.pointerId);
  if (event.shiftKey) moving = toMap(event); else lasso = [toMap(event)];
});
canvas.addEventListener("pointermove", (event) => {
  if (moving) {
    const [x, y] = toMap(event);
    view = { ...view, x: view.x + moving[0] - x, y: view.y + moving[1] - y };
    draw();
  } else if (event.buttons && lasso.length) {
    lasso.push(toMap(event));
    draw();
  }
});
canvas.addEventListener("pointerup", () => {
  moving = null;
  const every = Math.ceil(lasso.length / 40);
  const corners = lasso.filter((_, i) => i % every === 0).map((at) => at.map(Math.round).join(","));
  lasso = [];
  if (corners.length > 2) location.href = canvas.dataset.list + corners.join(";");
  draw();
});
canvas.addEventListener("wheel", (event) => {
  event.preventDefault();
  const before = toMap(event);
  view.scale = Math.min(Math.max(view.scale * Math.exp(-event.deltaY / 400), 0.5), 60);
  const after = toMap(event);
  view = { ...view, x: view.x + before[0] - after[0], y: view.y + before[1] - after[1] };
  draw();
}, { passive: false });
canvas.addEventListener("dblclick", () => { view = { x: WIDTH / 2, y: WIDTH / 2, scale: 1 }; draw(); });
document.querySelector("#png").addEventListener("click", () => canvas.toBlob((blob) => {
  const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(blob), download: "map.png" });
  link.click();
  URL.revokeObjectURL(link.href);
}));
addEventListener("resize", fit);
fit();
