// Achieved FLOP/s over operational intensity, under the roofs of the chips.

function logTicks(low, high) {
  const ticks = [];
  for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); e++) {
    const tick = 10 ** e;
    if (tick >= low * 0.999 && tick <= high * 1.001) ticks.push(tick);
  }
  return ticks;
}
const MARKS = 4;
// Shapes tell series apart where colours do not.
function mark(kind, x, y, r, attributes) {
  if (kind % MARKS === 0) return shape('circle', { cx: x, cy: y, r, ...attributes });
  const points = [
    [[-1, -1], [1, -1], [1, 1], [-1, 1]].map(([a, b]) => [a * 0.9, b * 0.9]),
    [[0, -1.25], [1.15, 0.85], [-1.15, 0.85]],
    [[0, -1.35], [1.35, 0], [0, 1.35], [-1.35, 0]],
  ][kind % MARKS - 1];
  return shape('polygon', { points: points.map(([a, b]) => `${x + a * r},${y + b * r}`).join(' '), ...attributes });
}
function roofline() {
  const points = runs.filter((r) => r.run.op_intensity_flop_per_byte > 0 && r.run.tflops_executed > 0);
  if (!points.length) return;
  const chips = [...new Map(runs.map((r) => [JSON.stringify([r.document.arch.name, r.document.arch.peak_tflops,
    r.document.arch.off_chip_gb_per_s]), r.document.arch])).values()];
  const ridges = chips.map((a) => a.peak_tflops * 1e3 / a.off_chip_gb_per_s);
  const xs = points.map((r) => r.run.op_intensity_flop_per_byte).concat(ridges);
  const ys = points.map((r) => r.run.tflops_executed).concat(chips.map((a) => a.peak_tflops));
  const x0 = 10 ** Math.floor(Math.log10(Math.min(...xs)) - 0.3), x1 = 10 ** Math.ceil(Math.log10(Math.max(...xs)) + 0.3);
  const y0 = 10 ** Math.floor(Math.log10(Math.min(...ys)) - 0.1), y1 = 10 ** Math.ceil(Math.log10(Math.max(...ys)) + 0.05);
  const says = told();
  const figure = picture((place, W) => {
    const H = Math.min(400, Math.max(280, W * 0.5)), L = W < 560 ? 62 : 70, R = 30, T = 20, B = 46;
    const shownAt = [];
    const x = (v) => L + (W - L - R) * Math.log(v / x0) / Math.log(x1 / x0);
    const y = (v) => H - B - (H - B - T) * Math.log(v / y0) / Math.log(y1 / y0);
    const svg = shape('svg', { viewBox: `0 0 ${W} ${H}`, role: 'group', 'aria-label': 'Roofline' });
    for (const t of logTicks(x0, x1)) svg.append(
      shape('line', { class: 'grid', x1: x(t), x2: x(t), y1: T, y2: H - B }),
      shape('text', { x: Math.min(x(t), W - pen.measureText(whole(t)).width / 2 - 2), y: H - B + 17, 'text-anchor': 'middle', class: 'faint' }, t >= 1 ? whole(t) : String(t)));
    for (const t of logTicks(y0, y1)) svg.append(
      shape('line', { class: 'grid', x1: L, x2: W - R, y1: y(t), y2: y(t) }),
      shape('text', { x: L - 8, y: y(t) + 4, 'text-anchor': 'end', class: 'faint' }, t >= 1 ? whole(t) : String(t)));
    svg.append(shape('text', { x: (L + W - R) / 2, y: H - 6, 'text-anchor': 'middle' }, 'FLOP per off-chip byte'),
      shape('text', { x: 14, y: (T + H - B) / 2, 'text-anchor': 'middle', transform: `rotate(-90 14 ${(T + H - B) / 2})` }, 'TFLOP/s executed'));
    chips.forEach((arch, i) => {
      const ridge = ridges[i], slope = arch.off_chip_gb_per_s / 1e3;
      const start = Math.max(x0, y0 / slope);
      const path = `M${x(start)},${y(start * slope)} L${x(ridge)},${y(arch.peak_tflops)} L${x(x1)},${y(arch.peak_tflops)}`;
      svg.append(shape('path', { d: path, fill: 'none', stroke: 'var(--ink)', 'stroke-width': 2, 'stroke-dasharray': i ? '6 4' : undefined }),
        shape('text', { x: x(x1) - 4, y: y(arch.peak_tflops) - 6, 'text-anchor': 'end' }, `${arch.name}: ${digits(arch.peak_tflops)} TFLOP/s`));
    });
    points.forEach((r, i) => {
      const [v, w] = [r.run.op_intensity_flop_per_byte, r.run.tflops_executed];
      svg.append(telling(mark(i, x(v), y(w), 7, { fill: modeColour(r), stroke: 'var(--paper)' }), says,
        `${r.name}: ${digits(v)} FLOP/B, ${digits(w)} TFLOP/s executed, ${percent(r.run.utilization)} of peak`));
      // A label goes below another that it would hide.
      let [lx, ly] = [x(v) + 11, y(w) + 4];
      while (shownAt.some(([a, b]) => Math.abs(a - lx) < 160 && Math.abs(b - ly) < 14)) ly += 14;
      shownAt.push([lx, ly]);
      const left = lx + 90 > W;
      svg.append(shape('text', { x: left ? lx - 22 : lx, y: ly, 'text-anchor': left ? 'end' : 'start', 'pointer-events': 'none' }, cut(r.name, 24)));
    });
    place.replaceChildren(roving(svg));
  });
  started(part('Roofline', figure, says));
}
