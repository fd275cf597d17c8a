// Makes the pages faster to use; they work without it.

const EVERY = 2000; // milliseconds between two polls of a running run
const LAST = 5; // polls of an inactive run before polling stops
const SHARE = 10; // an incomplete page is fetched again for a tenth of the time at most

// Filters apply when they are changed; the URL then holds them.
for (const form of document.querySelectorAll("form[data-filters]")) {
  form.addEventListener("change", () => form.requestSubmit());
  form.addEventListener("submit", () => {
    for (const field of form.elements) if (field.name && !field.value) field.disabled = true;
  });
}
window.addEventListener("pageshow", () => {
  for (const field of document.querySelectorAll("form[data-filters] :disabled")) field.disabled = false;
});

// "/" goes to the search.
document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input, textarea, select, [contenteditable]");
  if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  document.querySelector("form.find input")?.focus();
});

// While a run is active its numbers are fetched again; the page keeps its position.
const main = document.querySelector("main[data-live]");
let version = null;
let quiet = 0; // polls without activity
let next = 0; // when an incomplete page may be fetched again

const waits = () => main.querySelector("[data-pending]") !== null;

async function look() {
  try {
    if (!document.hidden) {
      const state = await (await fetch(main.dataset.live)).json();
      const changed = version === null ? state.live : state.version !== version;
      version = state.version;
      const done = await move();
      if (waits()) {
        if (done || Date.now() >= next) await refresh();
      } else if ("settles" in main.dataset) return;
      else if (changed) await refresh();
      quiet = state.live || changed || waits() ? 0 : quiet + 1;
      if (quiet === LAST) return;
    }
  } catch {
    // the server is unreachable for now
  }
  setTimeout(look, waits() ? EVERY / 4 : EVERY);
}

// Show the progress of what the page waits for; return true once it is complete.
async function move() {
  const part = main.querySelector("[data-moves]");
  if (!part) return false;
  const answer = await fetch(part.dataset.moves);
  if (!answer.ok) return false;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  part.replaceChildren(...fresh.body.childNodes);
  if (part.children.length) return false;
  part.removeAttribute("data-moves");
  return true;
}

async function refresh() {
  const begun = Date.now();
  const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
  if (!answer.ok) return;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  const place = [window.scrollX, window.scrollY];
  for (const part of main.querySelectorAll("[data-part]")) {
    const other = fresh.querySelector(`[data-part="${part.dataset.part}"]`);
    if (other && other.innerHTML !== part.innerHTML) replace(part, other);
    if (other) part.toggleAttribute("data-pending", other.hasAttribute("data-pending"));
    if (other?.dataset.moves) part.dataset.moves = other.dataset.moves;
  }
  window.scrollTo(...place);
  next = Date.now() + SHARE * (Date.now() - begun);
  main.dispatchEvent(new CustomEvent("refreshed"));
}

// What a person has chosen, opened or focused in a part stays so.
function replace(part, other) {
  const chosen = new Set([...part.querySelectorAll("input:checked")].map((box) => box.value));
  const open = [...part.querySelectorAll("details")].map((piece) => piece.open);
  const focused = part.contains(document.activeElement) ? document.activeElement : null;
  const mark = focused?.getAttribute("href") ?? focused?.getAttribute("value");
  part.replaceChildren(...other.childNodes);
  for (const box of part.querySelectorAll("input[type=checkbox]")) box.checked = chosen.has(box.value);
  part.querySelectorAll("details").forEach((piece, index) => (piece.open = open[index] ?? piece.open));
  if (mark) {
    const again = [...part.querySelectorAll("a, input")];
    const same = (one) => one.getAttribute("href") === mark || one.getAttribute("value") === mark;
    again.find(same)?.focus({ preventScroll: true });
  }
}

if (main) look();
