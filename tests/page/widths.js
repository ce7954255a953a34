// Any page at any width: everything can be reached, and nothing is cut off.
const desk = document.documentElement.clientWidth > 1000;
const tables = [...document.querySelectorAll('.scroll')];
const reached = (box) => {
  box.scrollLeft = 1e6;
  const last = box.querySelector('tr:first-child > :last-child, img');
  const ok = !last || last.getBoundingClientRect().right <= box.getBoundingClientRect().right + 1;
  box.scrollLeft = 0;
  return ok;
};
check('there are tables', tables.length > 0);
check('every column can be scrolled to', tables.every(reached));
const wide = tables.filter((box) => box.scrollWidth > box.clientWidth + 1);
check(`tables fit a desk ${desk ? wide.map((box) => box.closest('section').getAttribute('aria-label')).join('; ') : ''}`, !desk || !wide.length);
// Text of a picture stands inside it.
const cutOff = [...document.querySelectorAll('figure svg text')].filter((text) => {
  const own = text.getBoundingClientRect(), box = text.closest('svg').getBoundingClientRect();
  return own.width > 0 && (own.left < box.left - 2 || own.right > box.right + 2);
});
check(`no label is cut off ${cutOff.map((text) => text.textContent).slice(0, 3).join('; ')}`, !cutOff.length);
check('images have a text', [...document.images].every((image) => image.alt));
check('the verdict stands first', document.querySelector('strong').textContent.length > 0);
done();
