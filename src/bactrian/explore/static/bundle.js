// The search of a static copy: all words, separated by commas or spaces, must occur in the roles, the idea or the findings.
// @ts-check
/** Of each conversation, as rows.js has them: file, roles, idea and facts. @typedef {[string, string, string, string]} Row */
const place = document.querySelector("#search");
// @ts-expect-error (rows.js, a script of its own, has them)
const rows = /** @type {Row[]} */ (typeof ROWS === "undefined" ? [] : ROWS);
if (place && rows.length) {
  /** @param {string} text */
  const fold = (text) => text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();
  const folded = rows.map((row) => fold(row.slice(1).join(" ")));
  const label = Object.assign(document.createElement("label"), { textContent: "Search roles, ideas, endings and behaviours " });
  const input = Object.assign(document.createElement("input"), { type: "search" });
  input.dataset.key = "/";
  input.id = "find";
  label.append(input);
  const found = Object.assign(document.createElement("ol"), { className: "list", id: "found" });
  const said = Object.assign(document.createElement("p"), { className: "soft" });
  said.setAttribute("role", "status");
  place.append(label, said, found);
  const rest = /** @type {HTMLElement[]} */ ([...document.querySelectorAll("#list, nav.steps")]);
  /** @template {keyof HTMLElementTagNameMap} N @param {Element} parent @param {N} name @param {string} text */
  const add = (parent, name, text) => {
    const one = document.createElement(name);
    one.textContent = text;
    one.dir = "auto";
    parent.append(one);
    return one;
  };
  const search = () => {
    const words = (input.value.includes(",") ? input.value.split(",") : input.value.split(/\s+/)).map((word) => fold(word.trim())).filter(Boolean);
    for (const one of rest) one.hidden = words.length > 0;
    const hits = words.length ? rows.filter((_, at) => words.every((word) => folded[at].includes(word))) : [];
    said.textContent = words.length ? `${hits.length.toLocaleString()} of ${rows.length.toLocaleString()}${hits.length > 200 ? "; the first 200 are shown" : ""}` : "";
    found.replaceChildren();
    for (const [file, roles, task, facts] of hits.slice(0, 200)) {
      const item = document.createElement("li");
      const link = add(add(item, "h2", ""), "a", roles);
      link.href = file;
      add(item, "p", task);
      add(item, "p", facts).className = "soft";
      found.append(item);
    }
  };
  input.addEventListener("input", search);
  const read = () => { input.value = `${decodeURIComponent(location.hash.slice(1))}`; if (input.value && !input.value.includes(",")) input.value += ","; search(); };
  addEventListener("hashchange", read);
  if (location.hash) read();
}
