import { page, section, table } from "./show.js";

// The tables of other packages, in the order of the packages' names.
page("More", () => "/data/more", (shape) => shape.sections.map((one) => section(one.title, table(one.title, one.columns, one.rows))), { live: true });
