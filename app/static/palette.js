// The command palette: Ctrl K opens it on every page. The server says what there is for what was
// typed; arrows choose, Enter goes there or does it, Escape closes it.
"use strict";

(() => {
  const opener = document.querySelector(".palette-open");
  if (!opener) return;
  const dialog = document.createElement("dialog");
  dialog.className = "palette";
  dialog.setAttribute("aria-label", "Command palette");
  const field = Object.assign(document.createElement("input"), { type: "text", autocomplete: "off", placeholder: "A page, a run, something to do" });
  const list = Object.assign(document.createElement("ul"), { id: "palette-list" });
  field.setAttribute("role", "combobox");
  field.setAttribute("aria-label", "Find a page, a run or something to do");
  field.setAttribute("aria-controls", list.id);
  field.setAttribute("aria-expanded", "true");
  list.setAttribute("role", "listbox");
  list.setAttribute("aria-label", "What there is");
  dialog.append(field, list);
  document.body.append(dialog);

  let offers = [];
  let at = 0;
  let asked = 0;

  async function find() {
    const turn = ++asked;
    const found = await fetch(`/palette?q=${encodeURIComponent(field.value)}`).then((answer) => (answer.ok ? answer.json() : []), () => []);
    if (turn !== asked) return;
    offers = found;
    at = 0;
    list.replaceChildren(...offers.map(line));
    mark();
  }

  function line(offer, index) {
    const option = document.createElement("li");
    option.id = `palette-${index}`;
    option.setAttribute("role", "option");
    const group = Object.assign(document.createElement("span"), { className: "group", textContent: offers[index - 1]?.group === offer.group ? "" : offer.group });
    const words = Object.assign(document.createElement("span"), { className: "words", textContent: offer.words });
    const note = Object.assign(document.createElement("span"), { className: "note", textContent: offer.note });
    option.append(group, words, note);
    option.addEventListener("click", () => go(offer));
    return option;
  }

  function mark() {
    [...list.children].forEach((option, index) => option.setAttribute("aria-selected", String(index === at)));
    if (list.children[at]) field.setAttribute("aria-activedescendant", `palette-${at}`);
    else field.removeAttribute("aria-activedescendant");
    list.children[at]?.scrollIntoView({ block: "nearest" });
  }

  function go(offer) {
    if (!offer) return;
    if (!offer.post) return location.assign(offer.address);
    const form = Object.assign(document.createElement("form"), { method: "post", action: offer.address });
    document.body.append(form);
    form.submit();
  }

  function open() {
    if (dialog.open) return;
    field.value = "";
    dialog.showModal();
    find();
  }

  opener.addEventListener("click", open);
  field.addEventListener("input", find);
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close(); // beside it
  });
  field.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown") at = Math.min(at + 1, offers.length - 1);
    else if (event.key === "ArrowUp") at = Math.max(at - 1, 0);
    else if (event.key === "Enter") go(offers[at]);
    else return;
    event.preventDefault();
    mark();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key.toLowerCase() !== "k" || !(event.ctrlKey || event.metaKey) || event.altKey || event.shiftKey) return;
    event.preventDefault();
    open();
  });

  // What was just done is said once: a reload or a link to the same view says it no more.
  if (document.querySelector("[data-toast]")) {
    const address = new URL(location.href);
    for (const name of ["did", "job", "cancelled"]) address.searchParams.delete(name);
    history.replaceState(null, "", address);
    setTimeout(() => document.querySelector("[data-toast]:not(:focus-within, :hover)")?.remove(), 12000);
  }
})();
