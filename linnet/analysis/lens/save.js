// Save a figure as a file.

/** The figure as the text of an SVG file: with colours in place of CSS variables, on the colour of the page. */
export function svgText(figure) {
  const style = getComputedStyle(document.documentElement);
  const copy = figure.cloneNode(true);
  copy.querySelectorAll(".hits").forEach((each) => each.remove());
  const page = document.createElementNS(figure.namespaceURI, "rect");
  for (const [name, value] of Object.entries({ width: "100%", height: "100%", fill: "var(--page)" })) {
    page.setAttribute(name, value);
  }
  copy.prepend(page);
  const text = new XMLSerializer().serializeToString(copy);
  return text.replace(/var\((--[\w-]+)\)/g, (_, name) => style.getPropertyValue(name).trim());
}

export function saveSvg(figure, name) {
  download(new Blob([svgText(figure)], { type: "image/svg+xml" }), `${name}.svg`);
}

/** A PNG of twice the size of the figure. */
export async function savePng(figure, name) {
  const picture = new Image();
  picture.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svgText(figure))}`;
  await picture.decode();
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [2 * picture.width, 2 * picture.height];
  canvas.getContext("2d").drawImage(picture, 0, 0, canvas.width, canvas.height);
  canvas.toBlob((blob) => download(blob, `${name}.png`), "image/png");
}

function download(blob, name) {
  const link = document.createElement("a");
  [link.href, link.download] = [URL.createObjectURL(blob), name];
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
