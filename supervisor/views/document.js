"use strict";
(() => {
  async function copy(code, button) {
    let copied = true;
    try {
      await navigator.clipboard.writeText(code.textContent);
    } catch {
      getSelection().selectAllChildren(code);
      copied = document.execCommand("copy"); // pages from a disk have no clipboard of their own everywhere
    }
    button.textContent = copied ? "Copied" : "Selected";
    button.classList.toggle("copied", copied);
    setTimeout(() => { button.textContent = "Copy"; button.classList.remove("copied"); }, 1500);
  }

  for (const code of document.querySelectorAll("code.copy")) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy-it";
    button.textContent = "Copy";
    button.setAttribute("aria-label", `Copy ${code.textContent}`);
    button.addEventListener("click", () => copy(code, button));
    code.after(button);
  }

  for (const label of document.querySelectorAll(".search")) {
    const rows = [...label.parentElement.querySelectorAll("tbody tr")].map((row) => [row, row.textContent.toLowerCase()]);
    label.hidden = false;
    label.querySelector("input").addEventListener("input", (event) => {
      const words = event.target.value.toLowerCase().split(/\s+/);
      let shown = 0;
      for (const [row, text] of rows) {
        row.hidden = !words.every((word) => text.includes(word));
        shown += !row.hidden;
      }
      label.querySelector("output").textContent = `${shown} of ${rows.length} shown`;
    });
  }
})();
