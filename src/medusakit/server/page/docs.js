// The API's document, drawn: every operation with its fields and answers. It is read from this server alone.

import { byId, element, setText } from "./dom.js";

const answer = await fetch("openapi.json", { cache: "no-store" });
const api = await answer.json();

setText("title", `${api.info.title} ${api.info.version}: API`);
for (const [path, methods] of Object.entries(api.paths))
  for (const [method, operation] of Object.entries(methods)) byId("operations").append(drawn(path, method, operation));
byId("operations").setAttribute("aria-busy", "false");

function drawn(path, method, operation) {
  const [first, rest] = sentences(operation.description ?? operation.summary ?? "");
  const name = element("code", { text: `${method.toUpperCase()} ${path}` });
  const head = element("summary", {}, name, element("span", { class: "soft", text: first }));
  const body = operation.requestBody?.content?.["application/json"]?.schema;
  const parts = [
    ...table("Parameters", (operation.parameters ?? []).map((one) => [one.name, one.required, one.schema, one.description])),
    ...(body ? fields(body) : []),
    ...table("Answers", Object.entries(operation.responses).map(([status, one]) => [status, false, null, one.description])),
  ];
  return element("details", { class: "panel operation" }, head, ...(rest ? [element("p", { text: rest })] : []), ...parts);
}

/** A text's first sentence, and what follows it. */
function sentences(text) {
  const end = text.indexOf(". ");
  return end < 0 ? [text, ""] : [text.slice(0, end + 1), text.slice(end + 2)];
}

/** The fields of a body, those of its objects under names with dots. */
function fields(schema) {
  return table("Body", [...listed(resolved(schema), "", new Set())]);
}

function* listed(schema, before, seen) {
  for (const [name, field] of Object.entries(schema.properties ?? {})) {
    const needed = (schema.required ?? []).includes(name);
    yield [before + name, needed, field, resolved(field).description ?? field.description];
    for (const inner of objects(field)) {
      if (seen.has(inner)) continue; // a schema that holds itself is drawn once
      yield* listed(inner, `${before}${name}${kind(field).includes("list of") ? "[]" : ""}.`, new Set([...seen, inner]));
    }
  }
}

function objects(field) {
  const found = resolved(field);
  const choices = found.anyOf ?? found.oneOf ?? (found.items ? [found.items] : null);
  return choices ? choices.flatMap(objects) : found.properties ? [found] : [];
}

function resolved(schema) {
  return schema?.$ref ? schema.$ref.slice(2).split("/").reduce((at, part) => at[part], api) : (schema ?? {});
}

function kind(schema) {
  if (!schema) return "";
  if (schema.$ref) return resolved(schema).enum ? kind(resolved(schema)) : schema.$ref.split("/").pop();
  const choices = schema.anyOf ?? schema.oneOf;
  if (choices) return choices.map(kind).join(" or ");
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" or ");
  if (schema.type === "array") return `list of ${kind(schema.items) || "anything"}`;
  return `${schema.type ?? "anything"}${bounds(schema)}`;
}

function bounds(schema) {
  const low = schema.minimum ?? schema.exclusiveMinimum, high = schema.maximum ?? schema.exclusiveMaximum;
  if (low !== undefined && high !== undefined) return `, ${low} to ${high}`;
  if (low !== undefined) return `, from ${low}`;
  return high !== undefined ? `, to ${high}` : "";
}

function table(title, rows) {
  if (!rows.length) return [];
  const lines = rows.map(([name, needed, schema, text]) => element("tr", {},
    element("th", { scope: "row" }, element("code", { text: name })),
    element("td", { text: [kind(schema), needed ? "required" : ""].filter(Boolean).join("; ") }),
    element("td", { text: text ?? "" })));
  return [element("h3", { text: title }), element("table", { class: "fields" }, element("tbody", {}, ...lines))];
}
