// The step slider: says its step while it moves, and shows the step it was left at. Without this
// file the form's button does the same.
"use strict";

(() => {
  const slider = document.getElementById("step");
  const said = document.getElementById("step-now");
  const WAIT_MS = 350; // arrow keys step through quickly; only the last step is asked for
  let waiting;
  slider?.addEventListener("input", () => {
    said.textContent = slider.value;
  });
  slider?.addEventListener("change", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => slider.form.requestSubmit(), WAIT_MS);
  });
})();
