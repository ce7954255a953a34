// What the readers of the pages share. A driver leaves a line for each thing that must happen, and `done` shows them.
const out = [];
const check = (name, ok) => out.push(`${ok ? 'ok' : 'FAILED'} ${name}`);
const named = (name) => [...document.querySelectorAll('section')].find((s) => s.getAttribute('aria-label') === name);
const press = (node, key, more = {}) => node.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true, ...more }));
const choose = (select, i) => { select.value = i; select.dispatchEvent(new Event('change')); };
const point = (node) => node.dispatchEvent(new PointerEvent('pointerenter'));
const says = (section) => section.querySelector('.told').textContent;
function done() {
  check('no wider than the window', document.documentElement.scrollWidth <= document.documentElement.clientWidth);
  const cut = [...document.querySelectorAll('svg[role=group] > text')].find((text) =>
    text.getBoundingClientRect().right > text.ownerSVGElement.getBoundingClientRect().right + 1);
  check(`no text of a picture is cut off${cut ? `: ${cut.textContent}` : ''}`, !cut);
  check('a name is no markup', !window.hostile && !document.querySelector('main img:not(.picture)'));
  check('every link of the contents leads somewhere', [...document.querySelectorAll('nav a')].every((a) => document.getElementById(a.hash.slice(1))));
  document.body.replaceChildren(document.createTextNode(out.join('\n')));
}
