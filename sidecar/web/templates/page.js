// Keeps a page up to date without a reload: fetches it again and changes only what differs, so that focus and scrolling stay.
// Without this script the page refreshes itself.
(() => {
  "use strict";
  const root = document.documentElement;
  const every = Number(root.dataset.every) * 1000;
  const button = document.getElementById("times");
  const unreached = document.getElementById("unreached");
  let local = false;
  let answered = Date.now();
  try { local = localStorage.getItem("times") === "local"; } catch { /* storage is off */ }

  const text = (at, options) => new Intl.DateTimeFormat([], options).format(at);
  const long = { dateStyle: "medium", timeStyle: "long" };
  const short = { year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit" };

  function localise(within) {
    for (const time of within.querySelectorAll("time")) {
      const at = new Date(time.dateTime);
      time.dataset.utc ??= time.textContent;
      time.title = local ? `${time.dataset.utc} UTC` : text(at, long);
      time.textContent = local ? text(at, time.dataset.utc.length < 12 ? { timeStyle: "medium" } : short) : time.dataset.utc;
    }
    button.textContent = local ? "Show UTC" : "Show local times";
    button.hidden = false;
  }

  function morph(old, next) {
    if (old.nodeType !== next.nodeType || old.nodeName !== next.nodeName) return old.replaceWith(next);
    if (old.nodeType !== Node.ELEMENT_NODE) { if (old.data !== next.data) old.data = next.data; return; }
    for (const { name } of [...old.attributes]) if (!next.hasAttribute(name) && name !== "open") old.removeAttribute(name);
    for (const { name, value } of next.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    let place = old.firstChild;
    for (const child of [...next.childNodes]) {
      const known = child.id ? [...old.children].find((each) => each.id === child.id) : null;
      const same = known ?? (place && !place.id && !child.id && place.nodeName === child.nodeName ? place : null);
      if (!same) { old.insertBefore(child, place); continue; }
      if (same === place) place = place.nextSibling;
      else old.insertBefore(same, place);
      morph(same, child);
    }
    while (place) { const gone = place; place = place.nextSibling; gone.remove(); }
  }

  async function update() {
    try {
      const answer = await fetch(location.href, { cache: "no-store", signal: AbortSignal.timeout(10000) });
      if (!answer.ok) throw new Error(await answer.text());
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      localise(page);
      document.title = page.title;
      for (const part of ["header", "main"]) morph(document.querySelector(part), page.querySelector(part));
      answered = Date.now();
      root.classList.remove("unreached");
    } catch (error) {
      const seconds = Math.round((Date.now() - answered) / 1000);
      const why = error.name === "Error" ? error.message.trim().slice(0, 200) : "the sidecar does not answer";
      unreached.textContent = `This page is ${seconds} s old and cannot be updated: ${why}`;
      unreached.hidden = false;
      root.classList.add("unreached");
      document.title = document.title.replace(/^(\(not updated\) )?/, "(not updated) ");
    }
  }

  button.addEventListener("click", () => {
    local = !local;
    try { localStorage.setItem("times", local ? "local" : "utc"); } catch { /* storage is off */ }
    localise(document);
  });
  localise(document);
  if (every > 0) {
    let asking = false;
    const soon = async () => {
      if (asking || document.hidden) return;
      asking = true;
      await update();
      asking = false;
    };
    setInterval(soon, every);
    document.addEventListener("visibilitychange", soon);
  }
})();
