// The clock and the chance of a page belong to its task: time passes only where it is granted, and
// random numbers come from a seed. Called with {now, seed, key}: milliseconds since 1970, 32 bits;
// a document that came with an answer of the world's has its own in the header Server-Timing.
// With a shift, time is real: that of this machine and the shift, in milliseconds.
({ now, seed, shift = null, key }) => {
  const symbol = Symbol.for(key);
  const [navigation] = performance.getEntriesByType("navigation");
  const timing = navigation && navigation.serverTiming.find((one) => one.name === key);
  if (timing) [now, seed, shift = null] = timing.description.split(" ").map(Number);
  let outer = null;
  try { outer = window.top !== window ? window.top[symbol] : null; } catch { /* another site's */ }
  const native = {
    Date, fetch: window.fetch, frame: window.requestAnimationFrame.bind(window),
    send: XMLHttpRequest.prototype.send, hop: new MessageChannel(),
    timeout: window.setTimeout.bind(window),
  };
  const hide = (object, name, value) =>
    Object.defineProperty(object, name, { value, writable: true, configurable: true });

  // ── time ────────────────────────────────────────────────────────────────
  const real = shift !== null;
  const realClock = {
    get now() { return native.Date.now() + shift; },
    // Waits, but not so long that the browser would count as hanging.
    frame: () => new Promise((done) => native.frame(done)), // resolves as one is drawn
    async advance(span) {
      const some = Math.min(span, 10000);
      await new Promise((done) => native.timeout(done, some));
      return { left: span - some, pending: 0 };
    },
    draws: () => count,
  };
  const clock = outer || (real ? realClock : {
    now, start: now, number: 0, waiting: new Map(), pending: 0,
    next(end) {
      let found = null;
      for (const one of this.waiting.values())
        if (one.at <= end && (found === null || one.at < found.at)) found = one; // oldest first
      return found;
    },
    frame: () => new Promise((done) => native.frame(done)), // resolves as one is drawn
    // Runs what is due, in order, each with its microtasks; resolves to whether the page is quiet.
    async advance(span) {
      const end = this.now + span;
      await hop();
      for (let runs = 0; runs < 20000 && this.pending === 0; runs++) {
        const one = this.next(end);
        if (one === null) break;
        this.now = Math.max(this.now, one.at);
        if (one.every) { this.waiting.delete(one.id); this.waiting.set(one.id, one); one.at = this.now + one.every; }
        else this.waiting.delete(one.id);
        try { one.run(); } catch (error) { window.reportError(error); }
        await hop();
      }
      if (this.pending === 0) this.now = end;
      return { left: end - this.now, pending: this.pending };
    },
    hold(program) {
      const waiting = [...this.waiting.values()].map((one) => ({ ...one }));
      this.held = { now: this.now, number: this.number, waiting, draws: count, program };
    },
    // Goes back to what was held and runs the program that begins there; resolves to its value.
    async begin(other, given) {
      const first = document.createElement("i");
      first.tabIndex = -1;
      document.body.prepend(first);
      first.focus({ preventScroll: true });
      first.remove(); // from where it was, the key Tab goes on
      getSelection().removeAllRanges();
      for (const one of document.querySelectorAll("*"))
        if (one.scrollTop || one.scrollLeft) [one.scrollTop, one.scrollLeft] = [0, 0];
      this.again(other);
      return this.held.program(given);
    },
    // Goes back to the time that was held, as if the document had come with another seed.
    again(other) {
      const { held } = this;
      [this.now, this.number, this.pending] = [held.now, held.number, 0];
      this.waiting = new Map(held.waiting.map((one) => [one.id, { ...one }]));
      sow(other);
      this.draw(held.draws);
      hide(Math, "random", random);
    },
    draws: () => count,
    draw(until) { while (count < until) bits(); },
  });
  let hopped = null;
  native.hop.port1.onmessage = () => hopped();
  const hop = () => new Promise((done) => { hopped = done; native.hop.port2.postMessage(0); });
  if (!outer) hide(window, symbol, clock);
  if (!outer) Object.defineProperty(window, symbol, { enumerable: false, writable: false, configurable: false });

  if (!real) {
    const later = (run, delay, every) => {
      const id = ++clock.number;
      const wait = Math.max(every ? 1 : 0, Math.min(Number(delay) || 0, 2 ** 31 - 1));
      clock.waiting.set(id, { id, at: clock.now + Math.max(wait, 1), every: every ? wait : 0, run });
      return id;
    };
    const handler = (run, rest) =>
      typeof run === "function" ? () => run.apply(window, rest) : () => (0, eval)(String(run));
    hide(window, "setTimeout", (run, delay, ...rest) => later(handler(run, rest), delay, false));
    hide(window, "setInterval", (run, delay, ...rest) => later(handler(run, rest), delay, true));
    const forget = (id) => { clock.waiting.delete(Number(id)); };
    for (const name of ["clearTimeout", "clearInterval", "cancelAnimationFrame", "cancelIdleCallback"])
      hide(window, name, forget);
    hide(window, "requestAnimationFrame", (run) => later(() => run(clock.now - clock.start), 16, false));
    hide(window, "requestIdleCallback", (run) =>
      later(() => run({ didTimeout: false, timeRemaining: () => 50 }), 1, false));

    hide(Performance.prototype, "now", () => clock.now - clock.start);
    for (const at of ["timeStamp"])
      Object.defineProperty(Event.prototype, at, { get: () => clock.now - clock.start, configurable: true });
  }

  const Shown = new Proxy(native.Date, {
    construct: (target, given, as) =>
      Reflect.construct(target, given.length ? given : [Math.floor(clock.now)], as),
    apply: () => new native.Date(Math.floor(clock.now)).toString(),
    get: (target, name) => (name === "now" ? nowOf : Reflect.get(target, name)),
  });
  const nowOf = () => Math.floor(clock.now);
  hide(window, "Date", Shown);
  hide(native.Date.prototype, "constructor", Shown);

  // ── requests and files: time stands still until they are read ────────────
  if (!real) {
    const counted = (promise) => {
      clock.pending++;
      const done = () => { clock.pending--; };
      promise.then(done, done);
      return promise;
    };
    if (native.fetch) hide(window, "fetch", (...given) => counted(native.fetch.apply(window, given)));
    for (const [kind, names] of [
      [Response, ["text", "json", "arrayBuffer", "blob", "formData"]], [Blob, ["text", "arrayBuffer"]],
    ])
      for (const name of names) {
        const read = kind.prototype[name];
        hide(kind.prototype, name, function () { return counted(read.call(this)); });
      }
    hide(XMLHttpRequest.prototype, "send", function (...given) {
      counted(new Promise((done) => this.addEventListener("loadend", done, { once: true })));
      return native.send.apply(this, given);
    });
  }

  // ── cookies: they end by the task's clock, for which the browser gets them without their end ──
  clock.cookies ??= []; // that scripts have set: text, address, end
  const jar = Object.getOwnPropertyDescriptor(Document.prototype, "cookie");
  const endOf = (attributes) => {
    let end = null;
    for (const one of attributes) {
      const [name, value] = [one.split("=", 1)[0].trim().toLowerCase(), one.slice(one.indexOf("=") + 1).trim()];
      if (name === "max-age" && /^-?\d+$/.test(value)) return clock.now + 1000 * value;
      if (name === "expires" && !Number.isNaN(native.Date.parse(value))) end = native.Date.parse(value);
    }
    return end;
  };
  Object.defineProperty(Document.prototype, "cookie", { ...jar, set(text) {
    const [pair, ...attributes] = String(text).split(";"), end = endOf(attributes);
    const plain = [pair, ...attributes.filter((one) => !/^\s*(expires|max-age)\s*(=|$)/i.test(one))].join(";");
    jar.set.call(this, end !== null && end <= clock.now ? `${plain}; max-age=0` : plain);
    clock.cookies.push([plain, location.href, end]);
  } });

  // ── chance: sfc32 (Doty-Humphrey 2010), seeded by splitmix32 ────────────
  if (outer) seed = Math.floor(window.top.Math.random() * 2 ** 32);
  const mixed = () => {
    seed = (seed + 0x9e3779b9) | 0;
    let z = seed;
    z = Math.imul(z ^ (z >>> 16), 0x21f0aaad);
    z = Math.imul(z ^ (z >>> 15), 0x735a2d97);
    return (z ^ (z >>> 15)) | 0;
  };
  let a, b, c, count;
  const bits = () => {
    const found = (((a + b) | 0) + count) | 0;
    count = (count + 1) | 0;
    a = b ^ (b >>> 9);
    b = (c + (c << 3)) | 0;
    c = ((c << 21) | (c >>> 11)) + found | 0;
    return found >>> 0;
  };
  const sow = (given) => {
    seed = given;
    [a, b, c, count] = [mixed(), mixed(), mixed(), 1];
    for (let round = 0; round < 12; round++) bits();
  };
  sow(seed);
  const random = () => ((bits() >>> 5) * 67108864 + (bits() >>> 6)) / 9007199254740992;
  hide(Math, "random", random);
  hide(Crypto.prototype, "getRandomValues", (array) => {
    const bytes = new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
    for (let at = 0; at < bytes.length; at++) bytes[at] = bits() >>> 24;
    return array;
  });

  // ── stillness: no caret that blinks, no movement in real time ───────────
  if (!real) {
    const still = new CSSStyleSheet();
    still.replaceSync(`*, ::before, ::after { caret-color: transparent !important;
      animation-duration: 0s !important; animation-delay: 0s !important;
      transition-duration: 0s !important; transition-delay: 0s !important;
      scroll-behavior: auto !important; }`);
    document.adoptedStyleSheets = [still];
    // The browser scrolls to a fragment while a page is laid out, at some real time, and follows what
    // moves: so once more in its own time, when its scripts are done.
    const toFragment = () => {
      let name = location.hash.slice(1);
      try { name = decodeURIComponent(name); } catch { /* it is not encoded */ }
      (document.getElementById(name) || document.getElementsByName(name)[0])?.scrollIntoView();
    };
    if (location.hash && navigation?.type !== "back_forward") {
      still.insertRule("* { overflow-anchor: none !important; }");
      window.addEventListener("load", () => setTimeout(toFragment, 50), { once: true });
    }
  }

  // ── ways out that have no use without a network ─────────────────────────
  for (const name of ["RTCPeerConnection", "webkitRTCPeerConnection", "RTCDataChannel",
    "WebTransport", "SharedWorker", "BroadcastChannel"])
    delete window[name];
  delete Navigator.prototype.serviceWorker;
}
