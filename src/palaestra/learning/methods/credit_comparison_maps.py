"""The browser's part of a comparison page: its heat maps, their style and their script.

The script draws one map per rule from the page's JSON; see `credit_comparison_page.py`.
"""

MAPS = """<section id="maps"><h2>Advantages per turn</h2>
<p class=note>A row is a rollout (filled dot: solved), a column a turn, a block a group of the same
task. Colour runs to each rule's own 95th percentile. Point at a turn, or use the arrow keys.</p>
<div class=legend aria-hidden=true><span>worse than expected</span><i class=n5></i><i class=n4></i>
<i class=n3></i><i class=n2></i><i class=n1></i><i class=zero></i><i class=p1></i><i class=p2></i>
<i class=p3></i><i class=p4></i><i class=p5></i><span>better</span></div>
<div class=maps></div><noscript>The maps are drawn by a script; the tables need none.</noscript>
</section>"""

STYLE = """
:root{--bg:#fbfbfa;--card:#fff;--ink:#1c2024;--dim:#60666d;--line:#e3e5e8;--link:#0b5cad;
--zero:#e9ebee;--p1:#d3e4f5;--p2:#a3c9ea;--p3:#65a7da;--p4:#2b7cc0;--p5:#0b4c8c;
--n1:#fae0cd;--n2:#f4bd97;--n3:#ea9055;--n4:#d1622a;--n5:#9c380c;
--c1:#e6dcf2;--c2:#cbb5e4;--c3:#a988d0;--c4:#8258b5;--c5:#5b2e91}
@media (prefers-color-scheme:dark){:root{--bg:#14171a;--card:#1b1f23;--ink:#e7eaed;--dim:#9aa3ac;
--line:#2e343a;--link:#7db8f0;--zero:#2b3036;--p1:#1e4364;--p2:#245b8c;--p3:#327dbd;--p4:#56a1de;
--p5:#a5d2f8;--n1:#5b3318;--n2:#81481f;--n3:#b26129;--n4:#e1884a;--n5:#fcc297;
--c1:#33284a;--c2:#4d3a73;--c3:#7053a4;--c4:#9f7fd4;--c5:#cdb6f4}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.5 system-ui,sans-serif;
font-variant-numeric:tabular-nums}
main{max-width:1240px;margin:0 auto;padding:28px 20px 80px}
h1{font-size:1.5rem;line-height:1.25;margin:0 0 4px;overflow-wrap:anywhere}
h2{font-size:1.05rem;margin:0 0 4px}
.lead,.note{color:var(--dim);margin:0 0 10px;max-width:80ch}
section{background:var(--card);border:1px solid var(--line);border-radius:12px;padding:16px 18px;
margin-top:18px}
.wide{overflow-x:auto}
table{border-collapse:collapse;font-size:.9rem}
th,td{padding:5px 12px;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}
tr:last-child>*{border-bottom:0}
thead th{color:var(--dim);font-weight:500}
th:first-child,.reply{text-align:left}
tbody th{font-weight:600}
td.reply{max-width:26ch;overflow:hidden;text-overflow:ellipsis}
td.bar{background:linear-gradient(90deg,var(--p1) calc(var(--v)*100%),transparent 0)}
td.along{background:color-mix(in srgb,var(--p2) calc(var(--v)*100%),transparent)}
td.against{background:color-mix(in srgb,var(--n2) calc(var(--v)*100%),transparent)}
td.self{background:var(--zero)}
a{color:var(--link)}
ul{margin:4px 0;padding-left:20px}
dl{display:grid;grid-template-columns:max-content 1fr;gap:4px 18px;margin:6px 0 0}
dt{font-weight:600}dd{margin:0;color:var(--dim)}
@media (max-width:640px){dl{grid-template-columns:1fr}dd{margin-bottom:6px}}
.legend{display:flex;align-items:center;gap:2px;font-size:.8rem;color:var(--dim);margin:0 0 14px}
.legend i{width:18px;height:12px;border-radius:2px;display:block}
.legend span{margin:0 6px 0 0}.legend i+span{margin:0 0 0 6px}
.maps{display:flex;flex-wrap:wrap;gap:20px}
figure{margin:0;max-width:100%;overflow-x:auto}
figcaption{font-weight:600;font-size:.9rem;margin-bottom:4px}
svg{display:block;border-radius:4px}
svg:focus-visible{outline:2px solid var(--link);outline-offset:3px}
rect{shape-rendering:crispEdges}
.cursor{fill:none;stroke:var(--ink);stroke-width:2}
circle{fill:none;stroke:var(--dim);stroke-width:1.2}circle.ok{fill:var(--dim)}
.zero{fill:var(--zero);background:var(--zero)}
.none{fill:none;stroke:var(--line)}
#tip{position:fixed;z-index:1;max-width:min(380px,92vw);padding:10px 12px;border-radius:10px;
background:var(--card);border:1px solid var(--line);box-shadow:0 6px 24px #0004;font-size:.82rem;
pointer-events:none;overflow-wrap:anywhere}
#tip b{font-weight:600}#tip p{margin:0 0 4px}#tip .dim{color:var(--dim)}
#tip table{margin-top:6px;width:100%;font-size:.8rem}#tip td{padding:2px 4px;border:0}
#tip td:first-child{text-align:left}
#tip i{display:inline-block;width:10px;height:10px;border-radius:2px;margin-right:7px}
""" + "".join(
    f".{kind}{n}{{fill:var(--{kind}{n});background:var(--{kind}{n})}}\n"
    for kind in "pnc"
    for n in range(1, 6)
)

