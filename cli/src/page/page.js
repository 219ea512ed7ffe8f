"use strict";
// Draws the page's figures, which stand in it as JSON, in the reader's colours.
(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const colours = () => {
    const [ink, faint] = dark.matches ? ["#ddd", "#3a3a3a"] : ["#222", "#e4e4e4"];
    return {
      "paper_bgcolor": "rgba(0,0,0,0)", "plot_bgcolor": "rgba(0,0,0,0)", "font.color": ink,
      "xaxis.gridcolor": faint, "yaxis.gridcolor": faint,
    };
  };
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const places = figures.map((figure, at) => {
    const place = document.getElementById(`figure-${at}`);
    // Ticks at 1, 2 and 5 of a decade, too.
    for (const axis of [figure.layout.xaxis, figure.layout.yaxis]) if (axis.type === "log") axis.dtick = "D2";
    Plotly.newPlot(place, figure.data, figure.layout, figure.config).then(() => Plotly.relayout(place, colours()));
    return place;
  });
  dark.addEventListener("change", () => places.forEach((place) => Plotly.relayout(place, colours())));
})();
