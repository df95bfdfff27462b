// Of a page that had nothing to show: looks again by itself, says so, and can be paused. Without this file a person looks.
"use strict";
(() => {
  const EVERY_MS = 10000, GIVE_UP_MS = 10000, PAUSED = "tidings.paused";
  const line = document.querySelector("[data-again]"), words = line.querySelector("span"), button = line.querySelector("button");
  let isPaused = false, isLooking = false, isReached = true, lookedAt = Date.now();
  try { isPaused = localStorage.getItem(PAUSED) === "yes"; } catch { /* private window: not remembered */ }
  const seconds = (ms) => `${Math.max(0, Math.floor(ms / 1000))} s`;
  function show() {
    const found = isReached ? "" : " No answer came.";
    words.textContent = isPaused ? "Paused: it does not look again by itself."
      : `Looks again by itself every ${seconds(EVERY_MS)}, last ${seconds(Date.now() - lookedAt)} ago.${found}`;
    button.textContent = isPaused ? "Go on" : "Pause";
    button.setAttribute("aria-pressed", String(isPaused));
  }
  async function look() {
    isLooking = true;
    let status = 0;
    try {
      const answer = await fetch(line.dataset.again, { redirect: "manual", cache: "no-store", signal: AbortSignal.timeout(GIVE_UP_MS) });
      status = answer.status || 302; // what leads elsewhere, to the sign-in, shows no number
    } catch { /* not reachable: said */ }
    [isLooking, isReached, lookedAt] = [false, status > 0, Date.now()];
    if (isReached && status < 500) location.replace(location.pathname + location.search); // as a new look, whatever was asked before
    else show();
  }
  function tick() {
    if (!isPaused && !isLooking && !document.hidden && Date.now() - lookedAt >= EVERY_MS) look();
    show();
  }
  button.addEventListener("click", () => {
    isPaused = !isPaused;
    try { localStorage.setItem(PAUSED, isPaused ? "yes" : "no"); } catch { /* as above */ }
    if (!isPaused) lookedAt = 0;
    tick();
  });
  document.addEventListener("visibilitychange", tick);
  line.hidden = false;
  setInterval(tick, 1000);
  show();
})();
