// Which pages the browser may make while the pointer rests on their link, before the click. The
// page brings the rules along as data (ahead.json, its hash in the policy) and tells them here,
// behind its first frame: told with the answer, they would take part in making it.
"use strict";

(() => {
  const rules = document.createElement("script");
  rules.type = "speculationrules";
  rules.textContent = document.getElementById("ahead").textContent;
  document.body.append(rules);
})();
