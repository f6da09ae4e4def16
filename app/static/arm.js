// The night that the arming card asks for: while somebody types, the page shows how it would go. And
// whose hours are meant: the machine's clock is often in another zone than its operator's, and a window
// of 22:00-07:00 in UTC ends in the middle of a morning in Berlin.
"use strict";

(() => {
  const TYPED_MS = 300;
  const here = Intl.DateTimeFormat().resolvedOptions().timeZone;
  let waits = 0;

  // Of two zones with the same clock in winter and in summer either is meant.
  function sameClock(name) {
    return [0, 6].every((month) => {
      const moment = new Date(new Date().getFullYear(), month, 15);
      const [there, mine] = [name, here].map((timeZone) => moment.toLocaleString("en-GB", { timeZone }));
      return there === mine;
    });
  }

  // The zone that is asked for: of the every-night form while that is open, else of the sentence.
  function zones() {
    const open = document.getElementById("every")?.open;
    const fields = [document.getElementById("every-zone"), document.getElementById("tonight-zone")];
    return (open ? fields : fields.reverse()).filter(Boolean);
  }

  function look() {
    const hint = document.getElementById("arm-zone-here");
    if (!hint || !here) return;
    const [words, use] = hint.children;
    const meant = zones()[0]?.value.trim() || hint.dataset.machine;
    try {
      hint.hidden = sameClock(meant);
    } catch {
      hint.hidden = true; // no zone, or none that this browser knows: the cockpit says which
      return;
    }
    words.textContent = `Hours of ${meant} are meant; this browser's clock is in ${here}.`;
    use.textContent = `Use ${here}`;
  }

  function foresee() {
    clearTimeout(waits);
    waits = setTimeout(() => htmx.trigger(document.getElementById("live"), "refresh", {}, false), TYPED_MS);
  }

  document.addEventListener("input", ({ target }) => {
    if (target.closest("#tonight")) foresee();
    if (target.id === "every-zone") look();
  });
  document.addEventListener("click", ({ target }) => {
    if (!target.closest("#arm-zone-here button")) return;
    const fields = zones();
    for (const field of fields) field.value = here;
    // Before the button goes, so that the focus is not lost.
    (fields.find((field) => field.type !== "hidden" && field.checkVisibility()) ?? document.getElementById("arm-opens")).focus();
    look();
    foresee();
  });
  document.addEventListener("toggle", look, true);
  document.addEventListener("htmx:after:swap", look);
  look();
})();
