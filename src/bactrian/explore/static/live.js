// A conversation that is being written: new messages, the words of the one that is being spoken, and the controls.
// @ts-check

/**
 * What the play waits for, and whom pages play.
 * @typedef {{ paused: boolean, taken: string[], asks: string, title: string, question: string, proposals: string,
 *   may_ask: boolean, problem: string }} PlayState
 * @typedef {HTMLElement & Pick<HTMLFormElement, "reset" | "requestSubmit">} Part
 */
/** @param {string} selector @param {ParentNode} [inside] A part that every such page has. @returns {Part} */
const get = (selector, inside = document) => /** @type {Part} */ (inside.querySelector(selector));
const live = get("#live"), turns = get("#turns"), speaking = get("#speaking"), said = get("#status"), controls = get("#controls");
const last = () => Number(get("#turns > article:last-of-type")?.dataset.turn ?? 0);
const isAtEnd = () => scrollY + innerHeight > document.documentElement.scrollHeight - 200;

// Whoever comes back to this page later stays on it.
if (new URLSearchParams(location.search).has("watch")) history.replaceState(null, "", location.pathname + location.hash);
const source = new EventSource(`${live.dataset.events}?after=${last()}`);
source.addEventListener("turn", (event) => {
  const { number, html, counts } = JSON.parse(event.data);
  if (number <= last()) return;
  const follow = isAtEnd();
  const made = document.createElement("template");
  made.innerHTML = html;
  get("#rail").append(get("a[aria-label]", made.content));
  turns.append(made.content);
  speaking.textContent = "";
  said.textContent = `Message ${number}`;
  get("#count").textContent = counts;
  if (follow) live.scrollIntoView({ block: "end" });
});
source.addEventListener("piece", (event) => {
  const [, ...piece] = JSON.parse(event.data).split("\n");
  speaking.textContent += piece.join("\n");
});
source.addEventListener("restart", () => { speaking.textContent = ""; });
source.addEventListener("state", (event) => show(JSON.parse(event.data)));
source.addEventListener("ended", (event) => {
  source.close();
  const { next } = JSON.parse(event.data);
  if (next) { location.assign(next); return; }
  if (!new URLSearchParams(location.search).has("follow")) { location.reload(); return; }
  said.textContent = "It has ended; the newest conversation follows.";
  setTimeout(() => location.assign(`/newest${location.search}`), 2000);
});
source.onerror = () => { said.textContent = "The connection broke; it is tried again."; };
source.onopen = () => { said.textContent = ""; };

let offered = "";
/**
 * Show one of two buttons, and take the focus along.
 * @param {string} before @param {string} after @param {boolean} isAfter @param {ParentNode} inside
 */
const swap = (before, after, isAfter, inside) => {
  const shown = get(`[value=${isAfter ? after : before}]`, inside), other = get(`[value=${isAfter ? before : after}]`, inside);
  shown.hidden = false;
  if (document.activeElement === other) shown.focus();
  other.hidden = true;
};

/** @param {PlayState} state */
const show = (state) => {
  if (!controls) return;
  swap("pause", "resume", state.paused, controls);
  for (const seat of controls.querySelectorAll("[data-seat]")) {
    swap("take", "release", state.taken.includes(/** @type {HTMLElement} */ (seat).dataset.seat ?? ""), seat);
  }
  const form = get("#answer"), asked = get("#asked", form);
  const waits = Boolean(state.asks), chooses = state.proposals !== "";
  if (waits && form.hidden) speaking.textContent = "";
  asked.textContent = state.title;
  get("#question", form).textContent = state.asks === "critic" && !chooses ? state.question : "";
  get("#line", form).textContent = chooses ? "Your reason, or your own message" : "Your message";
  get("#say", form).hidden = chooses;
  get("#instead", form).hidden = !chooses;
  get("#again", form).hidden = !state.may_ask;
  if (state.proposals !== offered) {
    offered = state.proposals;
    get("#instead button", form).setAttribute("value", "write");
    get("#proposals", form).innerHTML = offered;
  }
  if (waits && form.hidden) {
    form.hidden = false;
    (chooses ? asked : get("textarea", form)).focus();
  }
  form.hidden = !waits;
  said.textContent = state.problem || (state.paused ? "Paused: the next message waits." : "");
};

document.addEventListener("submit", async (event) => {
  const form = /** @type {HTMLFormElement} */ (event.target);
  if (form.getAttribute("action") !== "/play/control") return;
  event.preventDefault();
  const fields = new URLSearchParams();
  for (const [name, value] of new FormData(form, event.submitter)) fields.append(name, String(value));
  const box = form.querySelector("textarea"), written = box?.value ?? "";
  if (fields.get("do") === "answer") form.reset();
  const answer = await fetch("/play/control", { method: "POST", body: fields, headers: { accept: "application/json" } });
  // What follows comes as an event, in its order: the state of this answer may be older.
  if (!answer.ok) {
    if (box) box.value = written;
    said.textContent = "This did not work; your text is still here. Reload the page if it stays so.";
  }
});
// A proposal to edit comes into the box; what is made of it is said instead.
get("#proposals")?.addEventListener("click", ({ target }) => {
  const edit = /** @type {HTMLElement} */ (target), form = get("#answer");
  if (!edit.dataset.edit) return;
  const box = /** @type {HTMLTextAreaElement} */ (form.querySelector("textarea"));
  box.value = edit.dataset.text ?? "";
  get("#instead button", form).setAttribute("value", `edit ${edit.dataset.edit}`);
  box.focus();
});
get("#answer textarea")?.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) get("#answer").requestSubmit();
});
