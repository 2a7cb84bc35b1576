"use strict";
(() => { // buttons that copy, only where scripts run
  async function copy(code, button) {
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(code); // not allowed to write: the old way, or at least it is selected
      button.textContent = document.execCommand("copy") ? "Copied" : "Selected";
    }
    button.classList.add("copied");
    setTimeout(() => {
      button.textContent = "Copy";
      button.classList.remove("copied");
    }, 1500);
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
})();
