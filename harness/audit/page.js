"use strict";
(() => {
  const section = document.getElementById("tasks");
  const cards = new Map([...document.querySelectorAll("details[data-card]")].map((card) => [card.dataset.card, card]));

  // The table's own script has filtered its rows by then: it listens to the boxes themselves.
  const follow = () => {
    for (const row of section.querySelectorAll("tr[data-card]"))
      cards.get(row.dataset.card).hidden = row.classList.contains("out");
  };
  section.addEventListener("input", follow);
  section.addEventListener("change", follow);

  // It has sorted them by then, too.
  section.addEventListener("click", (event) => {
    if (!event.target.closest("th")) return;
    const list = document.getElementById("cards");
    for (const row of section.querySelectorAll("tr[data-card]")) list.append(cards.get(row.dataset.card));
  });

  const open = () => {
    const target = location.hash && document.getElementById(location.hash.slice(1));
    const part = target && target.closest("details");
    if (!part) return;
    part.open = true;
    part.scrollIntoView();
  };
  window.addEventListener("hashchange", open);
  // The same link again opens a part that was closed meanwhile.
  document.addEventListener("click", (event) => { if (event.target.closest("a[href^='#']")) setTimeout(open); });
  open();
})();
