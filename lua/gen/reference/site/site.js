// Search over SEARCH_INDEX (rows of title, address, page, text, topic). SEARCH_WORDS has the words that mean the same. Ranks as
// lua/help/search.lua does, whose comments explain the rules.
const SEARCH = (function () {
  "use strict";
  const groupOf = new Map();
  for (const group of SEARCH_WORDS.groups) for (const form of group) groupOf.set(form, group);
  const ignored = new Set(SEARCH_WORDS.ignored);
  const rows = SEARCH_INDEX.map((r) => ({ row: r, title: r[0].toLowerCase(), page: r[2].toLowerCase(), text: r[3].toLowerCase() }));
  const isWord = (c) => c !== undefined && /[a-z0-9]/.test(c);

  function occurs(text, phrase) {
    let best = 0;
    for (let at = text.indexOf(phrase); at >= 0; at = text.indexOf(phrase, at + 1)) {
      const begins = !isWord(text[at - 1]), ends = !isWord(text[at + phrase.length]);
      best = Math.max(best, begins && ends ? 3 : begins ? 2 : 1);
      if (best === 3) break;
    }
    return best;
  }

  const TITLE = [0, 6, 14, 24], TEXT = [0, 0, 3, 6];

  function scorePart(entry, part) {
    let best = 0;
    part.forEach((form, i) => {
      const inTitle = occurs(entry.title, form);
      let sum = TITLE[inTitle] + TEXT[occurs(entry.text, form)];
      if (inTitle === 0 && occurs(entry.page, form) === 3) sum += 4;
      if (sum > 0) best = Math.max(best, i === 0 ? sum : sum * 0.7);
    });
    return best;
  }

  function score(entry, parts, whole) {
    let sum = 0, n = 0;
    for (const part of parts) {
      const s = scorePart(entry, part);
      if (s > 0) { sum += s; n += 1; }
    }
    if (n === 0) return [0, 0];
    if (parts.length > 1 && entry.title.includes(whole)) sum += 30;
    else if (parts.length > 1 && entry.text.includes(whole)) sum += 10;
    const last = entry.title.split(/[.:]/).pop() || entry.title;
    if (entry.title === whole || last === whole) sum += 40;
    if (entry.page.startsWith("guide ") || entry.page === "examples") sum += 8;
    if (entry.page === "embed" || entry.page === "configurations") sum -= 10;
    if (entry.title.includes(":")) sum -= 4;
    return [Math.max(sum, 1) - entry.title.length / 100, n];
  }

  function partsOf(query) {
    const words = query.split(/[\s,;?!]+/).filter(Boolean), parts = [];
    for (let i = 0; i < words.length;) {
      let form = words[i], n = 1;
      for (let k = Math.min(3, words.length - i); k >= 2; k--) {
        const phrase = words.slice(i, i + k).join(" ");
        if (groupOf.has(phrase)) { form = phrase; n = k; break; }
      }
      if (!ignored.has(form) || words.length === 1) parts.push([form, ...(groupOf.get(form) || []).filter((f) => f !== form)]);
      i += n;
    }
    return parts;
  }

  // Rows for a query, the best first: those with all of its parts, or, where there is none, with some.
  function find(query) {
    const whole = query.trim().toLowerCase(), parts = partsOf(whole), found = [];
    let most = 0;
    rows.forEach((entry, at) => {
      const [s, n] = score(entry, parts, whole);
      if (n > 0) found.push({ entry, s, n, at });
      most = Math.max(most, n);
    });
    found.sort((a, b) => b.n - a.n || b.s - a.s || a.at - b.at);
    return { parts, found: found.filter((f) => f.n === parts.length || most < parts.length).map((f) => f.entry) };
  }
  return { find };
})();

if (typeof document !== "undefined") (function () {
  "use strict";
  const MOST = 40;
  const root = document.body.dataset.root;
  const input = document.getElementById("search");
  const results = document.getElementById("results");
  const article = document.querySelector("article");

  function excerpt(entry, words) {
    const places = words.map((w) => entry.text.indexOf(w)).filter((at) => at >= 0);
    const at = places.length > 0 ? Math.max(0, Math.min(...places) - 60) : 0;
    const text = entry.row[3].slice(at, at + 200);
    return (at > 0 ? "... " : "") + text + (entry.row[3].length > at + 200 ? " ..." : "");
  }

  function show() {
    const query = input.value.trim();
    results.hidden = query === "";
    article.hidden = query !== "";
    results.textContent = "";
    if (query === "") return;
    const { parts, found } = SEARCH.find(query);
    const words = parts.flat();
    const heading = document.createElement("h1");
    heading.textContent = found.length === 1 ? "1 place" : found.length + " places";
    results.append(heading);
    for (const entry of found.slice(0, MOST)) {
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
