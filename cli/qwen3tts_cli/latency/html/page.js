"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const narrow = matchMedia("(max-width: 760px)");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const config = { displayModeBar: false, displaylogo: false, responsive: true, doubleClick: "reset" };
  const logarithmic = new Set();

  // --- plots: colours are names of the theme, so a change of theme redraws them.

  function coloured(value, style) {
    if (typeof value === "string" && value.startsWith("@")) return style.getPropertyValue("--" + value.slice(1)).trim();
    if (Array.isArray(value)) return typeof value[0] === "number" ? value : value.map((each) => coloured(each, style));
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, coloured(each, style)]));
    }
    return value;
  }

  function draw(id, figure) {
    const place = document.getElementById(id);
    if (!place || !figure) return;
    const style = getComputedStyle(root);
    const made = coloured(figure, style);
    const layout = made.layout;
    const muted = coloured("@muted", style);
    Object.assign(layout, {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", autosize: true,
      dragmode: narrow.matches ? false : "zoom",
      font: { family: getComputedStyle(document.body).fontFamily, size: narrow.matches ? 11 : 12.5, color: muted },
      hoverlabel: { bgcolor: coloured("@ink", style), font: { color: coloured("@surface", style) }, bordercolor: "rgba(0,0,0,0)" },
    });
    for (const axis of ["xaxis", "yaxis", "yaxis2"]) {
      if (layout[axis]) layout[axis] = { zerolinecolor: coloured("@grid", style), linecolor: coloured("@grid", style), ...layout[axis] };
    }
    if (narrow.matches) narrowed(layout);
    if (logarithmic.has(id)) layout.xaxis = { ...layout.xaxis, type: "log", rangemode: "normal", dtick: 1 };
    window.Plotly.react(place, made.data, layout, config);
  }

  // Long names in two lines, few numbers: else nothing is left of a narrow plot.
  function narrowed(layout) {
    if (!layout.yaxis || !layout.yaxis.categoryarray) return;
    const names = layout.yaxis.categoryarray;
    layout.yaxis = { ...layout.yaxis, tickmode: "array", tickvals: names, ticktext: names.map(inTwoLines) };
    const title = layout.xaxis.title.text.split(":")[0];
    layout.xaxis = { ...layout.xaxis, nticks: 4, tickangle: 0, title: { text: title } };
  }

  function inTwoLines(name) {
    if (name.length <= 16) return name;
    let best = -1;
    for (let at = name.indexOf(" "); at >= 0; at = name.indexOf(" ", at + 1)) {
      if (best < 0 || Math.abs(at - name.length / 2) < Math.abs(best - name.length / 2)) best = at;
    }
    return best < 0 ? name : name.slice(0, best) + "<br>" + name.slice(best + 1);
  }

  function within() {
    const name = document.getElementById("quantity").value;
    const lines = data.quantities[name] || [];
    const shown = lines.length > 1
      ? [["before", lines[1], "@faint", "dash"], ["after", lines[0], "@accent", "solid"]]
      : [["share", lines[0], "@accent", "solid"]];
    return {
      data: shown.filter(([, values]) => values && values.length).map(([label, values, color, dash]) => ({
        type: "scatter", mode: "lines", name: label, x: values, y: data.grid,
        line: { color, width: 2.5, dash, shape: "hv" },
        hovertemplate: "%{y:.1f} % within %{x:.4~g} ms<extra>" + (lines.length > 1 ? label : "") + "</extra>",
        showlegend: lines.length > 1,
      })),
      layout: {
        height: 300, hovermode: "closest", margin: { l: 56, r: 16, t: 12, b: 46 },
        xaxis: { title: { text: "ms" }, rangemode: "tozero", gridcolor: "@grid" },
        yaxis: { title: { text: "% of utterances" }, range: [0, 101], gridcolor: "@grid" },
        legend: { x: 1, y: 0.04, xanchor: "right", yanchor: "bottom" },
      },
    };
  }

  function drawAll() {
    for (const [id, figure] of Object.entries(data.plots)) draw(id, figure);
    if (Object.keys(data.quantities).length) draw("within", within());
  }

  function quantities() {
    const choice = document.getElementById("quantity");
    const pick = choice.closest(".pick");
    const names = Object.keys(data.quantities);
    if (!names.length) { pick.hidden = true; return; }
    for (const name of names) choice.add(new Option(name, name));
    choice.addEventListener("change", () => draw("within", within()));
    const label = element("label", "check");
    const box = element("input");
    box.type = "checkbox";
    label.append(box, "logarithmic");
    pick.append(label);
    box.addEventListener("change", () => {
      for (const id of ["spread", "within"]) box.checked ? logarithmic.add(id) : logarithmic.delete(id);
      drawAll();
    });
  }

  function themes() {
    const button = document.getElementById("theme");
    const order = ["auto", "light", "dark"];
    let now = 0;
    const show = () => {
      if (now) root.dataset.theme = order[now]; else delete root.dataset.theme;
      button.textContent = "Theme: " + order[now];
      drawAll();
    };
    button.hidden = false;
    button.addEventListener("click", () => { now = (now + 1) % order.length; show(); });
    dark.addEventListener("change", drawAll);
    narrow.addEventListener("change", drawAll);
    show();
  }

  // --- who is slow: tabs

  function tabs() {
    const all = [...document.querySelectorAll("[role=tab]")];
    const choose = (tab) => {
      for (const each of all) {
        const chosen = each === tab;
        each.setAttribute("aria-selected", String(chosen));
        each.tabIndex = chosen ? 0 : -1;
        document.getElementById(each.getAttribute("aria-controls")).hidden = !chosen;
      }
    };
    all.forEach((tab, place) => {
      tab.addEventListener("click", () => choose(tab));
      tab.addEventListener("keydown", (event) => {
        const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (!step) return;
        const next = all[(place + step + all.length) % all.length];
        choose(next);
        next.focus();
        event.preventDefault();
      });
    });
  }

  // --- utterances, one by one. Names come from logs: they are only ever set as text.

  function element(tag, className, text) {
    const made = document.createElement(tag);
    if (className) made.className = className;
    if (text !== undefined) made.textContent = text;
    return made;
  }

  // The names of calls are long and random; the number of the utterance must be seen.
  function shortened(name) {
    const cut = name.lastIndexOf("/");
    return name.length <= 26 || cut < 12 ? name : name.slice(0, 10) + "…" + name.slice(cut);
  }

  function number(value) {
    if (value === null || value === undefined) return "–";
    if (!value) return "0";
    const size = Math.abs(value);
    return value.toFixed(size >= 99.95 ? 0 : size >= 0.995 ? 1 : 2).replace("-", "−");
  }

  function waited(utterance) {
    if (utterance.group === "Longest gaps") return number(utterance.longest_gap) + " ms gap";
    return utterance.total === null ? "no sound" : number(utterance.total) + " ms";
  }

  const wayOf = (utterance) => Math.max(0, ...utterance.hops.map((hop) => hop.to - utterance.start));

  function chooser() {
    const list = document.getElementById("chooser");
    if (!list) return;
    const longest = Math.max(...data.utterances.map(wayOf)) || 1;
    const items = [];
    let group = "";
    data.utterances.forEach((utterance, place) => {
      if (utterance.group !== group) {
        group = utterance.group;
        const heading = element("div", "group", group);
        heading.setAttribute("role", "presentation");
        list.append(heading);
      }
      const item = element("div", "item");
      item.id = "item-" + place;
      item.setAttribute("role", "option");
      item.title = utterance.id;
      const row = element("div", "row");
      row.append(element("span", "", shortened(utterance.id) || "(no name)"), element("span", "", waited(utterance)));
      const thumb = element("div", "thumb");
      thumb.setAttribute("aria-hidden", "true");
      for (const hop of utterance.hops) {
        const piece = element("div", "piece " + hop.side);
        piece.style.width = Math.max(0, (hop.to - hop.from) / longest) * 100 + "%";
        thumb.append(piece);
      }
      item.append(row, thumb);
      item.addEventListener("click", () => choose(place));
      list.append(item);
      items.push(item);
    });
    let chosen = 0;
    const choose = (place) => {
      chosen = Math.min(items.length - 1, Math.max(0, place));
      items.forEach((item, at) => item.setAttribute("aria-selected", String(at === chosen)));
      list.setAttribute("aria-activedescendant", items[chosen].id);
      const item = items[chosen];
      if (item.offsetTop < list.scrollTop) list.scrollTop = item.offsetTop - 30;
      const under = item.offsetTop + item.offsetHeight - list.clientHeight;
      if (under > list.scrollTop) list.scrollTop = under + 8;
      show(data.utterances[chosen]);
    };
    list.addEventListener("keydown", (event) => {
      const next = { ArrowDown: chosen + 1, ArrowUp: chosen - 1, Home: 0, End: items.length - 1 }[event.key];
      if (next === undefined) return;
      choose(next);
      event.preventDefault();
    });
    choose(0);
  }

  function show(utterance) {
    const place = document.getElementById("fall");
    place.replaceChildren(element("h3", "", utterance.id || "(no name)"));
    const about = element("p", "about");
    for (const [name, value] of utterance.about) {
      const pair = element("span", "", name + " ");
      pair.append(element("b", "", value));
      about.append(pair);
    }
    if (utterance.gaps) about.append(element("span", "warn", utterance.gaps + (utterance.gaps === 1 ? " gap" : " gaps") + ", longest " + number(utterance.longest_gap) + " ms"));
    if (utterance.clock) about.append(element("span", "", "clocks ±" + number(utterance.clock) + " ms"));
    place.append(about);
    if (utterance.text !== undefined) place.append(element("p", "said", utterance.text));
    if (!utterance.hops.length) place.append(element("p", "muted", "It has no hop: it ended before anything could be measured."));
    const length = wayOf(utterance) || 1;
    const percent = (at) => Math.min(100, Math.max(0, ((at - utterance.start) / length) * 100));
    for (const hop of utterance.hops) {
      const row = element("div", "fall-row");
      const name = element("span", "", hop.name);
      name.title = hop.marks;
      const track = element("div", "track");
      const from = Math.min(hop.from, hop.to);
      const piece = element("div", "piece " + hop.side);
      piece.style.left = Math.min(percent(from), 99.5) + "%";
      piece.style.width = percent(Math.max(hop.from, hop.to)) - percent(from) + "%";
      const crosses = hop.server[0] !== hop.server[1];
      if (crosses && utterance.clock) {
        const at = hop.server[0] ? hop.from : hop.to;
        const rim = element("div", "rim");
        rim.style.left = percent(at - utterance.clock) + "%";
        rim.style.width = percent(at + utterance.clock) - percent(at - utterance.clock) + "%";
        track.append(rim);
      }
      track.append(piece);
      const took = element("span", "ms", number(hop.to - hop.from));
      if (crosses && utterance.clock) took.append(element("small", "", " ±" + number(utterance.clock)));
      took.append(element("small", "", " ms"));
      row.append(name, track, took);
      place.append(row);
    }
    if (utterance.hops.length) {
      const row = element("div", "fall-row axis-row");
      const axis = element("div", "axis");
      axis.append(element("span", "", "0"), element("span", "", number(length / 2)), element("span", "", number(length) + " ms"));
      row.append(element("span"), axis, element("span"));
      place.append(row);
    }
    const later = element("ul", "later");
    for (const each of utterance.later) {
      const line = element("li");
      line.append(element("b", "", number(each.at - utterance.start) + " ms"), " " + each.name);
      later.append(line);
    }
    for (const each of utterance.wrong) later.append(element("li", "warn", each));
    if (later.children.length) place.append(later);
  }

  quantities();
  tabs();
  chooser();
  themes();
  root.dataset.ready = "yes";
})();
