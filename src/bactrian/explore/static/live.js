// A conversation that is being written: new messages, the words of the one that is being spoken, and the controls.
const live = document.querySelector("#live");
const turns = document.querySelector("#turns");
const speaking = document.querySelector("#speaking");
const status = document.querySelector("#status");
const controls = document.querySelector("#controls");
const last = () => Number(document.querySelector("#turns > article:last-of-type")?.dataset.turn ?? 0);
const isAtEnd = () => scrollY + innerHeight > document.documentElement.scrollHeight - 200;

const source = new EventSource(`${live.dataset.events}?after=${last()}`);
source.addEventListener("turn", (event) => {
  const { number, html } = JSON.parse(event.data);
  if (number <= last()) return;
  const follow = isAtEnd();
  const made = document.createElement("template");
  made.innerHTML = html;
  document.querySelector("#rail").append(made.content.querySelector("a[aria-label]"));
  turns.append(made.content);
  speaking.textContent = "";
  status.textContent = `Message ${number}`;
  if (follow) live.scrollIntoView({ block: "end" });
});
source.addEventListener("piece", (event) => {
  const [, ...piece] = JSON.parse(event.data).split("\n");
  speaking.textContent += piece.join("\n");
});
source.addEventListener("restart", () => { speaking.textContent = ""; });
source.addEventListener("state", (event) => show(JSON.parse(event.data)));
source.addEventListener("ended", () => { source.close(); location.reload(); });
source.onerror = () => { status.textContent = "The connection broke; it is tried again."; };
source.onopen = () => { status.textContent = ""; };

let offered = "";
const propose = ([place, text]) => {
  const item = document.createElement("li"), button = document.createElement("button"), words = document.createElement("div");
  Object.assign(button, { name: "choice", value: place, textContent: `Choose ${place}` }).dataset.key = place;
  Object.assign(words, { className: "prose", dir: "auto", textContent: text });
  item.append(button, words);
  return item;
};

const show = (state) => {
  if (!controls) return;
  controls.querySelector("[value=pause]").hidden = state.paused;
  controls.querySelector("[value=resume]").hidden = !state.paused;
  for (const seat of controls.querySelectorAll("[data-seat]")) {
    const taken = state.taken.includes(seat.dataset.seat);
    seat.querySelector("[value=take]").hidden = taken;
    seat.querySelector("[value=release]").hidden = !taken;
  }
  const form = document.querySelector("#answer"), asked = form.querySelector("#asked");
  const waits = Boolean(state.asks), isCritic = state.asks === "critic", chooses = state.proposals.length > 0;
  if (waits && form.hidden) speaking.textContent = "";
  asked.textContent = isCritic ? "You are the critic: which message is best?" : `You are the AI ${state.asks}`;
  form.querySelector("#question").textContent = isCritic && !chooses ? state.question : "";
  form.querySelector("#line").textContent = chooses ? "Your reason, if you like" : "Your message";
  form.querySelector("#say").hidden = chooses;
  if (JSON.stringify(state.proposals) !== offered) {
    offered = JSON.stringify(state.proposals);
    form.querySelector("#proposals").replaceChildren(...state.proposals.map(propose));
  }
  if (waits && form.hidden) {
    form.hidden = false;
    (chooses ? asked : form.querySelector("textarea")).focus();
  }
  form.hidden = !waits;
  status.textContent = state.problem || (state.paused ? "Paused: the next message waits." : "");
};

document.addEventListener("submit", async (event) => {
  if (event.target.getAttribute("action") !== "/play/control") return;
  event.preventDefault();
  const fields = new URLSearchParams(new FormData(event.target, event.submitter));
  const answer = await fetch("/play/control", { method: "POST", body: fields, headers: { accept: "application/json" } });
  if (answer.ok) {
    if (fields.get("do") === "answer") event.target.reset();
    show(await answer.json());
  } else {
    status.textContent = "This did not work; your text is still here. Reload the page if it stays so.";
  }
});
document.querySelector("#answer textarea")?.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) event.target.form.requestSubmit();
});
