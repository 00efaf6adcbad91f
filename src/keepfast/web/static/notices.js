// Notifications: when something new waits for a person, the browser says so, and leads to exactly that. Asked for by a button, never by itself.
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

// A phone shows notifications only through a worker; it does nothing else.
const worker = () => navigator.serviceWorker.register("/static/worker.js", { scope: "/static/" });

// A notification can be shown once the worker runs.
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
  // What was waiting when the page was opened is on the page.
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
  // Somebody touched a notification while this page was open. Only our own worker can say so, and only an address of ours counts.
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
