// Format numbers, percentages and times in the reader's locale.

const whole = new Intl.NumberFormat(undefined, { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat(undefined, { notation: "compact", maximumSignificantDigits: 3 });
const twoDigits = new Intl.NumberFormat(undefined, { maximumSignificantDigits: 2 });
const percent = new Intl.NumberFormat(undefined, { style: "percent", maximumSignificantDigits: 2 });
const exactPercent = new Intl.NumberFormat(undefined, { style: "percent", maximumSignificantDigits: 3 });

const threeDigits = new Intl.NumberFormat(undefined, { maximumSignificantDigits: 3 });

export const precise = (value) => threeDigits.format(value);
export const count = (value) => whole.format(value);
export const plural = (n, one, many) => (n === 1 ? one : many);
export const compact = (value) => (Math.abs(value) < 100_000 ? whole.format(value) : short.format(value));
export const figure = (value) => twoDigits.format(value);
/** A small percentage, such as a cost. Values below 0.01 % are shown as such, not with many zeros. */
export const smallPercent = (value) =>
  value > 0 && value < 0.0001 ? `< ${percent.format(0.0001)}` : percent.format(value);
/** The same with one more digit, for two values that are compared. */
export const precisePercent = (value) => (value > 0 && value < 0.0001 ? smallPercent(value) : exactPercent.format(value));
/** A share of a whole, rounded down: 99.97 % must not be shown as 100 %. */
export const percentRoundedDown = (value) => exactPercent.format(value < 1 ? Math.min(Math.floor(value * 1000) / 1000, 0.999) : value);

const SECOND = 1000, MINUTE = 60 * SECOND, HOUR = 60 * MINUTE, DAY = 24 * HOUR;

const units = (unitDisplay) => ["second", "minute", "hour", "day"].map((unit) => {
  const format = new Intl.NumberFormat(undefined, { style: "unit", unit, unitDisplay });
  return (value) => format.format(value);
});
const [shortUnits, narrowUnits] = [units("short"), units("narrow")];

/** A duration in its two largest units: 3 hr 12 min; for a narrow column, 3h 12m. */
export function duration(milliseconds, narrow = false) {
  const [seconds, minutes, hours, days] = narrow ? narrowUnits : shortUnits;
  const ms = Math.max(milliseconds, 0);
  if (ms < MINUTE) return seconds(Math.floor(ms / SECOND));
  if (ms < HOUR) return minutes(Math.floor(ms / MINUTE));
  const [big, ofBig, sub, ofSub] = ms < DAY ? [hours, HOUR, minutes, MINUTE] : [days, DAY, hours, HOUR];
  const rest = Math.floor((ms % ofBig) / ofSub);
  return big(Math.floor(ms / ofBig)) + (rest ? ` ${sub(rest)}` : "");
}

const formats = new Map();

function dated(zone, options) {
  const key = JSON.stringify([zone, options]);
  if (!formats.has(key)) formats.set(key, new Intl.DateTimeFormat(undefined, { timeZone: zone, ...options }));
  return formats.get(key);
}

export const clock = (moment, zone) => dated(zone, { hour: "2-digit", minute: "2-digit" }).format(moment);
export const day = (moment, zone) => dated(zone, { day: "numeric", month: "short" }).format(moment);
export const full = (moment, zone) =>
  dated(zone, { weekday: "short", day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" }).format(moment);

/** The time of day, with the date unless it is today, and with the time zone if the reader's clock differs. */
export function when(moment, zone, now) {
  const text = day(moment, zone) === day(now, zone) ? clock(moment, zone) : full(moment, zone);
  if (full(moment, zone) === full(moment)) return text;
  const name = dated(zone, { timeZoneName: "short" }).formatToParts(moment).find((part) => part.type === "timeZoneName");
  return `${text} ${name.value}`;
}

/** The name of a past window: its hour, its day, or its first and last day. */
export function span(start, end, zone) {
  const length = end - start;
  if (length <= 2 * HOUR) return `${day(start, zone)}, ${clock(start, zone)}`;
  if (length <= 1.5 * DAY) return dated(zone, { weekday: "short", day: "numeric", month: "short" }).format(start);
  return dated(zone, { day: "numeric", month: "short" }).formatRange(start, new Date(end - 1));
}

/** The local time in a zone, as an input of type datetime-local expects it. */
export function toLocal(moment, zone) {
  const parts = new Intl.DateTimeFormat("sv-SE", {
    timeZone: zone, year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit",
  });
  return parts.format(moment).replace(" ", "T");
}

/** The instant at which a zone has a local time. */
export function fromLocal(local, zone) {
  const asIfUtc = Date.parse(`${local}Z`);
  const offset = (instant) => Date.parse(`${toLocal(instant, zone)}Z`) - instant;
  // Twice: the first guess may lie on the other side of a daylight-saving change and have the other offset.
  let instant = asIfUtc - offset(asIfUtc);
  instant = asIfUtc - offset(instant);
  return new Date(instant);
}
