"use strict";
// Draws the page's figures with uPlot. What is drawn stands in the page as JSON.
(() => {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const light = ["#0060a8", "#c8501e", "#00805f", "#a3488a", "#8a6d00", "#3b3b3b", "#2a9fd6", "#d62a5b", "#5b8c00", "#7a55d1", "#00727a", "#9a5b2e"];
  const dark = ["#5ab4f0", "#ff8a55", "#35c79f", "#e38fcf", "#e0bd3c", "#d0d0d0", "#8fd6ff", "#ff7f9f", "#a9d65b", "#b59cf5", "#54c7d0", "#dba57a"];
  // Curves that lie on each other are told apart by their dashes.
  const dashes = [[], [9, 4], [2, 3], [9, 3, 2, 3], [14, 5], [5, 5]];
  const units = {
    seconds: [[1, "s"], [1e-3, "ms"], [1e-6, "\u00b5s"], [1e-9, "ns"]],
    bytes: [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "B"]],
    share: [[1e-2, "%"]],
    plain: [[1, ""]],
  };
  const steps = [];
  for (let exponent = -12; exponent < 16; exponent++) for (const digit of [1, 2, 5]) steps.push(Number(`${digit}e${exponent}`));

  const unitOf = (kind, most) => units[kind].find(([size]) => Math.abs(most) >= size * 0.999) || units[kind].at(-1);
  const inUnit = (value, [size, name]) => `${Number((value / size).toPrecision(4))}${name ? "\u202f" + name : ""}`;
  const show = (kind, value) => (value == null ? "\u2013" : inUnit(value, unitOf(kind, value)));

  const linear = (kind) => (_, ticks) => {
    const unit = unitOf(kind, Math.max(...ticks.map(Math.abs)));
    return ticks.map((tick) => inUnit(tick, unit));
  };
  // Of a logarithmic axis' ticks 1, 2 and 5 have numbers, and over more than three decades only 1.
  const logarithmic = (kind) => (_, ticks) => {
    const wide = Math.log10(ticks.at(-1) / ticks[0]) > 3;
    return ticks.map((tick) => {
      const digit = Math.round(tick / 10 ** Math.floor(Math.log10(tick * 1.0001)));
      return digit === 1 || (!wide && (digit === 2 || digit === 5)) ? show(kind, tick) : null;
    });
  };

  function axis(of, ink, faint, isX) {
    return {
      label: of.label, labelSize: 22, size: isX ? 40 : 68, space: isX ? 70 : 36,
      stroke: ink, grid: { stroke: faint, width: 1 }, ticks: { stroke: faint },
      incrs: steps, values: (of.logarithmic ? logarithmic : linear)(of.unit),
    };
  }

  function draw(place, figure) {
    const isDark = matchMedia("(prefers-color-scheme: dark)").matches;
    const [ink, faint] = isDark ? ["#ddd", "#3a3a3a"] : ["#222", "#e4e4e4"];
    const colours = isDark ? dark : light;
    const data = uPlot.join(figure.series.map((one) => [one.points.map((p) => p[0]), one.points.map((p) => p[1])]));
    const scale = (of) => ({ time: false, distr: of.logarithmic ? 3 : 1, ...(of.range ? { range: of.range } : {}) });
    const levels = (u) => {
      u.ctx.save();
      u.ctx.font = `${12 * devicePixelRatio}px system-ui, sans-serif`;
      for (const [name, value] of figure.levels) {
        const y = u.valToPos(value, "y", true);
        if (y < u.bbox.top || y > u.bbox.top + u.bbox.height) continue;
        u.ctx.strokeStyle = u.ctx.fillStyle = ink;
        u.ctx.setLineDash([3, 5]);
        u.ctx.beginPath();
        u.ctx.moveTo(u.bbox.left, y);
        u.ctx.lineTo(u.bbox.left + u.bbox.width, y);
        u.ctx.stroke();
        u.ctx.textAlign = "right";
        u.ctx.fillText(name, u.bbox.left + u.bbox.width - 4, y - 4);
      }
      u.ctx.restore();
    };
    const series = figure.series.map((one, at) => ({
      label: one.name, stroke: colours[at % colours.length], width: 2, spanGaps: true,
      dash: dashes[at % dashes.length],
      ...(one.dots ? { paths: () => null, points: { show: true, size: 9, fill: colours[at % colours.length] } } : { points: { show: false } }),
      value: (_, value) => show(figure.y.unit, value),
    }));
    return new uPlot({
      width: place.clientWidth || 600, height: 320,
      scales: { x: scale(figure.x), y: scale(figure.y) },
      axes: [axis(figure.x, ink, faint, true), axis(figure.y, ink, faint, false)],
      series: [{ label: figure.x.label, value: (_, value) => show(figure.x.unit, value) }, ...series],
      cursor: { drag: { x: true, y: true, uni: 20 } },
      hooks: { draw: [levels] },
    }, data, place);
  }

  const plots = figures.map((figure, at) => {
    const place = document.getElementById(`figure-${at}`);
    const plot = { place, figure, drawn: draw(place, figure) };
    new ResizeObserver(() => {
      if (place.clientWidth > 0 && place.clientWidth !== plot.drawn.width) plot.drawn.setSize({ width: place.clientWidth, height: 320 });
    }).observe(place);
    return plot;
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    for (const plot of plots) {
      plot.drawn.destroy();
      plot.drawn = draw(plot.place, plot.figure);
    }
  });
})();
