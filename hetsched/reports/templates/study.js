"use strict";
// Draws the Plotly figures of a study in the colours of the page, light or dark.
(() => {
  const style = () => getComputedStyle(document.documentElement);
  const painted = (value, css) =>
    typeof value === "string" ? value.replace(/^var\((--[a-z0-9-]+)\)$/, (_, name) => css.getPropertyValue(name).trim())
    : Array.isArray(value) ? value.map((v) => painted(v, css))
    : value && typeof value === "object" ? Object.fromEntries(Object.entries(value).map(([k, v]) => [k, painted(v, css)]))
    : value;
  const family = getComputedStyle(document.body).fontFamily;
  const config = { responsive: true, displayModeBar: innerWidth > 700, displaylogo: false, modeBarButtons: [["zoom2d", "pan2d", "resetScale2d", "toImage"]] };
  const draw = () => {
    for (const div of document.querySelectorAll(".plotly")) {
      const spec = painted(JSON.parse(div.nextElementSibling.textContent), style());
      spec.layout.font.family = family;
      window.Plotly.react(div, spec.data, spec.layout, config);
    }
  };
  draw();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
})();
