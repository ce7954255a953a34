// The page from top to bottom.

document.body.append(hatches());
if (data.points) lead();
summary();
if (sheets.length) sheetCards();
body.append(index);
if (data.points) points();
if (runs.length) {
  differences();
  figures();
}
waterfalls();
if (runs.length) {
  traffic();
  timeline();
  overTime();
  roofline();
}
if (data.layouts.length) grid();
if (runs.length) {
  energy();
  sections();
}
if (sheets.length) {
  sheetFigures();
  sheets.forEach(sheetParts);
}
inputs();
