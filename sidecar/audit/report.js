(async () => {
  "use strict";
  const text = (id) => document.getElementById(id).textContent;
  const packed = Uint8Array.from(atob(text("library")), (c) => c.charCodeAt(0));
  const unpacked = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const library = document.createElement("script");
  library.textContent = await new Response(unpacked).text();
  document.head.append(library);
  const figures = Object.entries(JSON.parse(text("figures")));
  for (const [id, figure] of figures) {
    await Plotly.newPlot(id, figure.data, figure.layout, { displayModeBar: false, responsive: true });
  }
  // Paper is narrower than most screens.
  const fit = (width) => figures.forEach(([id]) => Plotly.relayout(id, width ? { width } : { autosize: true, width: null }));
  addEventListener("beforeprint", () => fit(640));
  addEventListener("afterprint", () => fit(null));
  document.documentElement.dataset.drawn = "all";
})();
