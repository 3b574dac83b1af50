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
  turns.insertAdjacentHTML("beforeend", html);
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

const show = (state) => {
  if (!controls) return;
  controls.querySelector("[value=pause]").hidden = state.paused;
  controls.querySelector("[value=resume]").hidden = !state.paused;
  for (const seat of controls.querySelectorAll("[data-seat]")) {
    const taken = state.taken.includes(seat.dataset.seat);
    seat.querySelector("[value=take]").hidden = taken;
    seat.querySelector("[value=release]").hidden = !taken;
  }
  const form = document.querySelector("#answer");
  const waits = Boolean(state.asks);
  if (waits && form.hidden) speaking.textContent = "";
  form.querySelector("#asked").textContent = waits ? `You are the ${state.asks === "critic" ? "critic: begin with the number of a proposal" : `AI ${state.asks}`}` : "";
  document.querySelector("#question").textContent = waits && state.asks === "critic" ? state.question : "";
  if (waits && form.hidden) { form.hidden = false; form.querySelector("textarea").focus(); }
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
