// Run in the page by tests/main/page.rs: does what a reader does, and leaves a line for each thing that must happen.
(() => {
const out = [];
const check = (name, ok) => out.push(`${ok ? 'ok' : 'FAILED'} ${name}`);
const sections = [...document.querySelectorAll('section')];
const named = (name) => sections.find((s) => s.getAttribute('aria-label') === name);
const tl = named('Sections over time');
const svg = tl.querySelector('svg');
const before = svg.getAttribute('data-to');
tl.querySelector('button').click();
check('zoom changes what is shown', svg.getAttribute('data-to') !== before);
svg.dispatchEvent(new KeyboardEvent('keydown', { key: '0', bubbles: true }));
check('0 shows all again', svg.getAttribute('data-to') === before);
const mark = tl.querySelector('rect[tabindex]');
mark.dispatchEvent(new PointerEvent('pointerenter'));
check('hover tells', tl.querySelector('.told').textContent.includes('bound by'));
const g = named('The grid');
const cell = g.querySelector('rect');
cell.focus();
check('focus tells', g.querySelector('.told').textContent.includes('at (0, 0)'));
const paint = () => [...g.querySelectorAll('rect')].map((r) => r.getAttribute('fill')).join();
const select = g.querySelectorAll('select')[1];
const p0 = paint();
for (const [i, option] of [...select.options].entries()) {
  if (!i) continue;
  select.value = i; select.dispatchEvent(new Event('change'));
  check(`colour ${option.textContent}`, paint() !== p0);
}
const cellNext = g.querySelector('rect'); cellNext.focus();
cellNext.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowRight', bubbles: true }));
check('arrow moves', document.activeElement.getAttribute('data-site') === '1,0');
const which = g.querySelectorAll('select')[0];
which.value = 0; which.dispatchEvent(new Event('change'));
check('another section', paint() !== p0);
check('inputs shown', document.querySelectorAll('details pre').length === 2);
check('no wider than the window', document.documentElement.scrollWidth <= document.documentElement.clientWidth);
check('a name is no markup', !window.hostile && !document.querySelector('main img'));
document.body.replaceChildren(document.createTextNode(out.join('\n')));
})();
