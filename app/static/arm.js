// Whose hours are armed? The machine's clock is often in another zone than its operator's: a window of
// 22:00-07:00 in UTC ends in the middle of a morning in Berlin. Says so while the terms are typed.
"use strict";

(() => {
  const zone = document.getElementById("arm-zone");
  const hint = document.getElementById("arm-zone-here");
  const here = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (!hint || !here) return;
  const [words, use] = hint.children;

  // Of two zones with the same clock in winter and in summer either is meant.
  function sameClock(name) {
    return [0, 6].every((month) => {
      const moment = new Date(new Date().getFullYear(), month, 15);
      const [there, mine] = [name, here].map((timeZone) => moment.toLocaleString("en-GB", { timeZone }));
      return there === mine;
    });
  }

  function look() {
    const meant = zone.value.trim() || hint.dataset.machine;
    try {
      hint.hidden = sameClock(meant);
    } catch {
      hint.hidden = true; // no zone, or none that this browser knows: the cockpit says which
      return;
    }
    words.textContent = `Hours of ${meant} are meant; this browser's clock is in ${here}.`;
    use.textContent = `Use ${here}`;
  }

  zone.addEventListener("input", look);
  use.addEventListener("click", () => {
    zone.value = here;
    zone.focus(); // before the button goes, so that the focus is not lost
    look();
  });
  look();
})();
