// Marks a field as wrong or right for assistive technology after a live check; htmx does the rest.
"use strict";

document.addEventListener("htmx:after:swap", () => {
  for (const field of document.querySelectorAll(".settings .field")) {
    const wrong = field.querySelector(".problem") !== null;
    const input = field.querySelector("input, select");
    if (wrong) input.setAttribute("aria-invalid", "true");
    else input.removeAttribute("aria-invalid");
  }
});
