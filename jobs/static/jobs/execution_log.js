// Appends new output of a running attempt to its log page, as text and never as markup.
"use strict";
(() => {
  const MAX_ROWS = 5000;
  const MIN_PAUSE_MS = 1000;
  const MAX_PAUSE_MS = 15000;
  const log = document.getElementById("log");
  const state = document.getElementById("log-state");
  if (!log.dataset.next) return;
  const body = log.tBodies[0];
  let after = log.dataset.after;
  let retryPause = MIN_PAUSE_MS;

  const append = (row) => {
    const line = body.insertRow();
    line.className = row.stream;
    line.classList.toggle("open", row.open);
    for (const text of [row.at, row.stream, row.text]) line.insertCell().textContent = text;
    if (body.rows.length > MAX_ROWS) body.deleteRow(0);
  };

  const show = (page) => {
    const atEnd = window.innerHeight + window.scrollY >= document.documentElement.scrollHeight - 40;
    page.rows.forEach(append);
    after = page.next;
    document.getElementById("log-cut").hidden = !page.truncated;
    if (page.ended && !page.rows.length) {
      state.textContent = body.rows.length ? "The attempt has ended." : "No output.";
    } else if (body.rows.length) {
      state.textContent = "Following…";
    }
    if (atEnd && page.rows.length) window.scrollTo(0, document.documentElement.scrollHeight);
    return page.ended && !page.rows.length;
  };

  const poll = async () => {
    const started = performance.now();
    let pause = 0;
    try {
      const answer = await fetch(`${log.dataset.next}&after=${after}`, {
        credentials: "same-origin", redirect: "error", signal: AbortSignal.timeout(40000),
      });
      if (!answer.ok) throw new Error(answer.statusText);
      const page = await answer.json();
      if (show(page)) return;
      retryPause = MIN_PAUSE_MS;
      // A server with too many waiting clients answers at once.
      if (!page.rows.length) pause = Math.max(0, started + MIN_PAUSE_MS - performance.now());
    } catch {
      state.textContent = "The server does not answer; retrying…";
      pause = retryPause;
      retryPause = Math.min(2 * retryPause, MAX_PAUSE_MS);
    }
    setTimeout(poll, pause || 250);
  };
  poll();
})();
