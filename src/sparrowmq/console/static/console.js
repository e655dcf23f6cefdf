"use strict";
// Pages work without this script. It adds: live updates, local times, copying, and forms that
// submit themselves.

const LOCAL = Intl.DateTimeFormat().resolvedOptions().timeZone;
const ANNOUNCE_MS = 60000;
const RETRY_MS = 10000;

/** Adds the local time beside UTC, if the two differ. */
function localTimes(root) {
  if (LOCAL === "UTC" || new Date().getTimezoneOffset() === 0) return;
  for (const each of root.querySelectorAll("time:not([data-local])")) {
    const when = new Date(each.dateTime);
    if (isNaN(when)) continue;
    each.dataset.local = "";
    const shown = document.createElement("span");
    shown.className = "local";
    shown.textContent = " " + when.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
    shown.title = when.toLocaleString();
    each.append(shown);
  }
}

// ---- live updates

const live = { stream: null, isPaused: false, retry: 0, announced: 0, seen: document.body.dataset.seen };
/** Parts that changed while they were in use: id and HTML. */
const held = new Map();

/** Whether the user is working in a part: it is left alone until that ends. */
function isInUse(element) {
  const focused = document.activeElement;
  if (element.contains(focused) && focused.matches("input,select,textarea,button")) return true;
  if (element.querySelector("details[open], dialog[open], input:checked")) return true;
  const selection = document.getSelection();
  return selection && !selection.isCollapsed && element.contains(selection.anchorNode);
}

/** Where the keyboard focus is, in terms that still apply after a swap. */
function focusKey(element) {
  const active = document.activeElement;
  if (!element.contains(active)) return null;
  const same = [...element.querySelectorAll("a,[tabindex]")];
  return same.indexOf(active);
}

function receive(event) {
  const { id, html } = JSON.parse(event.data);
  held.set(id, html);
  for (const [each, text] of held) {
    const element = document.getElementById("live-" + each);
    if (element && isInUse(element)) continue;
    held.delete(each);
    if (element) swap(each, element, text);
  }
}

function swap(id, element, html) {
  const scrolled = [...element.querySelectorAll(".scroll")].map((each) => [each.scrollLeft, each.scrollTop]);
  const focused = focusKey(element);
  element.innerHTML = html;
  [...element.querySelectorAll(".scroll")].forEach((each, at) => {
    if (scrolled[at]) [each.scrollLeft, each.scrollTop] = scrolled[at];
  });
  if (focused !== null && focused >= 0) {
    const same = element.querySelectorAll("a,[tabindex]")[focused];
    if (same) same.focus({ preventScroll: true });
  }
  localTimes(element);
  if (id !== "asof") announce();
}

/** Announces changes to screen readers at most once a minute. */
function announce() {
  const now = Date.now();
  if (now - live.announced < ANNOUNCE_MS) return;
  live.announced = now;
  document.getElementById("announce").textContent = "The figures on this page were updated.";
}

function open() {
  if (live.stream || live.isPaused || document.hidden) return;
  const page = location.pathname + location.search;
  const address = "/live?page=" + encodeURIComponent(page) + "&seen=" + encodeURIComponent(live.seen);
  live.stream = new EventSource(address);
  live.stream.addEventListener("fragment", receive);
  live.stream.onerror = () => {
    // The browser gives up on 503: retry later.
    if (live.stream && live.stream.readyState === EventSource.CLOSED) {
      close();
      live.retry = setTimeout(open, RETRY_MS);
    }
  };
}

function close() {
  clearTimeout(live.retry);
  if (live.stream) live.stream.close();
  live.stream = null;
  live.seen = ""; // all parts are sent again
  held.clear();
}

function setUpLive() {
  if (!("livePage" in document.body.dataset)) return;
  const pause = document.querySelector("[data-pause]");
  pause.hidden = false;
  pause.addEventListener("click", () => {
    live.isPaused = !live.isPaused;
    pause.setAttribute("aria-pressed", String(live.isPaused));
    pause.textContent = live.isPaused ? "Resume live updates" : "Pause live updates";
    live.isPaused ? close() : open();
  });
  // A browser has six connections for a host: hidden tabs must not hold them.
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  addEventListener("pagehide", close);
  addEventListener("pageshow", open);
  open();
}

// ---- small things

function setUpCopies() {
  for (const button of document.querySelectorAll("[data-copy]")) {
    if (!navigator.clipboard) continue;
    button.hidden = false;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
      button.textContent = "Copied";
      setTimeout(() => (button.textContent = "Copy as command"), 2000);
    });
  }
}

function setUpForms() {
  for (const each of document.querySelectorAll("[data-submit]")) {
    each.addEventListener("change", () => each.form.requestSubmit());
  }
  for (const each of document.querySelectorAll("[data-check-all]")) {
    each.hidden = false;
    each.addEventListener("change", () => {
      const boxes = each.closest("form").querySelectorAll("input[type=checkbox][name=id]");
      for (const box of boxes) box.checked = each.checked;
    });
  }
  // A second click must not send a form again.
  for (const form of document.querySelectorAll("form[method=post]")) {
    form.addEventListener("submit", (event) => {
      if (form.dataset.sent) event.preventDefault();
      form.dataset.sent = "1";
    });
  }
  addEventListener("pageshow", () => {
    for (const form of document.querySelectorAll("form[data-sent]")) delete form.dataset.sent;
  });
}

/** "/" goes to the search box, as people expect. */
function setUpKeys() {
  document.addEventListener("keydown", (event) => {
    const isTyping = event.target.matches("input,select,textarea");
    if (event.key !== "/" || isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
    const box = document.getElementById("q");
    if (!box) return;
    event.preventDefault();
    box.focus();
  });
}

document.documentElement.classList.add("scripted");
localTimes(document);
setUpCopies();
setUpForms();
setUpKeys();
setUpLive();
