// The page in a notebook: what is typed there is the `text` of the widget, and the other way round.

function render({ model, el }) {
  const frame = document.createElement("iframe");
  frame.title = "Linnet lens";
  frame.style.cssText = `width: 100%; height: ${model.get("height")}px; border: 0`;
  frame.addEventListener("load", () => {
    const area = frame.contentDocument.querySelector("textarea");
    const { lens } = frame.contentWindow;
    const tell = () => {
      model.set("text", area.value);
      model.set("selected", lens.selected);
      model.save_changes();
    };
    area.addEventListener("input", tell);
    frame.contentDocument.addEventListener("click", () => setTimeout(tell));
    model.on("change:text", () => {
      if (area.value === model.get("text")) return;
      area.value = model.get("text");
      lens.read();
    });
  });
  frame.srcdoc = model.get("page");
  el.append(frame);
}

export default { render };
