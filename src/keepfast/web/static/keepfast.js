// Follows the event stream, and fetches and replaces the parts of a page that changed. The pages work without it, but do not update.
const body = document.body;
let last = Number(body.dataset.last);
// Path prefix of this session's pages: the part of the session's secret that is not in the cookie.
const folder = body.dataset.folder;

const language = document.documentElement.lang;
const DAY = 86400;
const KEPT_FOLDER = "keepfast.folder";

// Show the times of a timeline in the browser's time zone.
function localClock(root) {
  for (const mark of root.querySelectorAll("text[data-time]")) {
    const step = Number(mark.dataset.step);
    const shape = step >= DAY ? { month: "short", day: "numeric" } : { hour: "2-digit", minute: "2-digit", second: step < 60 ? "2-digit" : undefined, hourCycle: "h23" };
    mark.textContent = new Date(mark.dataset.time).toLocaleString(language, shape);
  }
}

function localTimes(root) {
  localClock(root);
  for (const time of root.querySelectorAll("time[datetime]")) {
    const moment = new Date(time.dateTime);
    if (Number.isNaN(moment.valueOf())) continue;
    time.title = moment.toLocaleString(language, { dateStyle: "medium", timeStyle: "long" });
    const seconds = (Date.now() - moment) / 1000;
    const relative = new Intl.RelativeTimeFormat(language, { numeric: "auto" });
    const units = [["second", 60], ["minute", 60], ["hour", 24], ["day", 30]];
    let amount = seconds;
    let text = moment.toLocaleDateString(language);
    for (const [unit, size] of units) {
      if (amount < size) { text = relative.format(-Math.trunc(amount), unit); break; }
      amount /= size;
    }
    time.textContent = time.matches(".full") ? `${time.title} (${text})` : text;
  }
}

async function fragment(address) {
  const answer = await fetch(address, { headers: { "X-Keepfast-Part": "1" } });
  if (!answer.ok) throw new Error(answer.statusText);
  return new DOMParser().parseFromString(await answer.text(), "text/html");
}

// One fetch at a time: concurrent ones could finish in the wrong order and leave the older state on the page.
const concerned = new Set();
let fetching = false;
const pause = (milliseconds) => new Promise((go) => setTimeout(go, milliseconds));

async function refresh(workspace) {
  concerned.add(workspace || "tasks");
  if (fetching) return;
  fetching = true;
  for (let wait = 150; concerned.size; ) {
    await pause(wait);
    const wanted = [...concerned];
    const parts = [...document.querySelectorAll("[data-follow]")].filter((part) => part.dataset.follow === "*" || concerned.has(part.dataset.follow));
    concerned.clear();
    if (!parts.length) continue;
    try {
      const left = swap(await fragment(location.href), parts);
      for (const part of left) concerned.add(part.dataset.follow);
      wait = left.length ? 2000 : 150;
    } catch {
      for (const one of wanted) concerned.add(one);
      wait = Math.min(wait * 2, 5000);
    }
  }
  fetching = false;
}

// Return a selector that finds the focused element again after its part was replaced.
function place(element) {
  const marks = (one, names) => names.filter((name) => one.hasAttribute(name)).map((name) => `[${name}="${CSS.escape(one.getAttribute(name))}"]`).join("");
  const form = element.closest("form");
  return `${form ? `form${marks(form, ["action"])} ` : ""}${element.localName}${marks(element, ["id", "name", "value", "href"])}`;
}

// Replace the parts. A part with a focused text field or a pressed element is not replaced; such parts are returned.
function swap(page, parts) {
  const left = [];
  for (const part of parts) {
    const fresh = page.getElementById(part.id);
    if (!fresh) continue;
    if (part.matches(":active") || part.contains(document.activeElement) && document.activeElement.matches("input, textarea")) { left.push(part); continue; }
    const held = part.contains(document.activeElement) ? place(document.activeElement) : "";
    const open = new Set([...part.querySelectorAll("details[open] > summary")].map((one) => one.textContent));
    part.replaceChildren(...fresh.childNodes);
    for (const summary of part.querySelectorAll("details > summary")) if (open.has(summary.textContent)) summary.parentElement.open = true;
    if (held) part.querySelector(held)?.focus();
    localTimes(part);
    part.classList.remove("fresh");
    void part.offsetWidth;
    part.classList.add("fresh");
  }
  const scrub = document.getElementById("scrub"), newer = page.getElementById("scrub");
  if (scrub && newer && scrub.dataset.versions !== newer.dataset.versions) {
    const atEnd = scrub.value === scrub.max;
    scrub.dataset.versions = newer.dataset.versions;
    scrub.max = newer.max;
    if (atEnd) scrub.value = newer.max;
  }
  return left;
}

