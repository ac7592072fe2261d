// Put into every page of the tests: what somebody with eyes, a thumb or a screen reader would trip over.
(() => {
  const CONTROLS = "button, input, select, textarea, summary, a[href], [tabindex='0']";
  const BOXES = "[type=checkbox], [type=radio], [type=file]"; // one aims at their labels
  const shown = (each) => each.checkVisibility({ visibilityProperty: true, opacityProperty: true });

  const pen = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  // Any CSS colour as red, green, blue and alpha, 0 to 255.
  function rgba(colour) {
    pen.clearRect(0, 0, 1, 1);
    pen.fillStyle = colour;
    pen.fillRect(0, 0, 1, 1);
    return [...pen.getImageData(0, 0, 1, 1).data];
  }
  function ground(node) {
    for (let each = node; each; each = each.parentElement) {
      const style = getComputedStyle(each);
      if (style.backgroundImage !== "none") return null;
      const colour = rgba(style.backgroundColor);
      if (colour[3] === 255) return colour;
    }
    return rgba("Canvas");
  }
  // Relative luminance and contrast as in WCAG 2.2.
  function luminance([red, green, blue]) {
    const [r, g, b] = [red, green, blue]
      .map((each) => each / 255)
      .map((each) => (each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  }
  function contrast(one, two) {
    const [a, b] = [luminance(one), luminance(two)];
    return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  }

  window.testEyes = {
    // Controls that a screen reader cannot name.
    nameless: () =>
      [...document.querySelectorAll(CONTROLS)]
        .filter(shown)
        .filter((each) => !(each.innerText?.trim() || each.labels?.length || each.ariaLabel || each.title))
        .filter((each) => !each.getAttribute("aria-labelledby"))
        .map((each) => each.outerHTML),
    // Controls that a thumb misses: below 24 CSS pixels (WCAG 2.2, 2.5.8), buttons below 44.
    small: () =>
      [...document.querySelectorAll(CONTROLS)]
        .filter(shown)
        .map((each) => [each, (each.matches(BOXES) && each.labels[0] ? each.labels[0] : each).getBoundingClientRect()])
        .filter(([, box]) => box.width > 1 && box.height > 1)
        .filter(([each, box]) => Math.min(box.width, box.height) < (each.matches("button") ? 43.5 : 23.5))
        .map(([each, box]) => `${each.id || each.outerHTML}: ${box.width} x ${box.height}`),
    // Texts with less contrast than WCAG 2.2 AA asks for (4.5; 3 for large ones).
    poor: () =>
      [...document.querySelectorAll("body *")]
        .filter((each) => [...each.childNodes].some((node) => node.nodeType === 3 && node.data.trim()))
        .filter((each) => shown(each) && !each.matches(":disabled, :disabled *"))
        .filter((each) => each.getBoundingClientRect().width > 1)
        .flatMap((each) => {
          const style = getComputedStyle(each);
          const under = ground(each);
          if (!under) return [];
          const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.6 && style.fontWeight >= 700);
          const ratio = contrast(rgba(style.color), under);
          return ratio < (large ? 3 : 4.5) ? [`${each.tagName}#${each.id} ${each.textContent.trim()}: ${ratio}`] : [];
        }),
    // CSS pixels by which the page is wider than its window.
    overflow: () => document.documentElement.scrollWidth - window.innerWidth,
    // What moves by itself.
    moving: () =>
      document
        .getAnimations()
        .filter((each) => each.playState === "running" && each.effect.getComputedTiming().activeDuration > 10)
        .map((each) => each.animationName ?? each.transitionProperty),
    // Whether one sees which element has the focus.
    focusSeen: () => {
      const style = getComputedStyle(document.activeElement);
      return style.outlineStyle !== "none" || style.boxShadow !== "none";
    },
    focused: () => document.activeElement.id || document.activeElement.tagName,
  };
})();
