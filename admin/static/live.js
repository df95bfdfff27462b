// Keeps a page up to date while it is looked at. Without this file every page works by reload.
// The stream is only a doorbell: whatever happens, the page fetches the panels whose hash changed, and polling is the
// same fetch on a timer. Nothing is replaced under a person's hands: see `isHeld` and `mergeList`.
"use strict";
(() => {
  const PANELS = "/admin/monitoring/panels", STREAM = "/admin/monitoring/queues/events";
  const RING_MS = 2000, WITH_STREAM_MS = 10000, SILENT_MS = 40000, STREAM_AGAIN_MS = 60000, GIVE_UP_MS = 10000, IDLE_MS = 60000;
  const $ = (selector, within = document) => within.querySelector(selector);
  const $$ = (selector, within = document) => [...within.querySelectorAll(selector)];
  const body = document.body, page = body.dataset.page, isLive = page !== undefined;
  const hasPanels = $("main .panel[data-panel]") !== null; // without, only the verdict and the tabs are kept up to date
  const kept = {
    get(name) { try { return localStorage.getItem(`tidings.${name}`); } catch { return null; } },
    set(name, value) { try { localStorage.setItem(`tidings.${name}`, value); } catch { /* private window: not remembered */ } },
  };

  // --- times: the server's clock, in UTC or local ------------------------------------------------------------
  let skewMs = isLive ? Date.parse(body.dataset.now) - Date.now() : 0;
  let isLocal = kept.get("clock") === "local";
  const now = () => Date.now() + skewMs;
  const two = (figure) => String(figure).padStart(2, "0");
  const clockText = (date) => isLocal
    ? [date.getHours(), date.getMinutes(), date.getSeconds()].map(two).join(":") + " local"
    : date.toISOString().slice(11, 19) + " UTC";
  const exactText = (date) => isLocal
    ? `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${clockText(date)}`
    : `${date.toISOString().slice(0, 10)} ${clockText(date)}`;
  function clockTimeText(date) { // as `clock_words` of the server
    const zone = isLocal ? {} : { timeZone: "UTC" };
    const day = (of) => of.toLocaleDateString("en-US", { ...zone, weekday: "short", day: "numeric", month: "short", year: "numeric" });
    const [weekday, monthDay] = day(date).split(", "), [month, ofMonth] = monthDay.split(" ");
    const [time, zoneWord] = clockText(date).split(" "), text = `${time.slice(0, 5)} ${zoneWord}`;
    return day(date) === day(new Date(now())) ? text : `${weekday} ${ofMonth} ${month} ${text}`;
  }
  function durationText(ms) {
    const s = Math.max(0, Math.floor(ms / 1000)), m = Math.floor(s / 60), h = Math.floor(m / 60), d = Math.floor(h / 24);
    if (s < 60) return `${s} s`;
    if (m < 60) return `${m} min`;
    if (h < 24) return h < 10 && m % 60 ? `${h} h ${m % 60} min` : `${h} h`;
    return d === 1 ? "1 day" : `${d} days`;
  }
  function agoText(at) {
    const ms = now() - at;
    if (Math.abs(ms) < 10000) return "just now";
    return ms > 0 ? `${durationText(ms)} ago` : `in ${durationText(-ms)}`;
  }
  function untilText(at) { // as `until` of the server
    const s = Math.ceil((at - now()) / 1000);
    return s > 0 ? `in ${s} s` : "at any moment";
  }
  function showTimes() {
    for (const time of $$("time[data-relative], time[data-exact], time[data-clock-time], time[data-countdown]")) {
      const at = new Date(time.dateTime), exact = exactText(at);
      const text = "exact" in time.dataset ? exact : "clockTime" in time.dataset ? clockTimeText(at)
        : "countdown" in time.dataset ? untilText(at) : agoText(at);
      if (time.textContent !== text) time.textContent = text;
      if (time.title !== exact) time.title = exact;
    }
    const clock = $("[data-clock]");
    if (clock) clock.textContent = clockText(new Date(now()));
  }

  // A list that was read with other figures than the page shows by now says so, beside its "look again".
  function showChanged() {
    const now = $("[data-figures-now]")?.dataset.figuresNow;
    for (const note of $$("[data-figures-then]")) {
      const text = now !== undefined && now !== note.dataset.figuresThen ? " (the figures have changed since)" : "";
      if (note.textContent !== text) note.textContent = text;
    }
  }

  // --- what a person is doing goes first ---------------------------------------------------------------------
  const waiting = new Map();
  let touchedAt = 0; // of a page that was only loaded nothing is in anybody's hands
  for (const event of ["pointermove", "pointerdown", "keydown", "scroll"]) {
    document.addEventListener(event, () => { touchedAt = Date.now(); }, { passive: true });
  }
  const isIdle = () => Date.now() - touchedAt > IDLE_MS;
  function isHeld(panel) {
    if (!panel.classList.contains("panel")) return false; // the frame's own parts are small, and morph in place
    const selection = getSelection();
    return (panel.contains(document.activeElement) && !document.activeElement.matches(".waiting"))
      || $("details[open]:not([data-free]), dialog[open], input:checked:not([data-free])", panel) !== null
      || (!selection.isCollapsed && selection.rangeCount > 0 && selection.getRangeAt(0).intersectsNode(panel));
  }
  function offer(panel, text) {
    let button = $(":scope > .waiting", panel);
    if (!button) {
      button = document.createElement("button");
      button.type = "button";
      button.className = "waiting";
      panel.append(button);
    }
    if (button.textContent !== text) button.textContent = text;
  }
  // A list keeps its rows and their order: known rows change in place, new ones wait to be asked for.
  function mergeList(panel, fresh) {
    const list = $("[data-list]", panel), next = $("[data-list]", fresh);
    if (!list || !next) return "";
    const rowsOf = (of) => new Map($$("[data-row]", of).map((row) => [row.dataset.row, row]));
    const old = rowsOf(list), young = rowsOf(next);
    const added = [...young.keys()].filter((key) => !old.has(key)).length;
    const isSame = added === 0 && [...old.keys()].join("\n") === [...young.keys()].join("\n");
    if (isSame || old.size === 0 || isIdle()) return "";
    const rows = [...old.values()].map((row) => {
      const successor = young.get(row.dataset.row);
      if (successor) return successor;
      const gone = row.cloneNode(true);
      gone.classList.add("is-gone");
      return gone;
    });
    next.replaceChildren(...rows);
    return added ? `${added} new – show` : "List changed – show";
  }
  // What cannot be read just now stays as it was seen, and says so; a panel that never showed anything says that.
  function keepAsSeen(panel, fresh) {
    panel.dataset.hash = fresh.dataset.hash;
    if ("unread" in panel.dataset) return;
    panel.dataset.unread = "";
    const note = $(".gap", fresh), time = document.createElement("time");
    note.className = "old";
    time.dateTime = new Date(seenBeforeAt + skewMs).toISOString();
    time.dataset.relative = "";
    $("span", note).append(" As seen ", time, ".");
    $("h2", panel).after(note);
  }
  function apply(name, part, isAsked) {
    const panel = $(`[data-panel="${CSS.escape(name)}"]`);
    if (!panel) return;
    const fresh = new DOMParser().parseFromString(part.html, "text/html").body.firstElementChild;
    if ("unread" in fresh.dataset) return keepAsSeen(panel, fresh);
    if (!isAsked && isHeld(panel)) {
      waiting.set(name, part);
      offer(panel, "Updates waiting – show");
      return;
    }
    const isEmptied = $("[data-list] [data-row]", panel) && !$("[data-list]", fresh);
    if (!isAsked && isEmptied && !isIdle()) {
      waiting.set(name, part);
      offer(panel, "List changed – show");
      return;
    }
    const offered = isAsked ? "" : mergeList(panel, fresh);
    waiting.delete(name);
    const said = causeOf(panel);
    Idiomorph.morph(panel, fresh, { morphStyle: "outerHTML" });
    const shown = $(`[data-panel="${CSS.escape(name)}"]`);
    if (offered) {
      waiting.set(name, part);
      offer(shown, offered);
    }
    const says = causeOf(shown);
    if (says && says !== said) announce($("[data-verdict]", shown).textContent);
  }
  // What is read out is another cause or severity; the minutes and counts in the sentence change with each look.
  function causeOf(panel) {
    const verdict = $("[data-verdict]", panel);
    return verdict && `${verdict.dataset.rule} ${verdict.dataset.severity}`;
  }
  const announce = (text) => { const status = $("[data-status]"); if (status) status.textContent = text; };

  // --- fetching ------------------------------------------------------------------------------------------------
  let stream = null, isHearing = false, heardAt = 0, isPaused = kept.get("paused") === "yes";
  let seenAt = isLive ? Date.parse(body.dataset.at) - skewMs : 0, seenBeforeAt = seenAt, everyMs = Number(body.dataset.poll) || 15000, wantedVersion = 0, missed = 0;
  let timer = 0, isFetching = false, beganAt = 0, failedSince = 0, isRefused = false, isSignedOut = false;
  let ledgerAwaySince = body.dataset.staleSince || null;
  const isAwake = () => isLive && !document.hidden && !isPaused && !isSignedOut;
  function plan(ms) {
    clearTimeout(timer);
    if (isAwake()) timer = setTimeout(refresh, ms);
  }
  async function refresh() {
    clearTimeout(timer);
    if (!isAwake() || isFetching) return;
    isFetching = true;
    beganAt = Date.now();
    const have = $$("[data-panel]").map((panel) => `${panel.dataset.panel}:${panel.dataset.hash}`).join(",");
    const query = new URLSearchParams(body.dataset.query);
    query.set("page", page);
    query.set("have", have);
    let answer = null;
    try {
      const response = await fetch(`${PANELS}?${query}`, { redirect: "manual", signal: AbortSignal.timeout(GIVE_UP_MS) });
      if (response.type === "opaqueredirect" || response.status === 401 || response.status === 403) isSignedOut = true;
      isRefused = response.status === 503; // it answers that it has nothing: no reason to wait for a second try
      if (response.ok) answer = await response.json();
    } catch { /* not reachable: said by the live state */ }
    isFetching = false;
    const tookMs = Date.now() - beganAt;
    if (answer) {
      failedSince = 0;
      seenBeforeAt = seenAt;
      skewMs = Date.parse(answer.now) - Date.now();
      seenAt = Date.parse(answer.at) - skewMs;
      ledgerAwaySince = answer.stale_since;
      everyMs = Math.max(answer.poll_ms, 250 * Math.sqrt(tookMs) - 1000); // a slow server is asked less often
      for (const [name, part] of Object.entries(answer.panels)) apply(name, part, false);
      showTimes();
    } else {
      failedSince = failedSince || Date.now();
    }
    missed = answer && answer.v < wantedVersion ? missed + 1 : 0; // what the doorbell rang for is not in it yet
    plan(missed > 0 && missed < 3 ? RING_MS : stream && isHearing && answer ? Math.min(WITH_STREAM_MS, everyMs) : everyMs);
    showLive();
  }
  function ring(version) {
    wantedVersion = Math.max(wantedVersion, version || 0);
    plan(Math.max(0, beganAt + RING_MS - Date.now()));
  }

  // --- the doorbell ----------------------------------------------------------------------------------------------
  // A browser has six connections to a server for all its windows, and a stream keeps one: the first few have a stream, the
  // others look by themselves, and ask again for a place.
  const PLACES = 3;
  let isAsking = false, leave = null, again = 0;
  const hasPlace = (name) => new Promise((answer) => {
    navigator.locks.request(name, { ifAvailable: true }, (lock) => {
      answer(lock !== null);
      return lock && new Promise((resolve) => { leave = resolve; });
    }).catch(() => answer(true)); // a browser that gives none
  });
  async function listen() {
    clearTimeout(again);
    if (stream || isAsking || !isAwake()) return;
    isAsking = true;
    let place = navigator.locks ? 0 : PLACES; // without TLS there are none
    while (place < PLACES && !await hasPlace(`tidings.stream.${place}`)) place += 1;
    isAsking = false;
    if (!isAwake()) hangUp();
    else if (place < PLACES || !navigator.locks) hear();
    else again = setTimeout(listen, STREAM_AGAIN_MS * (0.75 + Math.random() / 2));
  }
  function hear() {
    const opened = new EventSource(STREAM);
    const heard = () => { heardAt = Date.now(); };
    const lost = (againMs) => {
      if (stream !== opened) return;
      hangUp();
      again = setTimeout(listen, againMs);
      plan(RING_MS * (1 + Math.random())); // what was rung for meanwhile may have been missed; not all tabs at once
    };
    stream = opened;
    heard();
    opened.addEventListener("open", () => { heard(); isHearing = true; showLive(); });
    opened.addEventListener("ping", heard);
    opened.addEventListener("deaf", () => { heard(); isHearing = false; showLive(); });
    opened.addEventListener("hearing", () => { heard(); isHearing = true; ring(0); });
    opened.addEventListener("bye", () => lost(1000 + Math.random() * 3000));
    opened.addEventListener("message", (event) => { heard(); ring(JSON.parse(event.data).v); });
    opened.addEventListener("error", () => {
      isHearing = false;
      if (opened.readyState === EventSource.CLOSED) lost(STREAM_AGAIN_MS * (0.75 + Math.random() / 2));
      showLive();
    });
  }
  function hangUp() {
    stream?.close();
    leave?.();
    stream = leave = null;
    isHearing = false;
  }
  function rest() {
    clearTimeout(timer);
    hangUp();
    showLive();
  }
  function goOn() {
    if (!isAwake()) return;
    listen();
    refresh();
  }

  // --- what the header says ----------------------------------------------------------------------------------------
  function showLive() {
    const live = $("[data-live]");
    if (!live) return;
    const ageMs = Date.now() - seenAt, age = `${durationText(ageMs)} ago`;
    const isStale = failedSince > 0 && (isRefused || ageMs > 2 * everyMs);
    const [kind, text] = isSignedOut ? ["stale", "Signed out: load the page again"]
      : isStale ? ["stale", `Stale since ${clockText(new Date(seenAt + skewMs))}`]
      : ledgerAwaySince ? ["stale", `Stale since ${clockText(new Date(ledgerAwaySince))}`] // what is fetched is as old
      : isPaused ? ["paused", `Paused · ${age}`]
      : !hasPanels ? ["loaded", `Loaded at ${clockText(new Date(Date.parse(body.dataset.now)))}`]
      : isHearing ? ["live", `Live · ${age}`]
      : ["polling", `Every ${Math.round(everyMs / 1000)} s · ${age}`];
    live.className = `live is-${kind}`;
    live.textContent = text;
    body.classList.toggle("body-is-stale", isStale || isSignedOut);
    const pause = $("[data-pause]");
    pause.setAttribute("aria-pressed", String(isPaused));
    pause.textContent = isPaused ? "Go on" : "Pause";
  }
  function setPaused(paused) {
    isPaused = paused;
    kept.set("paused", paused ? "yes" : "no");
    if (paused) rest();
    else goOn();
    showLive();
    announce(paused ? "Paused: the page stays as it is." : "The page is kept up to date again.");
  }

  // --- hands: everything is delegated, so that a replaced element needs nothing ------------------------------------
  const keysDialog = $("[data-keys-dialog]"), areKeysOff = () => kept.get("keys") === "off";
  document.addEventListener("click", (event) => {
    const on = (selector) => event.target.closest(selector);
    if (on("[data-pause]")) setPaused(!isPaused);
    if (on("[data-keys]")) openKeys();
    if (on("[data-clock]")) {
      isLocal = !isLocal;
      kept.set("clock", isLocal ? "local" : "utc");
      showTimes();
      showLive();
    }
    const offer = on(".waiting");
    if (offer) {
      const panel = offer.closest("[data-panel]"), part = waiting.get(panel.dataset.panel);
      offer.remove();
      $("#content").focus({ preventScroll: true }); // not lost with the button, and not in the panel, which would hold it
      if (part) apply(panel.dataset.panel, part, true);
    }
  });
  function openKeys() {
    $("[data-keys-off]", keysDialog).checked = areKeysOff();
    keysDialog.showModal();
  }
  keysDialog?.addEventListener("change", (event) => kept.set("keys", event.target.checked ? "off" : "on"));
  document.addEventListener("keydown", (event) => {
    const inField = event.target.closest("input, select, textarea, [contenteditable], dialog");
    if (areKeysOff() || inField || event.ctrlKey || event.altKey || event.metaKey || event.isComposing || !isLive) return;
    const tab = $(`.tabs a[data-key="${CSS.escape(event.key)}"]`);
    const filter = $("[data-filter], main input[type=search]");
    if (tab) tab.click();
    else if (event.key === "/" && filter) filter.focus();
    else if (event.key === "p") setPaused(!isPaused);
    else if (event.key === "r") refresh();
    else if (event.key === "?") openKeys();
    else return;
    event.preventDefault();
  });

  // --- begin ---------------------------------------------------------------------------------------------------------
  document.addEventListener("visibilitychange", () => (document.hidden ? rest() : goOn()));
  window.addEventListener("pagehide", rest);
  window.addEventListener("pageshow", (event) => { if (event.persisted) goOn(); });
  for (const control of $$("[data-pause], [data-clock], [data-keys]")) control.hidden = false;
  setInterval(() => {
    if (document.hidden) return;
    showTimes();
    showChanged();
    showLive();
    if (stream && Date.now() - heardAt > SILENT_MS) { hangUp(); listen(); }
    for (const [name, part] of waiting) {
      const panel = $(`[data-panel="${CSS.escape(name)}"]`);
      if (panel && !isHeld(panel) && (!$("[data-list]", panel) || isIdle())) apply(name, part, false);
    }
  }, 1000);
  showTimes();
  showLive();
  if (isAwake()) {
    listen();
    plan(everyMs);
  }
  const flash = $$(".flash").map((line) => line.textContent).join(" ");
  if (flash) setTimeout(() => announce(flash), 200);
})();
