// Replays a conversation: its messages come one after the other, each after the seconds that it took.
// @ts-check
const TIMES = [1, 4, 16];
const name = "bactrian-replay-times";

/**
 * Begin to replay the messages of this page.
 * @param {HTMLElement} box What holds the messages.
 * @param {() => void} ended Called when the replay ends.
 */
export const replay = (box, ended) => {
  const all = /** @type {HTMLElement[]} */ ([...box.querySelectorAll(".turn")]);
  const bar = document.createElement("div"), said = document.createElement("span");
  let at = 0, times = Number(sessionStorage.getItem(name)) || TIMES[0], isPaused = false;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;

  /** @param {string} label @param {string} key @param {() => void} does */
  const add = (label, key, does) => {
    const button = document.createElement("button");
    Object.assign(button, { type: "button", textContent: label, title: `Key: ${key}`, onclick: does });
    bar.append(button);
    return button;
  };
  const wait = () => {
    clearTimeout(timer);
    if (!isPaused && at < all.length - 1) timer = setTimeout(() => go(1), (1000 * Number(all[at + 1].dataset.seconds)) / times);
  };
  const show = () => {
    all.forEach((one, number) => { one.hidden = number > at; });
    all[at].scrollIntoView({ block: "end", behavior: "instant" });
    const seconds = at < all.length - 1 ? `, the next took ${all[at + 1].dataset.seconds} s` : ", the last one here";
    said.textContent = `Message ${all[at].dataset.turn}${seconds}${isPaused ? ", paused" : ""}`;
    pause.textContent = isPaused ? "Go on" : "Pause";
    faster.textContent = `${times}×`;
    wait();
  };
  /** @param {number} by */
  const go = (by) => {
    at = Math.min(Math.max(at + by, 0), all.length - 1);
    show();
  };
  const stop = () => {
    clearTimeout(timer);
    document.removeEventListener("keydown", press, true);
    for (const one of all) one.hidden = false;
    bar.remove();
    all[at].scrollIntoView({ block: "start", behavior: "instant" });
    ended();
  };
  const halt = () => { isPaused = !isPaused; show(); };
  const hasten = () => {
    times = TIMES[(TIMES.indexOf(times) + 1) % TIMES.length];
    sessionStorage.setItem(name, String(times));
    show();
  };
  /** @param {KeyboardEvent} event */
  const press = (event) => {
    const target = /** @type {HTMLElement} */ (event.target);
    if (target.closest("input, textarea, select, dialog") || event.ctrlKey || event.metaKey || event.altKey) return;
    const does = { ArrowRight: () => go(1), ArrowLeft: () => go(-1), Escape: stop, " ": halt, s: hasten }[event.key];
    if (!does || (event.key === " " && target.closest("button, a, summary"))) return;
    event.preventDefault();
    event.stopPropagation();
    does();
  };

  bar.id = "replay";
  bar.className = "row";
  bar.setAttribute("role", "region");
  bar.setAttribute("aria-label", "Replay");
  said.setAttribute("role", "status");
  add("←", "←", () => go(-1)).setAttribute("aria-label", "Back");
  const pause = add("Pause", "space", halt);
  add("→", "→", () => go(1)).setAttribute("aria-label", "Next message");
  const faster = add("", "s", hasten);
  faster.setAttribute("aria-label", "Speed");
  add("End", "Esc", stop);
  bar.append(said);
  document.body.append(bar);
  document.addEventListener("keydown", press, true);
  show();
};
