// Keys, copying, numbers and dates by locale, suggestions. Every page works without it.
// @ts-check

/**
 * An element of a page, with what its kind may have.
 * @typedef {HTMLElement & Pick<HTMLAnchorElement, "href" | "hash"> & Pick<HTMLTimeElement, "dateTime">
 *   & Pick<HTMLInputElement, "checked" | "value" | "disabled" | "list" | "form" | "select">} Part
 */
/** @param {string} selector @param {ParentNode} [inside] @returns {Part | null} */
const find = (selector, inside = document) => /** @type {Part | null} */ (inside.querySelector(selector));
/** @param {string} selector @param {ParentNode} [inside] @returns {Part[]} */
const pick = (selector, inside = document) => [...inside.querySelectorAll(selector)].map((one) => /** @type {Part} */ (one));
/** What has the focus, or the part of the page around it. @param {string} selector */
const findFocused = (selector) => document.activeElement?.closest(selector) ?? null;
const KEYS_OFF = "bactrian-keys-off";
const off = () => localStorage.getItem(KEYS_OFF) === "1";
let prefix = "";

/** @param {string} address */
const go = (address) => { if (address) location.href = address; };
/** Follow the link of a key, or go to its field. @param {string} key */
const follow = (key) => {
  const target = find(`[data-key="${CSS.escape(key)}"]`);
  if (target?.href) go(target.href);
  else if (target) {
    target.closest("details")?.setAttribute("open", "");
    target.focus();
  }
  return Boolean(target);
};

/** Move the focus among elements, such as messages. @param {HTMLElement[]} all @param {number} by */
const step = (all, by) => {
  if (!all.length) return false;
  const at = all.findIndex((one) => one === document.activeElement || one.contains(document.activeElement));
  const next = all[at < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(Math.max(at + by, 0), all.length - 1)];
  next.focus({ preventScroll: true });
  next.scrollIntoView({ block: "center" });
  return true;
};
/** The focused finding is right or wrong: press its button. @param {string} key */
const answerFinding = (key) => {
  const finding = findFocused("[data-finding]"), button = finding && find(`[data-answer="${key}"]`, finding);
  button?.click();
  return Boolean(button);
};
/** Choose a label of a conversation by its number; in the focused message first, if there is one. @param {string} key */
const chooseLabel = (key) => {
  const box = find(`#labels [data-label="${key}"]`), row = box?.closest(".row");
  const place = row && find("[name^=at-]", row);
  box?.click();
  if (place) place.value = box?.checked ? (/** @type {HTMLElement | null} */ (findFocused(".turn")))?.dataset.turn ?? "" : "";
  return Boolean(box);
};
/** Send the chosen labels, unless the focus is on something else that `Enter` is for. */
const sendLabels = () => {
  const form = /** @type {HTMLFormElement | null} */ (document.querySelector("#labels"));
  if (!form || findFocused("a, button, summary, form")) return false;
  form.requestSubmit();
  return true;
};
// A label and "none of these" exclude each other.
find("#labels")?.addEventListener("change", ({ target }) => {
  const changed = /** @type {HTMLInputElement} */ (target);
  if (changed.type !== "checkbox" || !changed.checked) return;
  for (const box of pick("#labels [data-label]")) {
    if ((box.dataset.label === "0") !== (changed.name === "none")) box.checked = false;
  }
});

const showKeys = async () => {
  let dialog = /** @type {HTMLDialogElement | null} */ (document.querySelector("#keys-dialog"));
  if (!dialog) {
    const address = find("footer a")?.href ?? "/help";
    let text = "";
    try { text = await (await fetch(address)).text(); } catch { go(address); return; }
    const page = new DOMParser().parseFromString(text, "text/html");
    dialog = document.createElement("dialog");
    dialog.id = "keys-dialog";
    dialog.setAttribute("aria-label", "Keys");
    dialog.autofocus = true; // Not its first button, which is below the keys.
    const close = document.createElement("form");
    close.method = "dialog";
    close.append(Object.assign(document.createElement("button"), { textContent: "Close" }));
    dialog.append(...pick("#keys", page).map((one) => document.importNode(one, true)), close);
    document.body.append(dialog);
    bindSwitch();
  }
  dialog.showModal();
};
const bindSwitch = () => {
  const box = find("#keys-on");
  if (!box) return;
  box.checked = !off();
  box.onchange = () => localStorage.setItem(KEYS_OFF, box.checked ? "0" : "1");
};

