"""A small site for tests, with all that a browser is asked for."""

from __future__ import annotations

from palaestra.browser.sites import Request, Response

PAGES = {
    "/": """<!doctype html><title>Home</title><h1>Home</h1>
        <p>Now: <span id=now></span> <span id=chance></span></p>
        <a href="/next">Next</a> <a href="/next" target=_blank>In a tab</a>
        <a href="http://elsewhere/">Elsewhere</a>
        <label>Name <input id=name></label> <button id=go disabled>Go</button>
        <label>Size <select id=size><option>small<option>large</select></label>
        <input type=file id=file aria-label=File><output id=out role=status></output>
        <script>
          const out = document.getElementById("out");
          document.getElementById("now").textContent = Date.now();
          document.getElementById("chance").textContent = Math.random();
          document.getElementById("name").addEventListener("input", (event) => {
            document.getElementById("go").disabled = !event.target.value;
          });
          document.getElementById("go").addEventListener("click", () => {
            setTimeout(() => { out.textContent = "went after " + performance.now(); }, 500);
          });
          document.getElementById("size").addEventListener("change", (event) => {
            out.textContent = "size " + event.target.value;
          });
          document.getElementById("file").addEventListener("change", async (event) => {
            out.textContent = "file " + (await event.target.files[0].text());
          });
        </script>""",
    "/next": "<!doctype html><title>Next</title><h1>Next</h1><p id=now></p>"
    "<script>document.getElementById('now').textContent = Date.now()</script>",
    "/dialogs": """<!doctype html><title>Dialogs</title><button id=alert>Alert</button>
        <button id=confirm>Confirm</button><button id=prompt>Prompt</button>
        <p id=out></p><script>
          for (const kind of ["alert", "confirm", "prompt"])
            document.getElementById(kind).addEventListener("click", () => {
              const found = window[kind](kind + "?", "old");
              document.getElementById("out").textContent = kind + ": " + found;
            });
        </script>""",
    "/covered": """<!doctype html><title>Covered</title><button id=below>Below</button>
        <div style="position:fixed;inset:0;background:#eee">A cover</div>""",
    "/parts": """<!doctype html><title>Parts</title><iframe src="/inner" title=Inner></iframe>
        <div id=host></div><script>
          const root = document.getElementById("host").attachShadow({ mode: "closed" });
          root.innerHTML = "<button>In the shadow</button><p role=status></p>";
          root.querySelector("button").addEventListener("click", () => {
            root.querySelector("p").textContent = "shadow was clicked";
          });
        </script>""",
    "/inner": """<!doctype html><button style="margin:20px">In the frame</button><p role=status></p>
        <script>document.querySelector("button").addEventListener("click", () => {
          setTimeout(() => { document.querySelector("p").textContent = "frame was clicked"; }, 300);
        });</script>""",
    "/form": """<!doctype html><title>Form</title><label>Name <input></label>
        <label>Text <textarea></textarea></label> <input type=checkbox aria-label=Agreed>
        <label>Size <select><option>small<option>large</select></label>""",
    "/broken": """<!doctype html><title>Broken</title><p style="width:300px;font:20px monospace">
        Some words, and then <a href="/next">a link goes on</a>, and
        <a href="/next">one</a>.</p>""",
    "/long": """<!doctype html><title>Long</title><div style="height:2000px">Top</div>
        <button onclick="this.textContent = 'Found'">Deep</button>""",
    "/drag": """<!doctype html><title>Drag</title>
        <div id=what draggable=true style="width:60px;height:40px" role=img aria-label=What></div>
        <div id=there style="width:90px;height:60px" role=img aria-label=There></div>
        <p role=status></p><script>
          const there = document.getElementById("there");
          document.getElementById("what").addEventListener("dragstart", (event) => {
            event.dataTransfer.setData("text/plain", "it");
          });
          there.addEventListener("dragover", (event) => event.preventDefault());
          there.addEventListener("drop", (event) => {
            event.preventDefault();
            document.querySelector("p").textContent =
              "dropped " + event.dataTransfer.getData("text/plain");
          });
        </script>""",
    "/data": """<!doctype html><title>Data</title><button>Load</button><p role=status></p><script>
          document.querySelector("button").addEventListener("click", async () => {
            const found = await (await fetch("/json", { method: "POST", body: "a=1" })).json();
            await new Promise((done) => setTimeout(done, 200));
            document.querySelector("p").textContent = found.said;
          });
        </script>""",
    "/endless": "<!doctype html><title>Endless</title><button onclick='for (;;) {}'>Hang</button>",
    "/hover": """<!doctype html><title>Hover</title><style>button:hover { color: red }</style>
        <button onmouseover="document.querySelector('p').textContent = 'hovered'">Here</button>
        <p role=status></p>""",
    "/opener": """<!doctype html><title>Opener</title><p role=status></p>
        <button onclick="open('/opened', 'opened', 'width=200,height=100')">Open</button><script>
          function tell() {
            setTimeout(() => { document.querySelector("p").textContent = "told"; }, 500);
          }
        </script>""",
    "/opened": """<!doctype html><title>Opened</title>
        <button onclick="opener.tell(); window.close()">Tell and close</button>""",
    "/list": """<!doctype html><title>List</title><a href="/note.txt">Note</a>
        <input type=file aria-label=File>""",
    "/huge": """<!doctype html><title>Huge</title><body><script>
          for (let number = 0; number < 50000; number++)
            document.body.append(Object.assign(document.createElement("button"),
              { textContent: number }));
        </script>""",
    "/ways-out": """<!doctype html><title>Ways out</title><p role=status></p><script>
          const tried = async (name, what) => {
            try { await what(); return name + " got out"; } catch { return name + " refused"; }
          };
          const socket = (address) => new Promise((done, fail) => {
            const one = new WebSocket(address); one.onopen = done; one.onerror = fail;
          });
          const picture = (address) => new Promise((done, fail) => {
            const one = new Image(); one.onload = done; one.onerror = fail; one.src = address;
          });
          Promise.all([
            tried("host", () => fetch("http://elsewhere/", { mode: "no-cors" })),
            tried("loopback", () => fetch("http://127.0.0.1:1/", { mode: "no-cors" })),
            tried("private", () => fetch("http://10.0.0.1/", { mode: "no-cors" })),
            tried("file", () => fetch("file:///etc/passwd")),
            tried("picture", () => picture("file:///usr/share/pixmaps/debian-logo.png")),
            tried("socket", () => socket("ws://127.0.0.1:1/")),
            tried("peer", () => new RTCPeerConnection()),
            tried("worker", () => navigator.serviceWorker.register("/worker.js")),
          ]).then((all) => { document.querySelector("p").textContent = all.join(", "); });
        </script>""",
}


def shop(request: Request) -> Response:
    """Answer a request as the site of the tests."""
    if request.path == "/json":
        said = f"{request.method} {request.body.decode()}"
        return Response(f'{{"said": "{said}"}}'.encode(), "application/json")
    if request.path == "/note.txt":
        attached = {"Content-Disposition": 'attachment; filename="../note.txt"'}
        return Response(b"noted", "text/plain", headers=attached)
    if request.path not in PAGES:
        return Response(b"There is no such page.", "text/plain", 404)
    return Response(PAGES[request.path].encode())
