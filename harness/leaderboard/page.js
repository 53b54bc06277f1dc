"use strict";
(() => {
  const sections = [...document.querySelectorAll("section")].filter((s) => s.querySelector("table"));
  const collator = new Intl.Collator("en", { numeric: true });

  const compare = (a, b) => {
    if (a === null || b === null) return (a === null) - (b === null);
    return typeof a === "number" ? a - b : collator.compare(a, b);
  };

  const value = (row, column, numeric) => {
    const cell = row.cells[column];
    if (!numeric) return cell.textContent;
    return "v" in cell.dataset ? Number(cell.dataset.v) : null;
  };

  const sortBy = (table, column) => {
    const head = table.tHead.rows[0].cells[column];
    const numeric = !head.classList.contains("name");
    // Numbers start with the highest, unless they are ranks or the heading has another order; unknown values are always last.
    const first = head.dataset.first || (numeric && head.textContent !== "#" ? "descending" : "ascending");
    const other = first === "descending" ? "ascending" : "descending";
    const order = head.getAttribute("aria-sort") === first ? other : first;
    for (const cell of table.tHead.rows[0].cells) cell.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", order);
    const sign = order === "ascending" ? 1 : -1;
    const keyed = [...table.tBodies[0].rows].map((row) => [value(row, column, numeric), row]);
    keyed.sort(([a], [b]) => (a === null || b === null ? compare(a, b) : sign * compare(a, b)));
    table.tBodies[0].append(...keyed.map(([, row]) => row));
  };

  const hideSolvers = (table) => {
    const out = new Set();
    for (const row of table.tBodies[0].rows) if (row.classList.contains("out")) out.add(row.dataset.key);
    for (const part of document.querySelectorAll("[data-solver]"))
      part.classList.toggle("gone", out.has(part.dataset.solver));
  };

  for (const section of sections) {
    const table = section.querySelector("table");
    const filter = section.querySelector(".filter");
    const kind = section.querySelector(".kind");
    const count = section.querySelector(".count");
    const rows = [...table.tBodies[0].rows];
    const texts = rows.map((row) =>
      [...row.cells].filter((c) => c.classList.contains("name")).map((c) => c.textContent).join("\n").toLowerCase());
    const apply = () => {
      const terms = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
      let visible = 0;
      rows.forEach((row, n) => {
        const matches = terms.every((term) => texts[n].includes(term)) &&
          (!kind || !kind.value || (row.dataset.is || "").split(" ").includes(kind.value));
        row.classList.toggle("out", !matches);
        visible += matches;
      });
      count.textContent = `${visible} of ${rows.length}`;
      if (section.id === "solvers") hideSolvers(table);
    };
    [...table.tHead.rows[0].cells].forEach((cell, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...cell.childNodes);
      cell.append(button);
      button.addEventListener("click", () => sortBy(table, column));
    });
    table.classList.add("js");
    section.querySelector(".tools").hidden = false;
    filter.addEventListener("input", apply);
    if (kind) kind.addEventListener("change", apply);
    const more = section.querySelector(".more");
    if (more) more.addEventListener("change", () => table.classList.toggle("few", !more.checked));
    apply();
  }

  const theme = document.getElementById("theme");
  const themes = ["auto", "light", "dark"];
  theme.hidden = false;
  theme.addEventListener("click", () => {
    const next = themes[(themes.indexOf(document.documentElement.dataset.theme || "auto") + 1) % 3];
    if (next === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = next;
    theme.textContent = `theme: ${next}`;
  });
})();