document.addEventListener("keydown", (event) => {
  const typing = /** @type {HTMLElement | null} */ (
    /** @type {Element} */ (event.target).closest("input:not([type=checkbox], [type=radio]), textarea, select, [contenteditable]")
  );
  if (event.key === "Escape" && typing) { typing.blur(); return; }
  if (typing || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (event.key === "?") { event.preventDefault(); showKeys(); return; }
  if (off()) return;
  if (prefix === "g") { prefix = ""; if (follow(`g ${event.key}`)) event.preventDefault(); return; }
  const list = pick("#list :is(h2, th) a");
  /** @type {Record<string, () => boolean>} */
  const keys = {
    "g": () => { prefix = "g"; setTimeout(() => { prefix = ""; }, 1500); return true; },
    "/": () => { find("#find")?.focus(); return true; },
    "j": () => follow("j") || step(list, 1),
    "k": () => follow("k") || step(list, -1),
    "n": () => stepStop(1),
    "p": () => stepStop(-1),
    "y": () => answerFinding("y"),
    "x": () => answerFinding("x"),
    "[": () => step(pick("[data-turn]"), -1),
    "]": () => follow("]") || step(pick("[data-turn]"), 1),
    "u": () => follow("u"),
    "m": () => follow("m"),
    "f": () => follow("f"),
    "d": () => follow("d"),
    "r": () => follow("r"),
    "t": () => follow("t"),
    "c": () => { const row = findFocused("li, tr"), box = row && find("[name=pick]", row); box?.click(); return Boolean(box); },
    "Enter": () => sendLabels(),
  };
  const done = keys[event.key]?.() ?? (/^\d$/.test(event.key) && (chooseLabel(event.key) || follow(event.key)));
  if (done) event.preventDefault();
});

for (const button of pick("[data-link]")) {
  button.addEventListener("click", async () => {
    const said = document.querySelector("#linked");
    const done = await navigator.clipboard.writeText(location.href).then(() => "Copied.", () => "Not copied; the address of this page is the link.");
    if (said) said.textContent = done;
  });
}

document.addEventListener("click", async (event) => {
  const button = /** @type {HTMLElement | null} */ (/** @type {Element} */ (event.target).closest("[data-copy]"));
  const said = find("#said");
  if (!button?.dataset.copy || !said) return;
  try {
    const answer = await fetch(button.dataset.copy);
    if (!answer.ok) throw new Error(String(answer.status));
    await navigator.clipboard.writeText(await answer.text());
    said.textContent = "Copied.";
  } catch (error) {
    said.textContent = `Not copied (${error instanceof Error ? error.message : error}); the link beside opens the text.`;
  }
});

// The page of a conversation shows a part of a long one. A link to what is in another part loads that part.
const turns = find("#turns");
/** @param {string | undefined} text */
const words = (text) => (text ?? "").split(" ").filter(Boolean);
const stops = words(turns?.dataset.stops);
/** The number of the message of a place; 0 if it has none. @param {string} id */
const turnOf = (id) => {
  const [, kind, digits] = /^(turn|finding)-(\d{1,9})$/.exec(id) ?? [];
  return kind === "finding" ? Number(words(turns?.dataset.findings)[Number(digits) - 1] ?? 0) : Number(digits ?? 0);
};
/** @param {string} id */
const showPart = (id) => {
  const number = turnOf(id);
  if (!(number > 0 && number <= Number(turns?.dataset.count)) || document.getElementById(id)) return false;
  const query = new URLSearchParams(location.search);
  query.set("from", String(number - (number - 1) % 100));
  location.replace(`?${query}#${id}`);
  return true;
};
/** @param {string} id */
const land = (id) => {
  const place = document.getElementById(id);
  if (!place) return showPart(id);
  place.focus({ preventScroll: true });
  const mark = place.matches(".turn") && place.querySelector("mark.hit");
  (mark || place).scrollIntoView({ block: mark || !place.matches(".turn") ? "center" : "start", behavior: "instant" });
  return true;
};
/**
 * Go from one finding, or one message with words of the search, to the next; at first, from the message on the screen.
 * @param {number} by
 */
const stepStop = (by) => {
  const at = stops.indexOf(findFocused("[data-finding], .turn")?.id ?? "");
  if (at >= 0) return land(stops[Math.min(Math.max(at + by, 0), stops.length - 1)]);
  const here = Number(pick(".turn").find((one) => one.getBoundingClientRect().bottom > 90)?.dataset.turn ?? 0);
  const next = by > 0 ? stops.find((id) => turnOf(id) >= here) : stops.findLast((id) => turnOf(id) < here);
  return next !== undefined && land(next);
};
const showPlace = () => {
  const id = location.hash.slice(1);
  if (id === "found" && stops.length) land(stops[0]);
  else if (!showPart(id) && id.startsWith("finding-")) document.getElementById(id)?.focus();
};
addEventListener("hashchange", showPlace);
// Before that, the browser goes to the place of the address itself, and takes the focus away.
if (location.hash === "#found") addEventListener("load", showPlace);
else showPlace();

// The rail is one stop of the Tab key. Arrows go along it; the message on the screen is marked.
const rail = find("#rail");
if (rail && turns) {
  const ticks = () => pick("a", rail);
  /** @param {Part} tick */
  const choose = (tick) => {
    for (const one of ticks()) one.tabIndex = one === tick ? 0 : -1;
  };
  rail.addEventListener("keydown", (event) => {
    /** @type {Record<string, number>} */
    const steps = { ArrowUp: -1, ArrowLeft: -1, ArrowDown: 1, ArrowRight: 1, Home: -Infinity, End: Infinity, PageUp: -10, PageDown: 10 };
    const by = steps[event.key];
    if (!by || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const all = ticks(), at = all.indexOf(/** @type {Part} */ (document.activeElement));
    const next = all[Math.min(Math.max(at + by, 0), all.length - 1)];
    choose(next);
    next.focus();
  });
  const shown = new Set();
  const watcher = new IntersectionObserver((changes) => {
    for (const { target, isIntersecting } of changes) shown[isIntersecting ? "add" : "delete"](turnOf(target.id));
    const first = Math.min(...shown), last = Math.max(...shown);
    const all = ticks(), numbers = all.map((tick) => turnOf(tick.hash.slice(1)));
    all.forEach((tick, at) => {
      const isShown = numbers[at] <= last && (numbers[at + 1] ?? Infinity) > first;
      if (isShown) tick.setAttribute("aria-current", "true"); else tick.removeAttribute("aria-current");
    });
    if (!rail.contains(document.activeElement)) choose(all.find((tick) => tick.hasAttribute("aria-current")) ?? all[0]);
  });
  for (const one of pick(".turn")) watcher.observe(one);
  const button = find("[data-replay]");
  button?.addEventListener("click", async () => {
    const { replay } = await import(button.dataset.replay ?? "");
    button.disabled = true;
    replay(turns, () => { button.disabled = false; });
  });
  new MutationObserver(() => { for (const one of pick(".turn")) watcher.observe(one); }).observe(turns, { childList: true });
}

/** Write numbers as the reader's language does. @param {ParentNode} [inside] */
const writeNumbers = (inside) => { for (const one of pick("data[value]", inside)) one.textContent = Number(one.value).toLocaleString(); };
writeNumbers();
for (const one of pick("time[datetime]")) one.textContent = new Date(one.dateTime).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });

