// A table of any length: only the rows near the window are in the page; others are fetched on
// scrolling. The URL holds the position.

const PAGE = 100; // rows of a page without this script
const CHUNK = 200; // rows fetched at once
const MARGIN = 25; // rows kept above and below the window
const KEPT = 60; // chunks in the cache

const table = document.querySelector("table[data-rows]");
const body = table.tBodies[0];
const chunks = new Map();
let total = Number(table.dataset.count);
let drawn = [Number(table.dataset.start), 0]; // rows that are in the page: from, to
let rows = []; // the elements of these
let topmost = 0; // the row at the top of the window
let asked = null;
let timer = 0;

let height = heightOfRow();
const above = space();
const below = space();

// Of all rows alike: one line, or several where the window is narrow.
function heightOfRow() {
  return body.querySelector("tr:not(.space)")?.getBoundingClientRect().height || 30;
}

function space() {
  const row = document.createElement("tr");
  row.className = "space";
  row.setAttribute("aria-hidden", "true");
  row.append(document.createElement("td"));
  row.firstChild.colSpan = 9;
  return row;
}

// A row of the page; rows out of sight are reused, which is much faster.
function blank() {
  const made = document.createElement("tr");
  for (let column = 0; column < 9; column++) {
    const cell = document.createElement(column ? "td" : "th");
    if (!column) {
      cell.scope = "row";
      cell.append(document.createElement("a"));
    } else cell.append("");
    if (column >= 4 && column <= 7) cell.className = "number";
    made.append(cell);
  }
  made.link = made.firstChild.firstChild;
  made.link.append("");
  made.texts = [made.link, ...[...made.cells].slice(1)].map((cell) => cell.firstChild);
  return made;
}

const lacking = { cells: ["…", "", "", "", "", "", "", "", ""], kind: "", url: null };

function fill(made, index) {
  const known = chunks.get(Math.floor(index / CHUNK))?.[index % CHUNK] ?? lacking;
  if (made.shown === known && made.index === index) return;
  if (made.index !== index) made.setAttribute("aria-rowindex", index + 2);
  [made.shown, made.index] = [known, index];
  made.texts.forEach((text, column) => {
    if (text.data !== known.cells[column]) text.data = known.cells[column];
  });
  if (made.cells[3].className !== known.kind) made.cells[3].className = known.kind;
  if (known.url) made.link.href = known.url;
  else made.link.removeAttribute("href");
  made.cells[1].title = known.cells[1];
  made.cells[2].title = known.cells[2];
}

function near() {
  const top = -body.getBoundingClientRect().top;
  const first = Math.max(0, Math.floor(top / height));
  const last = Math.ceil((top + window.innerHeight) / height);
  return [Math.min(first, Math.max(0, total - 1)), Math.min(total, Math.max(last, first + 1))];
}

function scrollToRow(index) {
  window.scrollTo(0, index * height + body.getBoundingClientRect().top + window.scrollY);
}

function draw(force = false) {
  const [first, last] = near();
  topmost = first;
  const covered = first - 5 >= drawn[0] || drawn[0] === 0;
  if (!force && covered && first >= drawn[0] && (last + 5 <= drawn[1] || drawn[1] === total)) return;
  const from = Math.max(0, first - MARGIN);
  const to = Math.min(total, last + MARGIN);
  const at = new Map(rows.map((made) => [made.index, made]));
  const kept = new Map();
  for (let index = from; index < to; index++) if (at.has(index)) kept.set(index, at.get(index));
  const free = rows.filter((made) => !kept.has(made.index));
  if (free.some((made) => made.contains(document.activeElement))) document.activeElement.blur();
  for (const made of free) made.remove();
  const next = [];
  for (let index = from; index < to; index++) {
    const made = kept.get(index) ?? free.pop() ?? blank();
    fill(made, index);
    next.push(made);
  }
  above.firstChild.style.height = `${from * height}px`;
  below.firstChild.style.height = `${(total - to) * height}px`;
  place(next);
  rows = next;
  drawn = [from, to];
  want();
}

