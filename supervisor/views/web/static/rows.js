// The pages of rows. The server draws them; a page is asked for anew after each commit, unless it shows older rows.
import { el, follow, get, setText } from "./core.js";
import { main, nodes, redraw } from "./show.js";

const query = new URLSearchParams(location.search), [, name, ...rest] = location.pathname.split("/");
if (rest.length) query.set("run", decodeURIComponent(rest[0]));
const isLive = name !== "more" && (name === "run" || !["before", "after", "skip", "version"].some((word) => query.get(word)));
const CHANGES = ["limits"]; // what they show changes without a commit
const heading = el("h1", {}, document.title.replace(/ - nightcrew$/, "")), trouble = el("p", { class: "trouble", role: "alert", hidden: true });
const body = el("div", { class: "body" });
main.append(heading, trouble, body);
main.classList.add("sheet");
main.addEventListener("change", (event) => { if (event.target.matches("select")) location.href = event.target.value; });
let known = "", version = "", asking = false, again = false, retry = 0;

async function look() {
  if (asking) { again = true; return; }
  asking = true;
  try {
    if (version) query.set("seen", version); // the server gives an answer to all who ask for the same: after a commit it must be another question
    const shape = await get(`/data/${name}?${query}`), text = JSON.stringify(shape);
    trouble.hidden = true;
    if (text !== known && !document.activeElement.matches("main select")) { // a list that is open stays open
      known = text;
      setText(heading, shape.title);
      redraw(body, nodes(shape.nodes));
    }
  } catch (error) {
    trouble.hidden = false;
    setText(trouble, error.message);
    clearTimeout(retry);
    if (isLive) retry = setTimeout(look, 5000);
  }
  main.dataset.ready = "1";
  asking = false;
  if (again) { again = false; setTimeout(look, 200); }
}

look();
if (isLive) {
  follow(["ledger"], (topic, state) => { version = state.get("version") || ""; look(); });
  if (CHANGES.includes(name)) setInterval(() => { if (!document.hidden) look(); }, 2000);
  document.addEventListener("visibilitychange", () => { if (!document.hidden) look(); });
}
