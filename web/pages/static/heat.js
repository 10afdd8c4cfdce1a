"use strict";
// A row of the screen shows the worst of its ranks: a mean would hide the one that holds up all others.
const box = document.querySelector("[data-heat]");
if (box) {
  const canvas = box.querySelector("canvas"), words = box.querySelector("[data-heat-words]");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  let layer = box.querySelector("[aria-pressed=true]").dataset.layer;
  // A step's time is strong where it is more than the others': equal ranks are calm, however long their steps take. Ranks that stand
  // still or are behind are strong by themselves, from these on.
  const strong = { still: 10, behind: 3 };
  const scaled = (cells, most) => {
    const counts = new Uint32Array(256);
    for (const c of cells) counts[c]++;
    counts[0] = 0;
    let half = counts.reduce((a, b) => a + b, 0) / 2, middle = 1;
    while (middle < 255 && (half -= counts[middle]) > 0) middle++;
    const top = layer in strong ? 255 * Math.max(1, strong[layer] / Math.max(most, 1e-9)) : Math.max(255, 1.5 * middle);
    const share = v => layer in strong ? v / top : v <= middle ? v / middle / 3 : 1 / 3 + 2 / 3 * (v - middle) / (top - middle);
    return { top: most * top / 255, shade: Uint8Array.from({ length: 256 }, (_, v) => v && Math.max(1, Math.round(255 * share(v)))) };
  };
  const palette = () => {
    const table = new Uint32Array(256), low = dark.matches ? [33, 40, 46] : [238, 241, 244];
    const stops = [low, [76, 147, 168], [222, 160, 60], [186, 40, 32]];
    for (let v = 1; v < 256; v++) {
      const at = (v - 1) / 254 * 3, n = Math.min(2, Math.floor(at)), f = at - n;
      const [r, g, b] = [0, 1, 2].map(c => Math.round(stops[n][c] + (stops[n + 1][c] - stops[n][c]) * f));
      table[v] = (255 << 24) | (b << 16) | (g << 8) | r;
    }
    return table;
  };
  const draw = async () => {
    const answer = await fetch(`${box.dataset.heat}?layer=${layer}`);
    if (!answer.ok) { words.textContent = `The picture could not be fetched (${answer.status}).`; return; }
    // Whose session is over is led to the login page, which is a good answer and no picture.
    if (!answer.headers.has("x-every-s")) { words.textContent = "The picture could not be fetched: load the page again."; return; }
    const ranks = +answer.headers.get("x-ranks"), looks = +answer.headers.get("x-looks"), most = +answer.headers.get("x-most"), unit = answer.headers.get("x-unit");
    const cells = new Uint8Array(await answer.arrayBuffer());
    const height = Math.min(Math.max(ranks, 1), 600);
    canvas.width = Math.max(looks, 1); canvas.height = height;
    const worst = new Uint8Array(height * canvas.width);
    for (let r = 0; r < ranks; r++) {
      const row = Math.floor(r * height / ranks) * canvas.width, from = r * looks;
      for (let c = 0; c < looks; c++) if (cells[from + c] > worst[row + c]) worst[row + c] = cells[from + c];
    }
    const { top, shade } = scaled(cells, most);
    const table = palette(), image = new ImageData(canvas.width, height), pixels = new Uint32Array(image.data.buffer);
    for (let i = 0; i < worst.length; i++) pixels[i] = table[shade[worst[i]]];
    canvas.getContext("2d").putImageData(image, 0, 0);
    const each = ranks > height ? `, each line the worst of ${Math.ceil(ranks / height)}` : "";
    if (!cells.some(c => c)) { words.textContent = "No rank has told this figure yet: it comes with the first steps that the probe counts."; box.dataset.drawn = `${ranks}x${looks}`; return; }
    words.textContent = `${ranks} ranks from top to bottom${each}; ${looks} look${looks > 1 ? "s" : ""}, one every ${answer.headers.get("x-every-s")} s, the latest at the right; the strongest colour is ${+top.toPrecision(3)} ${unit}.`;
    box.dataset.drawn = `${ranks}x${looks}`;
  };
  for (const b of box.querySelectorAll("[data-layer]")) b.onclick = () => {
    layer = b.dataset.layer;
    for (const o of box.querySelectorAll("[data-layer]")) o.setAttribute("aria-pressed", String(o === b));
    draw();
  };
  dark.addEventListener("change", draw);
  draw();
  setInterval(draw, 5000);
}
