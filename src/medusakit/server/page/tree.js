// The tree of guesses as a picture: left to right as text goes, warm where guesses were right.

import { percent, svg } from "./dom.js";

const MAX_LEAVES = 18;
const MAX_DEPTH = 7;
const ROW = 21;
const EDGE = 16;

/** nodes: [{ path: [ranks], offered, accepted }], parents before children. */
export function drawTree(target, nodes) {
  const places = layout(pruned(nodes));
  const depth = Math.max(...places.map((place) => place.path.length));
  const width = Math.max(target.clientWidth, 300);
  const column = (width - 2 * EDGE - 34) / Math.max(depth, 1);
  const height = ROW * Math.max(...places.map((place) => place.row)) + 2 * EDGE;
  const most = places[0].offered;
  const x = (place) => EDGE + place.path.length * column;
  const y = (place) => EDGE + place.row * ROW;
  const drawing = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": told(places) });
  for (const place of places.filter((one) => one.parent)) drawing.append(edge(place, most, x, y));
  for (const place of places) drawing.append(node(place, x(place), y(place)));
  target.replaceChildren(drawing);
}

/** The guesses tried most often, as many as fit; a node only with its parent. */
function pruned(nodes) {
  const kept = new Map([["", { path: [], offered: nodes[0].offered, accepted: nodes[0].offered, children: [] }]]);
  let leaves = 1;
  for (const one of [...nodes].sort((a, b) => b.offered - a.offered || a.path.length - b.path.length)) {
    const parent = kept.get(one.path.slice(0, -1).join());
    if (!parent || one.path.length > MAX_DEPTH) continue;
    if (parent.children.length && ++leaves > MAX_LEAVES) break;
    const place = { ...one, parent, children: [] };
    parent.children.push(place);
    kept.set(one.path.join(), place);
  }
  return kept.get("");
}

/** Leaves one under the other; the first child beside its parent, so that the likeliest path is a straight line. */
function layout(root) {
  const places = [];
  let row = 0;
  const visit = (place) => {
    place.row = row;
    places.push(place);
    place.children.sort((a, b) => a.path.at(-1) - b.path.at(-1));
    place.children.forEach((child, index) => {
      if (index) row += 1;
      visit(child);
    });
  };
  visit(root);
  return places;
}

function edge(place, most, x, y) {
  const [x0, y0, x1, y1] = [x(place.parent), y(place.parent), x(place), y(place)];
  const bend = Math.min(x0 + 26, x1);
  const share = place.accepted / most;
  const path = svg("path", { d: `M${x0} ${y0}C${bend} ${y0} ${x0} ${y1} ${bend} ${y1}H${x1}`, "stroke-width": (1.2 + 5 * share).toFixed(1) });
  path.style.stroke = heat(share);
  return path;
}

/** The square root spreads the small shares, of which a tree has many. */
const heat = (share) => `color-mix(in oklab, var(--warm) ${Math.round(100 * Math.sqrt(share))}%, var(--cold))`;

function node(place, x, y) {
  const root = !place.parent;
  const share = place.accepted / place.offered;
  const circle = svg("circle", { cx: x, cy: y, r: root ? 8 : 7 });
  circle.style.fill = root ? "var(--ink)" : heat(share);
  const group = svg("g", {}, svg("title", { text: root ? "the token already decided" : label(place) }), circle);
  if (place.accepted && !root) group.append(svg("text", { x: x + 11, y: y - 5, text: percent(share) }));
  return group;
}

const label = (place) => `guess ${place.path.map((rank) => rank + 1).join(", then ")}: right ${place.accepted} of ${place.offered} times`;

function told(places) {
  const drafted = places.filter((place) => place.parent).sort((a, b) => b.accepted - a.accepted).slice(0, 5);
  return `Tree of ${places.length - 1} guesses. ${drafted.map(label).join("; ")}`;
}
