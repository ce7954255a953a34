// The page of a comparison.
const tl = named('Sections over time');
let svg = tl.querySelector('svg');
const before = svg.getAttribute('data-to');
tl.querySelector('button').click();
svg = tl.querySelector('svg');
check('a button zooms', svg.getAttribute('data-to') !== before);
const zoomed = svg.getAttribute('data-from');
svg.focus();
press(svg, 'ArrowRight');
check('an arrow key moves', tl.querySelector('svg').getAttribute('data-from') !== zoomed);
check('the keyboard stays on the timeline', document.activeElement === tl.querySelector('svg'));
press(tl.querySelector('svg'), '0');
check('it opens on the fused run, and 0 shows all', Number(tl.querySelector('svg').getAttribute('data-to')) > Number(before));
const most = tl.querySelector('svg').getAttribute('data-to');
tl.querySelector('svg').dispatchEvent(new WheelEvent('wheel', { deltaY: -100, ctrlKey: true, clientX: 300, bubbles: true, cancelable: true }));
check('the wheel zooms with Ctrl', tl.querySelector('svg').getAttribute('data-to') !== most);
const inner = tl.querySelector('svg'), start = inner.getAttribute('data-from');
inner.dispatchEvent(new PointerEvent('pointerdown', { clientX: 300, bubbles: true }));
window.dispatchEvent(new PointerEvent('pointermove', { clientX: 100 }));
window.dispatchEvent(new PointerEvent('pointerup', {}));
check('dragging moves', tl.querySelector('svg').getAttribute('data-from') !== start);
point(tl.querySelector('rect[tabindex]'));
check('hover tells what bounds a section', says(tl).includes('bound by'));

const g = named('The grid');
const unit = () => g.querySelector('rect[data-site]');
unit().focus();
check('focus tells of a unit', says(g).includes('at (0, 0)'));
press(unit(), 'ArrowRight');
check('an arrow moves to the next unit', document.activeElement.getAttribute('data-site') === '1,0');
press(document.activeElement, 'ArrowDown', { shiftKey: true });
check('Shift and an arrow move to a link', document.activeElement.getAttribute('data-link') === '1,0,south' && says(g).startsWith('Link between (1, 0) and (1, 1)'));
press(document.activeElement, 'ArrowDown');
check('an arrow leaves a link', document.activeElement.getAttribute('data-site') === '1,1');
const busy = [...g.querySelectorAll('rect[data-link]')].find((link) => /flits \(.* of the time\) of \w/.test(link.getAttribute('aria-label')));
point(busy);
check('hover tells of a link, its load and its stage', / flits .* of /.test(says(g)));
const paint = () => [...g.querySelectorAll('rect')].map((r) => r.getAttribute('fill')).join();
const first = paint();
const [section, colour] = g.querySelectorAll('select');
for (const [i, option] of [...colour.options].entries()) {
  if (!i) continue;
  choose(colour, i);
  check(`colour ${option.textContent}`, paint() !== first);
}
choose(colour, 0);
choose(section, section.value === '0' ? 1 : 0);
check('another section', paint() !== first);

const fall = named('From kernel by kernel to fused');
const marks = fall.querySelectorAll('.mark');
marks[0].focus();
press(marks[0], 'ArrowDown');
check('the waterfall is walked by keyboard', document.activeElement === marks[1] && says(fall).includes('launches'));
check('inputs and command are shown', named('To repeat this').querySelectorAll('details pre').length === 2
  && named('To repeat this').textContent.includes('rdusim compare'));
check('the number that matters stands first', /^\d[\d.]*×$/.test(document.querySelector('strong').textContent));
done();
