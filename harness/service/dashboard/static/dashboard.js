"use strict";
// Everything works without this script; it adds the choice of a theme, keys, cards on narrow screens, durations, and
// the search in the steps of an attempt.
(() => {
  const root = document.documentElement;
  const themes = ["auto", "light", "dark"];
  const button = document.getElementById("theme");

  const stored = () => {
    try { return localStorage.getItem("theme") || "auto"; } catch { return "auto"; }
  };
  const apply = (theme) => {
    if (theme === "auto") { delete root.dataset.theme; } else { root.dataset.theme = theme; }
    if (button) { button.textContent = `theme: ${theme}`; }
  };

  apply(stored());
  if (button) {
    button.hidden = false;
    button.addEventListener("click", () => {
      const next = themes[(themes.indexOf(stored()) + 1) % themes.length];
      try { localStorage.setItem("theme", next); } catch { /* A private window: it lasts until the page is left. */ }
      apply(next);
    });
  }

  // On a narrow screen each row becomes a card, whose cells show the titles of their columns.
  const stack = () => {
    for (const table of document.querySelectorAll("main .scroll > table:not(.diff)")) {
      const titles = [...table.querySelectorAll("thead th")].map((cell) => cell.textContent);
      if (!titles.length) { continue; }
      table.classList.add("stacked");
      for (const row of table.tBodies[0].rows) {
        [...row.cells].forEach((cell, n) => { cell.dataset.title = titles[n] || ""; });
      }
    }
  };
  stack();
  document.addEventListener("htmx:afterSettle", stack);

  // Durations that go on are counted between the reports, from when they were loaded.
  const duration = (seconds) => {
    const minutes = seconds / 60;
    if (seconds < 100) { return `${Math.round(seconds)} s`; }
    return minutes < 100 ? `${Math.round(minutes)} min` : `${(minutes / 60).toFixed(1)} h`;
  };
  const count = () => {
    const now = performance.now() / 1000;
    for (const element of document.querySelectorAll("[data-elapsed]")) {
      element.dataset.since ||= String(now - Number(element.dataset.elapsed));
      element.textContent = duration(now - Number(element.dataset.since));
    }
  };
  count();
  document.addEventListener("htmx:afterSettle", count);
  setInterval(count, 1000);

  // The steps that contain the text of the search stay, with what is folded in them open. A page that was loaded again
  // while it was typed goes on with it.
  let sought = "";
  const texts = new WeakMap();
  const textOf = (step) => {
    if (!texts.has(step)) { texts.set(step, step.textContent.toLowerCase()); }
    return texts.get(step);
  };
  const search = (box) => {
    const steps = [...box.nextElementSibling.children];
    const text = sought.toLowerCase();
    let found = 0;
    for (const step of steps) {
      step.hidden = Boolean(text) && !textOf(step).includes(text);
      found += Number(!step.hidden);
      if (step.hidden) { continue; }
      for (const part of step.querySelectorAll("details")) {
        part.dataset.was ||= String(part.open);
        part.open = (Boolean(text) && part.textContent.toLowerCase().includes(text)) || part.dataset.was === "true";
      }
    }
    box.querySelector("output").textContent = text ? `${found} of ${steps.length} steps` : "";
  };
  const prepare = () => {
    for (const box of document.querySelectorAll("main .step-search[hidden]")) {
      const input = box.querySelector("input");
      let timer = 0;
      box.hidden = false;
      input.value = sought;
      input.addEventListener("input", () => {
        sought = input.value;
        clearTimeout(timer);
        timer = setTimeout(search, 100, box);
      });
      if (sought) { input.focus(); search(box); }
    }
  };
  prepare();
  document.addEventListener("htmx:afterSettle", prepare);

  // "g" and the first letter of a page goes there; "/" goes to the first filter; "j" and "k" walk along links of rows.
  let waiting = false;
  const rows = () => [...document.querySelectorAll("main tbody tr a:first-of-type")]
    .filter((link) => link.checkVisibility());
  const walk = (step) => {
    const links = rows();
    const at = links.indexOf(document.activeElement);
    const next = links[Math.max(0, Math.min(links.length - 1, at < 0 ? 0 : at + step))];
    if (next) { next.focus(); }
  };
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input, select, textarea");
    if (typing || event.ctrlKey || event.metaKey || event.altKey) { return; }
    if (waiting) {
      waiting = false;
      const link = document.querySelector(`nav a[data-key="${CSS.escape(event.key)}"]`);
      if (link) { link.click(); }
    } else if (event.key === "g") {
      waiting = true;
    } else if (event.key === "j" || event.key === "k") {
      walk(event.key === "j" ? 1 : -1);
    } else if (event.key === "/") {
      const filter = document.querySelector("main .filters:not([hidden]) :is(input, select)");
      if (filter) { event.preventDefault(); filter.focus(); }
    }
  });
})();
