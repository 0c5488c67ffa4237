// Appends what a running attempt writes to the page of its log. Whatever comes is text and never markup.
"use strict";
(() => {
  const MOST_ROWS = 5000;
  const REST_MS = 1000;
  const LONGEST_REST_MS = 15000;
  const log = document.getElementById("log");
  const state = document.getElementById("log-state");
  if (!log.dataset.next) return;
  const body = log.tBodies[0];
  let after = log.dataset.after;
  let rest = REST_MS;

  const append = (row) => {
    const line = body.insertRow();
    line.className = row.stream;
    line.classList.toggle("open", row.open);
    for (const text of [row.at, row.stream, row.text]) line.insertCell().textContent = text;
    if (body.rows.length > MOST_ROWS) body.deleteRow(0);
  };

  const take = (page) => {
    const atEnd = window.innerHeight + window.scrollY >= document.documentElement.scrollHeight - 40;
    page.rows.forEach(append);
    after = page.next;
    document.getElementById("log-cut").hidden = !page.truncated;
    if (page.ended && !page.rows.length) {
      state.textContent = body.rows.length ? "The attempt has ended." : "It wrote nothing.";
    } else if (body.rows.length) {
      state.textContent = "Following…";
    }
    if (atEnd && page.rows.length) window.scrollTo(0, document.documentElement.scrollHeight);
    return page.ended && !page.rows.length;
  };

  const ask = async () => {
    const asked = performance.now();
    let pause = 0;
    try {
      const answer = await fetch(`${log.dataset.next}&after=${after}`, {
        credentials: "same-origin", redirect: "error", signal: AbortSignal.timeout(40000),
      });
      if (!answer.ok) throw new Error(answer.statusText);
      const page = await answer.json();
      if (take(page)) return;
      rest = REST_MS;
      // The server has no room for all who would wait, and answers some at once.
      if (!page.rows.length) pause = Math.max(0, asked + REST_MS - performance.now());
    } catch {
      state.textContent = "The server does not answer; trying again…";
      pause = rest;
      rest = Math.min(2 * rest, LONGEST_REST_MS);
    }
    setTimeout(ask, pause || 250);
  };
  ask();
})();
