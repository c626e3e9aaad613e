// Search over SEARCH_INDEX (rows of title, address, page, text): every word must occur; titles count more than text.
(function () {
  "use strict";
  const MOST = 40;
  const root = document.body.dataset.root;
  const input = document.getElementById("search");
  const results = document.getElementById("results");
  const article = document.querySelector("article");
  const rows = SEARCH_INDEX.map((r) => ({ row: r, title: r[0].toLowerCase(), text: r[3].toLowerCase() }));

  function score(entry, words, whole) {
    let sum = 0;
    for (const word of words) {
      if (entry.title.includes(word)) sum += 10;
      else if (entry.text.includes(word)) sum += 1;
      else return 0;
    }
    const last = entry.title.split(/[.:]/).pop();
    if (entry.title === whole || last === whole) sum += 50;
    else if (entry.title.startsWith(whole) || last.startsWith(whole)) sum += 20;
    if (entry.row[1].startsWith("guides/")) sum += 5;
    return sum - entry.title.length / 1000;
  }

  function excerpt(entry, words) {
    const at = Math.max(0, Math.min(...words.map((w) => Math.max(0, entry.text.indexOf(w)))) - 60);
    const text = entry.row[3].slice(at, at + 200);
    return (at > 0 ? "... " : "") + text + (entry.row[3].length > at + 200 ? " ..." : "");
  }

  function show() {
    const whole = input.value.trim().toLowerCase();
    const words = whole.split(/\s+/).filter(Boolean);
    results.hidden = words.length === 0;
    article.hidden = words.length > 0;
    results.textContent = "";
    if (words.length === 0) return;
    const found = [];
    for (const entry of rows) {
      const s = score(entry, words, whole);
      if (s > 0) found.push([s, entry]);
    }
    found.sort((a, b) => b[0] - a[0]);
    const heading = document.createElement("h1");
    heading.textContent = found.length === 1 ? "1 place" : found.length + " places";
    results.append(heading);
    for (const [, entry] of found.slice(0, MOST)) {
      const p = document.createElement("p");
      const a = document.createElement("a");
      a.href = root + entry.row[1];
      a.textContent = entry.row[0];
      a.addEventListener("click", () => { input.value = ""; show(); });
      const where = document.createElement("span");
      where.className = "where";
      where.textContent = entry.row[2];
      const text = document.createElement("span");
      text.className = "text";
      text.textContent = excerpt(entry, words);
      p.append(a, where, text);
      results.append(p);
    }
  }

  input.addEventListener("input", show);
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && document.activeElement !== input) {
      event.preventDefault();
      input.focus();
    } else if (event.key === "Escape" && document.activeElement === input) {
      input.value = "";
      show();
    } else if (event.key === "Enter" && document.activeElement === input) {
      const first = results.querySelector("a");
      if (first) first.click();
    }
  });
  const asked = new URLSearchParams(location.search).get("q");
  if (asked) {
    input.value = asked;
    show();
  }
})();
