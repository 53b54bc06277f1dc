// The filter of the functions, and keys that walk along them. Without this script, everything is listed, except on a
// large page.
(() => {
  const filter = document.getElementById("filter");
  const only = document.getElementById("survived-only");
  const files = [...document.querySelectorAll(".code-file")].map((file) => ({
    element: file,
    name: file.dataset.name.toLowerCase(),
    functions: [...file.querySelectorAll(":scope > .function")].map((element) => ({
      element, name: element.dataset.name.toLowerCase(), survived: "survived" in element.dataset,
    })),
  }));
  const shown = () => files.filter((file) => !file.element.hidden)
    .flatMap((file) => file.functions.filter((one) => !one.element.hidden));

  const apply = () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const file of files) {
      let any = false;
      for (const one of file.functions) {
        const fits = words.every((word) => file.name.includes(word) || one.name.includes(word));
        one.element.hidden = !fits || (only.checked && !one.survived);
        any ||= !one.element.hidden;
        count += !one.element.hidden;
      }
      file.element.hidden = !any;
    }
    document.getElementById("shown").textContent = `${count} function${count === 1 ? "" : "s"}`;
  };

  // On a large page, the inside of a function is text until it is opened.
  document.addEventListener("toggle", (event) => {
    const text = event.target.querySelector(":scope > script[type='text/plain']");
    if (text) { text.outerHTML = text.textContent; }
  }, true);

  for (const name of ["filters", "keys"]) { document.getElementById(name).hidden = false; }
  filter.addEventListener("input", apply);
  only.addEventListener("change", apply);
  document.getElementById("open").addEventListener("click", () => {
    const functions = shown().map((one) => one.element);
    const open = functions.some((element) => !element.open);
    // Hundreds at a time keep the page fluent.
    for (const element of functions.slice(0, 300)) { element.open = open; }
  });
  apply();

  // A link to a file or a function that the filter hides shows it again.
  const reveal = () => {
    const target = document.getElementById(location.hash.slice(1));
    if (target && target.closest("[hidden]")) {
      filter.value = "";
      only.checked = false;
      apply();
      target.scrollIntoView();
    }
    // A link to a function opens it.
    if (target && target.matches(".function")) { target.open = true; }
  };
  window.addEventListener("hashchange", reveal);
  reveal();

  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input, select, textarea");
    if (event.key === "Escape" && event.target === filter) { filter.value = ""; apply(); }
    if (typing || event.ctrlKey || event.metaKey || event.altKey || !["n", "p"].includes(event.key)) { return; }
    const functions = shown().map((one) => one.element);
    const at = functions.indexOf(document.activeElement.closest(".function"));
    const next = functions[at < 0 ? 0 : at + (event.key === "n" ? 1 : -1)];
    if (next) { next.querySelector("summary").focus(); }
  });
})();
