// The run page's controls: what they say stands in the address, so that a link shows the same, and
// the charts are told. A series of the long list is drawn when it is opened.
"use strict";

(() => {
  const controls = document.getElementById("chart-controls");
  const home = document.getElementById("zoom-out");

  function remember(change) {
    const address = new URL(location.href);
    change(address.searchParams);
    history.replaceState(null, "", address);
    if (home) home.hidden = !address.searchParams.has("from") && !address.searchParams.has("to");
  }

  controls?.addEventListener("change", ({ target }) => {
    remember((query) => {
      if (target.selectedIndex === 0) query.delete(target.name);
      else query.set(target.name, target.value);
    });
    if (target.name === "smooth") window.nightlaneCharts.redraw();
    else window.nightlaneCharts.reload();
  });

  home?.addEventListener("click", () => {
    remember((query) => {
      query.delete("from");
      query.delete("to");
    });
    window.nightlaneCharts.reload();
  });

  document.addEventListener("nightlane:zoom", ({ detail }) => {
    remember((query) => {
      query.set("from", detail.from);
      query.set("to", detail.to);
    });
    window.nightlaneCharts.reload();
  });

  document.addEventListener("toggle", ({ target }) => {
    const { series } = target.dataset ?? {};
    if (!series) return;
    remember((query) => {
      const others = query.getAll("show").filter((name) => name !== series);
      query.delete("show");
      for (const name of target.open ? [...others, series] : others) query.append("show", name);
    });
    window.nightlaneCharts.mount();
  }, true);
})();