SCRIPT = """
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const rows = data.trajectories;
const longest = Math.max(...rows.map(row => row.turns.length));
const wide = Math.max(6, Math.min(20, Math.floor(190 / longest)));  // of a cell, in px
const tall = Math.max(6, Math.min(14, Math.floor(520 / rows.length)));
const gutter = 16, gap = 7, width = gutter + longest * (wide + 1);
let height = 0;
const tops = rows.map((row, i) => {
  if (i && row.group !== rows[i - 1].group) height += gap;
  height += tall + 1;
  return height - tall - 1;
});
const left = k => gutter + k * (wide + 1);

const signs = (i, k) => data.rules.map(rule => rule.advantages[i][k])
  .reduce(([up, down], v) => [up + (v > 1e-8), down + (v < -1e-8)], [0, 0]);
const conflict = rows.map((row, i) => row.turns.map((_, k) => {
  const [up, down] = signs(i, k);
  return up * down;
}));

const maps = data.rules.map(rule => ({name: rule.name, values: rule.advantages, kind: "pn"}));
if (data.truth) maps.push({
  name: "truth (measured)", kind: "pn", truth: true,
  values: data.truth.advantages.map(row => row.map(found => found ? found.mean : null)),
});
if (data.rules.length > 1)
  maps.push({name: "pairs of rules with opposite signs", values: conflict, kind: "c"});
for (const map of maps) {
  const sizes = map.values.flat().filter(v => v !== null).map(Math.abs)
    .filter(v => v > 1e-8).sort((a, b) => a - b);
  const rank = map.kind === "c" ? 1 : 0.95;
  map.scale = sizes.length ? sizes[Math.floor(rank * (sizes.length - 1))] : 1;
}
function tone(map, value) {
  if (value === null) return "none";
  if (Math.abs(value) <= 1e-8) return "zero";
  const kind = map.kind === "c" ? "c" : value > 0 ? "p" : "n";
  return kind + Math.min(5, Math.ceil(5 * Math.abs(value) / map.scale - 1e-9));
}

const box = document.querySelector(".maps"), tip = document.getElementById("tip");
let chosen = [0, 0];
for (const map of maps) {
  const figure = box.appendChild(document.createElement("figure"));
  figure.appendChild(document.createElement("figcaption")).textContent = map.name;
  let marks = "";
  rows.forEach((row, i) => {
    const middle = tops[i] + tall / 2;
    marks += `<circle class="${row.success ? "ok" : ""}" cx="6" cy="${middle}" r="3"/>`;
    row.turns.forEach((_, k) => {
      marks += `<rect class="${tone(map, map.values[i][k])}" data-i="${i}" data-k="${k}"` +
        ` x="${left(k)}" y="${tops[i]}" width="${wide}" height="${tall}"/>`;
    });
  });
  figure.insertAdjacentHTML("beforeend", `<svg tabindex="0" role="img" width="${width}"` +
    ` height="${height}">${marks}<rect class="cursor" width="${wide}" height="${tall}"` +
    ` visibility="hidden" pointer-events="none"/></svg>`);
  const svg = figure.lastElementChild;
  svg.setAttribute("aria-label", `${map.name}: ${rows.length} rollouts by ${longest} turns; ` +
    "arrow keys walk over the turns");
  svg.addEventListener("pointermove", event => {
    const {i, k} = event.target.dataset;
    if (i !== undefined) choose(+i, +k, event.clientX, event.clientY);
  });
  svg.addEventListener("pointerleave", hide);
  svg.addEventListener("blur", hide);
  svg.addEventListener("focus", () => { if (svg.matches(":focus-visible")) at(svg, ...chosen); });
  svg.addEventListener("keydown", event => {
    const step = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]};
    if (event.key === "Escape") return hide();
    if (!(event.key in step)) return;
    event.preventDefault();
    const clamp = (v, n) => Math.max(0, Math.min(n - 1, v));
    const i = clamp(chosen[0] + step[event.key][0], rows.length);
    at(svg, i, clamp(chosen[1] + step[event.key][1], rows[i].turns.length));
  });
}

function at(svg, i, k) {
  const edge = svg.getBoundingClientRect();
  choose(i, k, edge.left + left(k) + wide, edge.top + tops[i] + tall);
}
function choose(i, k, x, y) {
  chosen = [i, k];
  for (const cursor of document.querySelectorAll(".cursor")) {
    cursor.setAttribute("x", left(k));
    cursor.setAttribute("y", tops[i]);
    cursor.setAttribute("visibility", "visible");
  }
  tell(i, k);
  tip.hidden = false;
  const {width: w, height: h} = tip.getBoundingClientRect();
  tip.style.left = Math.max(4, x + 16 + w > innerWidth ? x - w - 12 : x + 16) + "px";
  tip.style.top = Math.max(4, y + 16 + h > innerHeight ? y - h - 12 : y + 16) + "px";
}
function hide() {
  tip.hidden = true;
  for (const cursor of document.querySelectorAll(".cursor"))
    cursor.setAttribute("visibility", "hidden");
}
function add(parent, kind, text, name) {
  const made = parent.appendChild(document.createElement(kind));
  if (text) made.textContent = text;
  if (name) made.className = name;
  return made;
}
const signed = v => (v > 0 ? "+" : v < 0 ? "−" : "") + Math.abs(v).toFixed(3);
function tell(i, k) {
  const row = rows[i], turn = row.turns[k];
  tip.replaceChildren();
  const end = row.success ? "solved" : "not solved";
  add(add(tip, "p"), "b", `${row.key}, turn ${k + 1} of ${row.turns.length}`);
  add(tip, "p", `${end}, return ${signed(row.return)}`, "dim");
  if (turn.observation) add(tip, "p", turn.observation, "dim");
  const reply = add(tip, "p");
  add(reply, "b", turn.reply || "(nothing)");
  const notes = [turn.valid ? "" : "not understood", `reward ${signed(turn.reward)}`];
  add(reply, "span", "  " + notes.filter(Boolean).join(", "), "dim");
  const table = add(tip, "table");
  for (const map of maps) {
    const value = map.values[i][k];
    if (value === null) continue;
    const line = add(table, "tr"), name = add(line, "td");
    add(name, "i", "", tone(map, value));
    name.append(map.name);
    const error = map.truth
      ? ` ± ${data.truth.advantages[i][k].error.toFixed(3)}` : "";
    add(line, "td", map.kind === "c" ? String(value) : signed(value) + error);
  }
}
for (const link of document.querySelectorAll("a[data-i]"))
  link.addEventListener("click", event => {
    event.preventDefault();
    const svg = box.querySelector("svg"), {i, k} = link.dataset;
    svg.scrollIntoView({block: "center"});
    svg.focus({preventScroll: true});
    at(svg, +i, +k);
  });
"""
