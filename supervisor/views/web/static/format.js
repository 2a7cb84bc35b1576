// The figures of the page, spelled as supervisor/kernel/format.py spells them. What is unknown is null.

const two = (number) => String(number).padStart(2, "0");

/** Of what goes on, in whole seconds: `12s`, `3m20s`, `2h05m`, `4d03h`. */
export function age(seconds) {
  if (seconds === null || seconds === undefined) return null;
  const whole = Math.max(0, Math.trunc(seconds));
  for (const [unit, length, part, shorter] of [["d", 86400, "h", 3600], ["h", 3600, "m", 60], ["m", 60, "s", 1]]) {
    const rest = Math.floor((whole % length) / shorter);
    if (whole >= length) return `${Math.floor(whole / length)}${unit}${rest ? two(rest) + part : ""}`;
  }
  return `${whole}s`;
}

/** `14:05:09`, local time. */
export const clock = (when) => [when.getHours(), when.getMinutes(), when.getSeconds()].map(two).join(":");

/** `2026-11-28`, local time. */
export const date = (when) => `${when.getFullYear()}-${two(when.getMonth() + 1)}-${two(when.getDate())}`;

/** Seconds since 1970 in at most 7 columns, by local time: `14:05` on the day of `now`, `21 Nov` in its year, else `2025-11`. */
export function brief(at, now) {
  const then = new Date(at * 1000), today = new Date(now * 1000);
  if (date(then) === date(today)) return clock(then).slice(0, 5);
  if (then.getFullYear() === today.getFullYear()) return `${then.getDate()} ${"Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(" ")[then.getMonth()]}`;
  return date(then).slice(0, 7);
}
