// Keyboard navigation of turns, loading on scroll, and colours without a new page.
// Everything here has a link that does the same without this script.

const MOST = 6; // chunks held in the page at once
const root = document.querySelector(".episode");
const column = root.querySelector(".conversation");
const [earlier, later] = ["earlier", "later"].map((name) => column.querySelector(`.more.${name}`));
const total = Number(root.dataset.turns);
const size = Number(root.dataset.chunk);
let current = null;
let busy = false;

const chunks = () => [...column.querySelectorAll(".chunk")];
const edge = (chunk, side) => Number(chunk.dataset[side]);
const turns = () => [...column.querySelectorAll(".turn")];

function address(turn) {
  const query = new URLSearchParams({ turn, colour: root.dataset.colour });
  if (root.dataset.diff === "1") query.set("diff", "1");
  return `${root.dataset.here}?${query}#turn-${turn}`;
}

async function fetched(from) {
  const query = new URLSearchParams({ from, colour: root.dataset.colour });
  if (root.dataset.diff === "1") query.set("diff", "1");
  const answer = await fetch(`${root.dataset.fragments}?${query}`);
  if (!answer.ok) throw new Error(await answer.text());
  const parsed = new DOMParser().parseFromString(await answer.text(), "text/html");
  return document.adoptNode(parsed.querySelector(".chunk"));
}

// Changes the column while what is on the screen stays where it is.
function keeping(change) {
  const seen = turns().find((turn) => turn.getBoundingClientRect().bottom > 0);
  const before = seen ? seen.getBoundingClientRect().top : 0;
  change();
  const still = seen && document.getElementById(seen.id);
  if (still) window.scrollBy(0, still.getBoundingClientRect().top - before);
}

function settle() {
  const every = chunks();
  const first = edge(every[0], "from");
  const last = edge(every.at(-1), "to");
  earlier.hidden = first === 0;
  later.hidden = last >= total;
  earlier.querySelector("a").href = address(Math.max(0, first - size) + 1);
  later.querySelector("a").href = address(last + 1);
  const end = column.querySelector(".end");
  if (end) end.hidden = last < total;
}

async function more(forward) {
  const every = chunks();
  const from = forward ? edge(every.at(-1), "to") : edge(every[0], "from") - size;
  if (busy || (forward ? from >= total : from < 0)) return false;
  busy = true;
  try {
    const chunk = await fetched(from);
    keeping(() => {
      if (forward) later.before(chunk);
      else earlier.after(chunk);
      const all = chunks();
      if (all.length > MOST) all.at(forward ? 0 : -1).remove();
      settle();
    });
  } finally {
    busy = false;
  }
  watchAgain();
  return true;
}

const watcher = new IntersectionObserver(
  (seen) => seen.forEach((entry) => entry.isIntersecting && more(entry.target === later)),
  { rootMargin: "1500px 0px" },
);
// Only a new observer reports what still intersects after a chunk has arrived.
function watchAgain() {
  for (const place of [earlier, later]) {
    watcher.unobserve(place);
    watcher.observe(place);
  }
}

function choose(turn, scroll = true) {
  current?.classList.remove("current");
  current = turn;
  turn.classList.add("current");
  turn.focus({ preventScroll: true });
  if (scroll) turn.scrollIntoView({ block: "start" });
  history.replaceState(null, "", address(turn.dataset.turn));
}

function here() {
  if (current?.isConnected) {
    const box = current.getBoundingClientRect();
    if (box.bottom > 0 && box.top < innerHeight) return current;
  }
  return null;
}

async function move(by) {
  const from = here();
  if (!from) {
    const seen = turns().find((turn) => turn.getBoundingClientRect().bottom > 20);
    if (seen) choose(seen);
    return;
  }
  const number = Number(from.dataset.turn) + by;
  if (number < 1 || number > total) return;
  if (!document.getElementById(`turn-${number}`)) await more(by > 0);
  const next = document.getElementById(`turn-${number}`);
  if (next) choose(next);
}

// Fetches every chunk again, since its tokens or its differences are to be shown now.
async function renew() {
  const every = chunks();
  const fresh = await Promise.all(every.map((chunk) => fetched(edge(chunk, "from"))));
  const number = current?.dataset.turn;
  keeping(() => every.forEach((chunk, i) => chunk.replaceWith(fresh[i])));
  if (number) {
    current = document.getElementById(`turn-${number}`);
    current?.classList.add("current");
  }
  settle();
}

async function colour(name) {
  const had = root.dataset.colour;
  root.classList.replace(`colour-${had}`, `colour-${name}`);
  root.dataset.colour = name;
  for (const link of root.querySelectorAll(".choice")) {
    if (link.dataset.colour === name) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  }
  if (had === "off" || name === "advantage") await renew();
  history.replaceState(null, "", address(current?.dataset.turn ?? edge(chunks()[0], "from") + 1));
}

function nextColour() {
  const names = [...root.querySelectorAll(".choice")].map((link) => link.dataset.colour);
  return colour(names[(names.indexOf(root.dataset.colour) + 1) % names.length]);
}

async function difference() {
  root.dataset.diff = root.dataset.diff === "1" ? "0" : "1";
  const link = root.querySelector('[data-press="d"]');
  link.textContent =
    root.dataset.diff === "1" ? "Whole observations" : "Only changes of observations";
  await renew();
  history.replaceState(null, "", address(current?.dataset.turn ?? edge(chunks()[0], "from") + 1));
}

const keys = {
  j: () => move(1),
  k: () => move(-1),
  t: nextColour,
  d: difference,
  "?": () => root.querySelector(".help").toggleAttribute("open"),
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, textarea, select, [contenteditable]")) return;
  if (Object.hasOwn(keys, event.key)) keys[event.key]();
  else if ("[]ge".includes(event.key)) {
    root.querySelector(`[data-press="${event.key}"]`)?.click();
  } else return;
  event.preventDefault();
});

root.addEventListener("click", (event) => {
  if (event.ctrlKey || event.metaKey || event.shiftKey) return;
  const link = event.target.closest("a");
  if (link?.matches(".choice")) {
    event.preventDefault();
    colour(link.dataset.colour);
  } else if (link?.matches('[data-press="d"]')) {
    event.preventDefault();
    difference();
  }
});

// An anchor that is not in the page is on another page of the same episode.
const wanted = /^#turn-(\d+)$/.exec(location.hash)?.[1];
if (wanted) {
  const turn = document.getElementById(`turn-${wanted}`);
  if (turn) {
    // A turn near the end of its chunk can stand at the top once more is below it.
    if (edge(chunks()[0], "to") - Number(wanted) < 20) await more(true);
    choose(turn);
  }
  else if (Number(wanted) >= 1 && Number(wanted) <= total) location.replace(address(wanted));
}
settle();
watchAgain();