// A comment that is being written outlives a reload.
for (const form of pick("[data-draft]")) {
  const text = find("textarea", form), name = `bactrian-draft-${form.dataset.draft}`;
  if (!text) continue;
  text.value ||= sessionStorage.getItem(name) ?? "";
  text.addEventListener("input", () => sessionStorage.setItem(name, text.value));
  form.addEventListener("submit", () => sessionStorage.removeItem(name));
}

// Who marks one conversation often marks the next one alike.
for (const input of pick("[data-last]")) {
  const name = `bactrian-last-${input.dataset.last}`;
  const before = sessionStorage.getItem(name) ?? "";
  if (!pick("input[type=hidden][name=mark]").some((one) => one.value === before)) input.value ||= before;
  input.addEventListener("focus", () => input.select());
  input.form?.addEventListener("submit", () => sessionStorage.setItem(name, input.value));
}

for (const input of pick("[data-values]")) {
  input.addEventListener("focus", async () => {
    /** @type {string[]} */
    const names = await (await fetch(`/values?field=${input.dataset.values}`)).json();
    input.list?.replaceChildren(...names.map((value) => Object.assign(document.createElement("option"), { value })));
  }, { once: true });
}

// A page follows what is written and read, until nothing is lacking.
const follows = () => Boolean(document.querySelector("[data-reading]"));
// Who comes back from a conversation is at its row, unless the list is being refreshed: that would then wait.
if (document.referrer && !follows()) {
  pick("#list :is(h2, th) a").find((one) => new URL(one.href).pathname === new URL(document.referrer).pathname)?.focus();
}
if (matchMedia("(max-width: 56rem)").matches) document.querySelector(".filters details")?.removeAttribute("open");
bindSwitch();

/** What was opened or closed stays so.
 * @param {Element} part
 * @param {Element} next */
const keepOpen = (part, next) => {
  const open = new Map([...part.querySelectorAll("details")].map((one) => [one.firstElementChild?.textContent, one.open]));
  for (const one of next.querySelectorAll("details")) one.open = open.get(one.firstElementChild?.textContent) ?? one.open;
};
if (follows()) {
  let rest = 6;
  const timer = setInterval(async () => {
    if (document.hidden) return;
    const answer = await fetch(location.href).catch(() => null);
    if (!answer?.ok) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const part of pick("[data-live]")) {
      const next = page.getElementById(part.id);
      if (!next || part.contains(document.activeElement) || part.querySelector(":checked")) continue;
      writeNumbers(next);
      keepOpen(part, next);
      part.replaceChildren(...next.childNodes);
    }
    // When a run was written to its end, the index may still lack its last conversations.
    rest = follows() ? 6 : rest - 1;
    if (!rest) clearInterval(timer);
  }, 1000);
}
