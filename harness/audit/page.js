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

  const open = () => {
    const inside = /^#card-\d+$/.test(location.hash) && document.getElementById(location.hash.slice(1));
    if (!inside) return;
    inside.parentElement.open = true;
    inside.parentElement.scrollIntoView();
  };
  window.addEventListener("hashchange", open);
  // The same link again opens a card that was closed meanwhile.
  section.addEventListener("click", (event) => { if (event.target.closest("a")) setTimeout(open); });
  open();
})();
