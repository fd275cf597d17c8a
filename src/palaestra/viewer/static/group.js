// Advantages take a moment to compute: they are asked for once the page is shown.

const root = document.querySelector(".group");
const link = root.querySelector("a.compute");
if (link) {
  link.textContent = "being computed …";
  const answer = await fetch(link.href);
  if (answer.ok) {
    const parsed = new DOMParser().parseFromString(await answer.text(), "text/html");
    root.replaceWith(document.adoptNode(parsed.querySelector(".group")));
  } else link.textContent = "compute them";
}
