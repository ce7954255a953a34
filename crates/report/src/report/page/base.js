'use strict';
// All that is shown comes from the JSON in #data. Text goes into the page as text nodes only, so that a name from an input
// file is never markup.

const data = JSON.parse(document.getElementById('data').textContent);
const COLOURS = Array.from({ length: 8 }, (_, i) => `var(--c${i})`);
const colour = (i) => COLOURS[i % COLOURS.length];
// One meaning of a colour on the page and in the pictures (chart/palette.rs): of modes, of the first result and of the second,
// and of what bounds a section.
const MODE = [{ kbk: 5, epilogue: 2, fused: 0 }, { kbk: 3, epilogue: 1, fused: 4 }];
const BOUND = { compute: 0, imbalance: 4, memory: 5, ag: 3, link: 2, pmu_port: 6, launch: 7 };
const modeColour = (r) => colour((MODE[r.result] || MODE[1])[r.run.mode] ?? 7);
const boundColour = (by) => { const at = BOUND[by.split(':')[0]]; return at === undefined ? 'var(--filldrain)' : colour(at); };
const SVG = 'http://www.w3.org/2000/svg';

function element(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}
function shape(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}
function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) if (value !== undefined) node.setAttribute(key, value);
  for (const child of children.flat(Infinity)) node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  return node;
}

// Numbers as people read them.
function digits(value) {
  const size = Math.abs(value);
  if (size === 0) return '0';
  // A density of 1/16 is 0.0625.
  if (size < 0.1) return value.toPrecision(3);
  return value.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : 2);
}
function scaled(value, unit, steps) {
  for (const [size, prefix] of steps) if (Math.abs(value) >= size * 0.9995) return `${digits(value / size)} ${prefix}${unit}`.trim();
  return `${digits(value)} ${unit}`.trim();
}
const si = (value, unit) => value === 0 ? `0 ${unit}`.trim() : scaled(value, unit,
  [[1e15, 'P'], [1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e3, 'k'], [1, ''], [1e-3, 'm'], [1e-6, 'µ'], [1e-9, 'n'], [1e-12, 'p']]);
const bytes = (value) => scaled(value, 'B', [[2 ** 40, 'Ti'], [2 ** 30, 'Gi'], [2 ** 20, 'Mi'], [2 ** 10, 'Ki']]);
const whole = (value) => Math.round(value).toLocaleString('en-US');
const percent = (share) => `${digits(100 * share)} %`;

// Every run of every result, in order.
const several = data.results.length > 1;
// What all titles begin with tells nothing apart.
const shared = (() => {
  if (!several) return 0;
  const words = data.results.map((result) => result.title.split(/(?<=[-_ .])/));
  let same = 0;
  while (words.every((list) => list.length > same + 1 && list[same] === words[0][same])) same++;
  return words[0].slice(0, same).join('').length;
})();
const titles = data.results.map((result, at) => {
  const title = result.title.slice(shared);
  return data.results.some((other, o) => o < at && other.title === result.title) ? `${title} (${at + 1})` : title;
});
const runs = data.results.flatMap((result, at) => result.document.runs.map((run) => ({
  run, result: at, document: result.document, name: several ? `${titles[at]}: ${run.mode}` : run.mode,
})));
const offChip = (traffic) => traffic.off_chip_read_bytes + traffic.off_chip_write_bytes;

const body = document.getElementById('report');
const index = element('nav', { 'aria-label': 'Contents' });
// A part of the page, in place before it is filled so that its width is known.
function part(title, ...children) {
  const id = title.toLowerCase().replace(/[^a-z]+/g, '-');
  const node = element('section', { 'aria-label': title, id }, element('h2', {}, title));
  body.append(node);
  fill(node, {}, children);
  index.append(element('a', { href: `#${id}` }, title));
  return node;
}

// A picture that is drawn for the width it has, so that its text is as large as the page's.
function picture(draw) {
  const figure = element('figure', {});
  let width = 0;
  const redraw = () => { if (width) draw(figure, width); };
  const see = () => {
    const now = Math.round(figure.clientWidth);
    if (now && now !== width) { width = now; redraw(); }
  };
  figure.start = () => { see(); new ResizeObserver(() => requestAnimationFrame(see)).observe(figure); };
  figure.redraw = redraw;
  return figure;
}
function started(node) {
  for (const figure of node.querySelectorAll('figure')) if (figure.start) figure.start();
  return node;
}

