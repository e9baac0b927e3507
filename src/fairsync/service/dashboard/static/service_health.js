// The health of the service: its shards, and the connection to it.

import { announce, byId, make, setText } from "./dom.js";
import { count, percentRoundedDown } from "./format.js";

/** List every shard replica, with the error of those that are down. */
export function showShards(root, overview) {
  const { shards, degraded } = overview;
  const rendered = JSON.stringify([shards, degraded]);
  if (root.dataset.rendered === rendered) return;
  root.dataset.rendered = rendered;
  const up = shards.filter((one) => one.up).length;
  const answers = degraded > 0
    ? `${percentRoundedDown(1 - degraded)} of recent answers saw the whole catalog.` : "All recent answers saw the whole catalog.";
  const cells = shards.map((one) =>
    make("li", { class: one.up ? "up" : "down" }, make("strong", {}, `Shard ${one.shard}.${one.replica}`),
      ` ${one.up ? "up" : "down"}, ${count(one.items)} items`, one.error ? make("span", { class: "dim" }, `: ${one.error}`) : ""));
  root.replaceChildren(
    make("p", {}, shards.length ? `${count(up)} of ${count(shards.length)} shards up. ` : "", answers),
    make("ul", { class: "shards plain" }, ...cells),
  );
}

/** Show the state of the connection. The text changes every second, so only a change of `kind` is announced. */
export function showConnection(kind, text) {
  const element = byId("connection");
  if (element.dataset.kind !== kind) {
    if (kind === "offline") announce("The service does not answer. The page may be out of date.");
    else if (element.dataset.kind === "offline") announce("The service answers again.");
    element.dataset.kind = kind;
    document.body.classList.toggle("stale", kind === "offline");
  }
  setText(element.querySelector("span"), text);
}