// Put rows where they belong; those that stay are not touched.
function place(next) {
  if (!rows.length) body.replaceChildren(above, below);
  let before = above;
  for (const made of next) {
    if (before.nextSibling !== made) before.after(made);
    before = made;
  }
}

// Fetch missing rows near the window: the chunk in the middle first.
async function want() {
  if (asked) return;
  const [from, to] = drawn;
  const middle = Math.floor((from + to) / 2 / CHUNK);
  const all = [middle, Math.floor(from / CHUNK), Math.floor(Math.max(from, to - 1) / CHUNK)];
  const missing = all.find((chunk) => !chunks.has(chunk) && chunk * CHUNK < total);
  if (missing === undefined) return;
  asked = fetchChunk(missing);
  await asked.catch(() => new Promise((done) => setTimeout(done, 1000)));
  asked = null;
  draw(true);
}

async function fetchChunk(chunk) {
  const joined = table.dataset.rows.includes("?") ? "&" : "?";
  const answer = await fetch(`${table.dataset.rows}${joined}start=${chunk * CHUNK}&count=${CHUNK}`);
  if (!answer.ok) throw new Error(answer.statusText);
  const found = await answer.json();
  chunks.set(chunk, found.rows);
  if (chunks.size > KEPT) chunks.delete(chunks.keys().next().value);
  count(found.total);
}

function count(found) {
  if (found === total) return;
  total = found;
  table.setAttribute("aria-rowcount", total + 1);
  document.querySelector("[data-total]").textContent = total.toLocaleString("en");
}

// The URL says which row is at the top.
function keepPlace() {
  const [first] = near();
  const address = new URL(location.href);
  const page = Math.floor(first / PAGE) + 1;
  if (page > 1) address.searchParams.set("page", page);
  else address.searchParams.delete("page");
  if (address.href !== location.href) history.replaceState(null, "", address);
}

let waiting = false;
window.addEventListener(
  "scroll",
  () => {
    if (!waiting) {
      waiting = true;
      requestAnimationFrame(() => {
        waiting = false;
        draw();
      });
    }
    clearTimeout(timer);
    timer = setTimeout(keepPlace, 250);
  },
  { passive: true },
);
// Rows of another height: the one at the top stays there.
window.addEventListener("resize", () => {
  const [before, first] = [height, topmost];
  height = heightOfRow();
  draw(true); // now the table is as long as it is going to be
  if (height !== before && first > 0) scrollToRow(first);
  draw(true);
});

// Up and down go from row to row.
body.addEventListener("keydown", (event) => {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  const here = event.target.closest("tr");
  if (!step || !here) return;
  event.preventDefault();
  const next = (step > 0 ? here.nextElementSibling : here.previousElementSibling)?.querySelector("a");
  next?.focus();
});

// A running run gets more rows: incomplete chunks are fetched again.
document.querySelector("main").addEventListener("refreshed", async () => {
  const full = (found) => found.length === CHUNK;
  for (const [chunk, found] of chunks) if (!full(found)) chunks.delete(chunk);
  if (chunks.size === 0 || drawn[1] >= total) await fetchChunk(Math.floor(drawn[0] / CHUNK)).catch(() => {});
  else await fetchChunk(Math.floor(Math.max(0, total - 1) / CHUNK)).catch(() => {});
  draw(true);
});

if (total > 0) {
  document.querySelector("[data-pager]").hidden = true;
  const start = Number(table.dataset.start);
  const given = [...body.rows].map((made) => ({
    url: made.querySelector("a").getAttribute("href"),
    kind: made.cells[3].className,
    cells: [...made.cells].map((cell) => cell.textContent),
  }));
  const whole = given.length === total - start || given.length === CHUNK;
  if (start === 0 && whole) chunks.set(0, given);
  above.firstChild.style.height = `${start * height}px`;
  below.firstChild.style.height = `${(total - start - given.length) * height}px`;
  body.prepend(above);
  body.append(below);
  drawn = [start, start + given.length];
  if (start > 0 && window.scrollY === 0) scrollToRow(start);
  if (!chunks.size) want();
}