// How to read a mark is a tooltip: the line itself is for what marks tell.
const HINT = 'Point at a mark, or move to it with Tab and the arrow keys, for its numbers.';
const told = () => element('p', { class: 'told faint', 'aria-live': 'polite', title: HINT }, 'Numbers of a mark: point at it.');
// What stands between backticks, as code.
const coded = (text) => String(text).split(/`([^`]+)`/).map((piece, i) => i % 2 ? element('code', {}, piece) : piece);
// A bar's part that is written, not read: the colour in stripes. The patterns belong to the page, once.
const hatched = (i) => `url(#written-${i})`;
function hatches() {
  const pattern = (i) => shape('pattern', { id: `written-${i}`, width: 6, height: 6, patternUnits: 'userSpaceOnUse', patternTransform: 'rotate(45)' },
    shape('rect', { width: 6, height: 6, fill: 'var(--paper)' }), shape('rect', { width: 3, height: 6, fill: colour(i) }));
  return shape('svg', { width: 0, height: 0, 'aria-hidden': 'true', style: 'position:absolute' }, shape('defs', {}, COLOURS.map((_, i) => pattern(i))));
}
function tell(says, text) {
  says.textContent = text;
  says.classList.remove('faint');
}
// A mark that tells its text when it is pointed at or focused.
function telling(node, says, text) {
  const now = () => tell(says, text);
  fill(node, { tabindex: -1, role: 'img', 'aria-label': text, class: 'mark' }, [shape('title', {}, text)]);
  node.addEventListener('pointerenter', now);
  node.addEventListener('focus', now);
  return node;
}
// Tab reaches the first mark of a picture, the arrow keys the others.
function roving(svg) {
  const marks = () => [...svg.querySelectorAll('.mark')];
  const first = marks()[0];
  if (first) first.setAttribute('tabindex', 0);
  svg.addEventListener('keydown', (event) => {
    const step = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
    const list = marks(), at = list.indexOf(document.activeElement);
    if (step === undefined || at < 0 || !list[at + step]) return;
    list[at].setAttribute('tabindex', -1);
    list[at + step].setAttribute('tabindex', 0);
    list[at + step].focus();
    event.preventDefault();
  });
  return svg;
}
function legend(names, colours) {
  return element('ul', { class: 'legend' }, names.map((name, i) =>
    element('li', {}, element('span', { class: 'swatch', style: `background:${colours ? colours[i] : colour(i)}` }), name)));
}
function choice(label, options, changed) {
  const select = element('select', {}, options.map((name, i) => element('option', { value: i }, name)));
  select.addEventListener('change', () => changed(Number(select.value)));
  return { node: element('label', {}, `${label} `, select), select };
}
// The longest beginning of a text that is at most so many pixels wide.
const pen = document.createElement('canvas').getContext('2d');
pen.font = '13px system-ui, sans-serif';
function fit(text, room) {
  if (pen.measureText(text).width <= room) return text;
  let [least, most] = [1, text.length];
  while (least < most) {
    const middle = Math.ceil((least + most) / 2);
    if (pen.measureText(cut(text, middle)).width <= room) least = middle; else most = middle - 1;
  }
  return cut(text, least);
}
const cut = (text, length) => text.length > length ? `${text.slice(0, Math.max(1, length - 1))}…` : text;
function table(head, rows, texts = []) {
  // Long lists without blanks may be broken behind commas and signs of addition.
  const broken = (value) => typeof value === 'string' ? value.split(/(?<=[,+])(?=\S)/).flatMap((piece, i) => i ? [element('wbr'), piece] : [piece]) : value;
  const cell = (name, at, value) => element(name, { class: texts.includes(at) ? 'wrap' : undefined, scope: name === 'th' ? 'col' : undefined },
    texts.includes(at) ? broken(value) : value);
  return element('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'Table' }, element('table', {},
    element('thead', {}, element('tr', {}, head.map((h, i) => cell('th', i, h)))),
    element('tbody', {}, rows.map((row) => element('tr', {}, row.map((value, i) => value instanceof Element && value.tagName === 'TD' ? value : cell('td', i, value)))))));
}

// Dark to light, even in lightness and readable without red and green (after cividis, Nuñez et al. 2018).
const HEAT = [[0, 34, 78], [47, 63, 107], [89, 92, 109], [124, 123, 120], [163, 155, 112], [205, 190, 91], [254, 232, 56]];
function heat(share) {
  const at = Math.min(1, Math.max(0, share)) * (HEAT.length - 1), i = Math.min(HEAT.length - 2, Math.floor(at));
  const mix = HEAT[i].map((low, c) => Math.round(low + (HEAT[i + 1][c] - low) * (at - i)));
  return `rgb(${mix.join(' ')})`;
}
