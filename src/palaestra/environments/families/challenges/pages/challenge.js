// What all challenges share: talking to their site, and small helps for building pages.
const post = async (path, value) =>
  (await fetch(path, { method: "POST", body: JSON.stringify(value) })).json();
const shown = post("/shown"); // what the page may know from the start
const ask = (value) => post("/ask", value);
const $ = (id) => document.getElementById(id);

// Sends what was done; the site answers with the code, if that was the task.
async function prove(value) {
  const { said } = await post("/check", value);
  $("result").textContent = said;
}

// Adds an element with properties such as {textContent, onclick} to another one.
function add(to, tag, properties = {}) {
  const made = Object.assign(document.createElement(tag), properties);
  to.append(made);
  return made;
}

// A canvas at a fixed place of the page, so that what is painted on it is nowhere else.
function paper(width, height) {
  const canvas = Object.assign(document.createElement("canvas"), { width, height });
  document.querySelector("main").prepend(canvas);
  const pen = canvas.getContext("2d");
  pen.font = "28px sans-serif";
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  return { canvas, pen };
}
