import { el, follow, age, now, setText, arrange } from "./core.js";

const main = document.getElementById("main");
follow(["crew"], (topic, state) => {
  const sections = state.get("sections") || [];
  arrange(main, sections.map((section) => el("section", {}, el("h2", {}, `${section.group} ${section.total}`),
    ...section.rows.map((id) => el("p", {}, `${state.get(`row:${id}`).letter} ${id} ${state.get(`row:${id}`).says}`)))));
});
