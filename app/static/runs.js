// The table of runs: completion of the filter, what it would leave while it is typed, the bar of what
// is chosen, x chooses a row. Without it the filter is a form and every button works.
"use strict";

(() => {
  const TYPED_MS = 150;
  const MOST = 12;
  const field = document.getElementById("find");
  const list = document.getElementById("completions");
  const matched = document.getElementById("matched");
  let words = null; // [key, what it says], asked for once
  let at = -1;

  // --- completion: of the term that the cursor stands in ---

  async function known() {
    words ??= await fetch("/runs/words").then((answer) => (answer.ok ? answer.json() : []), () => []);
    return words;
  }

  function term() {
    const before = field.value.slice(0, field.selectionStart);
    return /(?:^|\s)-?([^\s:"]*)$/.exec(before)?.[1] ?? null;
  }

  async function complete() {
    const typed = term();
    const all = typed ? await known() : [];
    if (typed !== term()) return; // somebody typed on
    const wanted = (typed ?? "").toLowerCase();
    const begins = ([key]) => key.toLowerCase().startsWith(wanted) || key.toLowerCase().split(".").pop().startsWith(wanted);
    show(typed ? all.filter(begins).slice(0, MOST) : []);
  }

  function show(found) {
    at = found.length ? 0 : -1;
    list.replaceChildren(...found.map(([key, about], index) => {
      const option = document.createElement("li");
      option.id = `completion-${index}`;
      option.setAttribute("role", "option");
      const name = document.createElement("code");
      name.textContent = `${key}:`;
      const says = document.createElement("small");
      says.textContent = about;
      option.append(name, says);
      option.addEventListener("mousedown", (event) => {
        event.preventDefault(); // the field keeps the focus
        at = index;
        take();
      });
      return option;
    }));
    list.hidden = !found.length;
    field.setAttribute("aria-expanded", String(Boolean(found.length)));
    mark();
  }

  function mark() {
    [...list.children].forEach((option, index) => option.setAttribute("aria-selected", String(index === at)));
    if (at >= 0) field.setAttribute("aria-activedescendant", `completion-${at}`);
    else field.removeAttribute("aria-activedescendant");
    list.children[at]?.scrollIntoView({ block: "nearest" });
  }

  function take() {
    const key = list.children[at]?.querySelector("code").textContent;
    if (!key) return;
    const end = field.selectionStart;
    const begin = end - term().length;
    field.setRangeText(key, begin, end, "end");
    show([]);
    preview();
  }

  // --- what the filter would leave ---

  let asked = 0;
  async function preview() {
    const turn = ++asked;
    const address = new URL("/runs/match", location.href);
    new URLSearchParams(new FormData(field.form)).forEach((value, name) => address.searchParams.append(name, value));
    const answer = await fetch(address).then((found) => found.json(), () => null);
    if (turn !== asked || !answer) return;
    const ids = new Set(field.value.trim() ? answer.ids?.map(String) ?? [] : []);
    for (const row of document.querySelectorAll(".table tr[id]")) row.classList.toggle("hit", ids.has(row.id.slice(4)));
    matched.textContent = answer.problem ?? (field.value.trim() ? `${answer.ids.length} of ${answer.of} match. Enter keeps only these.` : "");
  }

  let waits = 0;
  field.addEventListener("input", () => {
    complete();
    clearTimeout(waits);
    waits = setTimeout(preview, TYPED_MS);
  });
  field.addEventListener("blur", () => show([]));
  field.addEventListener("keydown", (event) => {
    const open = !list.hidden;
    if (event.key === "Tab" && open && !event.shiftKey) take();
    else if (event.key === "ArrowDown" && open) at = (at + 1) % list.children.length;
    else if (event.key === "ArrowUp" && open) at = (at + list.children.length - 1) % list.children.length;
    else if (event.key === "Escape" && open) show([]);
    else if (event.key === "Escape") field.blur();
    else return;
    event.preventDefault();
    mark();
  });

  // --- what is chosen ---

  function boxes() {
    return [...document.querySelectorAll("#chosen [name=job]")];
  }

  function count() {
    const chosen = boxes().filter((box) => box.checked);
    const bar = document.querySelector("#chosen .sel");
    if (!bar) return;
    bar.querySelector("[data-count]").textContent = chosen.length ? `${chosen.length} chosen` : "Choose runs";
    const names = chosen.slice(0, 4).map((box) => box.closest("tr").querySelector(".name bdi").textContent);
    bar.querySelector("[data-names]").textContent = names.join(", ") + (chosen.length > 4 ? ", …" : "");
  }

  document.addEventListener("change", ({ target }) => {
    if (target.matches("[data-all]")) boxes().forEach((box) => (box.checked = target.checked));
    if (target.closest("#chosen")) count();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "x" || event.ctrlKey || event.metaKey || event.altKey) return;
    if (localStorage.getItem("nightlane.keys") === "off" || event.target.closest("input[type=search], input[type=text], textarea")) return;
    document.activeElement?.closest("tr[id]")?.querySelector("[name=job]")?.click();
  });
  count();
})();
