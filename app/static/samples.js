// The step slider: says its step while it moves, and shows the step it was left at; a step that is
// written meanwhile makes it longer. Without this file the form's buttons do the same.
"use strict";

(() => {
  const WAIT_MS = 350; // arrow keys step through quickly; only the last step is asked for
  const HELD = "nightlane-samples-slider"; // the page that its slider is about to leave
  let waiting = null;

  const isSlider = (element) => element.id === "step";

  function say(slider) {
    document.getElementById("step-now").textContent = slider.value;
  }

  document.addEventListener("input", ({ target }) => {
    if (isSlider(target)) say(target);
  });

  document.addEventListener("change", ({ target }) => {
    if (!isSlider(target)) return;
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      sessionStorage.setItem(HELD, location.pathname);
      target.form.requestSubmit();
    }, WAIT_MS);
  });

  // The next step is another page: whoever goes by arrow keys stays on the slider.
  if (sessionStorage.getItem(HELD) === location.pathname) document.getElementById("step")?.focus();
  sessionStorage.removeItem(HELD);

  // The form is left alone when the page is drawn again; what its slider can reach is not.
  document.addEventListener("htmx:after:swap", () => {
    const slider = document.getElementById("step");
    const steps = document.getElementById("steps-nav")?.dataset;
    if (!slider || !steps || document.activeElement === slider || waiting !== null) return;
    slider.min = steps.first;
    slider.step = steps.stride;
    slider.max = steps.last;
    slider.value = steps.shown;
    say(slider);
  });
})();