function happened(event) {
  if (event.sequence <= last) return;
  const gap = event.sequence > last + 1 && last > 0;
  const since = last;
  last = event.sequence;
  document.dispatchEvent(new CustomEvent("keepfast", { detail: event }));
  refresh(event.workspace);
  if (gap) catchUp(since);
}

async function catchUp(since) {
  const answer = await fetch(`${folder}/api/events?since=${since}`);
  if (answer.ok) for (const event of (await answer.json()).data) refresh(event.workspace);
}

function follow() {
  const lost = document.getElementById("lost");
  const stream = new EventSource(`${folder}/api/stream?since=${last}`);
  stream.onmessage = (message) => happened(JSON.parse(message.data));
  stream.onopen = () => {
    // Events were missed while the stream was down: fetch every part once.
    if (!lost.hidden) for (const part of document.querySelectorAll("[data-follow]")) refresh(part.dataset.follow);
    lost.hidden = true;
    body.dataset.connected = "yes";
  };
  stream.onerror = () => {
    lost.textContent = body.dataset.lost;
    lost.hidden = false;
    body.dataset.connected = "no";
    if (stream.readyState === EventSource.CLOSED) { stream.close(); setTimeout(follow, 2000); }
  };
}

function scrubbing(scrub) {
  const peek = document.getElementById("peek");
  let turn = 0;
  let soon = 0;
  scrub.addEventListener("input", () => {
    const versions = scrub.dataset.versions.split(" "), version = versions[scrub.value];
    const bars = [...document.querySelectorAll("#timeline rect")], size = Math.ceil(versions.length / bars.length);
    bars.forEach((bar, number) => bar.classList.toggle("chosen", number === Math.floor(scrub.value / size)));
    scrub.setAttribute("aria-valuetext", `v${version}`);
    clearTimeout(soon);
    soon = setTimeout(async () => {
      const mine = ++turn;
      try {
        const page = await fragment(`${folder}/w/${scrub.dataset.workspace}/v/v${version}/peek`);
        if (mine === turn) { peek.replaceChildren(...page.body.childNodes); localTimes(peek); }
      } catch { /* the next input event fetches again */ }
    }, 80);
  });
}

// Count down the remaining time of holds.
function countdowns() {
  for (const mark of document.querySelectorAll("[data-until]")) {
    const left = Math.round((new Date(mark.dataset.until) - Date.now()) / 1000);
    const parts = left >= 3600 ? [[Math.floor(left / 3600), "hour"], [Math.floor(left % 3600 / 60), "minute"]] : left >= 60 ? [[Math.floor(left / 60), "minute"], [left % 60, "second"]] : [[left, "second"]];
    const amount = parts.map(([count, unit]) => new Intl.NumberFormat(language, { style: "unit", unit, unitDisplay: "narrow" }).format(count)).join(" ");
    if (left > 0) mark.textContent = mark.dataset.in.replace("{}", amount);
  }
}

function themes() {
  const root = document.documentElement;
  const kept = localStorage.getItem("theme");
  if (kept) root.dataset.theme = kept;
  document.getElementById("theme").addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    localStorage.setItem("theme", root.dataset.theme);
  });
}

// The sign-in code follows the # of the address, so that it is never sent in a URL or logged. It is used once and removed from the address.
async function enter() {
  const ticket = location.hash.slice(1);
  if (ticket) history.replaceState(null, "", location.pathname + location.search);
  if (body.dataset.signed === "yes") {
    if (folder) localStorage.setItem(KEPT_FOLDER, folder);
    return false;
  }
  if (ticket) {
    const answer = await fetch("/session", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ ticket }) });
    if (answer.ok) return lead((await answer.json()).data.folder);
  }
  const kept = localStorage.getItem(KEPT_FOLDER);
  if (kept && kept !== folder) return lead(kept);
  localStorage.removeItem(KEPT_FOLDER);
  return false;
}

// Open the same page below the session's path prefix.
function lead(home) {
  localStorage.setItem(KEPT_FOLDER, home);
  location.replace(home + (location.pathname.slice(folder.length) || "/") + location.search);
  return true;
}

themes();
localTimes(document);
countdowns();
setInterval(countdowns, 1000);
setInterval(() => localTimes(document), 20000);
const scrub = document.getElementById("scrub");
if (scrub) scrubbing(scrub);
if (!(await enter()) && body.dataset.signed === "yes") follow();
