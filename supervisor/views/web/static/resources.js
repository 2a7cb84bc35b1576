import { el } from "./core.js";
import { mark, note, page, section, table } from "./show.js";
import { duration, many, size } from "./format.js";

function cores(machine) {
  const boxes = machine.cores.map((core) => el("li", { class: core.supervisor ? "kept" : "" }, el("b", {}, core.supervisor ? "S" : "A"), ` ${core.cpus.join(", ")}`));
  const nodes = new Set(machine.cores.map((core) => core.node)).size;
  const words = machine.pinned ? "S stays with the supervisor, A is for agents." : "No core is kept for the supervisor: agents (A) and supervisor share them all.";
  return section("Cores", note(`${many(machine.cores.length, "core")}, ${many(nodes, "node")}. ${words}`), el("ul", { class: "cores", "aria-label": "Cores, by the numbers of their threads" }, ...boxes));
}

function capacity(shape) {
  if (!shape.capacity) return section("Capacity", el("p", { class: "trouble" }, shape.trouble));
  const found = shape.capacity, binding = found.binding;
  const tiles = [["Slots", `${found.living} of ${found.slots} taken`], ["Waiting", String(found.waiting)], ["Binds", binding || "nothing yet"],
    ["Last one starts in", found.predicted_wait_s ? duration(found.predicted_wait_s) : "–"]];
  return section("Capacity", el("dl", { class: "tiles" }, ...tiles.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)))),
    ...Object.entries(found.held).map(([name, verdict]) => el("p", {}, mark("!", `${name} held back: ${verdict.words}`))),
    el("pre", { class: "ours", tabindex: "0", role: "region", "aria-label": "As nightcrew capacity prints it" }, shape.lines.join("\n")));
}

function agents(shape) {
  if (!shape.agents.length) return section("Agents at work", note("None."));
  const rows = shape.agents.map((one) => [
    el("a", { href: `/agent/${one.id.split("/").map(encodeURIComponent).join("/")}`, "data-key": one.id }, one.id), one.title, one.kind, one.class,
    size(one.memory), size(one.peak_memory), size(one.expected_memory), duration(one.cpu_s), duration(one.tool_cpu_s), duration(one.wall_s),
  ]);
  return section("Agents at work", table("What each takes", ["Agent", "~Title", "Kind", "Class", "#Memory", "#At most", "#Expected", "#Processor", "#by tools", "#Time"], rows, { quiet: true }),
    shape.more_agents ? note(`and ${shape.more_agents} more`) : null);
}

page("Capacity and cores", () => "/data/resources", (shape) => [capacity(shape), cores(shape.cores), agents(shape)]);
