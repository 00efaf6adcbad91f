// Browser notifications for new prompts, with a link to each. Permission is requested only when a button is pressed.
const button = document.getElementById("notify");
const can = "Notification" in window && "serviceWorker" in navigator && window.isSecureContext;
const KEPT = "keepfast.told";
const folder = document.body.dataset.folder;

function label() {
  const state = Notification.permission;
  button.hidden = false;
  button.disabled = state !== "default";
  button.dataset.state = state;
  button.title = state === "granted" ? button.dataset.yes : state === "denied" ? button.dataset.no : button.dataset.ask;
  button.setAttribute("aria-label", button.title);
}

// Phones show notifications only through a service worker.
const worker = () => navigator.serviceWorker.register("/static/worker.js", { scope: "/static/" });

// Resolves when the worker is active; before that it cannot show notifications.
const active = (registration) => new Promise((go) => {
  const coming = registration.installing || registration.waiting;
  if (registration.active || !coming) return go();
  coming.addEventListener("statechange", () => registration.active && go());
});

async function waiting() {
  const answer = await fetch(`${folder}/api/inbox`);
  return answer.ok ? (await answer.json()).data : [];
}

const keyOf = (one) => one.id || `${one.task} ${one.created_at}`;
const known = () => new Set(JSON.parse(localStorage.getItem(KEPT) || "[]"));

async function look(first) {
  const found = await waiting();
  const told = known();
  const fresh = found.filter((one) => !told.has(keyOf(one)));
  localStorage.setItem(KEPT, JSON.stringify(found.map(keyOf)));
  // Prompts that were pending when the page was opened are on the page.
  if (first || Notification.permission !== "granted") return;
  const registration = await worker();
  await active(registration);
  for (const one of fresh) {
    const address = folder + (one.id ? `/p/${encodeURIComponent(one.id)}` : `/t/${encodeURIComponent(one.task)}`);
    await registration.showNotification(one.title || "keepfast", { body: one.text.slice(0, 200), tag: keyOf(one), data: address, icon: "/static/icon.svg" });
  }
}

if (can && button) {
  label();
  // A notification was clicked while this page was open. Only our worker sends this message; only same-origin addresses are accepted.
  navigator.serviceWorker.addEventListener("message", ({ data }) => {
    const address = new URL(data.goto, location.origin);
    if (address.origin === location.origin) location.assign(address);
  });
  navigator.serviceWorker.startMessages();
  button.addEventListener("click", async () => {
    await Notification.requestPermission();
    if (Notification.permission === "granted") await worker();
    label();
  });
  let soon = 0;
  document.addEventListener("keepfast", (event) => {
    if (!event.detail.taskId) return;
    clearTimeout(soon);
    soon = setTimeout(() => look(false).catch(() => null), 300);
  });
  look(true).catch(() => null);
}
