// What a task changed: what speaks against it, one line a file, then the files; a click on a line's number comments it.

import { act, arrange, askText, confirm, el, line, readOnly } from "./core.js";

export class Diff {
  constructor(task) {
    this.task = task;
    this.about = el("ul", { class: "about" });
    this.review = el("div", { class: "review" });
    this.stat = el("ul", { class: "stat", "aria-label": "Files" });
    this.files = el("div", {});
    this.made = new Map();
    this.node = el("div", {}, this.about, this.review, this.stat, this.files);
    this.tip = "";
    this.files.addEventListener("keydown", (event) => {
      const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (!by || !event.target.matches(".at")) return;
      event.preventDefault();
      const all = [...this.files.querySelectorAll(".at")], to = all[all.indexOf(event.target) + by];
      if (to) to.focus();
    });
  }

  take(state, changed) {
    if (state.has("why")) {
      arrange(this.about, [el("li", { class: "faint" }, state.get("why"))]);
      arrange(this.review, []); arrange(this.stat, []); arrange(this.files, []);
      this.made.clear();
      return;
    }
    const about = state.get("about"), order = state.get("order");
    this.tip = about.tip;
    if (changed.has("about")) this.showAbout(about);
    for (const name of changed) if (name.startsWith("file:")) this.made.delete(name);
    for (const name of order) if (!this.made.has(name)) this.made.set(name, this.file(state.get(name), order.indexOf(name)));
    arrange(this.files, order.map((name) => this.made.get(name).node));
    arrange(this.stat, order.map((name) => this.made.get(name).stat));
  }

  showAbout(about) {
    arrange(this.about, about.head.map(([text, meant]) => el("li", { class: meant }, text)));
    const button = (text, does, kind = "") => el("button", { type: "button", class: kind, onclick: does }, text);
    const waiting = about.waiting === 1 ? "1 comment" : `${about.waiting} comments`;
    arrange(this.review, readOnly ? [] : [
      about.waiting ? button(`Send ${waiting} to the agent`, () => this.send(), "strong") : el("span", { class: "muted" }, "A line's number takes a comment."),
      ...(about.final ? [button("Accept", () => this.decide("accepted")), button("Reject", () => this.decide("rejected"), "danger")] : []),
    ]);
  }

  file(one, number) {
    const id = `file-${number}`;
    const stat = el("li", {}, el("span", { class: "muted" }, one.status), el("a", { href: `#${id}`, onclick: (event) => { event.preventDefault(); document.getElementById(id).scrollIntoView(); } }, one.shown),
      el("span", { class: "plus" }, `+${one.plus}`), el("span", { class: "minus" }, `-${one.minus}`), one.note ? el("span", { class: "muted" }, one.note) : "",
      one.flags.length ? el("span", { class: "minus" }, "! may weaken its gate") : "");
    const rows = [], beside = new Map();
    for (const said of one.comments) if (!said.outdated) beside.set(said.line, [...(beside.get(said.line) || []), said]);
    for (const [old, fresh, sign, spans] of one.lines) {
      rows.push(this.row(one, old, fresh, sign, spans));
      if (fresh !== null) for (const said of beside.get(fresh) || []) rows.push(this.comment(said));
    }
    const node = el("section", { class: "file", id, "aria-label": one.shown },
      el("h3", {}, el("span", { class: "muted" }, one.status), one.was ? `${one.was} → ${one.shown}` : one.shown, el("span", { class: "plus" }, `+${one.plus}`), el("span", { class: "minus" }, `-${one.minus}`), el("span", { class: "muted" }, one.note)),
      ...one.flags.map((why) => el("p", { class: "flag" }, why)),
      el("div", { class: "code", tabindex: "0", role: "region", "aria-label": `Lines of ${one.shown}` }, el("table", {}, el("tbody", {}, ...rows))),
      one.more ? el("p", { class: "more" }, "more is not shown: nightcrew diff") : "");
    const at = node.querySelector(".at");
    if (at) at.tabIndex = 0; // one stop a file for the tab key; arrows go from line to line
    return { node, stat };
  }

  row(one, old, fresh, sign, spans) {
    if (sign === "@") return el("tr", { class: "gap" }, el("td", { colspan: 4 }, "···"));
    const number = fresh === null || readOnly ? String(fresh ?? "")
      : el("button", { type: "button", class: "at", title: "Comment this line", "aria-label": `Comment line ${fresh}`, tabindex: "-1", onclick: () => this.ask(one.path, fresh) }, String(fresh));
    const code = line(spans, "td");
    return el("tr", { class: sign === "+" ? "plus-line" : sign === "-" ? "minus-line" : "" }, el("td", { class: "num" }, String(old ?? "")), el("td", { class: "num" }, number),
      el("td", { class: "sign" }, sign.trim()), code);
  }

  comment(said) {
    const cell = el("td", { colspan: 4 }, el("strong", {}, said.sent ? "sent: " : "comment: "), said.text);
    if (!said.sent && !readOnly) cell.append(el("button", { type: "button", onclick: () => act("drop-comment", { task: this.task, number: said.number }) }, "Remove"));
    return el("tr", { class: "comment" }, cell);
  }

  async ask(path, at) {
    const text = await askText(`Comment to ${path}:${at}`, { lines: 4, done: "Keep" });
    if (text && text.trim()) await act("comment", { task: this.task, tip: this.tip, path, line: at, text });
  }

  async send() {
    const text = await askText("Send the comments, with these words (or none)", { lines: 3, done: "Send" });
    if (text !== null) await act("send-comments", { task: this.task, text });
  }

  async decide(verdict) {
    const text = verdict === "rejected" ? await askText("Reject it, because", { done: "Reject" }) : (await confirm("Accept this result? Nothing is merged by that; Take does it.", "Accept") ? "" : null);
    if (text !== null) await act("verdict", { task: this.task, tip: this.tip, verdict, text });
  }
}
