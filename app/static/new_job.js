// The new-job form: marks a field as wrong or right for assistive technology after a live check, and
// what nobody has looked at as that (htmx does the rest), and keeps what was typed for this tab, so that a reload, a look at another
// page or at another kind of job does not cost it. A visit by a link begins with what the server gives.
"use strict";

(() => {
  const form = document.getElementById("job");
  const DRAFT = `nightlane-draft ${location.pathname}${location.search}`;
  const CARRIED = "nightlane-draft carried"; // what belongs to no kind, on its way to another one's form
  const PLACE = ["name", "priority", "not_before", "tags", "seeds"];
  const typed = (element) => PLACE.includes(element.name) || /^(yaml$|set:|with:)/.test(element.name);
  const fields = () => [...form.elements].filter(typed);

  function read() {
    const found = {};
    for (const field of fields()) found[field.name] = field.type === "checkbox" ? field.checked : field.value;
    return found;
  }

  function write(draft) {
    let changed = false;
    for (const field of fields()) {
      if (!(field.name in draft)) continue;
      const what = field.type === "checkbox" ? "checked" : "value";
      changed ||= field[what] !== draft[field.name];
      field[what] = draft[field.name];
      const section = field.closest("details");
      if (section && field.value && field[what]) section.open = true;
    }
    if (changed) htmx.trigger(form, "change", {}, false);
  }

  const kept = (key) => JSON.parse(sessionStorage.getItem(key) ?? "{}");
  const keep = (key, what) => sessionStorage.setItem(key, JSON.stringify(what));

  const [visit] = performance.getEntriesByType("navigation");
  const carried = sessionStorage.getItem(CARRIED) === null ? null : kept(CARRIED);
  sessionStorage.removeItem(CARRIED);
  // What was sent comes back from the server as it was sent.
  const again = visit?.type === "reload" || visit?.type === "back_forward" || carried !== null;
  if (again && !("sent" in form.dataset)) write({ ...kept(DRAFT), ...carried });

  const remember = () => keep(DRAFT, read());
  form.addEventListener("input", remember);
  form.addEventListener("change", remember);
  for (const link of document.querySelectorAll(".starts a.kind")) {
    link.addEventListener("click", ({ ctrlKey, metaKey, shiftKey }) => {
      if (ctrlKey || metaKey || shiftKey) return; // another tab or window begins empty
      const place = Object.entries(read()).filter(([name]) => PLACE.includes(name));
      keep(CARRIED, Object.fromEntries(place));
    });
  }

  // What was typed, and was not looked at, is told until the next answer.
  const check = document.getElementById("check");
  const unanswered = ({ target }) => {
    if (target === form || target === check) check.dataset.unanswered = "";
  };
  document.addEventListener("htmx:error", unanswered);
  document.addEventListener("htmx:response:error", unanswered);

  document.addEventListener("htmx:after:swap", ({ target, detail }) => {
    const asked = target === form || target === check;
    if (asked && detail.ctx.response.status < 400) delete check.dataset.unanswered;
    for (const field of document.querySelectorAll(".settings .field")) {
      const wrong = field.querySelector(".problem") !== null;
      const input = field.querySelector("input, select");
      if (wrong) input.setAttribute("aria-invalid", "true");
      else input.removeAttribute("aria-invalid");
    }
  });
})();
