"use strict";
// One stream for all tabs of a browser: HTTP/1.1 has six connections, and the seventh tab would not load.
const LOST_MS = 12000;
const spans = [[60, 1, "s"], [3600, 60, "min"], [86400, 3600, "h"], [Infinity, 86400, "d"]];
const age = at => {
  const s = Math.max(0, (Date.now() - at) / 1000);
  const [, size, unit] = spans.find(([until]) => s < until);
  return `${Math.floor(s / size)} ${unit} ago`;
};
const stamp = at => new Date(at).toISOString().slice(0, 19).replace("T", " ") + "Z";
const ages = () => {
  for (const e of document.querySelectorAll("time[data-age]")) e.textContent = age(Date.parse(e.dateTime));
};
ages();
setInterval(ages, 5000);

const live = document.querySelector("[data-live]");
if (live) {
  const url = live.dataset.live, words = live.querySelector("[data-words]");
  let heard = Date.now(), asOf = live.querySelector("time")?.dateTime;
  const say = (state, text) => {
    live.dataset.state = state;
    if (words.textContent !== text) words.textContent = text;
  };
  const show = ({ name, data }) => {
    heard = Date.now();
    if (name === "stale") return say("stale", `not live: ${data.why}`);
    if (name === "ended") return say("stale", "logged out: load the page again");
    asOf = data.at;
    const target = document.getElementById("now");
    if (name === "now" && data.html !== undefined && target) {
      const focused = document.activeElement?.closest?.("#now a")?.getAttribute("href");
      target.innerHTML = data.html;
      if (focused) target.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus();
      ages();
    }
    say(data.fresh === false ? "stale" : "live", data.fresh === false ? `not the present: ${data.why}` : `live, ${stamp(asOf)}`);
  };
  setInterval(() => {
    if (Date.now() - heard > LOST_MS) say("stale", `not live since ${stamp(heard)}; this is what was known at ${stamp(asOf)}`);
  }, 1000);
  const listen = tell => new Promise(() => {
    const source = new EventSource(url);
    for (const name of ["now", "beat", "stale", "ended"])
      source.addEventListener(name, e => tell({ name, data: JSON.parse(e.data) }));
    source.addEventListener("ended", () => source.close());
  });
  if (navigator.locks && window.BroadcastChannel) {
    const channel = new BroadcastChannel(url);
    let last = null;
    const tell = m => { if (m.name === "now") last = m; show(m); channel.postMessage(m); };
    channel.onmessage = e => {
      if (e.data === "hello") { if (last) channel.postMessage(last); } else show(e.data);
    };
    channel.postMessage("hello");
    navigator.locks.request(url, () => listen(tell));
  } else {
    listen(show);
  }
}

// What is being computed beside comes by itself, once all of it is there.
if (document.querySelector("[data-await]")) {
  document.querySelector("[data-await-words]").textContent = "They come by themselves.";
  const there = async () => {
    const answer = await fetch(location.href).catch(() => null);
    if (!answer || (answer.ok && (await answer.text()).includes("data-await"))) return setTimeout(there, 2000);
    location.reload();
  };
  setTimeout(there, 1000);
}

// The tables that a job's own program writes: its nodes are asked when the page is opened, and again while it is looked at.
const tables = document.querySelector("[data-tables]");
if (tables) {
  const words = () => tables.querySelector("[data-tables-words]");
  let came = false;
  const draw = async () => {
    if (document.hidden) return;
    if (words()) words().textContent = "Its tables are being read.";
    const answer = await fetch(tables.dataset.tables).catch(() => null);
    const page = answer && new DOMParser().parseFromString(await answer.text(), "text/html"), fresh = page?.getElementById("own-tables");
    if (fresh && !tables.contains(document.activeElement)) { tables.innerHTML = fresh.innerHTML; came = true; }
    else if (words()) words().textContent = page?.querySelector("main section p")?.textContent ?? "The server does not answer.";
  };
  draw();
  document.addEventListener("visibilitychange", () => { if (!came) draw(); });
  if (tables.dataset.everyS) setInterval(draw, 1000 * tables.dataset.everyS);
}

// The report of a job that runs: asked for again, and only what has changed is put in its place.
const report = document.querySelector("[data-refresh]");
if (report) {
  const light = document.querySelector(".live"), words = light.querySelector("[data-words]");
  const again = async () => {
    try {
      const answer = await fetch(location.href);
      if (!answer.ok) throw new Error(answer.status);
      const page = new DOMParser().parseFromString(await answer.text(), "text/html"), fresh = page.getElementById("report");
      if (!fresh?.hasAttribute("data-refresh")) return location.reload();
      for (const part of document.querySelectorAll("[data-part]")) {
        const now = page.getElementById(part.id);
        if (now && now.innerHTML !== part.innerHTML && !part.contains(document.activeElement)) part.innerHTML = now.innerHTML;
      }
      if (fresh.innerHTML !== report.innerHTML && !report.contains(document.activeElement)) {
        const open = [...report.querySelectorAll("details")].map(d => d.open);
        report.innerHTML = fresh.innerHTML;
        report.querySelectorAll("details").forEach((d, n) => { d.open = open[n] ?? d.open; });
      }
      const why = page.querySelector("[data-why-stale]"), made = page.querySelector(".live time");
      light.dataset.state = why ? "stale" : "live";
      words.textContent = why ? "not the present" : `live, ${stamp(Date.parse(made.dateTime))}`;
    } catch {
      if (light.dataset.state !== "stale") words.textContent = `not live since ${stamp(Date.now())}`;
      light.dataset.state = "stale";
    }
  };
  setInterval(again, 5000);
}
