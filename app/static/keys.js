// Keys: `g` and a letter goes to a page, `/` to the search, `j` and `k` along the rows, `c` compares
// what is chosen, `?` opens the help, which lists them all. A link that names a key (`data-press`) is
// opened by it. Typing in a field is never a key.
"use strict";

(() => {
  const SETTING = "nightlane.keys"; // "off": some people's input speaks single letters by itself
  const PATIENCE_MS = 1500; // between `g` and its letter
  let wentAt = 0;

  function typing(element) {
    return element.closest("input:not([type=checkbox], [type=radio]), textarea, select, [contenteditable]") !== null;
  }

  // The row that holds the focus, or the first or last one when none does. A row without a link
  // takes the focus itself; one that is folded away cannot. A row of a reader is opened at once.
  function moveRow(by) {
    const listed = document.querySelectorAll("[data-rows] > tbody > tr:not(.group), [data-rows] :is([data-job], [data-open])");
    const rows = [...listed].filter((row) => row.checkVisibility());
    if (!rows.length) return;
    const focused = rows.findIndex((row) => row.contains(document.activeElement));
    const here = focused < 0 ? rows.findIndex((row) => row.matches("[aria-current]")) : focused;
    const next = here < 0 ? (by > 0 ? 0 : rows.length - 1) : here + by;
    const row = rows[Math.min(Math.max(next, 0), rows.length - 1)];
    if (row.matches("[data-open]")) return open(rows[here], row);
    const link = row.querySelector("a");
    if (!link) row.tabIndex = -1;
    (link ?? row).focus();
    row.scrollIntoView({ block: "nearest" });
  }

  // Marked before its page is there: pressed again meanwhile, the key goes on from it.
  function open(shown, row) {
    shown?.removeAttribute("aria-current");
    row.setAttribute("aria-current", "true");
    if (row.contains(document.activeElement) || shown?.contains(document.activeElement)) row.focus();
    if (row !== shown) row.click();
  }

  function compare() {
    const form = document.querySelector("form[data-compare]");
    if (form && form.querySelector("input[type=checkbox]:checked")) form.requestSubmit();
    else location.assign("/compare");
  }

  // Another order of the same rows keeps what is chosen among them.
  document.addEventListener("click", (event) => {
    const link = event.target.closest("form[data-compare] thead a");
    if (!link) return;
    const ordered = new URL(link.href);
    ordered.searchParams.delete("job");
    for (const job of new FormData(link.closest("form")).getAll("job")) ordered.searchParams.append("job", job);
    link.href = ordered;
  });

  const pressed = (key) => document.querySelector(`[data-press="${CSS.escape(key)}"]`);

  function search() {
    const field = document.querySelector("[type=search]");
    if (!field) return location.assign("/runs#find"); // that of the runs
    field.focus();
    field.select();
  }

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || typing(event.composedPath()[0])) return;
    if (localStorage.getItem(SETTING) === "off") return;
    const after = Date.now() - wentAt < PATIENCE_MS;
    wentAt = 0;
    const page = after && /^[a-z]$/.test(event.key) && document.querySelector(`nav a[data-key="${event.key}"]`);
    if (page) location.assign(page.href);
    else if (event.key === "g") wentAt = Date.now();
    else if (event.key === "j") moveRow(1);
    else if (event.key === "k") moveRow(-1);
    else if (event.key === "c") compare();
    else if (event.key === "?") location.assign("/help");
    else if (event.key === "/") search();
    else if (pressed(event.key)) pressed(event.key).click();
    else return;
    event.preventDefault();
  });

  // The help page's switch; without script there are no keys, and no switch.
  const choice = document.getElementById("keys-on");
  if (choice) {
    choice.closest("[hidden]")?.removeAttribute("hidden");
    choice.checked = localStorage.getItem(SETTING) !== "off";
    choice.addEventListener("change", () => localStorage.setItem(SETTING, choice.checked ? "on" : "off"));
  }
})();
